"""Remembered: the last delivered bytes of all TCP directions, to recognise a retransmission with other bytes.

Bytes of all directions lie in one array, in the order in which they were delivered. A direction has a ring of *pieces* (position, size,
place in the array), one for each delivered segment. Dropped bytes stay until the arrays are full; then those that are kept are copied
together. Kernels append (`remember`), and so does Python for segments that are out of order; both keep the same pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from wirelake.protocols.kernel import active, kernel

__all__ = ["RING_COLUMNS", "Remembered", "remember"]

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
def remember(kept: Any, slot: int, position: int, data: Any, start: int, size: int, limit: int) -> None:
    """Keep data[start:start + size] as the next delivered bytes of a direction; `Remembered.reserve` must have made space."""
    rings, pieces, held, counts = kept
    number = _new_piece(rings, pieces, counts, slot)
    at = counts[BYTES_USED]
    pieces[number, PIECE_POSITION] = position
    pieces[number, PIECE_SIZE] = size
    pieces[number, PIECE_AT] = at
    place, chunk = held[at : at + size], data[start : start + size]
    for index in range(size):  # Numba copies slices more slowly
        place[index] = chunk[index]
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
            held[at : at + size] = held_before[place : place + size]
            number += 1
            at += size
    counts[BYTES_USED] = at
    counts[PIECES_USED] = number
    counts[TOTAL] = at


class Remembered:
    """The delivered bytes that are kept, by direction; a direction has a number (`slot`)."""

    def __init__(self) -> None:
        self.rings = np.zeros((16, RING_COLUMNS), np.int64)
        self._slots = 0
        self._clear(SPARE_BYTES, SPARE_PIECES)

    def _clear(self, size: int, pieces: int) -> None:
        self.held = np.empty(size, np.uint8)
        self.pieces = np.empty((pieces, PIECE_COLUMNS), np.int64)
        self.counts = np.zeros(3, np.int64)

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """For kernels: rings, pieces, bytes, counts."""
        return self.rings, self.pieces, self.held, self.counts

    @property
    def total(self) -> int:
        """Bytes that all directions keep."""
        return int(self.counts[TOTAL])

    def new_slot(self) -> int:
        """Return the number of one more direction."""
        self._slots += 1
        self.resize(self._slots)
        return self._slots - 1

    def resize(self, slots: int) -> None:
        """Make space for so many directions."""
        if slots > len(self.rings):
            larger = np.zeros((max(slots, 2 * len(self.rings)), RING_COLUMNS), np.int64)
            larger[: len(self.rings)] = self.rings
            self.rings = larger

    def renumber(self, slots: Array, capacity: int) -> None:
        """Keep only these directions, numbered in this order, with space for so many."""
        rings = np.zeros((capacity, RING_COLUMNS), np.int64)
        rings[: len(slots)] = self.rings[slots]
        self.rings = rings

    def reserve(self, size: int, pieces: int, slots: int | None = None) -> None:
        """Make space for so many bytes in so many pieces; `slots` directions are in use."""
        used = int(self.counts[PIECES_USED])
        # A ring that is full moves to one twice as large.
        if self.counts[BYTES_USED] + size <= len(self.held) and 5 * used + 4 * pieces <= len(self.pieces):
            return
        slots = len(self.rings) if slots is None else slots
        live = int(self.rings[:slots, RING_COUNT].sum())
        pieces_before, held_before, total = self.pieces, self.held, self.total
        self._clear(2 * total + size + SPARE_BYTES, 10 * live + 8 * pieces + SPARE_PIECES)
        active(_compact)(slots, self.rings, pieces_before, held_before, self.pieces, self.held, self.counts)

    def remember(self, slot: int, position: int, chunk: bytes, limit: int) -> None:
        """Keep the next delivered bytes of a direction, and drop the oldest beyond a limit."""
        size = len(chunk)
        if self.counts[BYTES_USED] + size > len(self.held) or self.counts[PIECES_USED] + 2 * (1 + self.rings[slot, RING_COUNT]) + 4 > len(
            self.pieces
        ):
            self.reserve(size, 1)
        number = _new_piece(self.rings, self.pieces, self.counts, slot)
        at = int(self.counts[BYTES_USED])
        self.pieces[number] = (position, size, at)
        self.held[at : at + size] = np.frombuffer(chunk, np.uint8)
        self.counts[BYTES_USED] = at + size
        self.counts[TOTAL] += size
        self.rings[slot, RING_BYTES] += size
        _drop_oldest(self.rings, self.pieces, self.counts, slot, limit)

    def forget(self, slot: int) -> None:
        """Drop what is kept of a direction."""
        self.counts[TOTAL] -= self.rings[slot, RING_BYTES]
        self.rings[slot] = 0

    def forget_many(self, slots: Array) -> None:
        """Drop what is kept of these directions."""
        self.counts[TOTAL] -= int(self.rings[slots, RING_BYTES].sum())
        self.rings[slots] = 0

    def forget_all(self) -> None:
        """Drop everything."""
        self.rings[:] = 0
        self.counts[:] = 0

    def chunks(self, slot: int, at: int = 0, end: int = 1 << 62) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) of pieces between two positions, and perhaps of one piece before them."""
        base, capacity, first, count, _ = self.rings[slot].tolist()
        low, high = 0, count
        while low < high:  # the first piece that begins behind `at`
            middle = (low + high) // 2
            if self.pieces[base + (first + middle) % capacity, PIECE_POSITION] <= at:
                low = middle + 1
            else:
                high = middle
        for number in range(max(0, low - 1), count):
            position, size, place = self.pieces[base + (first + number) % capacity].tolist()
            if position >= end:
                return
            yield position, self.held[place : place + size].tobytes()
