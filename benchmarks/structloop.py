"""The rival of the scanner: the same columns and the same checks, as one would write them with `struct` and no further thought of speed.

It unpacks whole headers at once, keeps locals local and appends tuples: what an experienced Python programmer writes first.
"""

from __future__ import annotations

import struct

from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.scanner import Limits

__all__ = ["scan"]

Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
Part = tuple[int, int, int, int]

ENVELOPE = struct.Struct(">IBBH")
REQUEST = struct.Struct(">B3sq")
COMPRESSION = struct.Struct(">B3s")
ERROR_HEAD = struct.Struct(">BBBBH")

HELLO, BYE, ERROR, DATA, APPLICATION = 0, 1, 4, 5, 128


def scan(data: bytes, limits: Limits) -> tuple[list[Row], list[Part], int]:
    """(rows, parts, next offset) of all whole messages in `data`; the columns are those of `scanner.py`."""
    rows: list[Row] = []
    parts: list[Part] = []
    at, stop = 0, len(data)
    while stop - at >= 4:
        if stop - at < 8:
            size = int.from_bytes(data[at : at + 4])
            kind = flags = unused = 0
        else:
            size, kind, flags, unused = ENVELOPE.unpack_from(data, at)
        if size < 8 or size > limits.max_message_size:
            fault = Fault.SIZE_TOO_SMALL if size < 8 else Fault.SIZE_OVER_LIMIT
            rows.append((at, stop - at, -1, fault, at, len(parts), 0, stop, 0, -1, 0, -1, 0))
            break
        end = at + size
        if end > stop:
            break
        fault, fault_at, breach, breach_at = 0, at, 0, at
        odd = 1 if flags & 0x7F or unused else 0
        request, request_id, scheme, packed = -1, 0, -1, 0
        first, body = len(parts), at + 8
        more = flags >= 0x80
        if DATA < kind < APPLICATION:
            fault, fault_at, more = Fault.TYPE_RESERVED, at + 4, False
        while more:
            fault, fault_at = block_fault(data, body, end, len(parts) - first, limits), body
            if fault:
                break
            block_size, extension, block_flags, block_unused = ENVELOPE.unpack_from(data, body)
            more = block_flags >= 0x80
            parts.append((body, block_size, extension, int(more)))
            is_odd = block_flags & 0x7F or block_unused
            wrong = 0
            if extension == 0:
                asks, rest, identifier = REQUEST.unpack_from(data, body + 8)
                is_odd = is_odd or asks & 0x7F or rest != b"\0\0\0"
                if request >= 0:
                    wrong = Fault.REQUEST_BLOCK_REPEATED
                else:
                    request, request_id = asks >> 7, identifier
                    if not identifier:
                        wrong = Fault.REQUEST_ID_ZERO
                if kind < DATA:
                    wrong = Fault.REQUEST_BLOCK_MISPLACED
            elif extension == 1:
                scheme, rest = COMPRESSION.unpack_from(data, body + 8)
                is_odd = is_odd or rest != b"\0\0\0"
                packed += 1
                if packed > limits.max_nested_compression:
                    wrong = Fault.COMPRESSION_NESTED
                if kind < DATA:
                    wrong = Fault.COMPRESSION_MISPLACED
            elif extension < APPLICATION:
                wrong = Fault.EXTENSION_UNKNOWN
            if kind == HELLO:
                wrong = Fault.HELLO_EXTENDED
            if is_odd:
                odd = 1
            if wrong and not breach:
                breach, breach_at = wrong, body
            body += block_size
        if not fault:
            fault_at = at
            if kind < DATA:
                fault, fault_at, odd = body_fault(data, kind, body, end, at, odd)
        if breach and not fault:
            fault, fault_at = breach, breach_at
        rows.append((at, size, kind, fault, fault_at, first, len(parts) - first, body, end - body, request, request_id, scheme, odd))
        at = end
    return rows, parts, at


def block_fault(data: bytes, at: int, end: int, before: int, limits: Limits) -> int:
    if before == limits.max_extension_blocks:
        return Fault.BLOCKS_OVER_LIMIT
    if end - at < 8:
        return Fault.NEXT_BLOCK_MISSING if before else Fault.BLOCK_MISSING
    size, extension, _, _ = ENVELOPE.unpack_from(data, at)
    if size < 8:
        return Fault.BLOCK_TOO_SMALL
    if at + size > end:
        return Fault.BLOCK_PAST_END
    if extension == 0 and size != 20:
        return Fault.REQUEST_BLOCK_SIZE
    if extension == 1 and size != 12:
        return Fault.COMPRESSION_BLOCK_SIZE
    return 0


def body_fault(data: bytes, kind: int, body: int, end: int, start: int, odd: int) -> tuple[int, int, int]:
    if kind == HELLO:
        if end - body != 4:
            return Fault.HELLO_SIZE, body, odd
        return 0, start, odd | int(data[body + 1 : body + 4] != b"\0\0\0")
    if kind == ERROR:
        if end - body < 6:
            return Fault.ERROR_TOO_SHORT, body, odd
        _, _, _, unused, length = ERROR_HEAD.unpack_from(data, body)
        if end - body < 6 + length:
            return Fault.ERROR_TOO_SHORT, body, odd
        if end - body > 6 + length:
            return Fault.ERROR_TRAILING_BYTES, body + 6 + length, odd
        return 0, start, odd | int(unused != 0)
    return 0, start, odd | (2 if end > body else 0)
