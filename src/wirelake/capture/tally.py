"""The tally: where bytes went that are in no run, gathered until the next block carries it away.

It is what keeps the promise that runs and accounts of a source add up to its size: whoever decides about bytes tells the tally.

It refuses to know why.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from wirelake.capture.blocks import Account, Stretch

__all__ = ["CONTAINER", "GAP", "HEADERS", "MAX_STRETCH", "OTHER", "QUARANTINE", "Tally"]

CONTAINER: Final = "container"
HEADERS: Final = "headers"
OTHER: Final = "other"
QUARANTINE: Final = "quarantine"
GAP: Final = "gap"
"""What the capture does not have: it takes no bytes, and its items are counted."""

MAX_STRETCH: Final = 1 << 20
"""Bytes in one stretch; longer ones are cut into several, so that no row grows without bound."""


class Tally:
    """Accounts and stretches since they were last taken, by span: `starts` says where spans begin, in order, and may grow."""

    def __init__(self, starts: Sequence[int] = (0,)) -> None:
        self._starts = starts
        self._sums: dict[tuple[int, str, str], tuple[int, int]] = {}
        self._stretches: list[Stretch] = []

    def add(self, category: str, reason: str, size: int, items: int, at: int = 0) -> None:
        """Account for bytes that are in no run; `at` is where they stand, or anywhere in the same span."""
        if size or items:
            starts = self._starts
            key = (starts[0] if len(starts) == 1 else starts[bisect_right(starts, at) - 1], category, reason)
            bytes_before, items_before = self._sums.get(key, (0, 0))
            self._sums[key] = (bytes_before + size, items_before + items)

    def quarantine(self, offset: int, raw: bytes | memoryview, layer: str, reason: str) -> None:
        """Account for bytes that could not be read, and keep them."""
        for start in range(0, len(raw), MAX_STRETCH):
            part = bytes(raw[start : start + MAX_STRETCH])
            self._stretches.append(Stretch(offset + start, len(part), layer, reason, part))
            self.add(QUARANTINE, reason, len(part), 1, offset)

    def take(self) -> tuple[list[Account], list[Stretch]]:
        """What was gathered, leaving the tally empty."""
        accounts = [Account(category, reason, size, items, at) for (at, category, reason), (size, items) in self._sums.items()]
        stretches = self._stretches
        self._sums, self._stretches = {}, []
        return accounts, stretches
