"""The scanner of EMP: finds messages and their extension blocks, and the rules they break.

This is the only reader of the layout. It accepts every message that can be read, also one that breaks a rule: such a breach is in the
row's fault column, and the session acts on it.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.emp.messages import APPLICATION_FIRST, ExtensionId, MessageType
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
    i64,
    kernel,
    u16,
    u32,
    walker,
)

__all__ = [
    "BODY",
    "BODY_LENGTH",
    "DEFAULT_LIMITS",
    "ERROR_TEXT",
    "FLAG",
    "HEADER",
    "ODDITIES",
    "ODD_BITS",
    "ODD_BODY",
    "PART_COLUMNS",
    "PART_ID",
    "PART_MORE",
    "PART_SIZE",
    "PART_START",
    "REQUEST",
    "REQUEST_ID",
    "ROW_COLUMNS",
    "SCHEME",
    "Limits",
    "find",
    "glance",
    "longest_row",
    "run",
    "scan",
    "sniff",
    "walk",
]

# A row: the shared columns, then these.
BODY: Final = SHARED
"""Offset of the body; a hello's version and an error's codes are at fixed places from here."""
BODY_LENGTH: Final = SHARED + 1
REQUEST: Final = SHARED + 2
"""1 request, 0 response, -1 neither."""
REQUEST_ID: Final = SHARED + 3
"""The 64 bits of the identifier, as a signed number."""
SCHEME: Final = SHARED + 4
"""The scheme of the last compression block, -1 without one."""
ODDITIES: Final = SHARED + 5
"""Bits for what is tolerated: see ODD_BITS and ODD_BODY."""
ROW_COLUMNS: Final = SHARED + 6

# A part: one extension block.
PART_START: Final = 0
PART_SIZE: Final = 1
PART_ID: Final = 2
PART_MORE: Final = 3
PART_COLUMNS: Final = 4

ODD_BITS: Final = 1
"""EMP-5: unused bits are set."""
ODD_BODY: Final = 2
"""EMP-20: a body where there is none."""

HEADER: Final = 8
"""Size and header of an envelope, and just so of an extension block."""
FLAG: Final = 0x80
"""The E, M and R bits: the first bit of their byte."""
HELLO_BODY: Final = 4
ERROR_TEXT: Final = 6
"""Offset of an error's message in its body: after three codes, an unused byte and the length."""
REQUEST_CONTENT: Final = 12
COMPRESSION_CONTENT: Final = 4
FARTHEST: Final = 1 << 47
"""No offset is beyond this or below 0.

Saying so lets the compiler drop a check on every access (20 ns a message become 14).
"""

# Members of enums that every scan reads: reading a member is a call, reading a number is not.
_COMPRESSION: Final = ExtensionId.COMPRESSION.value
_REQUEST_RESPONSE: Final = ExtensionId.REQUEST_RESPONSE.value
_DATA: Final = MessageType.DATA.value
_ERROR: Final = MessageType.ERROR.value
_HELLO: Final = MessageType.HELLO.value
_PLAIN_HEAD: Final = bytes((_DATA, 0, 0, 0))
"""What follows the size of a data message without extensions."""
_PLAIN: Final = int.from_bytes(_PLAIN_HEAD)
"""The same as a number."""
_FLAG: Final = FLAG << 16
"""The E or M bit in the four bytes that follow a size."""
_UNUSED: Final = 0x7FFFFF
"""The unused bits there (EMP-5)."""


