"""The identifiers that one side of a session used, so that one which is used again is found.

An observer of a long session cannot remember all of them. Numbers are remembered as runs: a counter is one run, however far it goes.
Beyond `MAX_RUNS` runs, or `MAX_KEYS` identifiers that are no numbers, the older half is forgotten. A forgotten identifier counts as never
used: nobody is accused of what is not known. What is remembered depends on the order of identifiers only, not on how they are fed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

__all__ = ["MAX_KEYS", "MAX_RUNS", "UsedKeys", "UsedNumbers"]

MAX_RUNS: Final = 1024
"""Runs of numbers of one side that are remembered at least; twice as many at most."""
MAX_KEYS: Final = 1024
"""Identifiers of one side, other than numbers, that are remembered at least; twice as many at most."""


class _Runs(msgspec.Struct, array_like=True):
    """Runs of numbers, none of which touch, in order."""

    firsts: list[int] = msgspec.field(default_factory=list)
    lasts: list[int] = msgspec.field(default_factory=list)

    def has_any(self, first: int, last: int) -> bool:
        """Whether one of these numbers is there."""
        at = bisect_right(self.firsts, last)
        return at > 0 and self.lasts[at - 1] >= first

    def add(self, first: int, last: int) -> bool:
        """Add numbers, none of which is there. Returns False, and adds nothing, if they would be one run too many."""
        firsts, lasts = self.firsts, self.lasts
        at = bisect_right(firsts, first)
        continues = at > 0 and lasts[at - 1] + 1 == first
        if at < len(firsts) and firsts[at] == last + 1:
            if continues:
                lasts[at - 1] = lasts[at]
                del firsts[at], lasts[at]
            else:
                firsts[at] = first
        elif continues:
            lasts[at - 1] = last
        elif len(firsts) < MAX_RUNS:
            firsts.insert(at, first)
            lasts.insert(at, last)
        else:
            return False
        return True


class UsedNumbers(msgspec.Struct, array_like=True):
    """Numbers that one side used, in two generations of runs."""

    young: _Runs = msgspec.field(default_factory=_Runs)
    old: _Runs = msgspec.field(default_factory=_Runs)

    def has(self, number: int) -> bool:
        """Whether a number was used."""
        return self.has_any(number, number)

    def take(self, number: int) -> bool:
        """Use a number. Returns whether it was used before."""
        if self.has_any(number, number):
            return True
        if not self.young.add(number, number):
            self.old, self.young = self.young, _Runs([number], [number])
        return False

    def has_any(self, first: int, last: int) -> bool:
        """Whether one of these numbers was used."""
        return self.young.has_any(first, last) or self.old.has_any(first, last)


class UsedKeys(msgspec.Struct, array_like=True):
    """Identifiers without an order that one side used, in two generations."""

    young: set[bytes] = msgspec.field(default_factory=set)
    old: set[bytes] = msgspec.field(default_factory=set)

    def has(self, key: bytes) -> bool:
        """Whether an identifier was used."""
        return key in self.young or key in self.old

    def take(self, key: bytes) -> bool:
        """Use an identifier. Returns whether it was used before."""
        if self.has(key):
            return True
        if len(self.young) >= MAX_KEYS:
            self.old, self.young = self.young, set()
        self.young.add(key)
        return False
