"""pcap: the classic capture file, one header and then packets; finds and measures them.

Both byte orders, and times in microseconds or nanoseconds. A pcap record carries nothing to check it by except its length, so a length
no capture of this file could have is where reading stops.

It refuses to know files and windows (`reader.py`), and what is inside a packet (`packets.py`).
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.capture.records import (
    DATA,
    FAULT_LENGTH,
    KIND,
    LENGTH,
    LINK,
    MAX_RECORD,
    RECORD_PACKET,
    SIZE,
    START,
    TS,
    WIRE_SIZE,
    microseconds,
    ordered32,
)
from wirelake.protocols.kernel import kernel

__all__ = ["BIG", "HEADER_SIZE", "LINK_TYPE", "MAGICS", "NANOSECONDS", "SNAP_FLOOR", "SNAP_LENGTH", "STATE_SIZE", "scan"]

HEADER_SIZE: Final = 24
"""magic, version, zone, accuracy, snap length, link type."""
RECORD_HEADER: Final = 16
"""seconds, fraction, captured length, original length."""

MAGICS: Final = {
    b"\xa1\xb2\xc3\xd4": (1, 0),
    b"\xd4\xc3\xb2\xa1": (0, 0),
    b"\xa1\xb2\x3c\x4d": (1, 1),
    b"\x4d\x3c\xb2\xa1": (0, 1),
}
"""First four bytes -> (big-endian, nanoseconds)."""

BIG: Final = 0
NANOSECONDS: Final = 1
LINK_TYPE: Final = 2
SNAP_LENGTH: Final = 3
STATE_SIZE: Final = 4
"""What a scan needs to know of the file header, one integer each."""

SNAP_FLOOR: Final = 262_144
"""Packets up to this are believed even where the header announces a smaller snap length, as libpcap does."""


@kernel
def scan(data: Any, start: int, stop: int, state: Any, rows: Any) -> tuple[int, int, int]:
    """Walk whole records in data[start:stop]; one row each. Returns (rows written, next offset, how it ended)."""
    big = int(state[BIG])
    longest = min(max(int(state[SNAP_LENGTH]), SNAP_FLOOR), MAX_RECORD - RECORD_HEADER)
    count, at = 0, start
    while count < len(rows):
        if stop - at < RECORD_HEADER:
            return count, at, RECORD_HEADER
        size = ordered32(data, at + 8, big)
        if size > longest:
            return count, at, FAULT_LENGTH
        if stop - at < RECORD_HEADER + size:
            return count, at, RECORD_HEADER + size
        fraction = ordered32(data, at + 4, big)
        if state[NANOSECONDS]:
            fraction //= 1000
        rows[count, START] = at
        rows[count, LENGTH] = RECORD_HEADER + size
        rows[count, KIND] = RECORD_PACKET
        rows[count, DATA] = at + RECORD_HEADER
        rows[count, SIZE] = size
        rows[count, WIRE_SIZE] = ordered32(data, at + 12, big)
        rows[count, TS] = microseconds(ordered32(data, at, big), fraction)
        rows[count, LINK] = state[LINK_TYPE]
        count += 1
        at += RECORD_HEADER + size
    return count, at, 0
