"""The part of the scanner for required fields: by event type, flags, proofs and profile.

The profile is the minimum interop profile. The fields of a packet come in as bits.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import EventType, Flag
from wirelake.protocols.event_mesh.packet.layout import NONE, ODD_ORDER
from wirelake.protocols.kernel import kernel

__all__ = [
    "HAS_AUTH_KEY_ID",
    "HAS_BINARY",
    "HAS_FULL",
    "HAS_HMAC",
    "HAS_KEY",
    "HAS_METADATA",
    "HAS_NODE_ID",
    "HAS_SIGNATURE",
    "HAS_STRING",
    "HAS_TIMESTAMP",
    "HIDING",
    "missing",
]

HIDING: Final = Flag.ENCRYPTED.value | Flag.COMPRESSED.value
"""EMM-20: with one of these, data fields are looked for inside."""

# What a packet has, as bits: a security field has that of its place in the scanner's FIXED.
HAS_HMAC: Final = 1 << 0
HAS_METADATA: Final = 1 << 1
HAS_SIGNATURE: Final = 1 << 2
HAS_KEY: Final = 1 << 3
HAS_NODE_ID: Final = 1 << 4
HAS_TIMESTAMP: Final = 1 << 5
HAS_AUTH_KEY_ID: Final = 1 << 8
HAS_STRING: Final = 1 << 9
HAS_BINARY: Final = 1 << 10
HAS_FULL: Final = 1 << 11
"""A piece of 255 bytes."""


@kernel
def missing(kind: int, flags: int, seen: int, odd: int, profile: int) -> int:
    """EMM-12, EMM-19, EMM-20, EMM-31: the first rule that is broken by a field that is not there; or NONE."""
    is_encrypted, has_metadata = flags & Flag.ENCRYPTED.value != 0, seen & HAS_METADATA != 0
    if is_encrypted and not has_metadata:
        return Fault.ENC_METADATA_MISSING.value
    if has_metadata and not is_encrypted:
        return Fault.ENC_FLAG_MISSING.value
    needed = 0
    if kind == EventType.EVENT.value:
        needed = HAS_STRING
    elif kind == EventType.HELLO.value:
        needed = HAS_NODE_ID | HAS_BINARY
    elif kind == EventType.HEARTBEAT.value:
        needed = HAS_NODE_ID | HAS_TIMESTAMP
    if flags & HIDING:
        needed &= ~(HAS_STRING | HAS_BINARY)
    if seen & needed != needed:
        return Fault.MISSING_REQUIRED_FIELD.value
    is_proven = seen & (HAS_HMAC | HAS_SIGNATURE) != 0
    if is_proven and not seen & HAS_NODE_ID:
        return Fault.MISSING_NODE_ID.value
    if profile:
        if not is_proven or not seen & HAS_NODE_ID or not seen & HAS_AUTH_KEY_ID:
            return Fault.PROFILE_FIELD_MISSING.value
        if odd & ODD_ORDER:
            return Fault.PROFILE_ORDER.value
    return NONE
