"""The tally: where bytes went that are in no run, gathered until the next block carries it away.

It is what keeps the promise that runs and accounts of a source add up to its size: whoever decides about bytes tells the tally.

It refuses to know why.
"""

from __future__ import annotations

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
    """Accounts and stretches since they were last taken."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[int, int]] = {}
        self._stretches: list[Stretch] = []

    def add(self, category: str, reason: str, size: int, items: int) -> None:
        """Account for bytes that are in no run."""
        if size or items:
            bytes_before, items_before = self._sums.get((category, reason), (0, 0))
            self._sums[category, reason] = (bytes_before + size, items_before + items)

    def quarantine(self, offset: int, raw: bytes | memoryview, layer: str, reason: str) -> None:
        """Account for bytes that could not be read, and keep them."""
        for start in range(0, len(raw), MAX_STRETCH):
            part = bytes(raw[start : start + MAX_STRETCH])
            self._stretches.append(Stretch(offset + start, len(part), layer, reason, part))
            self.add(QUARANTINE, reason, len(part), 1)

    def take(self) -> tuple[list[Account], list[Stretch]]:
        """What was gathered, leaving the tally empty."""
        accounts = [Account(category, reason, size, items) for (category, reason), (size, items) in self._sums.items()]
        stretches = self._stretches
        self._sums, self._stretches = {}, []
        return accounts, stretches