@kernel
def scan(data: Any, start: int, stop: int, rows: Any, parts: Any, limits: Any) -> tuple[int, int, int, int]:
    """Walk whole messages in data[start:stop]; one row each, one part for each extension block.

    Returns (rows written, parts written, next offset, need): `need` is how many bytes the next message takes, 0 if that is not known
    yet, NO_ROOM if rows or parts are full. A message whose end cannot be known is the last row, and `next` stays at its start.
    """
    max_size, max_blocks, max_nested, bias = limits
    count, used, at = 0, 0, start
    while (count + 1) * ROW_COLUMNS <= len(rows):
        if stop - at < 4 or at < 0 or at > FARTHEST:
            return count, used, at, 0
        size = u32(data, at) + bias
        lost = size < HEADER or size > max_size  # EMP-1, EMP-35
        if not lost and stop - at < size:
            return count, used, at, size
        end = stop if lost else at + size
        body = end if lost else at + HEADER
        kind, blocks, packed, odd = -1, 0, 0, 0
        request, request_id, scheme = -1, 0, -1
        fault, fault_at, breach, breach_at = 0, at, 0, at
        if lost:
            fault = Fault.SIZE_TOO_SMALL.value if size < HEADER else Fault.SIZE_OVER_LIMIT.value
        elif u32(data, at + 4) == _PLAIN:  # data without extensions: by far the commonest, and nothing can be wrong with it
            kind = _DATA
        else:
            head = u32(data, at + 4)
            kind = head >> 24
            if head & _UNUSED:  # EMP-5
                odd = ODD_BITS
            more = head & _FLAG != 0
            if _DATA < kind < APPLICATION_FIRST:  # EMP-24
                fault, fault_at, more = Fault.TYPE_RESERVED.value, at + 4, False
            if more and len(parts) < (used + max_blocks) * PART_COLUMNS:
                return count, used, at, NO_ROOM
            while more:
                fault = _block_fault(data, body, end, blocks, max_blocks, bias)
                if fault:
                    fault_at = body
                    break
                block_size = u32(data, body) + bias
                head = u32(data, body + 4)
                extension = head >> 24
                more = head & _FLAG != 0
                part = (used + blocks) * PART_COLUMNS
                parts[part + PART_START] = body
                parts[part + PART_SIZE] = block_size
                parts[part + PART_ID] = extension
                parts[part + PART_MORE] = 1 if more else 0
                blocks += 1
                bits = head & _UNUSED
                wrong = 0
                if extension == _REQUEST_RESPONSE:
                    bits |= u32(data, body + 8) & 0x7FFFFFFF
                    if request >= 0:  # EMP-8
                        wrong = Fault.REQUEST_BLOCK_REPEATED.value
                    else:
                        request = (0 + data[body + 8]) >> 7
                        request_id = i64(data, body + 12)
                        if request_id == 0:  # EMP-12
                            wrong = Fault.REQUEST_ID_ZERO.value
                    if kind < _DATA:  # EMP-14
                        wrong = Fault.REQUEST_BLOCK_MISPLACED.value
                elif extension == _COMPRESSION:
                    bits |= data[body + 9] | data[body + 10] | data[body + 11]
                    scheme = 0 + data[body + 8]
                    packed += 1
                    if packed > max_nested:  # EMP-8
                        wrong = Fault.COMPRESSION_NESTED.value
                    if kind < _DATA:  # EMP-15
                        wrong = Fault.COMPRESSION_MISPLACED.value
                elif extension < APPLICATION_FIRST:  # EMP-9
                    wrong = Fault.EXTENSION_UNKNOWN.value
                if kind == _HELLO:  # EMP-47
                    wrong = Fault.HELLO_EXTENDED.value
                if bits:  # EMP-5
                    odd = ODD_BITS
                if wrong and not breach:
                    breach, breach_at = wrong, body
                body += block_size
            if kind < _DATA and not fault:
                fault, fault_at = _body_fault(data, kind, body, end)
                if not fault:
                    odd |= _body_oddities(data, kind, body, end)
            if breach and not fault:
                fault, fault_at = breach, breach_at
        row = count * ROW_COLUMNS
        rows[row + START] = at
        rows[row + LENGTH] = end - at
        rows[row + KIND] = kind
        rows[row + FAULT] = fault
        rows[row + FAULT_AT] = fault_at
        rows[row + PART] = used
        rows[row + PARTS] = blocks
        rows[row + BODY] = body
        rows[row + BODY_LENGTH] = end - body
        rows[row + REQUEST] = request
        rows[row + REQUEST_ID] = request_id
        rows[row + SCHEME] = scheme
        rows[row + ODDITIES] = odd
        count += 1
        used += blocks
        if lost:
            return count, used, at, 0
        at = end
    return count, used, at, NO_ROOM


@kernel
def _block_fault(data: Any, at: int, end: int, blocks: int, max_blocks: int, bias: int) -> int:
    """Extensions: why the block at this place cannot be read, or 0."""
    if blocks == max_blocks:  # EMP-36
        return Fault.BLOCKS_OVER_LIMIT.value
    if end - at < HEADER:  # EMP-10, EMP-11
        return Fault.NEXT_BLOCK_MISSING.value if blocks else Fault.BLOCK_MISSING.value
    size = u32(data, at) + bias
    if size < HEADER:  # EMP-2
        return Fault.BLOCK_TOO_SMALL.value
    if end - at < size:  # EMP-2, EMP-11
        return Fault.BLOCK_PAST_END.value
    if data[at + 4] == _REQUEST_RESPONSE and size != HEADER + REQUEST_CONTENT:  # EMP-7
        return Fault.REQUEST_BLOCK_SIZE.value
    if data[at + 4] == _COMPRESSION and size != HEADER + COMPRESSION_CONTENT:  # EMP-7
        return Fault.COMPRESSION_BLOCK_SIZE.value
    return 0


@kernel
def _body_fault(data: Any, kind: int, at: int, end: int) -> tuple[int, int]:
    """Message types: why the body of a message other than data cannot be read, and where; or 0."""
    if kind == _HELLO and end - at != HELLO_BODY:  # EMP-21
        return Fault.HELLO_SIZE.value, at
    if kind == _ERROR:
        if end - at < ERROR_TEXT or end - at < ERROR_TEXT + u16(data, at + 4):  # EMP-22
            return Fault.ERROR_TOO_SHORT.value, at
        if end - at > ERROR_TEXT + u16(data, at + 4):  # EMP-41
            return Fault.ERROR_TRAILING_BYTES.value, at + ERROR_TEXT + u16(data, at + 4)
    return 0, at


@kernel
def _body_oddities(data: Any, kind: int, at: int, end: int) -> int:
    """Message types: tolerated oddities in the body of a message other than data."""
    if kind == _HELLO:
        return ODD_BITS if data[at + 1] | data[at + 2] | data[at + 3] else 0
    if kind == _ERROR:
        return ODD_BITS if data[at + 3] else 0
    return ODD_BODY if end > at else 0  # EMP-20


