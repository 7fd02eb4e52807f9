"""Accounting: counts bytes that are in no segment, by reason, until the next block.

It guarantees that segments and accounts of a source add up to its size: every stage reports here the bytes it does not pass on.
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
"""Bytes that the capture does not have: they take no bytes, and are counted as items."""

MAX_UNREADABLE: Final = 1 << 20
"""Bytes in one unreadable range; longer ones are split, so that no row grows without bound."""
MAX_UNRECOGNISED: Final = 10_000
"""Unrecognised peers listed between two blocks; bytes of further ones are summed as `REST`."""
REST: Final = Unrecognised("", "", "", 0, "more than are listed")


class Accounting:
    """Accounts and unreadable ranges since the last `take`, by span.

    `starts` has the offsets of spans in order, and may grow.
    """

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
        """Account for bytes that are in no segment; `at` is their offset, or any offset in the same span.

        `unrecognised` names the peers of unrecognised bytes, seen at time `first`, or from `first` to `last`.
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
        """Account for bytes that cannot be read, and keep them for quarantine."""
        for start in range(0, len(raw), MAX_UNREADABLE):
            part = bytes(raw[start : start + MAX_UNREADABLE])
            self._unreadable.append(Unreadable(offset + start, len(part), layer, reason, part))
            self.add(QUARANTINE, reason, len(part), 1, offset)

    def take(self) -> tuple[list[Account], list[Unreadable]]:
        """Return accounts and unreadable ranges, and start again with none."""
        accounts = [
            Account(category, reason, size, items, at, unrecognised, first, last)
            for (at, category, reason, unrecognised), (size, items, first, last) in self._sums.items()
        ]
        unreadable = self._unreadable
        self._sums, self._unreadable = {}, []
        return accounts, unreadable
