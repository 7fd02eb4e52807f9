"""Scanner: the kernels of one protocol with its limits, over the runs of a block."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from wirelake import protocols
from wirelake.capture.blocks.block import Flow
from wirelake.protocols.faults import Faults
from wirelake.protocols.kernel import ScanLimits, Stride, over_arrays, strider
from wirelake.protocols.protocol import Limits

__all__ = ["ROWS", "Scanned", "Scanner", "is_self_contained"]

ByteArray = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]
Scanned = tuple[Rows, Rows, Rows]
"""Rows, their parts, and the run of each row."""

ROWS: Final = 16_384
"""Messages scanned and written as columns in one go."""


def is_self_contained(flow: Flow) -> bool:
    """Whether the bytes of a flow are decoded without earlier bytes.

    That holds for recorded messages of a protocol that is not stateful.
    """
    return flow.observer_kind != "wire" and not protocols.get(flow.protocol).is_stateful


@cache
def _stride(protocol: str) -> Stride:
    columns = protocols.get(protocol).columns()
    return strider(protocols.get(protocol).scan, columns.ROW_COLUMNS, columns.PART_COLUMNS)


class Scanner:
    """One protocol, as one ingest reads its connections of one dialect."""

    def __init__(self, protocol: str, limits: Limits) -> None:
        self.protocol = protocols.get(protocol)
        self.columns = self.protocol.columns()
        self.limits = limits
        self.scan_limits: ScanLimits = limits.for_scan()
        """For the kernels, where no handshake says otherwise."""
        self._rows = np.zeros(ROWS * self.columns.ROW_COLUMNS, np.int64)
        self._parts = np.zeros((ROWS + limits.max_parts) * self.columns.PART_COLUMNS, np.int64)
        self._segment_of = np.zeros(ROWS, np.int64)

    def resumed(self, scan_limits: ScanLimits) -> ScanLimits:
        """Scan limits for a direction whose state was stored.

        They are those its peers agreed on, within the present limits.
        """
        handshake = self.protocol.handshake
        if handshake is None:
            return self.scan_limits
        return handshake.scan_limits(handshake.agreed(scan_limits), self.limits)

    def cut(self, flow: Flow) -> Faults:
        """The fault of bytes that end inside a message."""
        return self.protocol.cut(is_datagram=flow.transport == "udp")

    def walk(self, data: ByteArray, starts: Rows, stops: Rows, ends: Rows, scan_limits: ScanLimits) -> Iterator[Scanned]:
        """All rows of runs that hold whole messages. Writes to `ends` where an unfinished message begins."""
        kernel, segment, at = over_arrays(self.protocol.walk), 0, int(starts[0])
        while segment < len(starts):
            count, used, segment, at = kernel(
                data, starts, stops, segment, at, self._rows, self._segment_of, self._parts, ends, scan_limits
            )
            if count:
                yield self._scanned(count, used)

    def stride(self, data: ByteArray, starts: Rows, stops: Rows, ends: Rows, faults: Rows, scan_limits: ScanLimits) -> Iterator[Scanned]:
        """The rows of runs as far as they make sense. Writes to `ends` where that is, and to `faults` why."""
        kernel, segment, at = over_arrays(_stride(self.protocol.name)), 0, int(starts[0])
        while segment < len(starts):
            count, used, segment, at = kernel(
                data, starts, stops, segment, at, self._rows, self._segment_of, self._parts, ends, faults, scan_limits
            )
            if count:
                yield self._scanned(count, used)

    def find(self, data: ByteArray, start: int, stop: int, scan_limits: ScanLimits) -> int:
        """The first offset from `start` on where messages certainly begin, or `stop`."""
        return int(over_arrays(self.protocol.find)(data, start, stop, scan_limits))

    def need(self, data: ByteArray, scan_limits: ScanLimits) -> int:
        """Bytes that the message at the start takes at least; 0 if that is not known."""
        rows = np.zeros(self.columns.ROW_COLUMNS, np.int64)
        parts = np.zeros((1 + self.limits.max_parts) * self.columns.PART_COLUMNS, np.int64)
        count, _, _, needed = over_arrays(self.protocol.scan)(data, 0, len(data), rows, parts, scan_limits)
        return 0 if count else max(0, int(needed))

    def _scanned(self, count: int, used: int) -> Scanned:
        rows = self._rows[: count * self.columns.ROW_COLUMNS].reshape(count, -1)
        return rows, self._parts[: used * self.columns.PART_COLUMNS].reshape(-1, self.columns.PART_COLUMNS), self._segment_of[:count]
