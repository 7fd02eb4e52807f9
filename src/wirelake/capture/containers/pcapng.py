"""pcapng: scan the blocks of a capture file, and build the three kinds a recording needs.

Reads section headers (which set the byte order), interface descriptions (link type, snap length, time resolution and offset), enhanced,
simple and old packet blocks. Every other block is skipped and counted by its kind. Times are converted to microseconds here, so that
later stages need no interfaces. Every block has its length at both ends: `find` searches for blocks where the two agree.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from wirelake.capture.containers.pcap import header_at
from wirelake.capture.containers.records import (
    CHAIN,
    DATA,
    FAULT_LENGTH,
    FAULT_MAGIC,
    FAULT_TRAILER,
    FAULT_VERSION,
    KIND,
    LAST_MOMENT,
    LENGTH,
    LINK,
    LONGEST_LINK,
    MAX_RECORD,
    NO_TIME,
    OTHER_CONTAINER,
    RECORD_BAD_DATA,
    RECORD_BAD_INTERFACE,
    RECORD_CUSTOM,
    RECORD_INTERFACE,
    RECORD_NAMES,
    RECORD_PACKET,
    RECORD_SECRETS,
    RECORD_SECTION,
    RECORD_SKIPPED,
    RECORD_STATISTICS,
    SIZE,
    START,
    TS,
    WIRE_SIZE,
    microseconds,
    ordered16,
    ordered32,
)
from wirelake.protocols.kernel import kernel

__all__ = [
    "BYTE_ORDER_MAGIC",
    "INTERFACES",
    "INTERFACE_COLUMNS",
    "MAGIC",
    "MAX_INTERFACES",
    "PACKET_OVERHEAD",
    "STATE_SIZE",
    "build_interface",
    "build_packet",
    "build_section",
    "find",
    "packet_head",
    "packet_tail",
    "scan",
]

SECTION: Final = 0x0A0D0D0A
INTERFACE: Final = 1
OLD_PACKET: Final = 2
SIMPLE_PACKET: Final = 3
NAMES: Final = 4
STATISTICS: Final = 5
PACKET: Final = 6
SECRETS: Final = 10
CUSTOM: Final = 0x0BAD
CUSTOM_KEPT: Final = 0x40000BAD
MAGIC: Final = b"\x0a\x0d\x0d\x0a"
BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D

SMALLEST: Final = 12
"""Type and length, and the length again."""
PACKET_OVERHEAD: Final = 32
"""Bytes of an enhanced packet block around its data, padding apart."""

MAX_INTERFACES: Final = 4096
"""Interfaces kept of one section; packets of further ones go to quarantine."""

# The state of a scan, kept from window to window.
BIG: Final = 0
INTERFACES: Final = 1
STATE_SIZE: Final = 2

# One row per interface of the current section.
IF_LINK: Final = 0
IF_SNAP: Final = 1
IF_SCALE: Final = 2
"""`MULTIPLY`, `DIVIDE` or `SHIFT`: how to convert a time to microseconds."""
IF_UNIT: Final = 3
IF_SECONDS: Final = 4
"""Seconds to add to every time."""
INTERFACE_COLUMNS: Final = 5

MULTIPLY: Final = 0
DIVIDE: Final = 1
SHIFT: Final = 2

OPTION_END: Final = 0
OPTION_TS_RESOLUTION: Final = 9
OPTION_TS_OFFSET: Final = 14
FAR: Final = 1 << 40
"""A time offset in seconds beyond which nothing is a date."""


@kernel
def _describe(data: Any, at: int, stop: int, big: int, row: Any) -> None:
    """Interface description block: fill one interface row from its body data[at:stop]."""
    row[IF_LINK] = ordered16(data, at, big)
    row[IF_SNAP] = ordered32(data, at + 4, big)
    row[IF_SCALE] = MULTIPLY  # without if_tsresol, times are microseconds
    row[IF_UNIT] = 1
    row[IF_SECONDS] = 0
    at += 8
    while stop - at >= 4:
        code = ordered16(data, at, big)
        size = ordered16(data, at + 2, big)
        at += 4
        if code == OPTION_END or stop - at < size:
            return
        if code == OPTION_TS_RESOLUTION and size == 1:
            power = 0 + data[at]
            if power >= 0x80:
                row[IF_SCALE] = SHIFT
                row[IF_UNIT] = min(power - 0x80, 62)
            elif power <= 6:
                row[IF_SCALE] = MULTIPLY
                row[IF_UNIT] = 10 ** (6 - power)
            else:
                row[IF_SCALE] = DIVIDE
                row[IF_UNIT] = 10 ** min(power - 6, 18)
        elif code == OPTION_TS_OFFSET and size == 8:
            first = ordered32(data, at, big)
            second = ordered32(data, at + 4, big)
            high = first if big else second
            low = second if big else first
            if high >= 0x80000000:
                high -= 0x100000000
            row[IF_SECONDS] = min(max(high, -256), 256) * 0x100000000 + low
        at += (size + 3) & ~3


@kernel
def _time(high: int, low: int, row: Any) -> int:
    """Convert a packet's two time words to microseconds, by its interface's resolution and offset."""
    if high >= 0x80000000:
        return LAST_MOMENT
    ticks = (high << 32) | low
    if row[IF_SCALE] == MULTIPLY:
        unit = int(row[IF_UNIT])
        if ticks > LAST_MOMENT // unit:
            return LAST_MOMENT
        ticks *= unit
        whole = ticks // 1_000_000
        part = ticks % 1_000_000
    elif row[IF_SCALE] == DIVIDE:
        ticks //= int(row[IF_UNIT])
        whole = ticks // 1_000_000
        part = ticks % 1_000_000
    else:
        shift = int(row[IF_UNIT])
        whole = ticks >> shift
        part = ticks & ((1 << shift) - 1)
        if shift > 40:  # keep the product below inside 63 bits
            part >>= shift - 40
            shift = 40
        part = (part * 1_000_000) >> shift
    whole = min(whole, FAR) + int(row[IF_SECONDS])
    return microseconds(whole, part)


@kernel
def _other(kind: int) -> int:
    """Return the record kind of a block that is neither packet, section nor interface."""
    if kind == NAMES:
        return RECORD_NAMES
    if kind == STATISTICS:
        return RECORD_STATISTICS
    if kind == SECRETS:
        return RECORD_SECRETS
    if kind in (CUSTOM, CUSTOM_KEPT):
        return RECORD_CUSTOM
    return RECORD_SKIPPED


@kernel
def scan(data: Any, start: int, stop: int, limit: int, state: Any, interfaces: Any, rows: Any) -> tuple[int, int, int]:
    """Walk whole blocks in data[start:stop] that begin before `limit`; one row each.

    Returns (rows written, next, how it ended).
    """
    count, at = 0, start
    while count < len(rows) and at < limit:
        if stop - at < SMALLEST:
            return count, at, SMALLEST
        big = int(state[BIG])
        kind = ordered32(data, at, big)
        if kind == SECTION:
            if ordered32(data, at + 8, 1) == BYTE_ORDER_MAGIC:
                big = 1
            elif ordered32(data, at + 8, 0) == BYTE_ORDER_MAGIC:
                big = 0
            else:
                return count, at, FAULT_MAGIC
        length = ordered32(data, at + 4, big)
        if length < SMALLEST or length > MAX_RECORD or header_at(data, at) >= 0:
            return count, at, OTHER_CONTAINER if header_at(data, at) >= 0 else FAULT_LENGTH
        announced = length
        length = (length + 3) & ~3  # some writers forget to count the padding
        if stop - at < length:
            return count, at, length
        if ordered32(data, at + length - 4, big) != announced:
            return count, at, FAULT_TRAILER
        rows[count, START] = at
        rows[count, LENGTH] = length
        rows[count, KIND] = _other(kind)
        rows[count, DATA] = at
        rows[count, SIZE] = 0
        rows[count, WIRE_SIZE] = 0
        rows[count, TS] = NO_TIME
        rows[count, LINK] = -1
        if kind in (PACKET, OLD_PACKET):
            rows[count, KIND] = RECORD_BAD_DATA
            if length >= PACKET_OVERHEAD:
                number = ordered32(data, at + 8, big) if kind == PACKET else ordered16(data, at + 8, big)
                size = ordered32(data, at + 20, big)
                if number >= state[INTERFACES]:
                    rows[count, KIND] = RECORD_BAD_INTERFACE
                elif size <= length - PACKET_OVERHEAD:
                    rows[count, KIND] = RECORD_PACKET
                    rows[count, DATA] = at + 28
                    rows[count, SIZE] = size
                    rows[count, WIRE_SIZE] = ordered32(data, at + 24, big)
                    rows[count, TS] = _time(ordered32(data, at + 12, big), ordered32(data, at + 16, big), interfaces[number])
                    rows[count, LINK] = interfaces[number, IF_LINK]
        elif kind == SIMPLE_PACKET:
            rows[count, KIND] = RECORD_BAD_DATA
            if length >= 16:
                if state[INTERFACES] == 0:
                    rows[count, KIND] = RECORD_BAD_INTERFACE
                else:
                    size = ordered32(data, at + 8, big)
                    rows[count, WIRE_SIZE] = size
                    if interfaces[0, IF_SNAP] > 0:
                        size = min(size, int(interfaces[0, IF_SNAP]))
                    if size <= length - 16:
                        rows[count, KIND] = RECORD_PACKET
                        rows[count, DATA] = at + 12
                        rows[count, SIZE] = size
                        rows[count, LINK] = interfaces[0, IF_LINK]
        elif kind == SECTION:
            if length < 28:
                return count, at, FAULT_LENGTH
            state[BIG] = big
            state[INTERFACES] = 0
            if ordered16(data, at + 12, big) != 1:  # its packets may be found all the same
                return count, at, FAULT_VERSION
            rows[count, KIND] = RECORD_SECTION
        elif kind == INTERFACE:
            if length < 20:  # skipping it would shift the numbers of all that follow
                return count, at, FAULT_LENGTH
            rows[count, KIND] = RECORD_INTERFACE
            if state[INTERFACES] < len(interfaces):
                _describe(data, at + 8, at + length - 4, big, interfaces[state[INTERFACES]])
                state[INTERFACES] += 1
        count += 1
        at += length
    return count, at, 0


@kernel
def _block_at(data: Any, at: int, stop: int, big: int) -> int:
    """Return the length of the block at an offset if both its lengths agree.

    Returns -1 if they do not, 0 if it ends beyond `stop`.
    """
    length = ordered32(data, at + 4, big)
    if length < SMALLEST or length % 4 or length > LONGEST_LINK:
        return -1
    if stop - at < length:
        return 0
    if ordered32(data, at + length - 4, big) != length:
        return -1
    return length


@kernel
def find(data: Any, start: int, stop: int, is_end: int, state: Any) -> tuple[int, int]:
    """Find the first offset in data[start:stop] where a chain of blocks begins.

    Returns (offset, 0), or (-1, first undecided offset). With `is_end` the file ends at `stop`: every offset is decided, and a chain may
    end there. The same bytes give the same offset, wherever windows begin and end.
    """
    at = start
    while stop - at >= SMALLEST:
        big = int(state[BIG])
        link = at
        length = 0
        while length < CHAIN:
            if stop - link < SMALLEST:
                if not is_end:
                    return -1, at
                break
            if ordered32(data, link, 1) == SECTION:
                if ordered32(data, link + 8, 1) == BYTE_ORDER_MAGIC:
                    big = 1
                elif ordered32(data, link + 8, 0) == BYTE_ORDER_MAGIC:
                    big = 0
                else:
                    length = -1
                    break
            size = _block_at(data, link, stop, big)
            if size < 0:
                length = -1
                break
            if size == 0:
                if not is_end:
                    return -1, at
                break
            length += 1
            link += size
        if length == CHAIN or (length > 0 and (link == stop or length > 1)):
            return at, 0
        at += 1
    if is_end:
        return -1, stop
    return -1, at


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", SMALLEST + len(body))
    return struct.pack("<I", kind) + length + body + length


def build_section(application: str) -> bytes:
    """Build a section header block: little-endian, of unknown length, with the name of the application."""
    named = _option(4, application.encode("utf-8", "replace")[:1024])
    return _block(SECTION, struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1) + named + _option(OPTION_END, b""))


def build_interface(link_type: int) -> bytes:
    """Build an interface description block without a snap length, times in microseconds."""
    return _block(INTERFACE, struct.pack("<HHI", link_type, 0, 0) + _option(OPTION_TS_RESOLUTION, b"\x06") + _option(OPTION_END, b""))


_PACKET_HEAD: Final = struct.Struct("<IIIIIII")
_PACKET_TAIL: Final = tuple(struct.Struct(f"<{pad}xI") for pad in range(4))


def packet_head(ts: int, size: int) -> bytes:
    """Build the head of an enhanced packet block with `size` bytes, of interface 0 at `ts` microseconds."""
    return _PACKET_HEAD.pack(PACKET, PACKET_OVERHEAD + size + (-size & 3), 0, ts >> 32, ts & 0xFFFFFFFF, size, size)


def packet_tail(size: int) -> bytes:
    """Build its tail: padding, and the block's length again."""
    return _PACKET_TAIL[-size & 3].pack(PACKET_OVERHEAD + size + (-size & 3))


def build_packet(ts: int, data: bytes, *, interface: int = 0, wire_size: int | None = None) -> bytes:
    """Build a whole enhanced packet block; `wire_size` is the size before the snap length cut it."""
    size = len(data)
    length = PACKET_OVERHEAD + size + (-size & 3)
    head = _PACKET_HEAD.pack(PACKET, length, interface, ts >> 32, ts & 0xFFFFFFFF, size, max(size, wire_size or 0))
    return head + data + packet_tail(size)