@kernel
def _plausible(data: Any, at: int, stop: int, limits: Any) -> int:
    """The size of what is very likely a message at this place, else 0."""
    if stop - at < HEADER:
        return 0
    size: int = u32(data, at) + limits[3]
    kind = data[at + 4]
    if size < HEADER or size > limits[0] or kind > MessageType.DATA:
        return 0
    if data[at + 5] & 0x7F or data[at + 6] or data[at + 7]:
        return 0
    if data[at + 5] & FLAG == 0:
        if kind == MessageType.HELLO and size != HEADER + HELLO_BODY:
            return 0
        if kind == MessageType.ERROR and size < HEADER + ERROR_TEXT:
            return 0
        if MessageType.HELLO < kind < MessageType.ERROR and size != HEADER:
            return 0
    return size


@kernel
def find(data: Any, start: int, stop: int, limits: Any) -> int:
    """Find the next offset where messages certainly begin again; else `stop`.

    A message there ends exactly at `stop`, or another follows it.
    """
    for at in range(start, stop):
        size = _plausible(data, at, stop, limits)
        if size and (at + size == stop or (at + size < stop and _plausible(data, at + size, stop, limits))):
            return at
    return stop


@kernel
def longest_row(data: Any, stop: int, is_all: bool, limits: Any) -> int:
    """Count the messages that follow each other, where most do. The last may end beyond the data.

    A single one counts if it is all the data, and with `is_all` no more come.
    """
    most, at = 0, 0
    while at < stop:
        first = find(data, at, stop, limits)
        at, count = first, 0
        while at < stop:
            size = _plausible(data, at, stop, limits)
            if not size:
                break
            count += 1
            at += size
        if count > most and (count > 1 or (is_all and first == 0 and at == stop)):
            most = count
    return most


_EXCHANGE: Final = HEADER + HEADER + REQUEST_CONTENT
"""Bytes before the body of a request or response without other extensions."""
_EXCHANGE_HEADS: Final = {
    bytes((_DATA, FLAG, 0, 0, 0, 0, 0, HEADER + REQUEST_CONTENT - bias, _REQUEST_RESPONSE, 0, 0, 0, FLAG * request, 0, 0, 0)): (
        bias,
        request,
    )
    for bias in (0, 4)
    for request in (0, 1)
}
"""What follows the size of a request or response, up to its identifier -> what sizes leave out (EMP-1), and whether it is a request."""


def glance(data: bytes, limits: tuple[int, ...]) -> tuple[list[int], list[int]] | None:
    """See `buffer.Glance`: data, or a request or response, without other extensions."""
    size, bias = len(data), limits[3]
    if size > limits[0] or int.from_bytes(data[:4]) + bias != size:
        return None
    if data[4:8] == _PLAIN_HEAD:
        return [0, size, _DATA, 0, 0, 0, 0, HEADER, size - HEADER, -1, 0, -1, 0], []
    exchange = _EXCHANGE_HEADS.get(data[4:20])
    if exchange is None or exchange[0] != bias or size < _EXCHANGE or not limits[1]:
        return None
    request_id = int.from_bytes(data[20:_EXCHANGE], signed=True)
    if not request_id:
        return None
    row = [0, size, _DATA, 0, 0, 0, 1, _EXCHANGE, size - _EXCHANGE, exchange[1], request_id, -1, 0]
    return row, [HEADER, HEADER + REQUEST_CONTENT, _REQUEST_RESPONSE, 0]


_HEAD: Final = struct.Struct(">II")


def run(data: bytes, start: int, stop: int, limits: tuple[int, ...]) -> tuple[list[int], list[tuple[bytes, ...]]]:
    """See `buffer.Run`: data without extensions; each as the body that it has."""
    sizes: list[int] = []
    payloads: list[tuple[bytes, ...]] = []
    most, bias, last, head = limits[0], limits[3], stop - HEADER, _HEAD.unpack_from
    while start <= last:
        size, what = head(data, start)
        size += bias
        end = start + size
        if what != _PLAIN or end > stop or size < HEADER or size > most:
            break
        if not sizes and (equal := equal_frames(data, start, stop, data[start : start + HEADER], size - HEADER)):
            return [size] * len(equal), equal
        sizes.append(size)
        payloads.append((data[start + HEADER : end],))
        start = end
    return sizes, payloads


walk = walker(scan, find, ROW_COLUMNS, PART_COLUMNS)
"""`scan` over many runs, with `find` where a run goes wrong: see `kernel.walker`."""


def sniff(data: bytes) -> bool:
    """Whether a stream that begins like this is EMP: its first message is a hello of version 1.

    EMP-1: a hello whose size leaves itself out must be all there, because fewer bytes than that are no proof.
    """
    if data[:12] == b"\x00\x00\x00\x08\x00\x00\x00\x00\x01\x00\x00\x00":
        return True
    return data[:5] == b"\x00\x00\x00\x0c\x00" and data[8:9] in (b"", b"\x01")
