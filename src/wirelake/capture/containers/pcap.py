"""pcap: scan the records of a classic capture file, one header and then packets.

Supports both byte orders (endianness), times in microseconds or nanoseconds, and the variant with 24 bytes before each packet that some
kernels wrote. A file header where a packet should begin starts another file: captures are joined with `cat`.

A pcap record has no checksum and no magic number of its own. So a length beyond the snap length is where reading stops, and `find`
searches for the next record.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.capture.containers.records import (
    CHAIN,
    DATA,
    FAULT_LENGTH,
    FAULT_MAGIC,
    FAULT_VERSION,
    FAULT_ZEROS,
    KIND,
    LENGTH,
    LINK,
    LONGEST_LINK,
    MAX_RECORD,
    OTHER_CONTAINER,
    RECORD_FILE,
    RECORD_PACKET,
    SIZE,
    START,
    TS,
    WIRE_SIZE,
    microseconds,
    ordered16,
    ordered32,
)
from wirelake.protocols.kernel import kernel

__all__ = ["HEADER_SIZE", "MAGICS", "SNAP_FLOOR", "STATE_SIZE", "find", "header_at", "scan"]

HEADER_SIZE: Final = 24
"""magic, version, zone, accuracy, snap length, link type."""
RECORD_HEADER: Final = 16
"""seconds, fraction, captured length, original length."""
LONG_HEADER: Final = 24
"""… and in the variant: interface, protocol, packet type, padding."""

MICROSECONDS: Final = 0xA1B2C3D4
NANOSECONDS: Final = 0xA1B23C4D
LONG_HEADERS: Final = 0xA1B2CD34
MAGICS: Final = frozenset(number.to_bytes(4, order) for number in (0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34) for order in ("big", "little"))
"""Magic numbers a file may begin with."""

# The state of a scan, from the file header: one integer each.
READY: Final = 0
"""0 until a file header was read."""
BIG: Final = 1
FRACTION: Final = 2
"""Units in a second: 10**6 or 10**9."""
LINK_TYPE: Final = 3
SNAP_LENGTH: Final = 4
HEAD: Final = 5
"""Bytes before each packet."""
SWAPPED: Final = 6
"""1: the two lengths are swapped if the first is larger (version 2.3); 2: always swapped (before it)."""
STATE_SIZE: Final = 7

SNAP_FLOOR: Final = 262_144
"""Packets up to this size are accepted even if the header announces less, as in libpcap."""
LONGEST_WIRE: Final = 1 << 24
"""The largest original length that a search accepts."""
APART: Final = 30 * 86_400
"""The most seconds between two neighbours that a search accepts."""

SECTION: Final = 0x0A0D0D0A
BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D


@kernel
def header_at(data: Any, at: int) -> int:
    """Return the byte order of the file header at an offset: 1 big-endian, 0 little-endian, -1 none.

    The offset must have four bytes.
    """
    for big in range(2):
        magic = ordered32(data, at, big)
        if magic in (MICROSECONDS, NANOSECONDS, LONG_HEADERS):
            return big
    return -1


@kernel
def _open(data: Any, at: int, big: int, state: Any) -> int:
    """Store the file header at an offset in the state; returns a fault or 0.

    Packets may follow even a header of an unknown version.
    """
    major = ordered16(data, at + 4, big)
    minor = ordered16(data, at + 6, big)
    magic = ordered32(data, at, big)
    state[READY] = 1
    state[BIG] = big
    state[FRACTION] = 1_000_000_000 if magic == NANOSECONDS else 1_000_000
    state[SNAP_LENGTH] = ordered32(data, at + 16, big)
    state[LINK_TYPE] = ordered32(data, at + 20, big) & 0xFFFF  # the upper bits say whether frames have a checksum (FCS)
    state[HEAD] = LONG_HEADER if magic == LONG_HEADERS else RECORD_HEADER
    state[SWAPPED] = 2 if minor < 3 else 1 if minor == 3 else 0
    return 0 if major == 2 else FAULT_VERSION


@kernel
def scan(data: Any, start: int, stop: int, limit: int, state: Any, rows: Any) -> tuple[int, int, int]:
    """Walk whole records in data[start:stop] that begin before `limit`; one row each.

    Returns (rows written, next, how it ended).
    """
    count, at = 0, start
    while count < len(rows) and at < limit:
        if stop - at < RECORD_HEADER:
            return count, at, RECORD_HEADER
        order = header_at(data, at)
        if order >= 0 and (state[READY] == 0 or ordered16(data, at + 4, order) == 2):
            if stop - at < HEADER_SIZE:
                return count, at, HEADER_SIZE
            fault = _open(data, at, order, state)
            if fault:
                return count, at, fault
            rows[count, START] = at
            rows[count, LENGTH] = HEADER_SIZE
            rows[count, KIND] = RECORD_FILE
            rows[count, DATA] = at
            rows[count, SIZE] = 0
            rows[count, WIRE_SIZE] = 0
            rows[count, TS] = 0
            rows[count, LINK] = -1
            count += 1
            at += HEADER_SIZE
            continue
        if state[READY] == 0:
            return count, at, FAULT_MAGIC
        big = int(state[BIG])
        head = int(state[HEAD])
        longest = min(max(int(state[SNAP_LENGTH]), SNAP_FLOOR), MAX_RECORD - LONG_HEADER)
        size = ordered32(data, at + 8, big)
        wire = ordered32(data, at + 12, big)
        if state[SWAPPED] == 2 or (state[SWAPPED] == 1 and size > wire):
            size, wire = wire, size
        if size > longest:
            if ordered32(data, at, 1) == SECTION:
                magic = ordered32(data, at + 8, 1)
                if magic == BYTE_ORDER_MAGIC or magic == 0x4D3C2B1A:
                    return count, at, OTHER_CONTAINER
            return count, at, FAULT_LENGTH
        if stop - at < head + size:
            return count, at, head + size
        fraction = ordered32(data, at + 4, big)
        if size + wire + fraction + ordered32(data, at, big) == 0:
            return count, at, FAULT_ZEROS
        if state[FRACTION] > 1_000_000:
            fraction //= 1000
        rows[count, START] = at
        rows[count, LENGTH] = head + size
        rows[count, KIND] = RECORD_PACKET
        rows[count, DATA] = at + head
        rows[count, SIZE] = size
        rows[count, WIRE_SIZE] = wire
        rows[count, TS] = microseconds(ordered32(data, at, big), fraction)
        rows[count, LINK] = state[LINK_TYPE]
        count += 1
        at += head + size
    return count, at, 0


@kernel
def find(data: Any, start: int, stop: int, is_end: int, state: Any) -> tuple[int, int]:
    """Find the first offset in data[start:stop] where a chain of plausible records begins.

    Returns (offset, 0), or (-1, first undecided offset). With `is_end` the file ends at `stop`: every offset is decided, and a chain may
    end there. The same bytes give the same offset, wherever windows begin and end.
    """
    if state[READY] == 0:
        return -1, stop
    big = int(state[BIG])
    head = int(state[HEAD])
    longest = min(max(int(state[SNAP_LENGTH]), SNAP_FLOOR), LONGEST_LINK - LONG_HEADER)
    at = start
    while stop - at >= head:
        size = ordered32(data, at + 8, big)
        if size == 0 or size > longest:
            at += 1
            continue
        before = ordered32(data, at, big)
        link = at
        length = 0
        while length < CHAIN:
            if stop - link < head:
                if not is_end:
                    return -1, at
                break
            if header_at(data, link) >= 0:  # another file begins: as good as an end
                length = CHAIN
                break
            size = ordered32(data, link + 8, big)
            wire = ordered32(data, link + 12, big)
            if state[SWAPPED] and size > wire:
                size, wire = wire, size
            seconds = ordered32(data, link, big)
            is_apart = seconds > before + APART or seconds < before - APART
            if size == 0 or size > longest or size > wire or wire > LONGEST_WIRE or is_apart:
                length = -1
                break
            if ordered32(data, link + 4, big) >= state[FRACTION]:
                length = -1
                break
            if stop - link < head + size:
                if not is_end:
                    return -1, at
                break
            before = seconds
            length += 1
            link += head + size
        if length == CHAIN or (length > 0 and (link == stop or length > 1)):
            return at, 0
        at += 1
    if is_end:
        return -1, stop
    return -1, at
