"""What a lake makes of the rules of each protocol: threats, rules that need keys, and rules it cannot find.

Which rules were broken is found by the protocols' analyzers. A protocol without an entry here, as one of another package, has no threats,
and all its rules may be found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from wirelake import protocols
from wirelake.lake.gold.rules import emp, event_mesh, relink, wolpertinger, yamp
from wirelake.lake.tables.rules import Judged
from wirelake.lake.tables.threats import Threat
from wirelake.protocols.faults import Faults

__all__ = ["RULES", "ProtocolRules", "threats"]


class ProtocolRules(NamedTuple):
    """The rules of one protocol, as the lake reports them."""

    faults: Iterable[Judged]
    """Every rule, with `clause`, `text`, `severity` and `origin`."""
    threats: Mapping[Faults, Threat] = MappingProxyType({})
    """Fault -> the threat it is; faults that are none are left out."""
    unseen: Mapping[Faults, str] = MappingProxyType({})
    """Fault -> why the lake cannot find it. All others are in `violations` or, where keys are needed, in `security`."""
    by_keys: Collection[Faults] = ()
    """Faults that are only in `security`, because they need keys."""


_NOTED: Final[dict[str, tuple[Mapping[Faults, Threat], Mapping[Faults, str], Collection[Faults]]]] = {
    "emp": (emp.THREATS, emp.UNSEEN, ()),
    "event_mesh": (event_mesh.THREATS, event_mesh.UNSEEN, event_mesh.BY_KEYS),
    "relink": (relink.THREATS, relink.UNSEEN, ()),
    "wolpertinger": (wolpertinger.THREATS, wolpertinger.UNSEEN, ()),
    "yamp": (yamp.THREATS, yamp.UNSEEN, ()),
}

RULES: Final = {name: ProtocolRules(protocols.get(name).faults, *_NOTED.get(name, ())) for name in protocols.names()}
"""Protocol -> what the lake makes of its rules."""


def threats() -> dict[str, str]:
    """Return `protocol/rule` -> threat, for every rule that is one."""
    return {f"{protocol}/{fault.name}": threat.value for protocol, entry in RULES.items() for fault, threat in entry.threats.items()}
