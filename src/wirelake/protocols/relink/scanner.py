"""Scanner of Relink: where handshake parts and packets are, and which faults they have.

This is the only reader of the layout. The size of a packet depends on the channel id sizes of both directions, and the meaning of bytes on
the stage of the handshake. Both come in through the limits (`Limits.for_scan`); `handshake.py` follows them.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.protocols.equal_frames import equal_frames
from wirelake.protocols.kernel import (
    FAULT,
    FAULT_AT,
    KIND,
    LENGTH,
    NO_ROOM,
    PART,
    PARTS,
    SHARED,
    START,
    i64_le,
    kernel,
    u16_le,
    u32_le,
    walker,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.limits import DEFAULT_LIMITS, FARTHEST, Limits, Stage
from wirelake.protocols.relink.messages import Format, Kind

__all__ = [
    "BODY",
    "BODY_LENGTH",
    "COUNT",
    "DEFAULT_LIMITS",
    "FLAGS",
    "IDS",
    "ID_SIZE",
    "LARGE",
    "LINK",
    "LONG",
    "MULTICAST",
    "ODDITIES",
    "ODD_BITS",
    "ODD_EMPTY",
    "ODD_FORM",
    "PART_COLUMNS",
    "PART_LENGTH",
    "PART_START",
    "ROW_COLUMNS",
    "SEQUENCE",
    "UNIT",
    "Limits",
    "Stage",
    "find",
    "first_id",
    "glance",
    "plausible",
    "run",
    "scan",
    "walk",
]

# A row: the shared columns, then these.
SEQUENCE: Final = SHARED
"""The sequence number, -1 without one; of a handshake's first part, the version."""
FLAGS: Final = SHARED + 1
"""The bits of a packet's first byte, see MULTICAST, LONG and LARGE; of a request, its flags."""
IDS: Final = SHARED + 2
"""Offset of the first channel id.

Of a request, of the connector's channel id size, which the listener's follows.
"""
COUNT: Final = SHARED + 3
"""How many channel ids there are."""
ID_SIZE: Final = SHARED + 4
"""Bytes of each."""
BODY: Final = SHARED + 5
"""Offset of the payload data; of a request, of the endpoint name."""
BODY_LENGTH: Final = SHARED + 6
ODDITIES: Final = SHARED + 7
"""Bits for what is tolerated: see ODD_BITS, ODD_FORM and ODD_EMPTY."""
ROW_COLUMNS: Final = SHARED + 8

# A part: one part of a message's payload.
PART_START: Final = 0
PART_LENGTH: Final = 1
PART_COLUMNS: Final = 2

MULTICAST: Final = 0x02
LONG: Final = 0x20
LARGE: Final = 0x40
"""Bits of a packet's first byte."""

ODD_BITS: Final = 1
"""RELINK-12: unused bits or padding bytes are set."""
ODD_FORM: Final = 2
"""RELINK-30: not the minimal form."""
ODD_EMPTY: Final = 4
"""RELINK-19: a multicast without receivers."""

UNIT: Final = 8
"""§2.1: every packet is a multiple of this."""
LINK: Final = 16
"""§1: epoch and link id, at the end of a request and all there is of a reply."""
SHORTEST_LONG: Final = 256
SMALLEST_LARGE: Final = 65536
"""RELINK-30: from here on the other form is needed."""

# Members of enums that every scan reads: reading a member is a call, reading a number is not.
_CHANNEL_ACKNOWLEDGEMENT_FORM: Final = Format.CHANNEL_ACKNOWLEDGEMENT.value
_CHANNEL_OPERATION_FORM: Final = Format.CHANNEL_OPERATION.value
_MESSAGE_FORM: Final = Format.MESSAGE.value
_SEQUENCE_OPERATION_FORM: Final = Format.SEQUENCE_OPERATION.value
_COMMIT_KIND: Final = Kind.COMMIT.value
_MESSAGE_KIND: Final = Kind.MESSAGE.value
_RECEIVED_KIND: Final = Kind.RECEIVED.value
_REPLY_KIND: Final = Kind.REPLY.value
_REQUEST_KIND: Final = Kind.REQUEST.value
_SHUTDOWN_KIND: Final = Kind.SHUTDOWN.value
_VERSION_KIND: Final = Kind.VERSION.value
_REPLY_STAGE: Final = Stage.REPLY.value
_REQUEST_STAGE: Final = Stage.REQUEST.value
_VERSION_STAGE: Final = Stage.VERSION.value


