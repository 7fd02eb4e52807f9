"""Expiries: deadlines of many things; set, moved, dropped, and found when they are due.

Does not read a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

__all__ = ["Expiries"]

SLACK: Final = 1024
"""Deadlines of dropped things that may lie about before they are cleared away."""

K = TypeVar("K", bound=Any)


class Expiries(Generic[K]):
    """Keys that can be compared -> when they are due."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def __len__(self) -> int:
        """How many deadlines are kept, those of dropped things included."""
        return len(self._heap)

    def set(self, key: K, when: float) -> None:
        """Set when a key is due; this replaces its earlier time."""
        self._due[key] = when
        heapq.heappush(self._heap, (when, key))
        if len(self._heap) > 2 * len(self._due) + SLACK:  # most of it was dropped or moved long ago
            self._heap = [(at, one) for one, at in self._due.items()]
            heapq.heapify(self._heap)

    def drop(self, key: K) -> None:
        """Something is not due any more; nothing happens if it never was."""
        due = self._due
        if due.pop(key, None) is not None and not due:
            self._heap.clear()

    @property
    def first(self) -> float | None:
        """When the next thing is due."""
        heap = self._heap
        if not heap:
            return None
        due = self._due
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def items(self) -> Iterable[tuple[K, float]]:
        """Every key and when it is due, in the order they were first set."""
        return self._due.items()

    def take(self, now: float) -> list[K]:
        """What is due, the earliest first; it is dropped."""
        due = []
        while (first := self.first) is not None and now >= first:
            key = heapq.heappop(self._heap)[1]
            del self._due[key]
            due.append(key)
        return due

    def clear(self) -> None:
        """Nothing is due any more."""
        self._due.clear()
        self._heap.clear()
