"""Remembered: the last delivered bytes of all TCP directions, to recognise a retransmission with other bytes.

Bytes of all directions lie in one array, in the order in which they were delivered. A direction has a ring of *pieces* (position, size,
place in the array), one for each delivered segment. Dropped bytes stay until the arrays are full; then those that are kept are copied
together. Without kernels, a direction has a list of Python with the same pieces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

import numpy as np

from wirelake.protocols.kernel import active, array, copy, kernel

__all__ = ["KEEP_ALL", "RING_COLUMNS", "Remembered", "remember"]

Array = np.ndarray[Any, Any]

RING_BASE: Final = 0
"""The first piece of the ring; its other pieces follow."""
RING_CAPACITY: Final = 1
RING_FIRST: Final = 2
"""Which of them is the oldest."""
RING_COUNT: Final = 3
RING_BYTES: Final = 4
RING_COLUMNS: Final = 5

PIECE_POSITION: Final = 0
PIECE_SIZE: Final = 1
PIECE_AT: Final = 2
PIECE_COLUMNS: Final = 3

BYTES_USED: Final = 0
PIECES_USED: Final = 1
TOTAL: Final = 2
"""Bytes that all directions keep."""

SMALLEST_RING: Final = 4
KEEP_ALL: Final = 1 << 62
"""A limit that no direction reaches."""
_position: Final = itemgetter(0)
SPARE_BYTES: Final = 1 << 16
SPARE_PIECES: Final = 1 << 10
"""What arrays hold at least."""


@kernel
def _new_piece(rings: Any, pieces: Any, counts: Any, slot: int) -> int:
    """Return the number of a new piece at the end of a ring; a full ring moves to one twice as large."""
    base, capacity, first, count = rings[slot, 0], rings[slot, 1], rings[slot, 2], rings[slot, 3]
    if count == capacity:
        larger = max(SMALLEST_RING, 2 * capacity)
        fresh = counts[PIECES_USED]
        for index in range(count):
            old = base + (first + index) % capacity
            for column in range(PIECE_COLUMNS):
                pieces[fresh + index, column] = pieces[old, column]
        counts[PIECES_USED] = fresh + larger
        base, capacity, first = fresh, larger, 0
        rings[slot, RING_BASE] = base
        rings[slot, RING_CAPACITY] = capacity
        rings[slot, RING_FIRST] = first
    rings[slot, RING_COUNT] = count + 1
    number: int = base + (first + count) % capacity
    return number


@kernel
def _drop_oldest(rings: Any, pieces: Any, counts: Any, slot: int, limit: int) -> None:
    """Drop the oldest pieces of a ring, as long as the others have `limit` bytes or more."""
    base, capacity, first, count = rings[slot, 0], rings[slot, 1], rings[slot, 2], rings[slot, 3]
    held = rings[slot, RING_BYTES]
    while held - pieces[base + first, PIECE_SIZE] >= limit:
        size = pieces[base + first, PIECE_SIZE]
        held -= size
        counts[TOTAL] -= size
        first = (first + 1) % capacity
        count -= 1
    rings[slot, RING_BYTES] = held
    rings[slot, RING_FIRST] = first
    rings[slot, RING_COUNT] = count


@kernel
def remember(
    rings: Any, pieces: Any, held: Any, counts: Any, slot: int, position: int, data: Any, start: int, size: int, limit: int
) -> None:
    """Keep data[start:start + size] as the next delivered bytes of a direction; `Remembered.arrays` made space."""
    number = _new_piece(rings, pieces, counts, slot)
    at = counts[BYTES_USED]
    pieces[number, PIECE_POSITION] = position
    pieces[number, PIECE_SIZE] = size
    pieces[number, PIECE_AT] = at
    copy(held, at, data, start, size)
    counts[BYTES_USED] = at + size
    counts[TOTAL] += size
    rings[slot, RING_BYTES] += size
    _drop_oldest(rings, pieces, counts, slot, limit)


@kernel
def _compact(slots: int, rings: Any, pieces_before: Any, held_before: Any, pieces: Any, held: Any, counts: Any) -> None:
    """Copy what the first `slots` rings keep to new arrays, ring by ring."""
    number, at = 0, 0
    for slot in range(slots):
        base, capacity, first, count = rings[slot, 0], rings[slot, 1], rings[slot, 2], rings[slot, 3]
        rings[slot, RING_BASE] = number
        rings[slot, RING_CAPACITY] = count
        rings[slot, RING_FIRST] = 0
        for index in range(count):
            old = base + (first + index) % capacity
            size, place = pieces_before[old, PIECE_SIZE], pieces_before[old, PIECE_AT]
            pieces[number, PIECE_POSITION] = pieces_before[old, PIECE_POSITION]
            pieces[number, PIECE_SIZE] = size
            pieces[number, PIECE_AT] = at
            copy(held, at, held_before, place, size)
            number += 1
            at += size
    counts[BYTES_USED] = at
    counts[PIECES_USED] = number
    counts[TOTAL] = at


class Remembered:
    """The delivered bytes that are kept, by direction; a direction has a number (`slot`).

    As long as no kernel appends, they are in lists of Python. `arrays` moves them.
    """

    def __init__(self) -> None:
        self._lists: dict[int, deque[tuple[int, bytes]]] | None = {}
        """Direction -> (position, bytes), in order; None: they are in the arrays."""
        self._list_sizes: dict[int, int] = {}
        self._list_total = 0
        self._rings = np.zeros((0, RING_COLUMNS), np.int64)
        self._slots = 0
        self._clear(0, 0)

    def _clear(self, size: int, pieces: int) -> None:
        self._held = np.empty(size, np.uint8)
        self._pieces = np.empty((pieces, PIECE_COLUMNS), np.int64)
        self._counts = np.zeros(3, np.int64)

    @property
    def total(self) -> int:
        """Bytes that all directions keep."""
        return int(self._counts[TOTAL]) if self._lists is None else self._list_total

    def new_slot(self) -> int:
        """Return the number of one more direction."""
        self._slots += 1
        return self._slots - 1

    def renumber(self, slots: Array) -> None:
        """Keep only these directions, numbered in this order, which is ascending."""
        if self._lists is None:
            rings = np.zeros((2 * len(slots), RING_COLUMNS), np.int64)
            known = slots[slots < len(self._rings)]  # the others are new, and keep nothing
            rings[: len(known)] = self._rings[known]
            self._rings = rings
            return
        numbers = {old: new for new, old in enumerate(slots.tolist())}
        self._lists = {numbers[slot]: mine for slot, mine in self._lists.items() if slot in numbers}
        self._list_sizes = {numbers[slot]: size for slot, size in self._list_sizes.items() if slot in numbers}

    def arrays(self, size: int, pieces: int, slots: int, capacity: int) -> tuple[Array, Array, Array, Array]:
        """For kernels: rings, pieces, bytes, counts, with space for so many bytes in so many pieces.

        `slots` directions are in use, and there may be as many as `capacity`.
        """
        if len(self._rings) < capacity:
            rings = np.zeros((capacity, RING_COLUMNS), np.int64)
            rings[: len(self._rings)] = self._rings
            self._rings = rings
        if self._lists is not None:
            lists, self._lists = self._lists, None
            count = sum(len(mine) for mine in lists.values())
            self._reserve(self._list_total, count, slots)
            for slot, mine in lists.items():
                for position, chunk in mine:
                    self._append(slot, position, chunk, KEEP_ALL)
        self._reserve(size, pieces, slots)
        return self._rings, self._pieces, self._held, self._counts

    def _reserve(self, size: int, pieces: int, slots: int) -> None:
        """Make space for so many bytes in so many pieces; `slots` directions are in use."""
        used = int(self._counts[PIECES_USED])
        # A ring that is full moves to one twice as large.
        if self._counts[BYTES_USED] + size <= len(self._held) and 5 * used + 4 * pieces <= len(self._pieces):
            return
        live = int(self._rings[:slots, RING_COUNT].sum())
        pieces_before, held_before, total = self._pieces, self._held, self.total
        self._clear(2 * total + size + SPARE_BYTES, 10 * live + 8 * pieces + SPARE_PIECES)
        active(_compact)(slots, self._rings, pieces_before, held_before, self._pieces, self._held, self._counts)

    def _append(self, slot: int, position: int, chunk: bytes, limit: int) -> None:
        if self._counts[BYTES_USED] + len(chunk) > len(self._held) or 5 * self._counts[PIECES_USED] + 4 > len(self._pieces):
            self._reserve(len(chunk), 1, len(self._rings))
        kept = (self._rings, self._pieces, self._held, self._counts)
        active(remember)(*kept, slot, position, array(chunk), 0, len(chunk), limit)

    def remember(self, slot: int, position: int, chunk: bytes, limit: int) -> None:
        """Keep the next delivered bytes of a direction, and drop the oldest beyond a limit."""
        if self._lists is None:
            self._append(slot, position, chunk, limit)
            return
        mine = self._lists.get(slot)
        if mine is None:
            mine = self._lists[slot] = deque()
        mine.append((position, chunk))
        before = self._list_sizes.get(slot, 0)
        held = before + len(chunk)
        while held - len(mine[0][1]) >= limit:
            held -= len(mine.popleft()[1])
        self._list_sizes[slot] = held
        self._list_total += held - before

    def forget(self, slots: Array) -> None:
        """Drop what is kept of these directions."""
        if self._lists is None:
            known = slots[slots < len(self._rings)]
            self._counts[TOTAL] -= int(self._rings[known, RING_BYTES].sum())
            self._rings[known] = 0
            return
        for slot in slots.tolist():
            if self._lists.pop(slot, None) is not None:
                self._list_total -= self._list_sizes.pop(slot)

    def forget_all(self) -> None:
        """Drop everything."""
        self._rings[:] = 0
        self._counts[:] = 0
        self._list_sizes, self._list_total = {}, 0
        if self._lists is not None:
            self._lists = {}

    def chunks(self, slot: int, at: int = 0, end: int = 1 << 62) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) of pieces between two positions, and perhaps of one piece before them."""
        if self._lists is not None:
            mine = self._lists.get(slot, deque())
            for number in range(max(0, bisect_right(mine, at, key=_position) - 1), bisect_left(mine, end, key=_position)):
                yield mine[number]
            return
        if slot >= len(self._rings):
            return
        base, capacity, first, count, _ = self._rings[slot].tolist()
        low, high = 0, count
        while low < high:  # the first piece that begins behind `at`
            middle = (low + high) // 2
            if self._pieces[base + (first + middle) % capacity, PIECE_POSITION] <= at:
                low = middle + 1
            else:
                high = middle
        for number in range(max(0, low - 1), count):
            position, size, place = self._pieces[base + (first + number) % capacity].tolist()
            if position >= end:
                return
            yield position, self._held[place : place + size].tobytes()