@kernel
def scan(data: Any, start: int, stop: int, rows: Any, parts: Any, limits: Any) -> tuple[int, int, int, int]:
    """Walk whole packets in data[start:stop], or one part of the handshake.

    One row each, one part for each part of a payload.

    Returns (rows written, parts written, next offset, need): `need` is how many bytes the next packet takes at least, NO_ROOM if rows or
    parts are full or a part of the handshake was read: what follows it depends on what it says. A packet whose end cannot be known is the
    last row, and `next` stays at its start.
    """
    max_ids, max_parts, max_part, max_message, max_empty_ids, stage, sender_size, receiver_size = limits
    if stage:
        return _scan_handshake(data, start, stop, rows, stage)
    count, used, at = 0, 0, start
    while (count + 1) * ROW_COLUMNS <= len(rows):
        if stop - at < UNIT or at < 0 or at > FARTHEST:
            return count, used, at, UNIT
        first = 0 + data[at]
        second = 0 + data[at + 1]
        form = (first >> 2) & 7
        kind, sequence, odd, length = first >> 5, -1, 0, 0
        ids, ids_count, id_size = at, 0, 0
        size, body, body_end = UNIT, at, at
        fault, fault_at, lost = 0, at, False
        if first & 1 == 0:
            if kind > _SHUTDOWN_KIND:  # RELINK-12
                fault = Fault.GENERAL_TYPE_UNKNOWN.value
            odd = _dirty(data, at + 1, at + UNIT) | (ODD_BITS if first & 0x1E else 0)
        elif form > _MESSAGE_FORM:  # RELINK-12
            kind, fault, lost = -1, Fault.FORMAT_UNKNOWN.value, True
        else:
            id_size = receiver_size if form & 1 else sender_size  # RELINK-7
            ids, ids_count, size = at + 2, 1, 2 + id_size
            if form == _MESSAGE_FORM:
                kind = _MESSAGE_KIND
            else:
                fault = _unknown(form, kind)
                kind += _RECEIVED_KIND if form & 1 else _COMMIT_KIND
            if first & MULTICAST:
                ids, ids_count = at + 8, u32_le(data, at + 4)
                if ids_count > (max_ids if id_size else max_empty_ids):  # RELINK-24
                    lost = True
                    if not fault:
                        fault, fault_at = Fault.MULTICAST_OVER_LIMIT.value, at + 4
                size = 8 + ids_count * id_size
                odd = ODD_FORM if ids_count == 1 else ODD_EMPTY if ids_count == 0 else 0
                if data[at + 2] | data[at + 3]:
                    odd |= ODD_BITS
        if first & 1 and not lost and form < _MESSAGE_FORM:
            end = size
            if form & 2:
                end = (size + 3) & ~3
                if stop - at < end + 4:
                    return count, used, at, (end + 11) & ~7
                sequence = u32_le(data, at + end)
                odd |= _dirty(data, at + size, at + end)
                end += 4
            size = (end + 7) & ~7
            if stop - at < size:
                return count, used, at, size
            odd |= _dirty(data, at + end, at + size) | (ODD_BITS if second else 0)
        elif first & 1 and not lost:
            end = (size + 1) & ~1
            sizes, length, fault_at = end, second, at + 1
            if first & LONG:
                if stop - at < end + 4:
                    return count, used, at, (end + 11) & ~7
                sizes, length, fault_at = end + 4, u32_le(data, at + end), at + end
                odd |= (ODD_BITS if second else 0) | (ODD_FORM if length < SHORTEST_LONG else 0)
            wide = 8 if first & LARGE else 2
            vector = (sizes + wide - 1) & -wide  # both forms of sizes are at a multiple of their own size
            tail = vector + wide * length
            if length > max_parts:  # RELINK-24
                fault, lost, length = Fault.PARTS_OVER_LIMIT.value, True, 0
            elif stop - at < ((tail + 7) & ~7):
                return count, used, at, (tail + 7) & ~7
            elif (used + length) * PART_COLUMNS > len(parts):
                return count, used, at, NO_ROOM
            else:
                odd |= _dirty(data, at + size, at + end) | _dirty(data, at + sizes, at + vector)
                size = (tail + 7) & ~7
                odd |= _dirty(data, at + tail, at + size) | (ODD_BITS if first & 0x80 else 0)
                body, total, widest = at + size, 0, 0
                for index in range(length):
                    fault_at = at + vector + wide * index
                    size_of_part = i64_le(data, fault_at) if first & LARGE else u16_le(data, fault_at)
                    if size_of_part < 0 or size_of_part > max_part:  # RELINK-24
                        fault, lost, length = Fault.PART_OVER_LIMIT.value, True, 0
                        break
                    total += size_of_part
                    if total > max_message:  # RELINK-24
                        fault, lost, length = Fault.MESSAGE_OVER_LIMIT.value, True, 0
                        break
                    part = (used + index) * PART_COLUMNS
                    parts[part + PART_START] = at + size
                    parts[part + PART_LENGTH] = size_of_part
                    widest = max(widest, size_of_part)
                    size += (size_of_part + 7) & ~7
                if not lost and stop - at < size:
                    return count, used, at, size
                for part in range(used * PART_COLUMNS, (used + length) * PART_COLUMNS, PART_COLUMNS):
                    size_of_part = parts[part + PART_LENGTH]
                    tail = parts[part + PART_START] + size_of_part
                    odd |= _dirty(data, tail, tail + (-size_of_part & 7))
                if first & LARGE and widest < SMALLEST_LARGE:
                    odd |= ODD_FORM
                body_end = at + size
            if not lost:
                fault_at = at
        if lost:
            size, ids, ids_count, body, body_end, odd = stop - at, at, 0, at, at, 0
        row = count * ROW_COLUMNS
        rows[row + START] = at
        rows[row + LENGTH] = size
        rows[row + KIND] = kind
        rows[row + FAULT] = fault
        rows[row + FAULT_AT] = fault_at
        rows[row + PART] = used
        rows[row + PARTS] = length
        rows[row + SEQUENCE] = sequence
        rows[row + FLAGS] = first
        rows[row + IDS] = ids
        rows[row + COUNT] = ids_count
        rows[row + ID_SIZE] = id_size
        rows[row + BODY] = body
        rows[row + BODY_LENGTH] = body_end - body
        rows[row + ODDITIES] = odd
        count += 1
        if lost:
            return count, used, at, 0
        used += length
        at += size
    return count, used, at, NO_ROOM


