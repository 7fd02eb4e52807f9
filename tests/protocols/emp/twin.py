"""A slow, obvious reader of EMP: one message at a time, straight down the specification, raising at the first thing that is wrong.

It shares nothing with the scanner but the names of faults, so that both can be held to each other.
"""

from __future__ import annotations

from typing import NamedTuple

from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.limits import Limits


class Wrong(Exception):
    """This message cannot be read: which rule, at which byte."""

    def __init__(self, fault: Fault, at: int) -> None:
        self.fault = fault
        self.at = at
        super().__init__(fault, at)


class Block(NamedTuple):
    start: int
    size: int
    id: int
    more: int
    content: bytes


class Read(NamedTuple):
    """What the scanner should say of one message."""

    start: int
    length: int
    kind: int
    fault: int
    fault_at: int
    blocks: list[Block]
    body: int
    request: int
    request_id: int
    scheme: int
    odd_bits: bool
    odd_body: bool


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size])


def read(data: bytes, at: int, limits: Limits) -> Read | int:
    """The message at this place; an integer if it is not all there: the bytes it takes, 0 if that is unknown."""
    start, bias = at, 4 if limits.sizes_exclude_themselves else 0
    if len(data) - at < 4:
        return 0
    size = number(data, at, 4) + bias
    if size < 8 or size > limits.max_message_size:
        fault = Fault.SIZE_TOO_SMALL if size < 8 else Fault.SIZE_OVER_LIMIT
        return Read(at, len(data) - at, -1, fault, at, [], len(data), -1, 0, -1, False, False)
    if len(data) - at < size:
        return size
    end, kind = at + size, data[at + 4]
    odd_bits = data[at + 5] & 0x7F != 0 or data[at + 6 : at + 8] != bytes(2)
    odd_body = False
    found: list[Block] = []
    breaches: list[tuple[Fault, int]] = []
    requests: list[tuple[int, int]] = []
    schemes: list[int] = []
    body = at + 8
    try:
        if 6 <= kind <= 127:
            raise Wrong(Fault.TYPE_RESERVED, at + 4)
        more = data[at + 5] >= 0x80
        while more:
            one = read_block(data, body, end, len(found), limits)
            found.append(one)
            more = bool(one.more)
            odd_bits |= data[body + 5] & 0x7F != 0 or data[body + 6 : body + 8] != bytes(2)
            if one.id == 0:
                odd_bits |= one.content[0] & 0x7F != 0 or one.content[1:4] != bytes(3)
                requests.append((one.content[0] >> 7, number(one.content, 4, 8)))
            if one.id == 1:
                odd_bits |= one.content[1:4] != bytes(3)
                schemes.append(one.content[0])
            breach = breach_of(kind, one, requests, schemes, limits)
            if breach is not None:
                breaches.append((breach, body))
            body += one.size
        read_body(data, kind, body, end)
        if kind == 0:
            odd_bits |= data[body + 1 : body + 4] != bytes(3)
        if kind == 4:
            odd_bits |= data[body + 3] != 0
        odd_body = kind in (1, 2, 3) and end > body
        fault, fault_at = breaches[0] if breaches else (0, start)
    except Wrong as wrong:
        fault, fault_at = wrong.fault, wrong.at
    asked = requests[0] if requests else (-1, 0)
    signed = asked[1] - (1 << 64 if asked[1] >= 1 << 63 else 0)
    scheme = schemes[-1] if schemes else -1
    return Read(start, size, kind, fault, fault_at, found, body, asked[0], signed, scheme, odd_bits, odd_body)


def read_block(data: bytes, at: int, end: int, before: int, limits: Limits) -> Block:
    if before == limits.max_extension_blocks:
        raise Wrong(Fault.BLOCKS_OVER_LIMIT, at)
    if end - at < 8:
        raise Wrong(Fault.NEXT_BLOCK_MISSING if before else Fault.BLOCK_MISSING, at)
    size = number(data, at, 4) + (4 if limits.sizes_exclude_themselves else 0)
    if size < 8:
        raise Wrong(Fault.BLOCK_TOO_SMALL, at)
    if at + size > end:
        raise Wrong(Fault.BLOCK_PAST_END, at)
    if data[at + 4] == 0 and size != 20:
        raise Wrong(Fault.REQUEST_BLOCK_SIZE, at)
    if data[at + 4] == 1 and size != 12:
        raise Wrong(Fault.COMPRESSION_BLOCK_SIZE, at)
    return Block(at, size, data[at + 4], int(data[at + 5] >= 0x80), data[at + 8 : at + size])


def breach_of(kind: int, one: Block, requests: list[tuple[int, int]], schemes: list[int], limits: Limits) -> Fault | None:
    if kind == 0:
        return Fault.HELLO_EXTENDED
    if one.id == 0:
        if kind < 5:
            return Fault.REQUEST_BLOCK_MISPLACED
        if len(requests) > 1:
            return Fault.REQUEST_BLOCK_REPEATED
        return Fault.REQUEST_ID_ZERO if requests[0][1] == 0 else None
    if one.id == 1:
        if kind < 5:
            return Fault.COMPRESSION_MISPLACED
        return Fault.COMPRESSION_NESTED if len(schemes) > limits.max_nested_compression else None
    return Fault.EXTENSION_UNKNOWN if one.id < 128 else None


def read_body(data: bytes, kind: int, at: int, end: int) -> None:
    if kind == 0 and end - at != 4:
        raise Wrong(Fault.HELLO_SIZE, at)
    if kind == 4:
        if end - at < 6 or end - at < 6 + number(data, at + 4, 2):
            raise Wrong(Fault.ERROR_TOO_SHORT, at)
        if end - at > 6 + number(data, at + 4, 2):
            raise Wrong(Fault.ERROR_TRAILING_BYTES, at + 6 + number(data, at + 4, 2))
