"""Registry: per protocol the state machine, the faults, and the guards over history.

`violations` and `sessions` need them. State machine, faults and kind of session come from the protocol's descriptor. A protocol without an
entry here, as one of another package, is judged by those alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from wirelake import protocols
from wirelake.lake.gold.rules import emp as emp_rules
from wirelake.lake.gold.rules import engine
from wirelake.lake.gold.rules import event_mesh as event_mesh_rules
from wirelake.lake.gold.rules import relink as relink_rules
from wirelake.lake.gold.rules import wolpertinger as wolpertinger_rules
from wirelake.lake.gold.rules import yamp as yamp_rules
from wirelake.lake.tables.rules import Judged
from wirelake.lake.tables.security import Threat
from wirelake.protocols.faults import Faults
from wirelake.protocols.protocol import SessionKind, StateMachine

__all__ = ["LINK", "NODE", "RULES", "SESSION_IS", "SILENCE", "WITHOUT_HANDSHAKE", "ProtocolRules", "threats"]


class ProtocolRules(NamedTuple):
    """The rules of one protocol, as the lake applies them."""

    state_machine: StateMachine
    """Which message each side may send in which state."""
    faults: Iterable[Judged]
    """Every rule, with `clause`, `text`, `severity` and `origin`."""
    by_fields: Callable[[DataFrame], DataFrame]
    """The protocol's table -> findings that depend on one message only."""
    guards: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]]
    """messages, paired, session_facts -> findings that depend on history."""
    greetings: Callable[[DataFrame], DataFrame]
    """The protocol's table -> per session `client_version`, `server_version`, `accepted`, `error_code`."""
    session: SessionKind = SessionKind.CONNECTION
    """What a session is."""
    silence: float | None = None
    """Seconds without a message after which a session counts as silent.

    None: only the end of its connection counts.
    """
    by_history: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]] | None = None
    """The protocol's table, paired, session_facts -> findings that depend on history and on the protocol's own columns."""
    threats: Mapping[Faults, Threat] = MappingProxyType({})
    """Fault -> the threat it is; faults that are none are left out."""
    unseen: Mapping[Faults, str] = MappingProxyType({})
    """Fault -> why the lake cannot find it. All others are in `violations` or, where keys are needed, in `security`."""
    by_keys: Collection[Faults] = ()
    """Faults that are only in `security`, because they need keys."""
    has_handshake: bool = True
    """Whether sessions begin with a handshake and end with an error.

    Else an error is a message like any other.
    """


NODE: Final = SessionKind.NODE
LINK: Final = SessionKind.LINK


class _Rules(NamedTuple):
    """What the SQL rules of a protocol add to its descriptor; see `ProtocolRules`."""

    by_fields: Callable[[DataFrame], DataFrame]
    guards: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]]
    greetings: Callable[[DataFrame], DataFrame]
    silence: float | None = None
    by_history: Callable[[DataFrame, DataFrame, DataFrame], list[DataFrame]] | None = None
    threats: Mapping[Faults, Threat] = MappingProxyType({})
    unseen: Mapping[Faults, str] = MappingProxyType({})
    by_keys: Collection[Faults] = ()


def _no_guards(_messages: DataFrame, _paired: DataFrame, _session_facts: DataFrame) -> list[DataFrame]:
    return []


def _rules_of(name: str) -> ProtocolRules:
    protocol = protocols.get(name)
    rules = _RULES.get(name) or _Rules(engine.no_findings, _no_guards, engine.default_greetings)
    return ProtocolRules(
        protocol.state_machine, protocol.faults, session=protocol.session_kind, has_handshake=protocol.has_handshake, **rules._asdict()
    )


_RULES: Final = {
    "emp": _Rules(
        emp_rules.by_fields,
        emp_rules.guards,
        emp_rules.greetings,
        threats=emp_rules.THREATS,
        unseen=emp_rules.UNSEEN,
    ),
    "event_mesh": _Rules(
        event_mesh_rules.by_fields,
        event_mesh_rules.guards,
        event_mesh_rules.greetings,
        event_mesh_rules.SILENCE_SECONDS,
        threats=event_mesh_rules.THREATS,
        unseen=event_mesh_rules.UNSEEN,
        by_keys=event_mesh_rules.BY_KEYS,
    ),
    "relink": _Rules(
        relink_rules.by_fields,
        relink_rules.guards,
        relink_rules.greetings,
        by_history=relink_rules.by_history,
        threats=relink_rules.THREATS,
        unseen=relink_rules.UNSEEN,
    ),
    "yamp": _Rules(
        yamp_rules.by_fields,
        yamp_rules.guards,
        yamp_rules.greetings,
        by_history=yamp_rules.by_history,
        threats=yamp_rules.THREATS,
        unseen=yamp_rules.UNSEEN,
    ),
    "wolpertinger": _Rules(
        wolpertinger_rules.by_fields,
        wolpertinger_rules.guards,
        wolpertinger_rules.greetings,
        by_history=wolpertinger_rules.by_history,
        threats=wolpertinger_rules.THREATS,
        unseen=wolpertinger_rules.UNSEEN,
    ),
}
"""Protocol -> its SQL rules."""

RULES: Final = {name: _rules_of(name) for name in protocols.names()}
"""Protocol, which is also the name of its table -> how the lake judges it."""

SESSION_IS: Final = {name: entry.session for name, entry in RULES.items()}
"""Protocol -> what its sessions are."""

WITHOUT_HANDSHAKE: Final = tuple(name for name, entry in RULES.items() if not entry.has_handshake)
"""Protocols without handshake and closing message."""

SILENCE: Final = {name: entry.silence for name, entry in RULES.items() if entry.silence is not None}
"""Protocol -> seconds without a message after which a session is silent."""


def threats() -> dict[str, str]:
    """Return `protocol/rule` -> threat, for every rule that is one."""
    return {f"{protocol}/{fault.name}": threat.value for protocol, entry in RULES.items() for fault, threat in entry.threats.items()}