@kernel
def _dirty(data: Any, start: int, stop: int) -> int:
    """§1: ODD_BITS if a padding byte is not zero."""
    bits = 0
    for at in range(start, stop):
        bits |= data[at]
    return ODD_BITS if bits else 0


@kernel
def _unknown(form: int, kind: int) -> int:
    """RELINK-12: the fault of a packet type that this format does not have, or 0."""
    if form == _CHANNEL_OPERATION_FORM:
        return Fault.OPERATION_UNKNOWN.value if kind > 2 else 0
    if form == _CHANNEL_ACKNOWLEDGEMENT_FORM:
        return Fault.ACKNOWLEDGEMENT_UNKNOWN.value if kind > 4 else 0
    if form == _SEQUENCE_OPERATION_FORM:
        return Fault.SEQUENCE_OPERATION_UNKNOWN.value if kind > 1 else 0
    return Fault.SEQUENCE_ACKNOWLEDGEMENT_UNKNOWN.value if kind > 3 else 0


@kernel
def _scan_handshake(data: Any, at: int, stop: int, rows: Any, stage: int) -> tuple[int, int, int, int]:
    """§1: one part of the handshake, as `scan` gives it."""
    if len(rows) < ROW_COLUMNS:
        return 0, 0, at, NO_ROOM
    if stop - at < UNIT or at < 0 or at > FARTHEST:
        return 0, 0, at, UNIT if stage != _REPLY_STAGE else LINK
    kind, size, version, flags, odd = _VERSION_KIND, UNIT, -1, 0, 0
    body, body_length, ids = at, 0, at
    fault, fault_at = 0, at
    if stage == _VERSION_STAGE:
        version = 0 + data[at]
        odd = _dirty(data, at + 1, at + UNIT)
    elif stage == _REQUEST_STAGE:
        kind, body, body_length = _REQUEST_KIND, at + 1, 0 + data[at]
        size = ((1 + body_length + 3 + 7) & ~7) + LINK
    else:
        kind, size = _REPLY_KIND, LINK
    if stop - at < size:
        return 0, 0, at, size
    end = at + size
    if kind == _REQUEST_KIND:
        ids = body + body_length
        flags = 0 + data[ids + 2]
        odd = _dirty(data, ids + 3, end - LINK) | (ODD_BITS if flags & 0xF8 else 0)
        if i64_le(data, end - 8) != 0 and i64_le(data, end - 16) == 0:  # RELINK-9
            fault, fault_at = Fault.LINK_WITHOUT_EPOCH.value, end - 16
    elif kind == _REPLY_KIND and i64_le(data, at) == 0:  # RELINK-9
        fault = Fault.EPOCH_ZERO.value
    if kind != _VERSION_KIND and data[end - 1] & 0x80:  # RELINK-8
        fault, fault_at = Fault.LINK_ID_RANGE.value, end - 8
    rows[START] = at
    rows[LENGTH] = size
    rows[KIND] = kind
    rows[FAULT] = fault
    rows[FAULT_AT] = fault_at
    rows[PART] = 0
    rows[PARTS] = 0
    rows[SEQUENCE] = version
    rows[FLAGS] = flags
    rows[IDS] = ids
    rows[COUNT] = 0
    rows[ID_SIZE] = 0
    rows[BODY] = body
    rows[BODY_LENGTH] = body_length
    rows[ODDITIES] = odd
    return 1, 0, end, NO_ROOM


