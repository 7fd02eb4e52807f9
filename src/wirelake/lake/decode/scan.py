"""Scanner: the kernels of one room with its limits: what walks records, what strides through streams, and what finds the way again.

It refuses to know where bytes come from, and what becomes of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import numpy as np

from wirelake import protocols
from wirelake.capture.blocks.block import Flow
from wirelake.protocols.kernel import compiled, strider

__all__ = ["ROWS", "Scanned", "Scanner", "is_stateful", "stands_alone"]

Array = np.ndarray[Any, Any]
Scanned = tuple[Array, Array, Array]
"""Rows, their parts, and which run each row is of."""

ROWS: Final = 65_536
"""Messages scanned and written as columns in one go."""


def is_stateful(protocol: str) -> bool:
    """Whether how a message of a protocol is read depends on what was said before it on its connection."""
    shape = protocols.columns(protocol)
    return hasattr(protocols.room(protocol), "Prologue") or hasattr(shape, "negotiated") or hasattr(shape, "overheard")


def stands_alone(flow: Flow) -> bool:
    """Whether what comes on a flow can be decoded where it is read: records that hold whole messages and need nothing of others."""
    return flow.observed_by != "wire" and not is_stateful(flow.protocol)


@cache
def _stride(protocol: str) -> Callable[..., Any]:
    shape = protocols.columns(protocol)
    return strider(protocols.room(protocol).scan, shape.ROW_COLUMNS, shape.PART_COLUMNS)


class Scanner:
    """One room, as one ingest reads its connections of one dialect."""

    def __init__(self, protocol: str, limits: Any) -> None:
        self.protocol = protocol
        self.room = protocols.room(protocol)
        self.shape = protocols.columns(protocol)
        self.limits = limits
        self.needs_handshake = hasattr(self.room, "Prologue")
        """Whether the peers of a connection agree first on how it is to be read."""
        self.wrappings: tuple[str, ...] = getattr(self.room, "WRAPPINGS", ())
        """What its streams may travel in."""
        self.is_text: Callable[[bytes], bool] = getattr(self.room, "is_text", self.room.sniff)
        """Whether a message that something else carries is one of this protocol's."""
        self.given: tuple[int, ...] = limits.for_scan()
        """What the scanner is given where nothing was agreed on."""
        self._rows = np.zeros(ROWS * self.shape.ROW_COLUMNS, np.int64)
        self._parts = np.zeros((ROWS + limits.max_parts) * self.shape.PART_COLUMNS, np.int64)
        self._segment_of = np.zeros(ROWS, np.int64)

    def resumed(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """What the scanner is given for a direction whose state was stored: what its peers agreed on, by the limits that hold now."""
        if not self.needs_handshake:
            return self.given
        handshake = self.room.Prologue
        again: tuple[int, ...] = handshake.given(handshake.agreed(given), self.limits)
        return again

    def cut(self, flow: Flow) -> Any:
        """The fault of bytes that end inside a message; rooms that may travel in datagrams tell those apart."""
        faults = self.room.Fault.__members__
        return faults["DATAGRAM_CUT" if flow.transport == "udp" and "DATAGRAM_CUT" in faults else "MESSAGE_CUT"]

    def walk(self, data: Array, starts: Array, stops: Array, ends: Array, given: tuple[int, ...]) -> Iterator[Scanned]:
        """All rows of runs that hold whole messages; `ends` is told where an unfinished one begins."""
        kernel, segment, at = compiled(self.room.walk), 0, int(starts[0])
        while segment < len(starts):
            count, used, segment, at = kernel(data, starts, stops, segment, at, self._rows, self._segment_of, self._parts, ends, given)
            if count:
                yield self._scanned(count, used)

    def stride(self, data: Array, starts: Array, stops: Array, ends: Array, faults: Array, given: tuple[int, ...]) -> Iterator[Scanned]:
        """The rows of runs as far as they make sense; `ends` is told where that is, `faults` why they do not."""
        kernel, segment, at = compiled(_stride(self.protocol)), 0, int(starts[0])
        while segment < len(starts):
            count, used, segment, at = kernel(
                data, starts, stops, segment, at, self._rows, self._segment_of, self._parts, ends, faults, given
            )
            if count:
                yield self._scanned(count, used)

    def find(self, data: Array, start: int, stop: int, given: tuple[int, ...]) -> int:
        """The first place from `start` on where messages certainly begin, or `stop`."""
        return int(compiled(protocols.finder(self.protocol))(data, start, stop, given))

    def need(self, data: Array, given: tuple[int, ...]) -> int:
        """Bytes that the message at the start takes at least; 0 if nobody knows."""
        rows = np.zeros(self.shape.ROW_COLUMNS, np.int64)
        parts = np.zeros((1 + self.limits.max_parts) * self.shape.PART_COLUMNS, np.int64)
        count, _, _, needed = compiled(self.room.scan)(data, 0, len(data), rows, parts, given)
        return 0 if count else max(0, int(needed))

    def _scanned(self, count: int, used: int) -> Scanned:
        rows = self._rows[: count * self.shape.ROW_COLUMNS].reshape(count, -1)
        return rows, self._parts[: used * self.shape.PART_COLUMNS].reshape(-1, self.shape.PART_COLUMNS), self._segment_of[:count]
