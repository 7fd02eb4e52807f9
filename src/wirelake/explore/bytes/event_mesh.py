"""Fields of Event Mesh packets: header (§2), and type, length and value of each field (§4)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from wirelake.explore.bytes.layout import Field, Tiling, hex_of, number_be, text_of
from wirelake.protocols.event_mesh.messages import Algorithm, EventType, FieldType, Flag, SubType
from wirelake.protocols.event_mesh.scanner import PART_COLUMNS, PART_LENGTH, PART_PARENT, PART_START, PART_TYPE
from wirelake.protocols.kernel import LENGTH, PART, PARTS, START

__all__ = ["fields"]


def fields(data: bytes, row: Sequence[int], parts: Sequence[int]) -> list[Field]:
    """Return the fields of a scanned packet."""
    cut = Tiling(data, row[START], row[START] + row[LENGTH])
    cut.take("version", 1, number_be)
    cut.take("packet_id", 4, number_be)
    cut.take("flags", 1, _flags)
    cut.take("event_type", 1, lambda raw: _named(EventType, raw[0]))
    cut.take("timestamp", 8, _seconds)
    cut.take("payload_length", 2, number_be)
    for index in range(row[PARTS]):
        at = (row[PART] + index) * PART_COLUMNS
        start, length, kind, parent = (parts[at + column] for column in (PART_START, PART_LENGTH, PART_TYPE, PART_PARENT))
        if parent:
            name = _named(SubType, kind)
            group = f"encryption metadata: {name}"
        else:
            name = _named(FieldType, kind)
            group = f"field {index}: {name}"
        cut.until("encryption metadata", start)
        cut.take("type", 1, name, group)
        cut.take("length", 1, number_be, group)
        following = index + 1 < row[PARTS] and parts[at + PART_COLUMNS + PART_PARENT]
        if kind == FieldType.ENCRYPTION.value and not parent and following:
            continue  # its value is the fields that follow
        cut.until("value", start + 2 + length, lambda raw, kind=kind, parent=parent: _value(kind, parent, raw), group)  # type: ignore[misc]
    return cut.finish("payload")


def _flags(raw: bytes) -> str:
    names = [flag.name.lower() for flag in Flag if raw[0] & flag and flag.name]
    return f"0x{raw[0]:02x} {' '.join(names)}".strip()


def _named(names: type[EventType | FieldType | SubType | Algorithm], code: int) -> str:
    return f"0x{code:02x} {names(code).name.lower()}" if code in {one.value for one in names} else f"0x{code:02x}"


def _seconds(raw: bytes) -> str:
    """Seconds since 1970."""
    seconds = int.from_bytes(raw, "big")
    try:
        return f"{seconds} ({datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ})"
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _value(kind: int, parent: int, raw: bytes) -> str:
    """§4.1, §4.2: a value by the type of its field."""
    if parent:
        return _named(Algorithm, raw[0]) if kind == SubType.ALGORITHM.value and len(raw) == 1 else hex_of(raw)
    if kind in (FieldType.STRING.value, FieldType.JSON.value):
        return text_of(raw)
    if kind == FieldType.INTEGER.value:
        return str(int.from_bytes(raw, "big", signed=True))
    if kind == FieldType.FLOAT.value and len(raw) == 4:
        return repr(struct.unpack(">f", raw)[0])
    if kind == FieldType.NODE_ID.value and len(raw) == 16:
        return str(uuid.UUID(bytes=raw))
    if kind == FieldType.TIMESTAMP.value and len(raw) == 8:
        return _seconds(raw)
    return hex_of(raw)