@kernel
def plausible(data: Any, at: int, stop: int, limits: Any) -> int:
    """The size of what is very likely a packet at this offset, else 0.

    It has its plainest form, and all its padding is zero. A nop does not count.
    """
    if stop - at < UNIT:
        return 0
    first, second = 0 + data[at], 0 + data[at + 1]
    form, kind = (first >> 2) & 7, first >> 5
    if first & 1 == 0:
        is_known = 0 < kind <= _SHUTDOWN_KIND and not first & 0x1E
        return UNIT if is_known and not _dirty(data, at + 1, at + UNIT) else 0
    end = 2 + (limits[7] if form & 1 else limits[6])
    if first & MULTICAST or form > _MESSAGE_FORM:
        return 0
    if form < _MESSAGE_FORM:
        aligned = (end + 3) & ~3 if form & 2 else end
        tail = aligned + 4 if form & 2 else end
        size: int = (tail + 7) & ~7
        if second or _unknown(form, kind) or stop - at < size:
            return 0
        return 0 if _dirty(data, at + end, at + aligned) or _dirty(data, at + tail, at + size) else size
    vector = (end + 1) & ~1
    tail = vector + 2 * second
    size = (tail + 7) & ~7
    if first & 0xE0 or second > limits[1] or stop - at < size or _dirty(data, at + end, at + vector) or _dirty(data, at + tail, at + size):
        return 0
    for index in range(second):
        one = u16_le(data, at + vector + 2 * index)
        tail = size + one
        size += (one + 7) & ~7
        if stop - at < size or _dirty(data, at + tail, at + size):
            return 0
    return size


@kernel
def find(data: Any, start: int, stop: int, limits: Any) -> int:
    """Find the next offset where packets very likely begin again; else `stop`.

    A packet there ends exactly at `stop`, or another follows it. The byte before `start` is the first of a packet that could not be read.
    Packets are multiples of 8 bytes, so only every eighth offset from there is tried.
    """
    for at in range(start + UNIT - 1, stop, UNIT):
        size = plausible(data, at, stop, limits)
        if size and (at + size == stop or plausible(data, at + size, stop, limits)):
            return at
    return stop


