"""The texts of rules: where a violation gets its clause, severity, origin and text.

Pure data, from the protocols' faults.
"""

from __future__ import annotations

from typing import Final

from wirelake import protocols
from wirelake.protocols.faults import Faults

__all__ = ["FAULTS", "rules", "threats"]

FAULTS: Final[dict[str, type[Faults]]] = {name: protocols.get(name).faults for name in protocols.names()}
"""Protocol -> every rule that can be broken."""


def rules() -> dict[str, dict[str, str | bool]]:
    """Return for every rule, by `protocol/rule`: clause, severity, origin, text, and if it ends a session."""
    return {
        f"{protocol}/{fault.name}": {
            "clause": fault.clause,
            "severity": fault.severity.label,
            "origin": str(fault.origin),
            "text": fault.text,
            "ends": not fault.is_tolerated,
        }
        for protocol, faults in FAULTS.items()
        for fault in faults
    }


def threats() -> dict[str, str]:
    """Return `protocol/rule` -> threat, for every rule that is one."""
    return {
        f"{protocol}/{fault.name}": fault.rule.threat.value
        for protocol, faults in FAULTS.items()
        for fault in faults
        if fault.rule.threat is not None
    }
