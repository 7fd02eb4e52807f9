"""IP fragments: reassemble datagrams that came in parts.

Parts may come in any order and more than once. Where they overlap, the first counts. An incomplete datagram is dropped after `MAX_AGE`,
when its parts are too far apart in their source (so that a task that starts in the middle need not read far back), or when too many wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import Final, NamedTuple

from wirelake.capture.blocks.accounting import OTHER, Accounting
from wirelake.capture.containers.records import NO_TIME

__all__ = ["MAX_AGE", "MAX_WAITING", "REACH", "Fragments", "Part"]

MAX_WAITING: Final = 1024
"""Datagrams that may wait for their other parts at a time, of at most 64 KiB each."""
MAX_AGE: Final = 60_000_000
"""The most microseconds between two parts of one datagram.

Later, the identification is another datagram's.
"""
REACH: Final = 1 << 20
"""The most bytes of the source between the first part of a datagram and any other."""
MAX_PARTS: Final = 8192
"""Parts of one datagram: as many as fit into 64 KiB at 8 bytes each."""


class Part(NamedTuple):
    """Bytes of a datagram and their offset in the source."""

    place: int
    """Their offset in the datagram."""
    chunk: bytes
    offset: int


_place: Final = attrgetter("place")


class _Datagram:
    __slots__ = ("first", "last", "parts", "size", "total")

    def __init__(self, first: int) -> None:
        self.first = first
        """The source offset of the part that came first."""
        self.parts: list[Part] = []
        """In order and without overlap."""
        self.size = 0
        self.total = -1
        """Size of the datagram, once its last part has come; else -1."""
        self.last = 0


class Fragments:
    """All datagrams of one capture that are not whole yet."""

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self._waiting: dict[tuple[bytes, bytes, int, int], _Datagram] = {}

    def part(
        self, source: bytes, destination: bytes, transport: int, number: int, place: int, is_last: bool, ts: int, offset: int, chunk: bytes
    ) -> list[Part] | None:
        """Add one part; returns the parts of the datagram in order, without overlap, if it is complete now."""
        self.expire(offset)
        key = (source, destination, transport, number)
        datagram = self._waiting.get(key)
        if datagram is not None and NO_TIME not in (ts, datagram.last) and abs(ts - datagram.last) > MAX_AGE:
            self._give_up(key)
            datagram = None
        if datagram is None:
            if len(self._waiting) >= MAX_WAITING:
                self._give_up(next(iter(self._waiting)))
            datagram = self._waiting[key] = _Datagram(offset)
        datagram.last = ts
        if is_last and datagram.total < 0:
            datagram.total = place + len(chunk)
        self._add(datagram, Part(place, chunk, offset))
        if datagram.size != datagram.total or len(datagram.parts) > MAX_PARTS:
            return None
        del self._waiting[key]
        if sum(len(one.chunk) for one in datagram.parts) != datagram.parts[-1].place + len(datagram.parts[-1].chunk):
            self._lose(datagram)  # parts lie beyond the end that the last one announced
            return None
        return datagram.parts

    def expire(self, at: int) -> None:
        """Drop datagrams that cannot be completed any more at this source offset."""
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if at - oldest.first <= REACH:
                break
            self._give_up(key)

    def account_to(self, accounting: Accounting) -> None:
        """Use another accounting from now on."""
        self._accounting = accounting

    def finish(self) -> None:
        """Drop all incomplete datagrams: the capture is over."""
        for key in list(self._waiting):
            self._give_up(key)

    def _add(self, datagram: _Datagram, part: Part) -> None:
        """Insert the new bytes of a part; deduplicate the others."""
        at, end = part.place, part.place + len(part.chunk)
        fresh = []
        first = max(0, bisect_right(datagram.parts, at, key=_place) - 1)
        for one in datagram.parts[first : bisect_left(datagram.parts, end, key=_place)]:
            if one.place > at:
                fresh.append((at, one.place))
            at = max(at, one.place + len(one.chunk))
        if at < end:
            fresh.append((at, end))
        for start, stop in fresh:
            skipped = start - part.place
            insort(datagram.parts, Part(start, part.chunk[skipped : stop - part.place], part.offset + skipped))
            datagram.size += stop - start
        repeated = len(part.chunk) - sum(stop - start for start, stop in fresh)
        self._accounting.add(OTHER, "repeated fragment", repeated, 1 if repeated else 0, part.offset)

    def _give_up(self, key: tuple[bytes, bytes, int, int]) -> None:
        self._lose(self._waiting.pop(key))

    def _lose(self, datagram: _Datagram) -> None:
        for part in datagram.parts:
            self._accounting.add(OTHER, "incomplete datagram", len(part.chunk), 1, part.offset)
