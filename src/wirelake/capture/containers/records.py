"""Records: the row that both container scanners write, and the byte readers they share.

A record is a pcapng block, a pcap packet with its header, or a pcap file header. A scanner writes one row per record. It returns how it
ended: 0, the bytes it needs to go on (positive), or the fault that stopped it (negative).
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.protocols.kernel import kernel

__all__ = [
    "CHAIN",
    "DATA",
    "FAULTS",
    "FAULT_LENGTH",
    "FAULT_MAGIC",
    "FAULT_TRAILER",
    "FAULT_VERSION",
    "FAULT_ZEROS",
    "KIND",
    "LAST_MOMENT",
    "LENGTH",
    "LINK",
    "LONGEST_LINK",
    "LOOK_AHEAD",
    "MAX_RECORD",
    "NO_TIME",
    "OTHER_CONTAINER",
    "RECORD_BAD_DATA",
    "RECORD_BAD_INTERFACE",
    "RECORD_COLUMNS",
    "RECORD_CUSTOM",
    "RECORD_FILE",
    "RECORD_INTERFACE",
    "RECORD_KINDS",
    "RECORD_NAMES",
    "RECORD_PACKET",
    "RECORD_SECRETS",
    "RECORD_SECTION",
    "RECORD_SKIPPED",
    "RECORD_STATISTICS",
    "SIZE",
    "START",
    "TS",
    "WIRE_SIZE",
    "microseconds",
    "ordered16",
    "ordered32",
]

START: Final = 0
"""Offset of the record in the window."""
LENGTH: Final = 1
"""Bytes of the record, headers and padding included."""
KIND: Final = 2
"""One of `RECORD_…`."""
DATA: Final = 3
"""Offset of the captured data in the window."""
SIZE: Final = 4
"""Bytes captured."""
WIRE_SIZE: Final = 5
"""Bytes the packet had before the snap length cut it."""
TS: Final = 6
"""Microseconds since 1970, UTC, or `NO_TIME`."""
LINK: Final = 7
"""Link type of the interface."""
RECORD_COLUMNS: Final = 8

RECORD_PACKET: Final = 0
RECORD_SECTION: Final = 1
RECORD_INTERFACE: Final = 2
RECORD_SKIPPED: Final = 3
RECORD_FILE: Final = 4
RECORD_NAMES: Final = 5
RECORD_STATISTICS: Final = 6
RECORD_SECRETS: Final = 7
RECORD_CUSTOM: Final = 8
RECORD_BAD_DATA: Final = 9
"""From here on: records that cannot be used, and go to quarantine."""
RECORD_BAD_INTERFACE: Final = 10
RECORD_KINDS: Final = (
    "packet",
    "section header",
    "interface description",
    "skipped block",
    "file header",
    "name resolution",
    "interface statistics",
    "decryption secrets",
    "custom block",
    "packet does not fit its block",
    "packet of an unknown interface",
)
"""The name of each kind in accounts and quarantine."""

FAULT_LENGTH: Final = -1
FAULT_TRAILER: Final = -2
FAULT_MAGIC: Final = -3
FAULT_VERSION: Final = -4
FAULT_ZEROS: Final = -5
OTHER_CONTAINER: Final = -6
"""No fault: from here on the file is another container, because files were joined with `cat`."""
FAULTS: Final = {
    FAULT_LENGTH: "impossible record length",
    FAULT_TRAILER: "block lengths disagree",
    FAULT_MAGIC: "no byte-order magic",
    FAULT_VERSION: "unknown version",
    FAULT_ZEROS: "zeros in place of a record",
}

MAX_RECORD: Final = 128 << 20
"""The longest record that is accepted, which bounds memory. Wireshark has the same limit."""
NO_TIME: Final = -1
"""In place of a time: the capture has none. No time is before 1970, see `microseconds`."""
LAST_MOMENT: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999; later or overflowing times become this."""

# Searching for a record at an unknown offset.
CHAIN: Final = 4
"""Records that must follow each other before a search accepts the first; fewer at the end of the file."""
LONGEST_LINK: Final = 1 << 20
"""The longest record that a search accepts.

A longer one is skipped by a search, and read by a walk that reaches it.
"""
LOOK_AHEAD: Final = CHAIN * LONGEST_LINK + (1 << 12)
"""Bytes after which every offset at the start of a window is decided."""


@kernel
def ordered16(data: Any, at: int, big: int) -> int:
    """Two bytes in the file's own byte order.

    (Adding to a literal makes Numba see signed numbers: mixed signs would become floats.)
    """
    first: int = 0 + data[at]
    second: int = 0 + data[at + 1]
    if big:
        return (first << 8) | second
    return (second << 8) | first


@kernel
def ordered32(data: Any, at: int, big: int) -> int:
    """Four bytes in the file's own byte order."""
    first = ordered16(data, at, big)
    second = ordered16(data, at + 2, big)
    if big:
        return (first << 16) | second
    return (second << 16) | first


@kernel
def microseconds(whole: int, part: int) -> int:
    """Join seconds and microseconds to one time; before 1970 is 1970, and after 9999 is `LAST_MOMENT`."""
    if whole < 0:
        return 0
    if whole > 253_402_300_799:
        return LAST_MOMENT
    return whole * 1_000_000 + part
