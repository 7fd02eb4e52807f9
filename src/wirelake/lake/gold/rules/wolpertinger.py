"""Wolpertinger: which broken rules are threats, and which a lake cannot find."""

from __future__ import annotations

from typing import Final

from wirelake.lake.tables.threats import Threat
from wirelake.protocols.faults import Faults
from wirelake.protocols.wolpertinger.faults import Fault

__all__ = ["THREATS", "UNSEEN"]

THREATS: Final[dict[Faults, Threat]] = {
    Fault.TEXT_OVER_LIMIT: Threat.BOMB,
    Fault.FRAGMENTS_OVER_LIMIT: Threat.BOMB,
    Fault.INFLATED_OVER_LIMIT: Threat.BOMB,
    Fault.DOCUMENT_OVER_LIMIT: Threat.BOMB,
    Fault.DOCTYPE_REFUSED: Threat.BOMB,
    Fault.CLEAR_WHEN_ENCRYPTED: Threat.DOWNGRADE,
    Fault.ENCRYPTED_TOO_SOON: Threat.FORGED,
    Fault.ENCRYPTION_FAILED: Threat.FORGED,
    Fault.SIGNATURE_REFUSED: Threat.UNTRUSTED,
}
"""WOLP-29, WOLP-17, WOLP-22, WOLP-8, WOLP-5: what endangers a receiver or its secrets.

Nothing protects integrity here (WOLP-8).
"""

UNSEEN: Final[dict[Faults, str]] = {
    Fault.CALLS_OVER_LIMIT: "the limit of a callee is its own setting, and the calls in flight are not on the wire",
    Fault.TOO_BUSY: "how much waits at a receiver is not on the wire; from outside the message is NOT_CONFIRMED",
    Fault.STEP_OUT_OF_ORDER: "refused before anything is sent; on the wire it is TRUST_TOO_LOW",
    Fault.VALUE_UNSENDABLE: "refused before anything is sent",
    Fault.FIELD_OUT_OF_RANGE: "refused before anything is sent",
    Fault.CLOSED_WITHOUT_WORD: "no message is required before a close; `sessions` shows how each ended",
}
"""What history cannot tell, or the lake does not, and why."""
