"""Event Mesh: which broken rules are threats, and which a lake cannot find."""

from __future__ import annotations

from typing import Final

from wirelake.lake.tables.threats import Threat
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.faults import Faults

__all__ = ["BY_KEYS", "THREATS", "UNSEEN"]

THREATS: Final[dict[Faults, Threat]] = {
    **dict.fromkeys((Fault.HMAC_MISMATCH, Fault.SIGNATURE_MISMATCH, Fault.DECRYPTION_FAILED), Threat.FORGED),
    **dict.fromkeys((Fault.UNKNOWN_KEY, Fault.REVOKED_KEY, Fault.WEAK_KEY, Fault.UNTRUSTED_KEY, Fault.KEY_MISMATCH), Threat.UNTRUSTED),
    Fault.REPLAY: Threat.REPLAYED,
    **dict.fromkeys((Fault.STALE, Fault.FUTURE), Threat.STALE),
    **dict.fromkeys((Fault.PAYLOAD_TOO_LARGE, Fault.TLV_COUNT, Fault.INFLATED_OVER_LIMIT), Threat.BOMB),
}
"""§5, §6: faults of proofs, time, repetition and size; a packet with any other fault is malformed."""

BY_KEYS: Final = frozenset(fault for fault in Fault if Fault.UNKNOWN_KEY <= fault <= Fault.REPLAY)
"""§5, EMM-18 to EMM-25: faults of readable packets found with keys, time and repetition.

`tables/security.py` finds them.
"""

UNSEEN: Final[dict[Faults, str]] = {
    **dict.fromkeys((Fault.PROFILE_FIELD_MISSING, Fault.PROFILE_ORDER), "found only if the limit `minimum_profile` is set"),
    Fault.NOT_AUTHENTICATED: "which packets need a proof is the receiver's own policy",
    Fault.REPLAY_CACHE_FULL: "the size of a replay cache is its receiver's own setting; the lake has no such limit",
    **dict.fromkeys(
        (Fault.UNDECRYPTABLE, Fault.DECRYPTION_FAILED, Fault.SECURITY_FIELD_SEALED),
        "the lake has no encryption keys and does not decrypt payloads",
    ),
    **dict.fromkeys(
        (Fault.SEALED_CARRIAGE, Fault.DEFLATE_INVALID, Fault.INFLATED_OVER_LIMIT),
        "how a sealed or packed payload travels is a profile that applications may leave; nothing on the wire says that they keep it",
    ),
    Fault.FIELD_OUT_OF_RANGE: "refused before anything is sent",
    Fault.REKEY_NEEDED: "refused before anything is sent",
    Fault.QUEUE_FULL: "refused before anything is sent",
}
"""What history cannot tell, and why."""