_ONE_MESSAGE: Final = bytes((_MESSAGE_FORM << 2 | 1, 1))
"""How a message of one part on one channel begins, in its shortest form."""
_CONSUMED: Final = (Kind.CONSUMED.value - _RECEIVED_KIND) << 5 | Format.SEQUENCE_ACKNOWLEDGEMENT.value << 2 | 1
"""How the acknowledgement of consumed messages begins, with a sequence number and one channel."""
_EMPTY_PACKETS: Final = {bytes((kind << 5, 0, 0, 0, 0, 0, 0, 0)): kind for kind in (Kind.PING.value, Kind.PONG.value)}


def glance(data: bytes, limits: tuple[int, ...]) -> tuple[list[int], list[int]] | None:
    """See `buffer.Glance`: a message of one part on one channel, the acknowledgement of such, a ping or a pong."""
    _, max_parts, max_part, max_message, _, stage, sender_size, receiver_size = limits
    if stage or len(data) < UNIT:
        return None
    size = len(data)
    if data[:2] == _ONE_MESSAGE:
        sizes = (3 + sender_size) & ~1
        body = (sizes + 9) & ~7
        length = int.from_bytes(data[sizes : sizes + 2], "little")
        end = body + length
        is_odd = not max_parts or length > max_part or length > max_message or (end + 7) & ~7 != size
        if is_odd or any(data[2 + sender_size : sizes]) or any(data[sizes + 2 : body]) or any(data[end:]):
            return None
        row = [0, size, _MESSAGE_KIND, 0, 0, 0, 1, -1, data[0], 2, 1, sender_size, body, size - body, 0]
        return row, [body, length]
    if data[0] == _CONSUMED and not data[1]:
        at = (5 + receiver_size) & ~3
        if (at + 11) & ~7 != size or any(data[2 + receiver_size : at]) or any(data[at + 4 :]):
            return None
        sequence = int.from_bytes(data[at : at + 4], "little")
        return [0, size, Kind.CONSUMED.value, 0, 0, 0, 0, sequence, data[0], 2, 1, receiver_size, 0, 0, 0], []
    kind = _EMPTY_PACKETS.get(data)
    return None if kind is None else ([0, size, kind, 0, 0, 0, 0, -1, data[0], 0, 0, 0, 0, 0, 0], [])


def first_id(data: bytes, start: int, limits: tuple[int, ...]) -> bytes:
    """The channel of the messages that `run` reads from there."""
    return data[start + len(_ONE_MESSAGE) : start + len(_ONE_MESSAGE) + limits[6]]


def run(data: bytes, start: int, stop: int, limits: tuple[int, ...]) -> tuple[list[int], list[tuple[bytes, ...]]]:
    """See `buffer.Run`: messages of one part on one channel, all on the same one; each as the parts that it has."""
    _, max_parts, max_part, max_message, _, stage, id_size, _ = limits
    sizes: list[int] = []
    payloads: list[tuple[bytes, ...]] = []
    place = (3 + id_size) & ~1
    before = (place + 9) & ~7
    prefix, middle = _ONE_MESSAGE + data[start + 2 : start + 2 + id_size] + bytes(place - 2 - id_size), bytes(before - place - 2)
    if stage or not max_parts or data[start : start + place] != prefix:
        return sizes, payloads
    head, length, size = b"", 0, 0
    most = min(max_part, max_message)
    while stop - start >= before:
        found = data[start : start + before]
        if found != head:
            head, length = found, int.from_bytes(found[place : place + 2], "little")
            size = (before + length + 7) & ~7
            if found[:place] != prefix or length > most or found[place + 2 :] != middle:
                break
            if not sizes and (equal := equal_frames(data, start, stop, head, length, size - before - length)):
                return [size] * len(equal), equal
        end = start + before + length
        after = start + size
        if after > stop or (after > end and any(data[end:after])):
            break
        sizes.append(size)
        payloads.append((data[start + before : end],))
        start = after
    return sizes, payloads


walk = walker(scan, find, ROW_COLUMNS, PART_COLUMNS)
"""`scan` over many runs, with `find` where a run goes wrong: see `kernel.walker`."""
