"""The tally: where bytes went that are in no run, gathered until the next block carries it away.

It is what keeps the promise that runs and accounts of a source add up to its size: whoever decides about bytes tells the tally.

It refuses to know why.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from wirelake.capture.blocks.block import Account, Unreadable, Unrecognised
from wirelake.capture.containers.records import NO_TIME

__all__ = ["CONTAINER", "GAP", "HEADERS", "MAX_UNREADABLE", "MAX_UNRECOGNISED", "OTHER", "QUARANTINE", "REST", "Accounting"]

CONTAINER: Final = "container"
HEADERS: Final = "headers"
OTHER: Final = "other"
QUARANTINE: Final = "quarantine"
GAP: Final = "gap"
"""What the capture does not have: it takes no bytes, and its items are counted."""

MAX_UNREADABLE: Final = 1 << 20
"""Bytes in one stretch; longer ones are cut into several, so that no row grows without bound."""
MAX_UNRECOGNISED: Final = 10_000
"""Strangers that are told apart between two blocks; what further ones say is summed as that of `REST`."""
REST: Final = Unrecognised("", "", "", 0, "more than are listed")


class Accounting:
    """Accounts and stretches since they were last taken, by span: `starts` says where spans begin, in order, and may grow."""

    def __init__(self, starts: Sequence[int] = (0,)) -> None:
        self._starts = starts
        self._sums: dict[tuple[int, str, str, Unrecognised | None], tuple[int, int, int, int]] = {}
        self._unreadable: list[Unreadable] = []

    def add(
        self,
        category: str,
        reason: str,
        size: int,
        items: int,
        at: int = 0,
        unrecognised: Unrecognised | None = None,
        first: int = NO_TIME,
        last: int = NO_TIME,
    ) -> None:
        """Account for bytes that are in no run; `at` is where they stand, or anywhere in the same span.

        Of bytes that nobody recognised, `unrecognised` says whose they are; they were seen at `first`, or from then to `last`.
        """
        if size or items:
            starts, sums = self._starts, self._sums
            start = starts[0] if len(starts) == 1 else starts[bisect_right(starts, at) - 1]
            key = (start, category, reason, unrecognised)
            before = sums.get(key)
            if before is None and unrecognised is not None and len(sums) >= MAX_UNRECOGNISED:
                key = (start, category, reason, REST)
                before = sums.get(key)
            last = max(first, last)
            if before is None:
                sums[key] = (size, items, first, last)
            else:
                earlier = before[2] if first == NO_TIME or NO_TIME < before[2] < first else first
                sums[key] = (before[0] + size, before[1] + items, earlier, max(before[3], last))

    def quarantine(self, offset: int, raw: bytes | memoryview, layer: str, reason: str) -> None:
        """Account for bytes that could not be read, and keep them."""
        for start in range(0, len(raw), MAX_UNREADABLE):
            part = bytes(raw[start : start + MAX_UNREADABLE])
            self._unreadable.append(Unreadable(offset + start, len(part), layer, reason, part))
            self.add(QUARANTINE, reason, len(part), 1, offset)

    def take(self) -> tuple[list[Account], list[Unreadable]]:
        """What was gathered, leaving the tally empty."""
        accounts = [
            Account(category, reason, size, items, at, unrecognised, first, last)
            for (at, category, reason, unrecognised), (size, items, first, last) in self._sums.items()
        ]
        unreadable = self._unreadable
        self._sums, self._unreadable = {}, []
        return accounts, unreadable
