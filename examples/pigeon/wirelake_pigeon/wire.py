"""PIGEON/1 on the wire: messages to bytes, scanned rows to messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.buffer import Buffer
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND
from wirelake_pigeon.faults import UNREADABLE, Fault
from wirelake_pigeon.messages import TYPES, Ack, Bye, Hello, Kind, Message, Note
from wirelake_pigeon.scanner import BODY, BODY_LENGTH, PART_COLUMNS, ROW_COLUMNS, Limits, scan

__all__ = ["DEFAULT_LIMITS", "buffer", "decode", "encode", "message"]

DEFAULT_LIMITS: Final = Limits()


def message(data: bytes, row: Sequence[int]) -> Message:
    """The message of a scanned row; raises DecodeError if it is none."""
    if row[FAULT] in UNREADABLE:
        raise DecodeError(Fault(row[FAULT]), row[FAULT_AT])
    body = data[row[BODY] : row[BODY] + row[BODY_LENGTH]]
    match row[KIND]:
        case Kind.HELLO:
            return Hello(body[0])
        case Kind.NOTE:
            return Note(int.from_bytes(body[:4]), body[4:].decode(errors="replace"))
        case Kind.ACK:
            return Ack(int.from_bytes(body))
    return Bye()


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The one whole message that `data` is; raises DecodeError for anything else."""
    row = [0] * ROW_COLUMNS
    count, _, end, _ = scan(data, 0, len(data), row, [], limits.for_scan())
    if not count or (end != len(data) and not row[FAULT]):
        raise DecodeError(Fault.MESSAGE_CUT, end)
    return message(data, row)


def encode(message: Message, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The bytes of a message; raises LocalProtocolError for a value that does not fit."""
    try:
        match message:
            case Hello(version):
                body = version.to_bytes(1)
            case Note(number, text):
                body = number.to_bytes(4) + text.encode()
            case Ack(number):
                body = number.to_bytes(4)
            case Bye():
                body = b""
    except OverflowError:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, repr(message)) from None
    if len(body) > min(limits.max_body_size, 0xFFFF):
        raise LocalProtocolError(Fault.BODY_OVER_LIMIT, f"{len(body)} bytes")
    return b"P" + bytes([TYPES[type(message)]]) + len(body).to_bytes(2) + body


def buffer(limits: Limits = DEFAULT_LIMITS) -> Buffer:
    """A buffer that cuts a stream into frames."""
    return Buffer(scan, ROW_COLUMNS, PART_COLUMNS, limits.for_scan(), limits.max_parts)
