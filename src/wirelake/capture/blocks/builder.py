"""BlockBuilder: append payload of many flows, in the order of the file, to make a block.

It collects into arrays that grow. Kernels append to them for packets in order (`append`, `note`), Python for all others. A flow has a
number in the block. Until the block is taken, a number stands for a row of the flow table (0 or more), or for a `Flow` that Python passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import numpy as np

from wirelake.capture.blocks.block import ORIGIN_COLUMNS, SEGMENT_COLUMNS, SEGMENT_FLOW, SEGMENT_STOP, Block, Flow, Source
from wirelake.capture.blocks.flow_events import EVENT_BY, EVENT_COLUMNS, EVENT_FLOW, EVENT_WHAT, FlowEvents
from wirelake.protocols.kernel import kernel

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
def append(out: Any, number: int, to_server: int, ts: int, offset: int, missing: int, data: Any, start: int, size: int) -> None:
    """Append data[start:start + size] of one direction of a flow; `BlockBuilder.reserve` must have made space.

    They extend the last segment if it is of the same direction and nothing is missing.
    """
    collected, origins, segments, _, _, counts = out
    at, origin, segment = counts[SIZE], counts[ORIGINS], counts[SEGMENTS]
    place, chunk = collected[at : at + size], data[start : start + size]
    for index in range(size):  # Numba copies slices more slowly
        place[index] = chunk[index]
    origins[origin, 0] = at
    origins[origin, 1] = offset
    origins[origin, 2] = ts
    counts[SIZE] = at + size
    counts[ORIGINS] = origin + 1
    if counts[IS_OPEN] and not missing and segments[segment - 1, 2] == number and segments[segment - 1, 3] == to_server:
        segments[segment - 1, 1] = at + size
        return
    segments[segment, 0] = at
    segments[segment, 1] = at + size
    segments[segment, 2] = number
    segments[segment, 3] = to_server
    segments[segment, 4] = missing
    counts[SEGMENTS] = segment + 1
    counts[IS_OPEN] = 1


@kernel
def note(out: Any, number: int, ts: int, offset: int, what: int, by: int) -> None:
    """Append an event of a flow; see `flow_events.py`."""
    _, _, _, events, _, counts = out
    event = counts[EVENTS]
    events[event, 0] = number
    events[event, 1] = ts
    events[event, 2] = offset
    events[event, 3] = what
    events[event, 4] = by
    events[event, 5] = counts[SIZE]
    counts[EVENTS] = event + 1


class FlowRows(Protocol):
    """Flows that are rows of a table."""

    def flows_of(self, rows: list[int]) -> list[Flow]:
        """Return the flow of each row; a block that had numbers for them was taken."""


def _larger(table: Array, needed: int) -> Array:
    if needed <= len(table):
        return table
    grown = np.empty((max(needed, 2 * len(table)), *table.shape[1:]), table.dtype)
    grown[: len(table)] = table
    return grown


class BlockBuilder:
    """Collects the segments, origins, flows and events of the next block."""

    def __init__(self) -> None:
        self.rows: FlowRows | None = None
        """The flow table whose rows kernels number."""
        self._data = np.empty(1 << 12, np.uint8)
        self._origins = np.empty((64, ORIGIN_COLUMNS), np.int64)
        self._segments = np.empty((64, SEGMENT_COLUMNS), np.int64)
        self._events = np.empty((64, EVENT_COLUMNS), np.int64)
        self.numbered = np.empty(64, np.int64)
        """By number of a flow in the block: its row, or -1 - its index among the flows that Python passed."""
        self._counts = np.zeros(COUNTS, np.int64)
        self._passed: dict[int, tuple[Flow, int]] = {}

    @property
    def arrays(self) -> tuple[Array, ...]:
        """For kernels: bytes, origins, segments, events, flows, counts."""
        return self._data, self._origins, self._segments, self._events, self.numbered, self._counts

    @property
    def size(self) -> int:
        """Bytes collected."""
        return int(self._counts[SIZE])

    def reserve(self, size: int, packets: int) -> None:
        """Make space for so many bytes in so many packets, each of which may bring a flow and three events."""
        _, origins, segments, events, flows, _ = self._counts.tolist()
        self._data = _larger(self._data, self.size + size)
        self._origins = _larger(self._origins, origins + packets)
        self._segments = _larger(self._segments, segments + packets)
        self._events = _larger(self._events, events + 3 * packets)
        self.numbered = _larger(self.numbered, flows + packets)

    def new_number(self, row: int) -> int:
        """Return the number of one more flow of the block."""
        number = int(self._counts[FLOWS])
        self.numbered = _larger(self.numbered, number + 1)
        self.numbered[number] = row
        self._counts[FLOWS] = number + 1
        return number

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
        at, origin, segment, size = self.size, int(self._counts[ORIGINS]), int(self._counts[SEGMENTS]), len(chunk)
        if at + size > len(self._data) or origin == len(self._origins) or segment == len(self._segments):
            self.reserve(size, 1)
        self._data[at : at + size] = np.frombuffer(chunk, np.uint8)
        self._origins[origin] = (at, offset, ts)
        self._counts[SIZE], self._counts[ORIGINS] = at + size, origin + 1
        if self._counts[IS_OPEN] and not missing and self._segments[segment - 1, 2:4].tolist() == [number, to_server]:
            self._segments[segment - 1, SEGMENT_STOP] = at + size
        else:
            self._segments[segment] = (at, at + size, number, to_server, missing)
            self._counts[SEGMENTS], self._counts[IS_OPEN] = segment + 1, 1

    def datagram(self, number: int, to_server: bool, ts: int, parts: Iterable[tuple[int, bytes]]) -> None:
        """Append a datagram, in parts (offset, bytes), as a segment of its own."""
        self._counts[IS_OPEN] = 0
        for offset, chunk in parts:
            self.append(number, to_server, ts, offset, chunk)

    def event(self, number: int, ts: int, offset: int, what: str, by: str) -> None:
        """Append an event of a flow."""
        event = int(self._counts[EVENTS])
        self._events = _larger(self._events, event + 1)
        self._events[event] = (number, ts, offset, EVENT_WHAT.index(what), EVENT_BY.index(by), self.size)
        self._counts[EVENTS] = event + 1

    def moved(self, numbers: Mapping[int, int]) -> None:
        """Rows of the flow table have other numbers now."""
        flows = int(self._counts[FLOWS])
        self.numbered[:flows] = [numbers.get(row, row) if row >= 0 else row for row in self.numbered[:flows].tolist()]

    def take(self, source: Source) -> Block | None:
        """Return what was collected as a block, and start again with none; None if there is nothing."""
        size, origins, segments, events, flows, _ = self._counts.tolist()
        if not flows:
            return None
        known, numbers = self._flows(self.numbered[:flows])
        made, happened = self._segments[:segments].copy(), self._events[:events].copy()
        if len(known) < flows:
            made[:, SEGMENT_FLOW], happened[:, EVENT_FLOW] = numbers[made[:, SEGMENT_FLOW]], numbers[happened[:, EVENT_FLOW]]
        block = Block(source, self._data[:size].tobytes(), made, self._origins[:origins].copy(), known, FlowEvents(happened))
        self._counts[:] = 0
        self._passed.clear()
        return block

    def _flows(self, numbered: Array) -> tuple[list[Flow], Array]:
        """Return the flows of a block, equal ones once, and the final number of each."""
        rows = numbered[numbered >= 0].tolist()
        tracked = iter(self.rows.flows_of(rows) if self.rows is not None else [])
        passed = iter([flow for flow, _ in self._passed.values()])
        flows = [next(tracked) if row >= 0 else next(passed) for row in numbered.tolist()]
        known: dict[Flow, int] = {}
        numbers = np.array([known.setdefault(flow, len(known)) for flow in flows], np.int64)
        return list(known), numbers
