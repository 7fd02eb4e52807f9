"""The identifiers that one side of a session used, so that one which is used again is found.

An observer of a long session cannot remember all of them. Numbers are remembered as runs: a counter is one run, however far it goes.
Beyond `MAX_RUNS` runs, or `MAX_KEYS` identifiers that are no numbers, the older half is forgotten. A forgotten identifier counts as never
used: nobody is accused of what is not known. What is remembered depends on the order of identifiers only, not on how they are fed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
        return self._has_any(number, number)

    def take(self, number: int) -> bool:
        """Use a number. Returns whether it was used before."""
        if self._has_any(number, number):
            return True
        if not self.young.add(number, number):
            self.old, self.young = self.young, _Runs([number], [number])
        return False

    def take_all(self, numbers: npt.NDArray[np.uint64]) -> list[int]:
        """Use numbers one after the other. Returns the places of those that were used before."""
        again: list[int] = []
        if not len(numbers):
            return again
        is_last = numbers[1:] - numbers[:-1] != 1
        lasts = [*is_last.nonzero()[0].tolist(), len(numbers) - 1]
        starts = [0, *(place + 1 for place in lasts[:-1])]
        for start, end, first, last in zip(starts, lasts, numbers[starts].tolist(), numbers[lasts].tolist(), strict=True):
            if first < last and not self._has_any(first, last):
                self.take(first)
                self.young.add(first + 1, last)  # it continues the run of the first
            else:
                again += [place for place, number in enumerate(numbers[start : end + 1].tolist(), start) if self.take(number)]
        return again

    def _has_any(self, first: int, last: int) -> bool:
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

    def take_all(self, keys: list[bytes]) -> list[int]:
        """Use identifiers one after the other. Returns the places of those that were used before."""
        again: list[int] = []
        start = 0
        while start < len(keys):
            if len(self.young) >= MAX_KEYS and not self.has(keys[start]):
                self.old, self.young = self.young, set()
            part = keys[start : start + max(1, MAX_KEYS - len(self.young))]
            new = set(part)
            if len(new) == len(part) and self.young.isdisjoint(new) and self.old.isdisjoint(new):
                if self.young:
                    self.young |= new
                else:
                    self.young = new
            else:
                again += [place for place, key in enumerate(part, start) if self.take(key)]
            start += len(part)
        return again
