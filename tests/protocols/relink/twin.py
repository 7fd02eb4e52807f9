"""A slow, obvious reader of Relink: one packet at a time, straight down the specification, raising at the first thing that is wrong.

It shares nothing with the scanner but the names of faults, so that both can be held to each other.
"""

from __future__ import annotations

from typing import NamedTuple

from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.scanner import Limits, Stage

TYPES = {0: ("commit", "rollback", "close"), 1: ("received", "consumed", "committed", "uncommitted", "closed")}
TYPES |= {2: TYPES[0][:2], 3: TYPES[1][:4]}
UNKNOWN = {
    0: Fault.OPERATION_UNKNOWN,
    1: Fault.ACKNOWLEDGEMENT_UNKNOWN,
    2: Fault.SEQUENCE_OPERATION_UNKNOWN,
    3: Fault.SEQUENCE_ACKNOWLEDGEMENT_UNKNOWN,
}


class Lost(Exception):
    """The end of this packet cannot be known."""

    def __init__(self, fault: Fault, at: int) -> None:
        self.fault, self.at = fault, at
        super().__init__(fault, at)


class Short(Exception):
    """More bytes are needed."""

    def __init__(self, need: int) -> None:
        self.need = need
        super().__init__(need)


class Read(NamedTuple):
    """What the scanner should say of one packet."""

    start: int
    length: int
    name: str | None
    fault: int
    fault_at: int
    ids: list[bytes]
    sequence: int | None
    parts: list[bytes]
    bits: bool
    form: bool
    empty: bool


class Cursor:
    """Reads on from the first byte of a packet, and remembers padding that is not zero."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data, self.start, self.at, self.bits = data, start, start, False

    def have(self, size: int) -> None:
        """The packet has at least so many more bytes, and is a multiple of 8."""
        need = -(-(self.at - self.start + size) // 8) * 8
        if len(self.data) - self.at < size:
            raise Short(need)

    def take(self, size: int) -> bytes:
        self.have(size)
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def pad(self, size: int) -> None:
        self.bits |= any(self.take(size))

    def align(self, unit: int) -> None:
        self.pad(-(self.at - self.start) % unit)


def read(data: bytes, at: int, limits: Limits, sender: int, receiver: int) -> Read | int:
    """The packet at this place; an integer if it is not all there: the bytes it takes at least."""
    cursor = Cursor(data, at)
    try:
        return packet(cursor, limits, sender, receiver)
    except Short as short:
        return short.need
    except Lost as lost:
        return Read(at, len(data) - at, None, lost.fault, lost.at, [], None, [], False, False, False)


def packet(cursor: Cursor, limits: Limits, sender: int, receiver: int) -> Read:
    start = cursor.at
    cursor.have(8)
    first, second = cursor.take(2)
    if not first & 1:
        cursor.bits |= bool(first & 0b11110) or second != 0
        cursor.pad(6)
        names = ("nop", "ping", "pong", "resume", "shutdown")
        kind = first >> 5
        fault = Fault.GENERAL_TYPE_UNKNOWN if kind > 4 else 0
        return Read(start, 8, None if fault else names[kind], fault, start, [], None, [], cursor.bits, False, False)
    form, kind = first >> 2 & 7, first >> 5
    if form > 4:
        raise Lost(Fault.FORMAT_UNKNOWN, start)
    fault = UNKNOWN[form] if form < 4 and kind >= len(TYPES[form]) else 0
    size = receiver if form in (1, 3) else sender
    count, odd_form = 1, False
    if first & 2:
        cursor.pad(2)
        count = cursor.number(4)
        odd_form = count == 1
        if count > (limits.max_multicast if size else min(limits.max_multicast, limits.max_empty_ids)):
            raise Lost(fault or Fault.MULTICAST_OVER_LIMIT, start if fault else start + 4)
    if form == 4:
        return message(cursor, start, first, second, (count, size, odd_form), limits)
    cursor.have(size * count)
    ids = [cursor.take(size) for _ in range(count)]
    sequence = None
    if form in (2, 3):
        cursor.align(4)
        sequence = cursor.number(4)
    cursor.align(8)
    cursor.bits |= second != 0
    name = None if fault else TYPES[form][kind]
    return Read(start, cursor.at - start, name, fault, start, ids, sequence, [], cursor.bits, odd_form, count == 0)


def message(cursor: Cursor, start: int, first: int, second: int, whom: tuple[int, int, bool], limits: Limits) -> Read:
    count, size, odd_form = whom
    long, large = bool(first & 0x20), bool(first & 0x40)
    cursor.bits |= bool(first & 0x80) or (long and second != 0)
    # With a short length, whether there are too many parts is known before the ids are there.
    if not long and second > limits.max_parts:
        raise Lost(Fault.PARTS_OVER_LIMIT, start + 1)
    cursor.have(size * count)
    ids = [cursor.take(size) for _ in range(count)]
    cursor.align(2)
    length = second
    if long:
        place = cursor.at
        length = cursor.number(4)
        odd_form |= length <= 255
        if length > limits.max_parts:
            raise Lost(Fault.PARTS_OVER_LIMIT, place)
    wide = 8 if large else 2
    if large:
        cursor.align(8)
    vector = cursor.at
    cursor.have(wide * length)
    sizes = [cursor.number(wide) for _ in range(length)]
    cursor.align(8)
    for index, one in enumerate(sizes):
        if one > limits.max_part_size:
            raise Lost(Fault.PART_OVER_LIMIT, vector + wide * index)
        if sum(sizes[: index + 1]) > limits.max_message_size:
            raise Lost(Fault.MESSAGE_OVER_LIMIT, vector + wide * index)
    cursor.have(sum(-(-one // 8) * 8 for one in sizes))
    parts = []
    for one in sizes:
        parts.append(cursor.take(one))
        cursor.align(8)
    odd_form |= large and all(one <= 65535 for one in sizes)
    return Read(start, cursor.at - start, "message", 0, start, ids, None, parts, cursor.bits, odd_form, count == 0)


def handshake(data: bytes, at: int, stage: Stage) -> tuple[int, int, int] | int:
    """(length, fault, where) of a part of the handshake, or the bytes it takes."""
    if stage is Stage.VERSION:
        return (8, 0, at) if len(data) - at >= 8 else 8
    if stage is Stage.REPLY:
        if len(data) - at < 16:
            return 16
        epoch, link = (int.from_bytes(data[at + place : at + place + 8], "little") for place in (0, 8))
        if link >> 63:
            return 16, Fault.LINK_ID_RANGE, at + 8
        return (16, Fault.EPOCH_ZERO, at) if epoch == 0 else (16, 0, at)
    if len(data) - at < 8:
        return 8
    size = -(-(1 + data[at] + 3) // 8) * 8 + 16
    if len(data) - at < size:
        return size
    epoch, link = (int.from_bytes(data[at + size - place : at + size - place + 8], "little") for place in (16, 8))
    if link >> 63:
        return size, Fault.LINK_ID_RANGE, at + size - 8
    if link and not epoch:
        return size, Fault.LINK_WITHOUT_EPOCH, at + size - 16
    return size, 0, at
