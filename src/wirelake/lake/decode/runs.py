"""Runs of a block, gathered by direction: the bytes of each direction in one piece, behind those that wait.

Nothing here is Python per run: kernels number the directions and copy. Directions are in the order of their first run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake.capture.blocks.block import (
    ORIGIN_COLUMNS,
    ORIGIN_OFFSET,
    ORIGIN_START,
    ORIGIN_TS,
    SEGMENT_FLOW,
    SEGMENT_MISSING,
    SEGMENT_START,
    SEGMENT_STOP,
    SEGMENT_TO_SERVER,
    Flow,
)
from wirelake.capture.blocks.flows import Flows
from wirelake.lake.decode.state import Speaker
from wirelake.protocols.kernel import copy, kernel, over_arrays

__all__ = ["Gathered", "Runs"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

ITEM_KEY: Final = 0
"""2 * flow + to_server."""
ITEM_FIRST: Final = 1
"""Its first run."""
ITEM_SIZE: Final = 2
ITEM_PIECES: Final = 3
ITEM_COLUMNS: Final = 4


@kernel
def _survey(segments: IntArray, firsts: IntArray, lasts: IntArray, item_of: IntArray, items: IntArray, chosen: IntArray) -> int:
    """Number the directions of runs in the order of their first; returns how many there are.

    `item_of` has -1 for each key. `items` gets a row for each direction, and `chosen` the direction of each run.
    """
    count = 0
    for index in range(len(segments)):
        key = 2 * segments[index, SEGMENT_FLOW] + segments[index, SEGMENT_TO_SERVER]
        item = item_of[key]
        if item < 0:
            item = count
            item_of[key] = item
            items[item, ITEM_KEY] = key
            items[item, ITEM_FIRST] = index
            items[item, ITEM_SIZE] = 0
            items[item, ITEM_PIECES] = 0
            count += 1
        chosen[index] = item
        items[item, ITEM_SIZE] += segments[index, SEGMENT_STOP] - segments[index, SEGMENT_START]
        items[item, ITEM_PIECES] += lasts[index] - firsts[index]
    return count


@kernel
def _gather(
    data: ByteArray,
    segments: IntArray,
    origins: IntArray,
    firsts: IntArray,
    lasts: IntArray,
    chosen: IntArray,
    out: ByteArray,
    pieces: IntArray,
    byte_at: IntArray,
    piece_at: IntArray,
) -> None:
    """Copy each run, and the pieces that lead back from it, to the place of its direction (`byte_at`, `piece_at`)."""
    for index in range(len(segments)):
        item = chosen[index]
        start, stop = segments[index, SEGMENT_START], segments[index, SEGMENT_STOP]
        at, piece = byte_at[item], piece_at[item]
        copy(out, at, data, start, stop - start)
        for number in range(firsts[index], lasts[index]):
            begin = max(origins[number, ORIGIN_START], start)
            pieces[piece, ORIGIN_START] = begin - start + at
            pieces[piece, ORIGIN_OFFSET] = origins[number, ORIGIN_OFFSET] + begin - origins[number, ORIGIN_START]
            pieces[piece, ORIGIN_TS] = origins[number, ORIGIN_TS]
            piece += 1
        byte_at[item] = at + stop - start
        piece_at[item] = piece


@kernel
def _count_turns(segments: IntArray, gaps: IntArray, turns: IntArray) -> int:
    """Write the turn of each run: the gaps of its direction so far; returns the highest. `gaps` has 0 for each key."""
    most = 0
    for index in range(len(segments)):
        key = 2 * segments[index, SEGMENT_FLOW] + segments[index, SEGMENT_TO_SERVER]
        if segments[index, SEGMENT_MISSING]:
            gaps[key] += 1
        turns[index] = gaps[key]
        most = max(most, gaps[key])
    return int(most)


class Gathered(msgspec.Struct):
    """Bytes of directions, one after the other; those of direction i are data[starts[i]:stops[i]]."""

    data: ByteArray
    origins: IntArray
    starts: IntArray
    stops: IntArray


class Runs:
    """Runs of one block, all of streams that one scanner reads. No two of its flows may have the same session."""

    def __init__(self, data: ByteArray, segments: IntArray, origins: IntArray, flows: Flows) -> None:
        self._data = data
        self._segments = np.ascontiguousarray(segments)
        self._origins = np.ascontiguousarray(origins)
        self.flows = flows
        begins = np.ascontiguousarray(self._origins[:, ORIGIN_START])
        self._firsts = np.maximum(np.searchsorted(begins, self._segments[:, SEGMENT_START], side="right") - 1, 0)
        self._lasts = np.searchsorted(begins, self._segments[:, SEGMENT_STOP], side="left")
        self._item_of = np.full(2 * len(flows), -1, np.int64)
        self._chosen = np.empty(len(segments), np.int64)
        items = np.empty((min(len(segments), 2 * len(flows)), ITEM_COLUMNS), np.int64)
        count = over_arrays(_survey)(self._segments, self._firsts, self._lasts, self._item_of, items, self._chosen)
        self._items = items[:count]

    def __len__(self) -> int:
        """How many directions there are."""
        return len(self._items)

    def turns(self) -> Iterator[Runs]:
        """Yield the runs in rounds: within a round, no direction has a gap except before its first run."""
        if not self._segments[:, SEGMENT_MISSING].any():
            yield self
            return
        gaps, turns = np.zeros(2 * len(self.flows), np.int64), np.empty(len(self._segments), np.int64)
        over_arrays(_count_turns)(self._segments, gaps, turns)
        for turn in np.unique(turns).tolist():
            yield Runs(self._data, self._segments[turns == turn], self._origins, self.flows)

    @property
    def sides(self) -> IntArray:
        """Of each direction, whether the client sends it."""
        sides: IntArray = self._items[:, ITEM_KEY] & 1
        return sides

    @property
    def missing(self) -> IntArray:
        """Of each direction, the bytes that are missing before its first run."""
        missing: IntArray = self._segments[self._items[:, ITEM_FIRST], SEGMENT_MISSING]
        return missing

    @property
    def first_bytes(self) -> IntArray:
        """The first byte of each direction."""
        first: IntArray = self._data[self._segments[self._items[:, ITEM_FIRST], SEGMENT_START]].astype(np.int64)
        return first

    @property
    def flow_numbers(self) -> IntArray:
        """Of each direction, the number of its flow."""
        numbers: IntArray = self._items[:, ITEM_KEY] >> 1
        return numbers

    def flow(self, item: int) -> Flow:
        """The flow of a direction."""
        return self.flows[int(self._items[item, ITEM_KEY]) >> 1]

    def speaker(self, item: int) -> Speaker:
        """The speaker of a direction."""
        key = int(self._items[item, ITEM_KEY])
        return self.flows.session_ids[key >> 1].tobytes(), key & 1

    def speakers(self) -> list[Speaker]:
        """The speakers of all directions."""
        return list(zip(self.flows.take(self.flow_numbers).names(), self.sides.tolist(), strict=True))

    def item(self, speaker: Speaker) -> int:
        """The direction of a speaker; -1 if it has no run."""
        number = self.flows.numbers.get(speaker[0])
        return -1 if number is None else int(self._item_of[2 * number + speaker[1]])

    def gather(self, waiting: dict[int, tuple[ByteArray, IntArray]]) -> Gathered:
        """Join the runs of each direction to the bytes of it that wait, with the pieces that lead back from those."""
        sizes, counts = self._items[:, ITEM_SIZE].copy(), self._items[:, ITEM_PIECES].copy()
        for item, (data, origins) in waiting.items():
            sizes[item] += len(data)
            counts[item] += len(origins)
        stops, last_pieces = np.cumsum(sizes), np.cumsum(counts)
        starts, piece_at = stops - sizes, last_pieces - counts
        byte_at = starts.copy()
        out = np.empty(int(sizes.sum()), np.uint8)
        pieces = np.empty((int(counts.sum()), ORIGIN_COLUMNS), np.int64)
        for item, (data, origins) in waiting.items():
            at, piece = int(byte_at[item]), int(piece_at[item])
            out[at : at + len(data)] = data
            mine = pieces[piece : piece + len(origins)]
            mine[:] = origins
            mine[:, ORIGIN_START] += at
            byte_at[item] += len(data)
            piece_at[item] += len(origins)
        over_arrays(_gather)(
            self._data, self._segments, self._origins, self._firsts, self._lasts, self._chosen, out, pieces, byte_at, piece_at
        )
        return Gathered(out, pieces, starts, stops)
