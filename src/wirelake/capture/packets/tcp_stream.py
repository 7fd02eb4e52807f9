"""One direction of a TCP connection: reorder segments, drop retransmissions, declare gaps.

Segments arrive as the capture has them: repeated, overlapping, out of order, or missing. The next bytes of the stream are returned at once.
Bytes ahead of a gap wait until the gap is filled, or until too many bytes wait: then the gap is declared, and reading continues behind it.

A TCP retransmission is returned as `REPEATED`; the flow accounts for it and drops it. Where two segments have the same sequence numbers,
the first counts. A later one with other bytes is returned as `DISPUTED`, as far back as bytes are kept.

Positions are sequence numbers that do not wrap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Final, NamedTuple

__all__ = ["DISPUTED", "EARLY", "FRESH", "LATE", "MAX_AHEAD", "REMEMBERED", "REPEATED", "UNKNOWN", "Bit", "Budget", "Half"]

MAX_AHEAD: Final = 1 << 20
"""Bytes of a direction that may wait for what is missing before them."""
MAX_AHEAD_SEGMENTS: Final = 2048
"""… and segments."""
REMEMBERED: Final = 64 << 10
"""Bytes of a direction that are remembered, to tell a retransmission that says something else."""
MAX_GAPS: Final = 64
"""Declared gaps of a direction that are remembered, to tell what comes too late from what comes again."""
FAR: Final = 64 << 20
"""Sequence numbers that are further apart than this belong to two connections, if the first of them was closed."""

FRESH: Final = "fresh"
"""What comes next in the stream."""
REPEATED: Final = "repeated"
DISPUTED: Final = "disputed"
"""Repeated, but different."""
EARLY: Final = "early"
"""Before the first byte that was seen of a stream whose beginning was not."""
LATE: Final = "late"
"""Of a gap that was declared before."""

UNKNOWN: Final = -1
"""Instead of a number of missing bytes: a stream whose beginning was not seen."""

_position: Final = itemgetter(0)
"""Where a segment that waits or is remembered begins: both lists are sorted by it, so that no segment walks them from the start."""
_WRAP: Final = 1 << 32
_MASK: Final = _WRAP - 1
_BASE: Final = 1 << 40
"""What is added to the first sequence number, so that what lies before it is no negative number."""


class Bit(NamedTuple):
    """Bytes of a segment, and what became of them."""

    what: str
    missing: int
    """Bytes that are missing before these; `UNKNOWN` if nobody can tell."""
    ts: int
    offset: int
    chunk: bytes


class Budget:
    """What all directions of a task hold together, in bytes."""

    __slots__ = ("ahead", "remembered")

    def __init__(self) -> None:
        self.ahead = 0
        self.remembered = 0


class Half:
    """One direction of a connection: what was seen, what comes next, and what waits."""

    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_budget",
        "_first",
        "_gaps",
        "_missing",
        "_next",
        "_recent",
        "_recent_bytes",
        "finished",
        "first_bytes",
        "from_start",
        "sniffed",
    )

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._next = self._first = -1
        self._ahead: list[tuple[int, int, int, bytes]] = []
        """(position, time, offset, bytes), in order and without overlap."""
        self._ahead_bytes = 0
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0
        self._gaps: list[tuple[int, int]] = []
        self._missing = UNKNOWN
        self.from_start = False
        self.finished = False
        self.first_bytes = bytearray()
        self.sniffed = 0
        """Bytes that were looked at to recognise the protocol, each as often as it was."""

    # What is known.

    @property
    def is_waiting(self) -> bool:
        """Whether something is missing."""
        return bool(self._ahead)

    def opens_at(self, sequence: int) -> None:
        """A SYN said where this direction begins."""
        if self._next < 0:
            self._next = self._first = _BASE + sequence
            self._missing = 0
        self.from_start = True

    def is_opened_at(self, sequence: int) -> bool:
        """Whether a SYN that announces `sequence` repeats what is known, or is the first to say it."""
        return self._next < 0 or self._first & _MASK == sequence

    def began_midway(self) -> bool:
        """Whether bytes of this direction were seen, but not its beginning."""
        return self._next >= 0 and not self.from_start

    def is_far(self, sequence: int) -> bool:
        """Whether a sequence number is so far from what comes next that it must be another connection's."""
        return self._next >= 0 and abs(self._place(sequence) - self._next) > FAR

    # What comes.

    def follows(self, sequence: int, chunk: bytes) -> bool:
        """Whether a segment is exactly what comes next with nothing waiting, as nearly all are; if so, remember it as seen."""
        start = self._next
        if sequence != start & _MASK or self._ahead or self._missing:
            return False
        self._next = start + len(chunk)
        self._remember(start, chunk)
        return True

    def place(self, sequence: int, ts: int, offset: int, chunk: bytes) -> list[Bit]:
        """Take a segment; what can be given out now, in the order of the stream, and what of the segment is not new."""
        if self._next < 0:
            self._next = self._first = _BASE + sequence  # a mid-stream start: the first segment seen is where reading begins
        start = self._place(sequence)
        bits: list[Bit] = []
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
        """The capture cut off bytes here: nobody needs to wait for them, if they are what comes next."""
        if self._next >= 0 and not self._ahead and self._place(sequence) == self._next:
            self._declare(self._next + size)

    def skip(self) -> list[Bit]:
        """Give up what is missing before the first that waits; what can be given out then."""
        if not self._ahead:
            return []
        self._declare(self._ahead[0][0])
        return self._drain()

    def forget(self) -> None:
        """Remember no bytes any more; what waits must have been taken before."""
        self._budget.remembered -= self._recent_bytes
        self._recent.clear()
        self._recent_bytes = 0

    def places(self) -> list[int]:
        """Where what waits stands."""
        return [offset for _, _, offset, _ in self._ahead]

    def move(self, moved: Callable[[int], int]) -> None:
        """What waits stands elsewhere now: places have other numbers."""
        self._ahead = [(position, ts, moved(offset), chunk) for position, ts, offset, chunk in self._ahead]

    # Inside.

    def _place(self, sequence: int) -> int:
        """The position of a sequence number: the one nearest to what comes next."""
        return self._next + (sequence - self._next + _WRAP // 2) % _WRAP - _WRAP // 2

    def _declare(self, until: int) -> None:
        self._gaps.append((self._next, until))
        del self._gaps[:-MAX_GAPS]
        self._missing = UNKNOWN if self._missing == UNKNOWN else self._missing + until - self._next
        self._next = until

    def _remember(self, start: int, chunk: bytes) -> None:
        size = len(chunk)
        self._recent.append((start, chunk))
        before = self._recent_bytes
        held = before + size
        while held - len(self._recent[0][1]) >= REMEMBERED:
            held -= len(self._recent.popleft()[1])
        self._recent_bytes = held
        self._budget.remembered += held - before

    def _drain(self) -> list[Bit]:
        """Everything that waits and has nothing missing before it."""
        bits = []
        count = 0
        for start, ts, offset, chunk in self._ahead:
            if start != self._next:
                break
            bits.append(Bit(FRESH, self._missing, ts, offset, chunk))
            self._missing = 0
            self._next = start + len(chunk)
            self._remember(start, chunk)
            self._ahead_bytes -= len(chunk)
            self._budget.ahead -= len(chunk)
            count += 1
        del self._ahead[:count]
        return bits

    def _wait(self, start: int, ts: int, offset: int, chunk: bytes) -> list[Bit]:
        """Let wait what is new of a segment that lies ahead; what of it is not new."""
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
            bits.append(Bit(what, 0, ts, offset + at - start, again))
            at = until
        if at < end:
            fresh.append((at, end))
        for first, stop in fresh:
            insort(self._ahead, (first, ts, offset + first - start, chunk[first - start : stop - start]))
            self._ahead_bytes += stop - first
            self._budget.ahead += stop - first
        return bits

    def _behind(self, start: int, ts: int, offset: int, chunk: bytes) -> list[Bit]:
        """What became of bytes that lie before what comes next."""
        if len(chunk) == 1 and start == self._next - 1:
            return [Bit(REPEATED, 0, ts, offset, chunk)]  # a keep-alive: its byte means nothing
        bits = []
        at, end = start, start + len(chunk)
        while at < end:
            until, what = self._history(at, end)
            part = chunk[at - start : until - start]
            if what == REPEATED and self._is_disputed(at, part):
                what = DISPUTED
            bits.append(Bit(what, 0, ts, offset + at - start, part))
            at = until
        return bits

    def _history(self, at: int, end: int) -> tuple[int, str]:
        """What happened to the byte at a position, and up to where that holds."""
        if at < self._first and not self.from_start:
            return min(end, self._first), EARLY
        for first, stop in self._gaps:
            if first <= at < stop:
                return min(end, stop), LATE
            if at < first < end:
                end = first
        return end, REPEATED

    def _is_disputed(self, at: int, part: bytes) -> bool:
        """Whether bytes differ from what is remembered of the same positions."""
        end = at + len(part)
        recent = self._recent
        for number in range(max(0, bisect_right(recent, at, key=_position) - 1), bisect_left(recent, end, key=_position)):
            start, chunk = recent[number]
            stop = start + len(chunk)
            first, last = max(at, start), min(end, stop)
            if first < last and part[first - at : last - at] != chunk[first - start : last - start]:
                return True
        return False
