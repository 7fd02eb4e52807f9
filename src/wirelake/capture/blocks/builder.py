"""BlockBuilder: append payload of many flows, in the order of the file, to make a block."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from wirelake.capture.blocks.block import ORIGIN_COLUMNS, SEGMENT_COLUMNS, SEGMENT_STOP, Block, Flow, FlowEvent, Source

__all__ = ["BlockBuilder"]


class BlockBuilder:
    """Collects the segments, origins, flows and events of the next block."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._chunks: list[bytes | memoryview] = []
        self._size = 0
        # Flat, as they will be in the block: a container per TCP segment would keep Python's garbage collector busy.
        self._segments = array("q")
        self._origins = array("q")
        self._flows: dict[Flow, int] = {}
        self._events: list[FlowEvent] = []
        self._speaker: Flow | None = None
        self._to_server = False

    @property
    def size(self) -> int:
        """Bytes collected."""
        return self._size

    def append(self, flow: Flow, to_server: bool, ts: int, offset: int, chunk: bytes | memoryview, missing: int = 0) -> None:
        """Append bytes of one direction of a flow.

        They extend the last segment if it is of the same direction and nothing is missing.
        """
        start = self._size
        self._size = stop = start + len(chunk)
        self._chunks.append(chunk)
        self._origins.extend((start, offset, ts))
        if flow is self._speaker and to_server == self._to_server and not missing:
            self._segments[SEGMENT_STOP - SEGMENT_COLUMNS] = stop
        else:
            self._speaker, self._to_server = flow, to_server
            self._segments.extend((start, stop, self._flows.setdefault(flow, len(self._flows)), to_server, missing))

    def datagram(self, flow: Flow, to_server: bool, ts: int, parts: Iterable[tuple[int, bytes]]) -> None:
        """Append a datagram, in parts (offset, bytes), as a segment of its own."""
        self._speaker = None
        for offset, chunk in parts:
            self.append(flow, to_server, ts, offset, chunk)

    def event(self, flow: Flow, ts: int, offset: int, what: str, by: str) -> None:
        """Append an event of a flow."""
        self._events.append(FlowEvent(self._flows.setdefault(flow, len(self._flows)), ts, offset, what, by, after=self._size))

    def take(self, source: Source) -> Block | None:
        """Return what was collected as a block, and start again with none; None if there is nothing."""
        if not self._flows:
            return None
        segments = np.array(self._segments, np.int64).reshape(-1, SEGMENT_COLUMNS)
        origins = np.array(self._origins, np.int64).reshape(-1, ORIGIN_COLUMNS)
        block = Block(source, b"".join(self._chunks), segments, origins, list(self._flows), self._events)
        self._clear()
        return block
