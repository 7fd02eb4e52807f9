"""FlowEvents: the events of a block's connections as one array, and as a sequence of `FlowEvent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, overload

import numpy as np
import pyarrow as pa

from wirelake.capture.blocks.block import FlowEvent

__all__ = [
    "EVENT_AFTER",
    "EVENT_BY",
    "EVENT_CODE",
    "EVENT_COLUMNS",
    "EVENT_FLOW",
    "EVENT_OFFSET",
    "EVENT_SIDE",
    "EVENT_TS",
    "EVENT_WHAT",
    "SEEN",
    "FlowEvents",
    "event_places",
    "event_words",
]

EVENT_FLOW: Final = 0
EVENT_TS: Final = 1
EVENT_OFFSET: Final = 2
EVENT_CODE: Final = 3
EVENT_SIDE: Final = 4
EVENT_AFTER: Final = 5
"""Size of the block's data when it happened."""
EVENT_COLUMNS: Final = 6
SEEN: Final = "seen"
"""The first row of a connection in a source."""
EVENT_WHAT: Final = ("opened", "finished", "closed", "reset", "missing")
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


def event_words(events: Sequence[FlowEvent], before: int = 0) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return event, side and detail of each event; so many rows of connections that were first seen come before them."""
    if isinstance(events, FlowEvents):
        codes = (events.table[:, EVENT_CODE] + 1, events.table[:, EVENT_SIDE], np.zeros(len(events), np.int64))
        words = ((SEEN, *EVENT_WHAT), EVENT_BY, ("",))
        first = np.zeros(before, np.int64)
        what, by, detail = (
            pa.DictionaryArray.from_arrays(pa.array(np.concatenate((first, code)).astype(np.int32)), pa.array(known, pa.string()))
            for code, known in zip(codes, words, strict=True)
        )
        return what, by, detail
    none = [""] * before
    columns = (
        [SEEN] * before + [event.what for event in events],
        none + [event.by for event in events],
        none + [event.detail for event in events],
    )
    what, by, detail = (pa.array(values, pa.string()).dictionary_encode() for values in columns)
    return what, by, detail


def _event(row: list[int]) -> FlowEvent:
    flow, ts, offset, what, by, after = row
    return FlowEvent(flow, ts, offset, EVENT_WHAT[what], EVENT_BY[by], after=after)
