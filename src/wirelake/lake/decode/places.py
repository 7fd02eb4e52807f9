"""Places: where messages and connections of a block are in their sources, found by kernels that walk both together."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from wirelake.capture.blocks.block import ORIGIN_OFFSET, ORIGIN_START, ORIGIN_TS, SEGMENT_FLOW, SEGMENT_START, SOURCE_SHIFT, Block
from wirelake.capture.blocks.flow_events import event_places
from wirelake.protocols.kernel import kernel, over_arrays

__all__ = ["PLACE_COLUMNS", "PLACE_END", "PLACE_FIRST", "PLACE_LOWEST", "PLACE_TS", "first_places", "places_of"]

IntArray = npt.NDArray[np.int64]

PLACE_FIRST: Final = 0
"""The place of the first byte; see `block.place`."""
PLACE_LOWEST: Final = 1
"""The lowest place in the source of the first byte."""
PLACE_END: Final = 2
"""The place behind the highest one there."""
PLACE_TS: Final = 3
"""The time of the last byte."""
PLACE_COLUMNS: Final = 4
STEPS: Final = 8
"""Origins that are looked at one by one before the others are searched by halves."""


@kernel
def _origin(origins: IntArray, near: int, start: int) -> int:
    """The last origin that begins at or before a byte, which most often is `near` or soon after it."""
    low, high = 0, len(origins)
    if origins[near, ORIGIN_START] <= start:
        low = near + 1
        stop = min(near + STEPS, high)
        while low < stop and origins[low, ORIGIN_START] <= start:
            low += 1
        if low < stop or low == high:
            return low - 1
    while low < high:
        middle = (low + high) // 2
        if origins[middle, ORIGIN_START] <= start:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def find_places(origins: IntArray, starts: IntArray, lengths: IntArray, out: IntArray) -> None:
    """Write a row (`PLACE_COLUMNS`) for each message, which begins at `starts` and has at least one byte."""
    head = 0
    for row in range(len(starts)):
        start, last = starts[row], starts[row] + lengths[row] - 1
        head = _origin(origins, head, start)
        tail = _origin(origins, head, last)
        first = origins[head, ORIGIN_OFFSET] + start - origins[head, ORIGIN_START]
        lowest, end = first, origins[tail, ORIGIN_OFFSET] + last - origins[tail, ORIGIN_START] + 1
        number = first >> SOURCE_SHIFT
        is_straight = number == (end - 1) >> SOURCE_SHIFT
        for origin in range(head + 1, tail + 1):
            if origins[origin, ORIGIN_OFFSET] < origins[origin - 1, ORIGIN_OFFSET]:
                is_straight = False
        if not is_straight:  # segments came in another order, or the message goes on in another source
            end = first
            for origin in range(head, tail + 1):
                begin = max(origins[origin, ORIGIN_START], start)
                stop = origins[origin + 1, ORIGIN_START] if origin < tail else last + 1
                place = origins[origin, ORIGIN_OFFSET] + begin - origins[origin, ORIGIN_START]
                if place >> SOURCE_SHIFT == number:
                    lowest, end = min(lowest, place), max(end, place + stop - begin)
        out[row, PLACE_FIRST] = first
        out[row, PLACE_LOWEST] = lowest
        out[row, PLACE_END] = end
        out[row, PLACE_TS] = origins[tail, ORIGIN_TS]


def places_of(origins: IntArray, starts: IntArray, lengths: IntArray) -> IntArray:
    """Return one row (`PLACE_COLUMNS`) for each message."""
    out = np.empty((len(starts), PLACE_COLUMNS), np.int64)
    over_arrays(find_places)(np.ascontiguousarray(origins), np.ascontiguousarray(starts), np.ascontiguousarray(lengths), out)
    return out


@kernel
def _note_first(is_seen: IntArray, out: IntArray, count: int, sources: int, flow: int, ts: int, place: int) -> int:
    key = flow * sources + (place >> SOURCE_SHIFT)
    if is_seen[key]:
        return count
    is_seen[key] = 1
    out[count, 0] = flow
    out[count, 1] = ts
    out[count, 2] = place
    return count + 1


@kernel
def find_first(
    segments: IntArray, origins: IntArray, events: IntArray, afters: IntArray, sources: int, is_seen: IntArray, out: IntArray
) -> int:
    """Write a row for each flow and source, in the order in which they come; returns how many there are. See `first_places`.

    An event comes before bytes that begin where the block's data ended when it happened.
    """
    count, event, segment = 0, 0, 0
    for origin in range(len(origins) + 1):
        while event < len(events) and (origin == len(origins) or afters[event] <= origins[origin, ORIGIN_START]):
            count = _note_first(is_seen, out, count, sources, events[event, 0], events[event, 1], events[event, 2])
            event += 1
        if origin < len(origins):
            while segment + 1 < len(segments) and segments[segment + 1, SEGMENT_START] <= origins[origin, ORIGIN_START]:
                segment += 1
            flow, ts, place = segments[segment, SEGMENT_FLOW], origins[origin, ORIGIN_TS], origins[origin, ORIGIN_OFFSET]
            count = _note_first(is_seen, out, count, sources, flow, ts, place)
    return count


def first_places(block: Block, sources: int) -> IntArray:
    """Return one row (flow, time, place) for every flow of a block and source: its first bytes, or its first event."""
    events = event_places(block.events)
    if (np.diff(events[:, 3]) < 0).any():
        events = events[np.argsort(events[:, 3], kind="stable")]
    origins = block.origins if len(block.segments) else block.origins[:0]
    is_seen = np.zeros(len(block.flows) * sources, np.int64)
    out = np.empty((len(is_seen), 3), np.int64)
    segments, origins, events = (np.ascontiguousarray(table, np.int64) for table in (block.segments, origins, events))
    afters = np.ascontiguousarray(events[:, 3])
    return out[: over_arrays(find_first)(segments, origins, events, afters, sources, is_seen, out)]
