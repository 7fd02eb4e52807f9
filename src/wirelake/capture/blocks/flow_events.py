"""FlowEvents: the events of a block's connections as one array, and as a sequence of `FlowEvent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, overload

import numpy as np

from wirelake.capture.blocks.block import FlowEvent

__all__ = ["EVENT_BY", "EVENT_COLUMNS", "EVENT_FLOW", "EVENT_OFFSET", "EVENT_WHAT", "FlowEvents", "event_places", "event_words"]

EVENT_FLOW: Final = 0
EVENT_TS: Final = 1
EVENT_OFFSET: Final = 2
EVENT_CODE: Final = 3
EVENT_SIDE: Final = 4
EVENT_AFTER: Final = 5
"""Size of the block's data when it happened."""
EVENT_COLUMNS: Final = 6
EVENT_WHAT: Final = ("opened", "finished", "closed", "reset")
"""The event of each code."""
EVENT_BY: Final = ("", "client", "server")
"""The side of each code."""


class FlowEvents(Sequence[FlowEvent]):
    """Events in the order in which they happened; `table` has one row (see `EVENT_COLUMNS`) for each."""

    def __init__(self, table: np.ndarray[Any, Any]) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> FlowEvent: ...

    @overload
    def __getitem__(self, index: slice) -> list[FlowEvent]: ...

    def __getitem__(self, index: int | slice) -> FlowEvent | list[FlowEvent]:
        rows = self.table[index].tolist()
        return [_event(row) for row in rows] if isinstance(index, slice) else _event(rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return id(self)


def event_places(events: Sequence[FlowEvent]) -> np.ndarray[Any, Any]:
    """Return one row for each event: flow, time, offset, size of the block's data when it happened."""
    if isinstance(events, FlowEvents):
        places: np.ndarray[Any, Any] = events.table[:, [EVENT_FLOW, EVENT_TS, EVENT_OFFSET, EVENT_AFTER]]
        return places
    return np.array([(event.flow, event.ts, event.offset, event.after) for event in events], np.int64).reshape(-1, 4)


def event_words(events: Sequence[FlowEvent]) -> tuple[list[str], list[str], list[str]]:
    """Return event, side and detail of each event."""
    if isinstance(events, FlowEvents):
        what, by = events.table[:, EVENT_CODE].tolist(), events.table[:, EVENT_SIDE].tolist()
        return [EVENT_WHAT[code] for code in what], [EVENT_BY[code] for code in by], [""] * len(what)
    return [event.what for event in events], [event.by for event in events], [event.detail for event in events]


def _event(row: list[int]) -> FlowEvent:
    flow, ts, offset, what, by, after = row
    return FlowEvent(flow, ts, offset, EVENT_WHAT[what], EVENT_BY[by], after=after)
