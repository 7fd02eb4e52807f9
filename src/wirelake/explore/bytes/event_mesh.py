"""Fields of Event Mesh packets: header (§2), and type, length and value of each field (§4)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from wirelake.explore.bytes.layout import Flags, Named, Tiling, hex_of, number_be, text_of
from wirelake.protocols.event_mesh.messages import HEADER, LONGEST_FIELD, TYPES, Algorithm, EventType, FieldType, Flag, SubType, name_of
from wirelake.protocols.event_mesh.scanner import (
    ALGORITHM,
    AUTH_KEY_ID,
    ENCRYPTION,
    FLAGS,
    HMAC,
    IV,
    IV_LENGTH,
    KEY_ID,
    NODE_ID,
    NONCE,
    ODDITIES,
    PART_COLUMNS,
    PART_LENGTH,
    PART_PARENT,
    PART_START,
    PART_TYPE,
    PUBLIC_KEY,
    SIGNATURE,
    SIGNED,
    SUB_KEY_ID,
)
from wirelake.protocols.kernel import KIND, LENGTH, PART, PARTS, START

__all__ = ["REST", "lay_out"]

REST: Final = "payload"
"""The name of bytes that are left."""
_FLAGS: Final = Flags(Flag)
_EVENT_TYPE: Final = Named(EventType, form="02x")
_ALGORITHM: Final = Named(Algorithm, form="02x")
_TYPE_NAMES: Final = {number.value: name_of(message) for message, number in TYPES.items()}
_FIELD_NAMES: Final = {one.value: f"0x{one.value:02x} {one.name.lower()}" for one in FieldType}
_SUB_NAMES: Final = {one.value: f"0x{one.value:02x} {one.name.lower()}" for one in SubType}


def _seconds(raw: bytes) -> str:
    """Seconds since 1970."""
    seconds = int.from_bytes(raw, "big")
    try:
        return f"{seconds} ({datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ})"
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _integer(raw: bytes) -> str:
    """§4.1: a signed number."""
    return str(int.from_bytes(raw, "big", signed=True))


def _float(raw: bytes) -> str:
    """§4.1: a floating-point number."""
    return repr(struct.unpack(">f", raw)[0]) if len(raw) == 4 else hex_of(raw)


def _node_id(raw: bytes) -> str:
    """§4.2, 0x14: a UUID."""
    return str(uuid.UUID(bytes=raw)) if len(raw) == 16 else hex_of(raw)


def _time(raw: bytes) -> str:
    """§4.2, 0x15: seconds since 1970."""
    return _seconds(raw) if len(raw) == 8 else hex_of(raw)


_VALUES: Final = {
    FieldType.STRING.value: text_of,
    FieldType.JSON.value: text_of,
    FieldType.INTEGER.value: _integer,
    FieldType.FLOAT.value: _float,
    FieldType.NODE_ID.value: _node_id,
    FieldType.TIMESTAMP.value: _time,
}
"""§4.1, §4.2: how the value of a field is shown, by its type."""
_SUB_VALUES: Final = {SubType.ALGORITHM.value: _ALGORITHM}
"""§4.2.1: the same for fields inside encryption metadata."""


def lay_out(cut: Tiling, data: bytes, row: Sequence[int], parts: Sequence[int]) -> None:
    """Cut a scanned packet into its fields."""
    kind, flags = row[KIND], row[FLAGS]
    cut.put("size", row[LENGTH])
    cut.take("version", 1, number_be)
    cut.take("packet_id", 4, number_be)
    cut.take("flags", 1, _FLAGS)
    cut.put("urgent", flags & Flag.URGENT.value != 0)
    cut.put("encrypted", flags & Flag.ENCRYPTED.value != 0)
    cut.put("compressed", flags & Flag.COMPRESSED.value != 0)
    cut.take("event_type", 1, _EVENT_TYPE)
    cut.put("type_name", _TYPE_NAMES.get(kind, "other"))
    cut.take("timestamp", 8, _seconds)
    cut.take("payload_length", 2, number_be)
    cut.also("payload", row[START] + HEADER, row[LENGTH] - HEADER)
    for index in range(row[PARTS]):
        at = (row[PART] + index) * PART_COLUMNS
        nested = 0
        if index + 1 < row[PARTS]:
            nested = parts[at + PART_COLUMNS + PART_PARENT]
        if parts[at + PART_PARENT]:
            _inner_field(cut, parts[at + PART_START], parts[at + PART_LENGTH], parts[at + PART_TYPE])
        else:
            _field(cut, parts[at + PART_START], parts[at + PART_LENGTH], parts[at + PART_TYPE], index, nested)
    _security(cut, data, row)
    cut.put("oddities", row[ODDITIES])


def _field(cut: Tiling, start: int, length: int, kind: int, index: int, nested: int) -> None:
    """§4: one field; the value of encryption metadata is the fields that follow."""
    name = _FIELD_NAMES.get(kind, f"0x{kind:02x}")
    group = f"field {index}: {name}"
    cut.until("encryption metadata", start)
    cut.take("type", 1, name, group, "fields.type")
    cut.take("length", 1, number_be, group, "fields.length")
    if kind == FieldType.ENCRYPTION.value and nested:
        cut.also("fields.value", start + 2, length, group)
    else:
        cut.until("value", start + 2 + length, _VALUES.get(kind, hex_of), group, "fields.value")
    if kind == FieldType.STRING.value:
        cut.piece("strings", start + 2, length, length < LONGEST_FIELD, "event_name")
    elif kind == FieldType.BINARY.value:
        cut.piece("binaries", start + 2, length, length < LONGEST_FIELD)
    elif kind == FieldType.JSON.value:
        cut.piece("jsons", start + 2, length, length < LONGEST_FIELD)
    elif kind == FieldType.INTEGER.value and length == 4:
        cut.also("integers", start + 2, 4)
    elif kind == FieldType.FLOAT.value and length == 4:
        cut.also("floats", start + 2, 4)


def _inner_field(cut: Tiling, start: int, length: int, kind: int) -> None:
    """§4.2.1: one field inside encryption metadata."""
    name = _SUB_NAMES.get(kind, f"0x{kind:02x}")
    group = f"encryption metadata: {name}"
    cut.until("encryption metadata", start)
    cut.take("type", 1, name, group, "fields.type")
    cut.take("length", 1, number_be, group, "fields.length")
    cut.until("value", start + 2 + length, _SUB_VALUES.get(kind, hex_of), group, "fields.value")
    cut.put("fields.parent", FieldType.ENCRYPTION.value, group)


def _security(cut: Tiling, data: bytes, row: Sequence[int]) -> None:
    """§4.2: the security fields, each at the place that the scanner noted."""
    if row[NODE_ID] >= 0:
        cut.also("node_id", row[NODE_ID], 16)
    if row[AUTH_KEY_ID] >= 0:
        cut.also("auth_key_id", row[AUTH_KEY_ID], 4)
    if row[HMAC] >= 0:
        cut.also("hmac", row[HMAC], 32)
    if row[SIGNATURE] >= 0:
        cut.also("signature", row[SIGNATURE], 64)
    if row[PUBLIC_KEY] >= 0:
        cut.also("public_key", row[PUBLIC_KEY], 32)
    if row[SIGNED] >= 0:
        cut.also("signed_timestamp", row[SIGNED], 8)
    if row[NONCE] >= 0:
        cut.also("nonce", row[NONCE], 12)
    if row[KEY_ID] >= 0:
        cut.also("key_id", row[KEY_ID], 16)
    if row[ENCRYPTION] >= 0:
        cut.also("encryption", row[ENCRYPTION], data[row[ENCRYPTION] - 1])
    if row[ALGORITHM] >= 0:
        cut.put("algorithm", row[ALGORITHM])
    if row[IV] >= 0:
        cut.also("iv", row[IV], row[IV_LENGTH])
    if row[SUB_KEY_ID] >= 0:
        cut.also("encryption_key_id", row[SUB_KEY_ID], 16)
