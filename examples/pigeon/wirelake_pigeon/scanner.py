"""The scanner of PIGEON/1: bytes to rows of numbers. It runs as it stands, or compiled by Numba."""

from __future__ import annotations

from typing import Final

import msgspec

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
    Numbers,
    Octets,
    ScanLimits,
    kernel,
    u16,
    walker,
)

__all__ = ["BODY", "BODY_LENGTH", "HEADER", "PART_COLUMNS", "ROW_COLUMNS", "Limits", "find", "scan", "sniff", "walk"]

HEADER: Final = 4
LETTER: Final = 0x50
"""P"""
BODY: Final = SHARED
"""Offset of the body: the first column of a row that is PIGEON's own."""
BODY_LENGTH: Final = SHARED + 1
ROW_COLUMNS: Final = SHARED + 2
PART_COLUMNS: Final = 1

# Kernels take numbers, not enumerations.
NOT_A_FRAME: Final = 1
BODY_OVER_LIMIT: Final = 2
TYPE_UNKNOWN: Final = 10
BODY_SIZE: Final = 11


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a receiver; `--set` takes each by its name."""

    max_body_size: int = 4096
    """Bytes of a body."""

    @property
    def max_parts(self) -> int:
        """Frames have no parts."""
        return 0

    def for_scan(self) -> ScanLimits:
        """The numbers that the kernels take."""
        return (self.max_body_size,)


@kernel
def _is_size(kind: int, size: int) -> bool:
    """§2.3: whether a body of this size fits its type."""
    return (kind == 1 and size == 1) or (kind == 2 and size >= 4) or (kind == 3 and size == 4) or (kind == 4 and size == 0)


@kernel
def scan(data: Octets, start: int, stop: int, rows: Numbers, parts: Numbers, limits: ScanLimits) -> tuple[int, int, int, int]:  # noqa: ARG001
    """Read the whole frames in data[start:stop], one row each.

    Returns (rows written, parts written, next offset, need). A row with a fault that begins at the next offset says that the rest cannot
    be read. `need` is the bytes of the next frame, 0 if that is not known yet, or NO_ROOM if the rows are full.
    """
    count, at = 0, start
    while at < stop:
        if (count + 1) * ROW_COLUMNS > len(rows):
            return count, 0, at, NO_ROOM
        fault, size = 0, 0
        if data[at] != LETTER:
            fault = NOT_A_FRAME
        elif stop - at < HEADER:
            return count, 0, at, HEADER
        else:
            size = u16(data, at + 2)
            if size > limits[0]:
                fault = BODY_OVER_LIMIT
            elif stop - at < HEADER + size:
                return count, 0, at, HEADER + size
            elif data[at + 1] < 1 or data[at + 1] > 4:
                fault = TYPE_UNKNOWN
            elif not _is_size(data[at + 1], size):
                fault = BODY_SIZE
        is_lost = fault in (NOT_A_FRAME, BODY_OVER_LIMIT)
        row = count * ROW_COLUMNS
        rows[row + START] = at
        rows[row + LENGTH] = stop - at if is_lost else HEADER + size
        rows[row + KIND] = 0 if is_lost else data[at + 1]
        rows[row + FAULT] = fault
        rows[row + FAULT_AT] = at
        rows[row + PART] = 0
        rows[row + PARTS] = 0
        rows[row + BODY] = at + HEADER
        rows[row + BODY_LENGTH] = 0 if is_lost else size
        count += 1
        if is_lost:
            return count, 0, at, 0
        at += HEADER + size
    return count, 0, at, 0


@kernel
def find(data: Octets, start: int, stop: int, limits: ScanLimits) -> int:
    """The next offset where a frame certainly begins: one that ends at `stop`, or is followed by a P. Else `stop`."""
    for at in range(start, stop - HEADER + 1):
        size = u16(data, at + 2)
        if data[at] == LETTER and size <= limits[0] and _is_size(data[at + 1], size):
            end = at + HEADER + size
            if end == stop or (end < stop and data[end] == LETTER):
                return at
    return stop


walk = walker(scan, find, ROW_COLUMNS, PART_COLUMNS)
"""`scan` over many runs, with `find` behind bytes that cannot be read."""


def sniff(data: bytes) -> bool:
    """Whether a stream that begins with these bytes is PIGEON/1: its first frame is a hello of version 1."""
    return data.startswith(b"P\x01\x00\x01\x01")
