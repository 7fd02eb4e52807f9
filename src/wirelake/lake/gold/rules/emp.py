"""EMP: which broken rules are threats, and which a lake cannot find."""

from __future__ import annotations

from typing import Final

from wirelake.lake.tables.threats import Threat
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.faults import Faults

__all__ = ["THREATS", "UNSEEN"]

THREATS: Final[dict[Faults, Threat]] = dict.fromkeys(
    (Fault.SIZE_OVER_LIMIT, Fault.BLOCKS_OVER_LIMIT, Fault.COMPRESSION_NESTED, Fault.INFLATED_OVER_LIMIT), Threat.BOMB
)
"""EMP-35, EMP-36, EMP-8, EMP-37: what endangers a receiver."""

UNSEEN: Final[dict[Faults, str]] = {
    Fault.TYPE_UNREGISTERED: "which types an application handles is not on the wire",
    Fault.EXTENSION_REFUSED: "what an application's extension refuses is not on the wire",
    Fault.REQUEST_UNHANDLED: "whether a peer answers requests is not on the wire; to send one breaks no rule",
    Fault.HANDLER_FAILED: "a failure of the application that was asked; no message breaks a rule",
    Fault.IDENTIFIERS_EXHAUSTED: "refused before anything is sent",
    Fault.FIELD_OUT_OF_RANGE: "refused before anything is sent",
    Fault.RESPONSE_LATE: "the timeout of a request is its sender's own setting; `exchanges` shows late answers",
}
"""What history cannot tell, and why."""
