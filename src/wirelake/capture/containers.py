"""Containers: which scanner reads a file, and what it carries from window to window.

It refuses to know files: it is shown the first bytes, then windows.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from wirelake.capture import pcap, pcapng
from wirelake.capture.records import ordered32
from wirelake.errors import CaptureError
from wirelake.protocols.kernel import active

__all__ = ["HEAD_SIZE", "Container", "Pcap", "Pcapng", "recognise"]

HEAD_SIZE: Final = pcap.HEADER_SIZE
"""First bytes of a file that tell which container it is."""


class Container(Protocol):
    """Finds records in windows of one file, in order."""

    @property
    def layer(self) -> str:
        """What stretches call it."""
        ...

    @property
    def preamble(self) -> int:
        """Bytes of the file before its first record."""
        ...

    def scan(self, data: Any, rows: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        """Fill rows with the whole records of a window (see `kernel.array`); returns (rows written, bytes used, how it ended)."""
        ...


class Pcap:
    """A pcap file, by its header."""

    layer = "pcap"
    preamble = pcap.HEADER_SIZE

    def __init__(self, head: bytes) -> None:
        big, nanoseconds = pcap.MAGICS[head[:4]]
        self._state = np.zeros(pcap.STATE_SIZE, np.int64)
        self._state[pcap.BIG] = big
        self._state[pcap.NANOSECONDS] = nanoseconds
        if len(head) >= pcap.HEADER_SIZE:
            self._state[pcap.SNAP_LENGTH] = ordered32(head, 16, big)
            self._state[pcap.LINK_TYPE] = ordered32(head, 20, big) & 0xFFFF  # the upper bits tell of checksums, not of the link

    def scan(self, data: Any, rows: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        """See `Container.scan`."""
        count, used, end = active(pcap.scan)(data, 0, len(data), self._state, rows)
        return count, used, end


class Pcapng:
    """A pcapng file: the byte order and the interfaces of its current section."""

    layer = "pcapng"
    preamble = 0

    def __init__(self) -> None:
        self._state = np.zeros(pcapng.STATE_SIZE, np.int64)
        self._interfaces = np.zeros((pcapng.MAX_INTERFACES, pcapng.INTERFACE_COLUMNS), np.int64)

    def scan(self, data: Any, rows: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        """See `Container.scan`."""
        count, used, end = active(pcapng.scan)(data, 0, len(data), self._state, self._interfaces, rows)
        return count, used, end


def recognise(path: str, head: bytes) -> Container:
    """The container whose first bytes these are; CaptureError when they are no capture's."""
    if head[:4] in pcap.MAGICS:
        return Pcap(head)
    if head[:4] == pcapng.MAGIC and len(head) >= 12 and pcapng.BYTE_ORDER_MAGIC in (ordered32(head, 8, 0), ordered32(head, 8, 1)):
        return Pcapng()
    raise CaptureError(path, 0, "not a capture")
