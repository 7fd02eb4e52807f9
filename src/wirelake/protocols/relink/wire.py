"""Bytes of Relink to messages and back: `message` and `decode` build, `encode` writes.

`scanner.py` reads the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, cast

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.buffer import Buffer
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, PART, PARTS, START
from wirelake.protocols.relink.faults import UNREADABLE, Fault
from wirelake.protocols.relink.handshake import Following, sniff
from wirelake.protocols.relink.limits import PacketLimits
from wirelake.protocols.relink.messages import (
    TYPES,
    Acknowledgement,
    AnyMessage,
    Close,
    Closed,
    Commit,
    Committed,
    Consumed,
    Format,
    HandshakeFlag,
    Kind,
    Message,
    Nop,
    Operation,
    Ping,
    Pong,
    Received,
    Reply,
    Request,
    Resume,
    Rollback,
    Shutdown,
    Uncommitted,
    Version,
)
from wirelake.protocols.relink.scanner import (
    BODY,
    BODY_LENGTH,
    COUNT,
    DEFAULT_LIMITS,
    FLAGS,
    ID_SIZE,
    IDS,
    LARGE,
    LINK,
    LONG,
    MULTICAST,
    PART_COLUMNS,
    ROW_COLUMNS,
    SEQUENCE,
    Limits,
    Stage,
    find,
    glance,
    run,
    scan,
    walk,
)

__all__ = [
    "DEFAULT_LIMITS",
    "PADDING",
    "Limits",
    "buffer",
    "channels",
    "check",
    "check_ids",
    "decode",
    "encode",
    "find",
    "message",
    "packet_buffer",
    "payload",
    "scan",
    "sniff",
    "walk",
]

_LINK: Final = struct.Struct("<QQ")
_GENERAL: Final[dict[int, Nop | Ping | Pong | Resume | Shutdown]] = {
    Kind.NOP: Nop(),
    Kind.PING: Ping(),
    Kind.PONG: Pong(),
    Kind.RESUME: Resume(),
    Kind.SHUTDOWN: Shutdown(),
}
_SEQUENCED: Final[dict[int, type[Operation | Acknowledgement]]] = {
    Kind.COMMIT: Commit,
    Kind.ROLLBACK: Rollback,
    Kind.RECEIVED: Received,
    Kind.CONSUMED: Consumed,
    Kind.COMMITTED: Committed,
    Kind.UNCOMMITTED: Uncommitted,
}
_MASK: Final = sum(HandshakeFlag)
PADDING: Final = tuple(bytes(-size & 7) for size in range(8))
"""The padding after so many bytes over a multiple of 8."""


def message(data: bytes, row: Sequence[int], parts: Sequence[int]) -> AnyMessage:
    """Build the message of a scanned row; raises DecodeError if it cannot be read.

    Total over rows that the scanner accepted.
    """
    fault, kind = row[FAULT], row[KIND]
    if fault and fault in UNREADABLE:
        raise DecodeError(Fault(fault), row[FAULT_AT])
    if kind in _GENERAL:
        return _GENERAL[kind]
    if kind >= Kind.VERSION:
        return _handshake(data, row)
    ids, multicast = channels(data, row), row[FLAGS] & MULTICAST != 0
    if kind == Kind.MESSAGE:
        return Message(ids, payload(data, row, parts), multicast, row[FLAGS] & LONG != 0, row[FLAGS] & LARGE != 0)
    if kind in _SEQUENCED:
        return cast(AnyMessage, _SEQUENCED[kind](ids, row[SEQUENCE] if row[SEQUENCE] >= 0 else None, multicast))
    return Close(ids, multicast) if kind == Kind.CLOSE else Closed(ids, multicast)


def channels(data: bytes, row: Sequence[int]) -> tuple[bytes, ...]:
    """§2.3: the channel ids of a scanned row, in order."""
    at, size, count = row[IDS], row[ID_SIZE], row[COUNT]
    if count == 1:
        return (data[at : at + size],)
    return tuple([data[at + index * size : at + (index + 1) * size] for index in range(count)])


def payload(data: bytes, row: Sequence[int], parts: Sequence[int]) -> tuple[bytes, ...]:
    """§2.3.3.3: the parts of a scanned message."""
    first, count = row[PART] * PART_COLUMNS, row[PARTS]
    if count == 1:
        start = parts[first]
        return (data[start : start + parts[first + 1]],)
    places = zip(parts[first : first + 2 * count : 2], parts[first + 1 : first + 2 * count : 2], strict=True)
    return tuple([data[start : start + size] for start, size in places])


def _handshake(data: bytes, row: Sequence[int]) -> Version | Request | Reply:
    kind, at, end = row[KIND], row[BODY], row[START] + row[LENGTH]
    if kind == Kind.VERSION:
        return Version(row[SEQUENCE])
    epoch, link_id = _LINK.unpack_from(data, end - LINK)
    if kind == Kind.REPLY:
        return Reply(epoch, link_id)
    try:
        name = data[at : at + row[BODY_LENGTH]].decode()
    except UnicodeDecodeError as reason:  # RELINK-31
        raise DecodeError(Fault.ENDPOINT_NOT_UTF8, at + reason.start) from None
    return Request(name, data[row[IDS]], data[row[IDS] + 1], row[FLAGS] & _MASK, epoch, link_id)


def decode(
    data: bytes, limits: Limits = DEFAULT_LIMITS, *, stage: Stage = Stage.PACKETS, sender_id_size: int = 0, receiver_id_size: int = 0
) -> AnyMessage:
    """The one whole packet or part of the handshake that `data` is; raises DecodeError for anything else."""
    row = [0] * ROW_COLUMNS
    parts = [0] * (PART_COLUMNS * limits.max_parts)
    count, _, end, _ = scan(data, 0, len(data), row, parts, limits.for_scan(stage, sender_id_size, receiver_id_size))
    if count == 0:
        raise DecodeError(Fault.MESSAGE_CUT, len(data))
    result = message(data, row, parts)
    if row[FAULT]:
        raise DecodeError(Fault(row[FAULT]), row[FAULT_AT])
    if end != len(data):
        raise DecodeError(Fault.MESSAGE_CUT, end, f"{len(data) - end} bytes after the packet")
    return result


def buffer(limits: Limits = DEFAULT_LIMITS, scan_limits: tuple[int, ...] | None = None) -> Buffer:
    """A buffer that cuts one direction of a connection into packets.

    It follows the handshake, or has the limits of a `HandshakeReader`.
    """
    if scan_limits is None:
        return Following(limits)
    return packet_buffer(limits, scan_limits)


def packet_buffer(limits: PacketLimits, scan_limits: tuple[int, ...]) -> Buffer:
    """A buffer for one direction of a connection whose handshake is read by a `HandshakeReader`."""
    return Buffer(scan, ROW_COLUMNS, PART_COLUMNS, scan_limits, limits.max_parts, glance, run)


def encode(message: AnyMessage, limits: PacketLimits = DEFAULT_LIMITS) -> bytes:
    """The bytes of a message.

    Raises LocalProtocolError for a value its field cannot hold or more than the limits (RELINK-24).
    """
    kind = TYPES[type(message)]
    if kind <= Kind.SHUTDOWN:
        return bytes((kind << 5, 0, 0, 0, 0, 0, 0, 0))
    if isinstance(message, Message):
        check(message.parts, limits)
    if kind < Kind.VERSION:
        check_ids(getattr(message, "ids", ()), limits)
    try:
        if isinstance(message, Version | Request | Reply):
            data = _encode_handshake(message)
        elif isinstance(message, Message):
            data = _encode_message(message)
        else:
            data = _encode_control(cast(Operation | Acknowledgement | Close | Closed, message), kind)
    except (struct.error, ValueError, OverflowError) as reason:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, str(reason)) from None
    return data + PADDING[len(data) & 7]


def check(parts: tuple[bytes, ...], limits: PacketLimits) -> None:
    """RELINK-24: refuse to send a message that we would not accept."""
    if len(parts) > limits.max_parts:
        raise LocalProtocolError(Fault.PARTS_OVER_LIMIT, f"{len(parts)}, limit {limits.max_parts}")
    size = 0
    for part in parts:
        if len(part) > limits.max_part_size:
            raise LocalProtocolError(Fault.PART_OVER_LIMIT, f"{len(part)} bytes, limit {limits.max_part_size}")
        size += len(part)
    if size > limits.max_message_size:
        raise LocalProtocolError(Fault.MESSAGE_OVER_LIMIT, f"{size} bytes, limit {limits.max_message_size}")


def _encode_handshake(message: Version | Request | Reply) -> bytes:
    if isinstance(message, Version):
        return bytes((message.version,))
    link = _LINK.pack(message.epoch, message.link_id)
    if isinstance(message, Reply):
        return link
    name = message.endpoint.encode()
    fields = bytes((len(name),)) + name + bytes((message.connector_id_size, message.listener_id_size, message.flags))
    return fields + PADDING[len(fields) & 7] + link


def _encode_control(message: Operation | Acknowledgement | Close | Closed, kind: Kind) -> bytes:
    """§2.3.1, §2.3.2: with a sequence number at a multiple of 4, or without."""
    sequence = None if isinstance(message, Close | Closed) else message.sequence
    is_ack = kind >= Kind.RECEIVED
    form = (Format.CHANNEL_ACKNOWLEDGEMENT if is_ack else Format.CHANNEL_OPERATION) | (0 if sequence is None else 2)
    data = _encode_ids((kind & 7) << 5 | form << 2 | 1, 0, message.ids, message.multicast)
    return data if sequence is None else data + bytes(-len(data) & 3) + struct.pack("<I", sequence)


def _encode_message(message: Message) -> bytes:
    """§2.3.3: a message in the forms it asks for, or those it needs (RELINK-30)."""
    parts = message.parts
    long = message.long or len(parts) > 255
    large = message.large or max(map(len, parts), default=0) > 65535
    flags = (LONG if long else 0) | (LARGE if large else 0)
    data = _encode_ids(flags | Format.MESSAGE << 2 | 1, 0 if long else len(parts), message.ids, message.multicast)
    data += bytes(len(data) & 1)
    if long:
        data += struct.pack("<I", len(parts))
    if large:
        data += PADDING[len(data) & 7]
    data += struct.pack(f"<{len(parts)}{'Q' if large else 'H'}", *map(len, parts))
    pieces = [data, PADDING[len(data) & 7]]
    for part in parts:
        pieces += (part, PADDING[len(part) & 7])
    return b"".join(pieces)


def check_ids(ids: Sequence[bytes], limits: PacketLimits) -> None:
    """RELINK-24: raise LocalProtocolError for more channels than a multicast may have."""
    most = limits.most_ids(len(ids[0]) if ids else 0)
    if len(ids) > most:
        raise LocalProtocolError(Fault.MULTICAST_OVER_LIMIT, f"{len(ids)} channels, limit {most}")


def _encode_ids(first: int, second: int, ids: tuple[bytes, ...], multicast: bool) -> bytes:
    """§2.1, §2.3: the header and the channel ids; unicast for one unless `multicast` (RELINK-30)."""
    if len({len(channel) for channel in ids}) > 1 or (ids and len(ids[0]) > 255):
        raise LocalProtocolError(Fault.ID_SIZE_WRONG, f"sizes {sorted({len(channel) for channel in ids})}")
    if multicast or len(ids) != 1:
        return bytes((first | MULTICAST, second, 0, 0)) + struct.pack("<I", len(ids)) + b"".join(ids)
    return bytes((first, second)) + ids[0]
