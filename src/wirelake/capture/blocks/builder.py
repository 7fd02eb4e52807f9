"""BlockBuilder: append payload of many flows, in the order of the file, to make a block.

Kernels append packets that are in order (`append`, `note`), and Python all others. A flow has a number in the block. Until the block is
taken, a number stands for a row of the flow table (0 or more), or for a `Flow` that Python passed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final, Protocol

import numpy as np

from wirelake.capture.blocks.block import (
    ORIGIN_COLUMNS,
    ORIGIN_OFFSET,
    ORIGIN_START,
    ORIGIN_TS,
    SEGMENT_COLUMNS,
    SEGMENT_FLOW,
    SEGMENT_MISSING,
    SEGMENT_START,
    SEGMENT_STOP,
    SEGMENT_TO_SERVER,
    Block,
    Flow,
    Source,
)
from wirelake.capture.blocks.flow_events import (
    EVENT_AFTER,
    EVENT_BY,
    EVENT_CODE,
    EVENT_COLUMNS,
    EVENT_FLOW,
    EVENT_OFFSET,
    EVENT_SIDE,
    EVENT_TS,
    EVENT_WHAT,
    FlowEvents,
)
from wirelake.capture.blocks.flows import Flows, interleaved
from wirelake.protocols.kernel import copy, kernel

__all__ = ["BlockBuilder", "FlowRows", "append", "note"]

Array = np.ndarray[Any, Any]

SIZE: Final = 0
ORIGINS: Final = 1
SEGMENTS: Final = 2
EVENTS: Final = 3
FLOWS: Final = 4
IS_OPEN: Final = 5
"""Whether bytes of the same direction extend the last segment."""
COUNTS: Final = 6


@kernel
def append(
    collected: Any,
    origins: Any,
    segments: Any,
    counts: Any,
    number: int,
    to_server: int,
    ts: int,
    offset: int,
    missing: int,
    data: Any,
    start: int,
    size: int,
) -> None:
    """Append data[start:start + size] of one direction of a flow; `BlockBuilder.arrays` made space.

    They extend the last segment if it is of the same direction and nothing is missing.
    """
    at, origin, segment = counts[SIZE], counts[ORIGINS], counts[SEGMENTS]
    copy(collected, at, data, start, size)
    origins[origin, ORIGIN_START] = at
    origins[origin, ORIGIN_OFFSET] = offset
    origins[origin, ORIGIN_TS] = ts
    counts[SIZE] = at + size
    counts[ORIGINS] = origin + 1
    last = segment - 1
    if counts[IS_OPEN] and not missing and segments[last, SEGMENT_FLOW] == number and segments[last, SEGMENT_TO_SERVER] == to_server:
        segments[last, SEGMENT_STOP] = at + size
        return
    segments[segment, SEGMENT_START] = at
    segments[segment, SEGMENT_STOP] = at + size
    segments[segment, SEGMENT_FLOW] = number
    segments[segment, SEGMENT_TO_SERVER] = to_server
    segments[segment, SEGMENT_MISSING] = missing
    counts[SEGMENTS] = segment + 1
    counts[IS_OPEN] = 1


@kernel
def note(events: Any, counts: Any, number: int, ts: int, offset: int, what: int, by: int) -> None:
    """Append an event of a flow; see `flow_events.py`."""
    event = counts[EVENTS]
    events[event, EVENT_FLOW] = number
    events[event, EVENT_TS] = ts
    events[event, EVENT_OFFSET] = offset
    events[event, EVENT_CODE] = what
    events[event, EVENT_SIDE] = by
    events[event, EVENT_AFTER] = counts[SIZE]
    counts[EVENTS] = event + 1


class FlowRows(Protocol):
    """Flows that are rows of a table."""

    def flows_of(self, rows: Array) -> Flows:
        """Return the flow of each row; a block that had numbers for them was taken."""


def _larger(table: Array, needed: int) -> Array:
    if needed <= len(table):
        return table
    grown = np.empty((max(needed, 2 * len(table)), *table.shape[1:]), table.dtype)
    grown[: len(table)] = table
    return grown


def _extended(table: Array, count: int, added: array[int]) -> tuple[Array, int]:
    """Add rows to a table that has so many; returns it, and how many it has then."""
    rows = np.array(added, np.int64).reshape(-1, *table.shape[1:])
    table = _larger(table, count + len(rows))
    table[count : count + len(rows)] = rows
    return table, count + len(rows)


class BlockBuilder:
    """Collects the segments, origins, flows and events of the next block.

    Python appends to lists, which are cheap to grow, and kernels to arrays. Lists are moved to the arrays before a kernel runs (`arrays`).
    """

    def __init__(self) -> None:
        self.rows: FlowRows | None = None
        """The flow table whose rows kernels number."""
        self._data = np.empty(1 << 12, np.uint8)
        self._origins = np.empty((64, ORIGIN_COLUMNS), np.int64)
        self._segments = np.empty((64, SEGMENT_COLUMNS), np.int64)
        self._events = np.empty((64, EVENT_COLUMNS), np.int64)
        self._numbered = np.empty(64, np.int64)
        """By number of a flow in the block: its row, or -1 - its index among the flows that Python passed."""
        self._counts = np.zeros(COUNTS, np.int64)
        self._passed: dict[int, tuple[Flow, int]] = {}
        self._begin()

    def _begin(self) -> None:
        """Begin new lists, behind what the arrays have."""
        self._chunks: list[bytes | memoryview] = []
        # Flat, as they will be in the block: a container per TCP segment would keep Python's garbage collector busy.
        self._new_origins, self._new_segments, self._new_events, self._new_rows = array("q"), array("q"), array("q"), array("q")
        self._size, _, segments, _, self._flow_count, is_open = self._counts.tolist()
        self._last = tuple(self._segments[segments - 1, SEGMENT_FLOW:SEGMENT_MISSING].tolist()) if is_open else None
        """Flow and direction of the segment that bytes may extend."""

    def _flush(self) -> None:
        """Move the lists to the arrays."""
        at, origins, segments, events, flows, _ = self._counts.tolist()
        self._data = _larger(self._data, self._size)
        self._data[at : self._size] = np.frombuffer(b"".join(self._chunks), np.uint8)
        self._origins, origins = _extended(self._origins, origins, self._new_origins)
        self._segments, segments = _extended(self._segments, segments, self._new_segments)
        self._events, events = _extended(self._events, events, self._new_events)
        self._numbered, flows = _extended(self._numbered, flows, self._new_rows)
        self._counts[:] = self._size, origins, segments, events, flows, self._last is not None

    def arrays(self, size: int, packets: int) -> tuple[Array, ...]:
        """For kernels: bytes, origins, segments, events, flows, counts; `used` must be called afterwards.

        There is space for so many bytes in so many packets, each of which may bring a flow and three events.
        """
        self._flush()
        _, origins, segments, events, flows, _ = self._counts.tolist()
        self._data = _larger(self._data, self._size + size)
        self._origins = _larger(self._origins, origins + packets)
        self._segments = _larger(self._segments, segments + packets)
        self._events = _larger(self._events, events + 3 * packets)
        self._numbered = _larger(self._numbered, flows + packets)
        return self._data, self._origins, self._segments, self._events, self._numbered, self._counts

    def used(self) -> None:
        """Go on in Python after a kernel."""
        self._begin()

    @property
    def size(self) -> int:
        """Bytes collected."""
        return self._size

    def new_number(self, row: int) -> int:
        """Return the number of one more flow of the block."""
        self._new_rows.append(row)
        self._flow_count += 1
        return self._flow_count - 1

    def number(self, flow: Flow) -> int:
        """Return the number of a flow that is no row of a table; the same object has the same number."""
        known = self._passed.get(id(flow))
        if known is None:
            known = self._passed[id(flow)] = (flow, self.new_number(-1 - len(self._passed)))
        return known[1]

    def append(self, number: int, to_server: bool, ts: int, offset: int, chunk: bytes | memoryview, missing: int = 0) -> None:
        """Append bytes of one direction of a flow.

        They extend the last segment if it is of the same direction and nothing is missing.
        """
        start = self._size
        self._size = stop = start + len(chunk)
        self._chunks.append(chunk)
        self._new_origins.extend((start, offset, ts))
        if self._last == (number, to_server) and not missing:
            if self._new_segments:
                self._new_segments[SEGMENT_STOP - SEGMENT_COLUMNS] = stop
            else:
                self._segments[self._counts[SEGMENTS] - 1, SEGMENT_STOP] = stop
        else:
            self._last = (number, to_server)
            self._new_segments.extend((start, stop, number, to_server, missing))

    def datagram(self, number: int, to_server: bool, ts: int, parts: Iterable[tuple[int, bytes]]) -> None:
        """Append a datagram, in parts (offset, bytes), as a segment of its own."""
        self._last = None
        for offset, chunk in parts:
            self.append(number, to_server, ts, offset, chunk)

    def event(self, number: int, ts: int, offset: int, what: str, by: str) -> None:
        """Append an event of a flow."""
        self._new_events.extend((number, ts, offset, EVENT_WHAT.index(what), EVENT_BY.index(by), self._size))

    def moved(self, rows: Array) -> None:
        """Rows of the flow table have other numbers now: each its place in `rows`, which is ascending and has all rows of the block."""
        numbered = np.concatenate((self._numbered[: int(self._counts[FLOWS])], np.array(self._new_rows, np.int64)))
        is_row = numbered >= 0
        numbered[is_row] = np.searchsorted(rows, numbered[is_row])
        self._numbered[: int(self._counts[FLOWS])] = numbered[: int(self._counts[FLOWS])]
        self._new_rows = array("q", numbered[int(self._counts[FLOWS]) :].tolist())

    def take(self, source: Source) -> Block | None:
        """Return what was collected as a block, and start again with none; None if there is nothing."""
        self._flush()
        size, origins, segments, events, flows, _ = self._counts.tolist()
        if not flows:
            return None
        known, numbers = self._flows(self._numbered[:flows])
        made, happened = self._segments[:segments].copy(), self._events[:events].copy()
        if len(known) < flows:
            made[:, SEGMENT_FLOW], happened[:, EVENT_FLOW] = numbers[made[:, SEGMENT_FLOW]], numbers[happened[:, EVENT_FLOW]]
        block = Block(source, self._data[:size].tobytes(), made, self._origins[:origins].copy(), known, FlowEvents(happened))
        self._counts[:] = 0
        self._passed.clear()
        self._begin()
        return block

    def _flows(self, numbered: Array) -> tuple[Flows, Array]:
        """Return the flows of a block, equal ones once, and the final number of each."""
        is_row = numbered >= 0
        parts = [] if self.rows is None else [(np.flatnonzero(is_row), self.rows.flows_of(numbered[is_row]))]
        if self._passed:
            parts.append((np.flatnonzero(~is_row), Flows.of([flow for flow, _ in self._passed.values()])))
        flows = parts[0][1] if len(parts) == 1 else interleaved(parts)
        if flows.are_distinct:  # cheaper than to compare flows
            return flows, np.arange(len(flows))
        known: dict[Flow, int] = {}
        numbers = np.array([known.setdefault(flow, len(known)) for flow in flows], np.int64)
        return Flows.of(list(known)), numbers
