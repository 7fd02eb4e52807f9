"""Builds packets as §6.1 says: splits values, orders fields, and adds HMAC and signature.

Every packet is scanned again before it is returned, so that no receiver drops it for its form. The caller supplies ids and times.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.errors import LocalProtocolError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.messages import (
    HEADER,
    LONGEST_FIELD,
    TAIL,
    Event,
    EventType,
    Field,
    FieldType,
    Heartbeat,
    Hello,
    Message,
    Other,
)
from wirelake.protocols.event_mesh.packet.values import split
from wirelake.protocols.event_mesh.scanner import PART_COLUMNS, ROW_COLUMNS, scan
from wirelake.protocols.event_mesh.security.canonical import canonical_payload, mac
from wirelake.protocols.event_mesh.security.trust import SHORTEST_SECRET
from wirelake.protocols.event_mesh.wire import encode, encode_fields
from wirelake.protocols.kernel import FAULT, FAULT_AT, active, array, table

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["Credentials", "build", "left", "ordered", "public_key_of"]

HMAC_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64
SEED_SIZE: Final = 32
_RANKS: Final = {kind.value: 256 + place for place, kind in enumerate(TAIL)}
"""EMM-5: sort keys of the fields of the tail; all others sort by their number."""
_MESSAGES: Final[dict[int, type[Hello | Heartbeat | Event]]] = {
    EventType.HELLO: Hello,
    EventType.HEARTBEAT: Heartbeat,
    EventType.EVENT: Event,
}


class Credentials(msgspec.Struct, frozen=True):
    """The sender's id, and the keys that prove it."""

    node_id: bytes
    auth_key_id: bytes | None = None
    secret: bytes | None = None
    """With it, packets carry an HMAC."""
    seed: bytes | None = None
    """The Ed25519 private key; with it, packets carry a signature."""
    with_public_key: bool = False
    """§6.1: send the public key along, for receivers that may not have it."""

    def __repr__(self) -> str:
        """Keys do not belong into logs."""
        return f"Credentials(node_id={self.node_id.hex()}, hmac={self.secret is not None}, signature={self.seed is not None})"


def ordered(fields: Iterable[Field]) -> list[Field]:
    """EMM-5: split values, and sort fields by type; types of the tail come last in their own order."""
    pieces: list[Field] = []
    for field in fields:
        if len(field.value) < LONGEST_FIELD:
            pieces.append(field)
        else:
            pieces += split(field.type, field.value)
    return sorted(pieces, key=lambda piece: _RANKS.get(piece.type, piece.type))


def left(fields: Iterable[Field], credentials: Credentials | None = None, limits: Limits = DEFAULT_LIMITS) -> int:
    """The bytes of payload left beside these fields and their proofs; less than 0 if they do not fit.

    One more field takes two bytes beside its value, and two more for every 255 bytes of it.
    """
    return limits.max_payload_size - sum(2 + len(field.value) for field in _with_proofs(fields, credentials))


def build(
    event_type: int,
    fields: Iterable[Field],
    credentials: Credentials | None = None,
    *,
    message_id: int,
    timestamp: int,
    flags: int = 0,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """A packet of these fields.

    Raises LocalProtocolError with the fault it would be dropped for, or PAYLOAD_TOO_LARGE (EMM-4).

    `message_id` must be cryptographically random (§2.2). A time of signing other than `timestamp` is a field like any other.
    """
    kept = _with_proofs(fields, credentials)
    unproven = _message(event_type, message_id, timestamp, tuple(kept), flags)
    data = encode(unproven, limits)
    if credentials is not None and (credentials.secret is not None or credentials.seed is not None):
        data = _proven(data, kept, credentials)
    row, parts = table(1, ROW_COLUMNS), table(limits.max_parts, PART_COLUMNS)
    active(scan)(array(data), 0, len(data), row, parts, limits.for_scan())
    if row[FAULT]:
        raise LocalProtocolError(Fault(int(row[FAULT])), f"at byte {row[FAULT_AT]} of what was to be sent")
    return data


def _message(event_type: int, message_id: int, timestamp: int, fields: tuple[Field, ...], flags: int) -> Message:
    if event_type in _MESSAGES:
        return _MESSAGES[event_type](message_id, timestamp, fields, flags)
    return Other(event_type, message_id, timestamp, fields, flags)


def _with_proofs(fields: Iterable[Field], credentials: Credentials | None) -> list[Field]:
    """The fields in order, with space for their proofs."""
    kept = list(fields)
    for field in kept:
        if field.type in (FieldType.HMAC, FieldType.SIGNATURE):
            raise LocalProtocolError(Fault.DUPLICATE_TLV, "HMAC and signature are made here: give credentials")
    if credentials is not None:
        if credentials.secret is not None and len(credentials.secret) < SHORTEST_SECRET:  # EMM-32
            raise LocalProtocolError(Fault.WEAK_KEY, f"a secret of {len(credentials.secret)} bytes, {SHORTEST_SECRET} are the least")
        kept.append(Field(FieldType.NODE_ID, credentials.node_id))
        if credentials.auth_key_id is not None:
            kept.append(Field(FieldType.AUTH_KEY_ID, credentials.auth_key_id))
        if credentials.seed is not None and credentials.with_public_key:
            kept.append(Field(FieldType.PUBLIC_KEY, public_key_of(credentials.seed)))
        if credentials.secret is not None:
            kept.append(Field(FieldType.HMAC, bytes(HMAC_SIZE)))
        if credentials.seed is not None:
            kept.append(Field(FieldType.SIGNATURE, bytes(SIGNATURE_SIZE)))
    return ordered(kept)


def _proven(data: bytes, kept: list[Field], credentials: Credentials) -> bytes:
    """EMM-27: HMAC and signature, the last fields, cover the same bytes, and neither the other."""
    proofs = (credentials.secret is not None) + (credentials.seed is not None)
    types = [field.type for field in kept[:-proofs]]
    plain = data[: len(data) - sum(2 + len(field.value) for field in kept[-proofs:])]
    # EMM-7: the length in the header counts HMAC and signature already. Most packets are canonical as they stand.
    in_order = types == sorted(types) and FieldType.ENCRYPTION not in types
    covered = plain if in_order else data[:HEADER] + canonical_payload(kept)
    made = []
    if credentials.secret is not None:
        made.append(Field(FieldType.HMAC, mac(credentials.secret, covered)))
    if credentials.seed is not None:
        made.append(Field(FieldType.SIGNATURE, _private_key(credentials.seed).sign(covered)))
    return plain + encode_fields(made)


def public_key_of(seed: bytes) -> bytes:
    """The Ed25519 public key that belongs to a private one."""
    return _private_key(seed).public_key().public_bytes_raw()


@lru_cache(maxsize=64)
def _private_key(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - only who signs pays for it

    if len(seed) != SEED_SIZE:
        raise LocalProtocolError(Fault.FIELD_LENGTH, f"an Ed25519 private key has {SEED_SIZE} bytes")
    return ed25519.Ed25519PrivateKey.from_private_bytes(seed)
