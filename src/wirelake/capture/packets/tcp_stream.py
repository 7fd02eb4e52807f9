"""One direction of a TCP connection: reorder segments, drop retransmissions, declare gaps.

Segments arrive as the capture has them: repeated, overlapping, out of order, or missing. The next bytes of the stream are returned at once.
Bytes ahead of a gap wait until the gap is filled, or until too many bytes wait: then the gap is declared, and reading continues behind it.

A TCP retransmission is returned as `REPEATED`; the flow accounts for it and drops it. Where two segments have the same sequence numbers,
the first counts. A later one with other bytes is returned as `DISPUTED`, as far back as bytes are kept.

Positions are sequence numbers that do not wrap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from wirelake.capture.packets.remembered import Remembered

__all__ = ["DISPUTED", "EARLY", "FRESH", "LATE", "MAX_AHEAD", "REMEMBERED", "REPEATED", "UNKNOWN", "Budget", "Half", "SegmentPart"]

MAX_AHEAD: Final = 1 << 20
"""Bytes of a direction that may wait for a gap before them."""
MAX_AHEAD_SEGMENTS: Final = 2048
"""Segments of a direction that may wait for a gap before them."""
REMEMBERED: Final = 64 << 10
"""Delivered bytes of a direction that are kept, to recognise a retransmission with other bytes."""
MAX_GAPS: Final = 64
"""Declared gaps of a direction that are kept, to tell late bytes from a retransmission."""
FAR: Final = 64 << 20
"""Sequence numbers further apart than this belong to two connections, if the first was closed."""

FRESH: Final = "fresh"
"""The next bytes of the stream, delivered now."""
REPEATED: Final = "repeated"
"""A retransmission of bytes that were delivered or wait: dropped."""
DISPUTED: Final = "disputed"
"""A retransmission with other bytes: the first counts, these go to quarantine."""
EARLY: Final = "early"
"""Before the first byte seen of a stream whose beginning was not captured."""
LATE: Final = "late"
"""Bytes of a gap that was declared before: too late."""

UNKNOWN: Final = -1
"""In place of a number of missing bytes: the beginning of the stream was not captured."""

_position: Final = itemgetter(0)
"""The position of a segment that waits or is kept: both lists are sorted by it, for binary search."""
_WRAP: Final = 1 << 32
_MASK: Final = _WRAP - 1
_BASE: Final = 1 << 40
"""Added to the first sequence number, so that earlier positions are not negative."""


class SegmentPart(NamedTuple):
    """Part of a segment, and whether it is fresh, repeated, disputed, early or late."""

    what: str
    missing: int
    """Bytes that are missing before these; or `UNKNOWN`."""
    ts: int
    offset: int
    chunk: bytes


class Budget:
    """Bytes that all directions of a task hold together."""

    __slots__ = ("ahead", "recent")

    def __init__(self) -> None:
        self.ahead = 0
        self.recent = Remembered()

    @property
    def remembered(self) -> int:
        """Bytes kept to compare retransmissions."""
        return self.recent.total


class Half:
    """One direction of a connection: the next position, segments that wait, and bytes kept."""

    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_budget",
        "_first",
        "_gaps",
        "_missing",
        "_next",
        "_slot",
        "finished",
        "first_bytes",
        "from_start",
        "sniffed",
    )

    def __init__(self, budget: Budget, slot: int | None = None) -> None:
        """`slot` is the number of the direction in `Remembered`; without one it gets a new one."""
        self._budget = budget
        self._slot = budget.recent.new_slot() if slot is None else slot
        self._next = self._first = -1
        self._ahead: list[tuple[int, int, int, bytes]] = []
        """(position, time, offset, bytes), in order and without overlap."""
        self._ahead_bytes = 0
        self._gaps: list[tuple[int, int]] = []
        self._missing = UNKNOWN
        self.from_start = False
        self.finished = False
        self.first_bytes = bytearray()
        self.sniffed = 0
        """Bytes sniffed to recognise the protocol; bytes sniffed twice count twice."""

    # State.

    @property
    def is_waiting(self) -> bool:
        """Whether segments wait for a gap."""
        return bool(self._ahead)

    @property
    def has_gaps(self) -> bool:
        """Whether gaps were declared."""
        return bool(self._gaps)

    def put(self, following: int, first: int, missing: int, from_start: int, finished: int) -> None:
        """Restore the numbers of a direction that nothing waits in; see `flow_table.py`."""
        self._next, self._first, self._missing, self.from_start, self.finished = following, first, missing, bool(from_start), bool(finished)

    def take(self) -> tuple[int, int, int, int, int]:
        """Return the numbers that `put` takes."""
        return self._next, self._first, self._missing, self.from_start, self.finished

    def move_slot(self, slot: int) -> None:
        """Note another number of this direction in `Remembered`."""
        self._slot = slot

    def opens_at(self, sequence: int) -> None:
        """Note the sequence number at which a SYN begins this direction."""
        if self._next < 0:
            self._next = self._first = _BASE + sequence
            self._missing = 0
        self.from_start = True

    def is_opened_at(self, sequence: int) -> bool:
        """Whether a SYN with `sequence` is the first of this direction, or a retransmission of it."""
        return self._next < 0 or self._first & _MASK == sequence

    def began_midway(self) -> bool:
        """Whether bytes of this direction were captured, but not its SYN."""
        return self._next >= 0 and not self.from_start

    @property
    def is_unseen(self) -> bool:
        """Whether nothing of this direction was captured yet."""
        return self._next < 0

    def is_short(self, end: int) -> bool:
        """Whether bytes are missing before the last sequence number of this direction."""
        return self._next >= 0 and 0 < self._place(end) - self._next <= FAR

    def is_far(self, sequence: int) -> bool:
        """Whether a sequence number is so far from the next one that it must be another connection's."""
        return self._next >= 0 and abs(self._place(sequence) - self._next) > FAR

    # Segments.

    def follows(self, sequence: int, chunk: bytes) -> bool:
        """Accept a segment if it is exactly the next with nothing waiting, as nearly all are.

        Returns whether it is.
        """
        start = self._next
        if sequence != start & _MASK or self._ahead or self._missing:
            return False
        self._next = start + len(chunk)
        self._remember(start, chunk)
        return True

    def place(self, sequence: int, ts: int, offset: int, chunk: bytes) -> list[SegmentPart]:
        """Add a segment; returns what is delivered now, in stream order, and what of it is a retransmission."""
        if self._next < 0:
            self._next = self._first = _BASE + sequence  # a mid-stream start: delivery begins with the first segment seen
        start = self._place(sequence)
        bits: list[SegmentPart] = []
        if start < self._next:
            old = min(len(chunk), self._next - start)
            bits = self._behind(start, ts, offset, chunk[:old])
            start, offset, chunk = start + old, offset + old, chunk[old:]
        if chunk:
            bits += self._wait(start, ts, offset, chunk)
            bits += self._drain()
            while self._ahead_bytes > MAX_AHEAD or len(self._ahead) > MAX_AHEAD_SEGMENTS:
                bits += self.skip()
        return bits

    def lose(self, sequence: int, size: int) -> None:
        """Declare a gap of bytes that the snap length cut off, if they come next."""
        if self._next >= 0 and not self._ahead and self._place(sequence) == self._next:
            self._declare(self._next + size)

    def skip(self) -> list[SegmentPart]:
        """Declare the gap before the first segment that waits; returns what is delivered then."""
        if not self._ahead:
            return []
        self._declare(self._ahead[0][0])
        return self._drain()

    def forget(self) -> None:
        """Drop the bytes kept to compare retransmissions; nothing may wait."""
        self._budget.recent.forget(np.array([self._slot]))

    def places(self) -> list[int]:
        """Return the source offsets of segments that wait."""
        return [offset for _, _, offset, _ in self._ahead]

    def move(self, moved: Callable[[int], int]) -> None:
        """Renumber the source offsets of segments that wait."""
        self._ahead = [(position, ts, moved(offset), chunk) for position, ts, offset, chunk in self._ahead]

    # Internal.

    def _place(self, sequence: int) -> int:
        """Return the position of a sequence number: the one nearest to the next."""
        return self._next + (sequence - self._next + _WRAP // 2) % _WRAP - _WRAP // 2

    def _declare(self, until: int) -> None:
        self._gaps.append((self._next, until))
        del self._gaps[:-MAX_GAPS]
        self._missing = UNKNOWN if self._missing == UNKNOWN else self._missing + until - self._next
        self._next = until

    def _remember(self, start: int, chunk: bytes) -> None:
        self._budget.recent.remember(self._slot, start, chunk, REMEMBERED)

    def _drain(self) -> list[SegmentPart]:
        """Deliver segments that wait and have no gap before them."""
        bits = []
        count = 0
        for start, ts, offset, chunk in self._ahead:
            if start != self._next:
                break
            bits.append(SegmentPart(FRESH, self._missing, ts, offset, chunk))
            self._missing = 0
            self._next = start + len(chunk)
            self._remember(start, chunk)
            self._ahead_bytes -= len(chunk)
            self._budget.ahead -= len(chunk)
            count += 1
        del self._ahead[:count]
        return bits

    def _wait(self, start: int, ts: int, offset: int, chunk: bytes) -> list[SegmentPart]:
        """Keep the new bytes of an out-of-order segment; returns what of it overlaps others that wait."""
        bits = []
        at, end = start, start + len(chunk)
        fresh = []
        first = max(0, bisect_right(self._ahead, at, key=_position) - 1)
        last = bisect_left(self._ahead, end, key=_position)
        for position, _, _, there in self._ahead[first:last]:
            stop = position + len(there)
            if stop <= at:
                continue
            if position > at:
                fresh.append((at, position))
                at = position
            until = min(stop, end)
            again = chunk[at - start : until - start]
            what = REPEATED if again == there[at - position : until - position] else DISPUTED
            bits.append(SegmentPart(what, 0, ts, offset + at - start, again))
            at = until
        if at < end:
            fresh.append((at, end))
        for first, stop in fresh:
            insort(self._ahead, (first, ts, offset + first - start, chunk[first - start : stop - start]))
            self._ahead_bytes += stop - first
            self._budget.ahead += stop - first
        return bits

    def _behind(self, start: int, ts: int, offset: int, chunk: bytes) -> list[SegmentPart]:
        """Classify bytes before the next position: retransmission, disputed, early or late."""
        if len(chunk) == 1 and start == self._next - 1:
            return [SegmentPart(REPEATED, 0, ts, offset, chunk)]  # a TCP keep-alive: its byte means nothing
        bits = []
        at, end = start, start + len(chunk)
        while at < end:
            until, what = self._history(at, end)
            part = chunk[at - start : until - start]
            if what == REPEATED and self._is_disputed(at, part):
                what = DISPUTED
            bits.append(SegmentPart(what, 0, ts, offset + at - start, part))
            at = until
        return bits

    def _history(self, at: int, end: int) -> tuple[int, str]:
        """Return up to which position bytes have the same history, and which."""
        if at < self._first and not self.from_start:
            return min(end, self._first), EARLY
        for first, stop in self._gaps:
            if first <= at < stop:
                return min(end, stop), LATE
            if at < first < end:
                end = first
        return end, REPEATED

    def _is_disputed(self, at: int, part: bytes) -> bool:
        """Whether bytes differ from those kept of the same positions."""
        end = at + len(part)
        for start, chunk in self._budget.recent.chunks(self._slot, at, end):
            first, last = max(at, start), min(end, start + len(chunk))
            if first < last and part[first - at : last - at] != chunk[first - start : last - start]:
                return True
        return False
