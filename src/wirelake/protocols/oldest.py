"""Forgetting the oldest entries of a dictionary.

Dictionaries keep the order of insertion, also in a stored state (msgpack). To delete the first entry again and again is slow: CPython looks
for it behind all that were deleted before. So analyzers let a dictionary grow to twice its limit, and then forget half of it.
"""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

__all__ = ["split_oldest"]

K = TypeVar("K")
V = TypeVar("V")


def split_oldest(entries: dict[K, V], kept: int) -> tuple[list[tuple[K, V]], dict[K, V]]:
    """The oldest entries, and a dictionary of the newest: so many, or all if there are fewer."""
    count = max(len(entries) - kept, 0)
    oldest = list(islice(entries.items(), count))
    return oldest, dict(islice(entries.items(), count, None))
