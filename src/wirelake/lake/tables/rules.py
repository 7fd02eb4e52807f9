"""The texts of rules: where a violation gets its clause, severity, origin and text.

Pure data, from the protocols' faults.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Protocol

from wirelake import protocols
from wirelake.errors import FaultLike

__all__ = ["FAULTS", "Judged", "rules"]


class Judged(FaultLike, Protocol):
    """A fault of a protocol, as far as the lake uses it."""

    @property
    def severity(self) -> IntEnum: ...

    @property
    def origin(self) -> str: ...

    @property
    def is_tolerated(self) -> bool: ...


FAULTS: Final[dict[str, Iterable[Judged]]] = {name: protocols.get(name).faults for name in protocols.names()}
"""Protocol -> every rule that can be broken."""


def rules() -> dict[str, dict[str, str | bool]]:
    """Return for every rule, by `protocol/rule`: clause, severity, origin, text, and if it ends a session."""
    return {
        f"{protocol}/{fault.name}": {
            "clause": fault.clause,
            "severity": fault.severity.name.lower(),
            "origin": str(fault.origin),
            "text": fault.text,
            "ends": not fault.is_tolerated,
        }
        for protocol, faults in FAULTS.items()
        for fault in faults
    }
