"""Event Mesh bytes to messages and back: `message` and `decode` read, `encode` writes.

Fields are written in the order they are in. `packet/builder.py` puts complete packets together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.buffer import Frames
from wirelake.protocols.event_mesh.faults import UNREADABLE, Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.messages import TYPES, VERSION, Event, EventType, Field, Heartbeat, Hello, Message, Other
from wirelake.protocols.event_mesh.scanner import (
    FLAGS,
    MESSAGE_ID,
    PART_COLUMNS,
    PART_LENGTH,
    PART_PARENT,
    PART_TYPE,
    ROW_COLUMNS,
    TIMESTAMP,
    find,
    scan,
    sniff,
    walk,
)
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, PART, PARTS, active, array, table

__all__ = [
    "DEFAULT_LIMITS",
    "Datagrams",
    "Limits",
    "buffer",
    "decode",
    "encode",
    "encode_fields",
    "fields",
    "find",
    "message",
    "scan",
    "sniff",
    "walk",
]

_HEADER: Final = struct.Struct(">BIBBQH")
_MESSAGES: Final[dict[int, type[Hello | Heartbeat | Event]]] = {
    EventType.HELLO: Hello,
    EventType.HEARTBEAT: Heartbeat,
    EventType.EVENT: Event,
}


def message(data: bytes, row: Sequence[int], parts: Sequence[int]) -> Message:
    """The message of a scanned row, also of one that is to be dropped.

    Raises DecodeError if its fields cannot be read.
    """
    if row[FAULT] in UNREADABLE:
        raise DecodeError(Fault(row[FAULT]), row[FAULT_AT])
    kind, found = row[KIND], fields(data, row, parts)
    if kind in _MESSAGES:
        return _MESSAGES[kind](row[MESSAGE_ID], row[TIMESTAMP] % (1 << 64), found, row[FLAGS])
    return Other(kind, row[MESSAGE_ID], row[TIMESTAMP] % (1 << 64), found, row[FLAGS])


def fields(data: bytes, row: Sequence[int], parts: Sequence[int]) -> tuple[Field, ...]:
    """The fields of a scanned row, in order."""
    first = row[PART] * PART_COLUMNS
    result = []
    for part in range(first, first + row[PARTS] * PART_COLUMNS, PART_COLUMNS):
        if not parts[part + PART_PARENT]:
            at = parts[part] + 2
            result.append(Field(parts[part + PART_TYPE], data[at : at + parts[part + PART_LENGTH]]))
    return tuple(result)


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The message that a datagram is.

    Raises DecodeError for the first rule it breaks in the order of EMM-28.
    """
    row, parts = [0] * ROW_COLUMNS, [0] * (PART_COLUMNS * limits.max_parts)
    scan(data, 0, len(data), row, parts, limits.for_scan())
    if row[FAULT]:
        raise DecodeError(Fault(row[FAULT]), row[FAULT_AT])
    return message(data, row, parts)


def encode(message: Message, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The bytes of a message as it stands.

    Raises LocalProtocolError for a value its field cannot hold or a payload over the limit.
    """
    kind = message.event_type if isinstance(message, Other) else TYPES[type(message)]
    payload = encode_fields(message.fields)
    if len(payload) > limits.max_payload_size:  # EMM-4: never cut short
        raise LocalProtocolError(Fault.PAYLOAD_TOO_LARGE, f"{len(payload)} bytes, limit {limits.max_payload_size}")
    try:
        return _HEADER.pack(VERSION, message.message_id, message.flags, kind, message.timestamp, len(payload)) + payload
    except struct.error as reason:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, str(reason)) from None


def encode_fields(fields: Sequence[Field]) -> bytes:
    """§4: fields as they stand."""
    try:
        return b"".join([bytes((field.type, len(field.value))) + field.value for field in fields])
    except ValueError as reason:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"a field's type or length: {reason}") from None


class Datagrams:
    """The counterpart of `Buffer` for datagrams: each goes in whole, and its row comes out.

    Nothing is kept.
    """

    takes_datagrams = True
    rest = b""
    lost = False

    def __init__(self, limits: Limits) -> None:
        self._scan = active(scan)
        self._limits = limits.for_scan()
        self._row = table(1, ROW_COLUMNS)
        self._parts = table(limits.max_parts, PART_COLUMNS)
        self.taken = b""
        """The last datagram."""

    def feed(self, data: bytes) -> Iterator[Frames]:
        """Take one datagram; give its row."""
        self.taken = data
        _, used, _, _ = self._scan(array(data), 0, len(data), self._row, self._parts, self._limits)
        row, parts = self._row[:ROW_COLUMNS], self._parts[: used * PART_COLUMNS]
        yield data, [row if isinstance(row, list) else row.tolist()], parts if isinstance(parts, list) else parts.tolist()


def buffer(limits: Limits = DEFAULT_LIMITS) -> Datagrams:
    """A buffer that scans datagrams one by one."""
    return Datagrams(limits)
