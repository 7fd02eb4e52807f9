"""Answers: what was computed for a snapshot is kept, and what several requests ask for is computed once.

A reader who leaves a page, or types another filter, ends the questions that nobody else waits for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wirelake.errors import QueryError
from wirelake.explore.model.database import Database
from wirelake.explore.visit import Visit

if TYPE_CHECKING:
    import duckdb

__all__ = ["KEPT", "Answers"]

T = TypeVar("T")
KEPT: Final = 64
"""Answers that are kept."""


class _Work:
    """A question that is being answered."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.lock = threading.Lock()
        self.readers = 0
        self.visit = Visit()
        """The visit of all its readers: over when the last of them left."""
        self.answer: tuple[int, Any] | None = None

    def drop(self) -> None:
        """A reader left: without readers the question ends."""
        with self.lock:
            self.readers -= 1
            is_left = not self.readers
        if is_left:
            self.visit.leave()


class Answers:
    """Answers about a lake, by key. Threads may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], tuple[int, Any]] = OrderedDict()
        self._running: dict[tuple[object, ...], _Work] = {}

    def get(self, key: tuple[object, ...], make: Callable[[duckdb.DuckDBPyConnection], T]) -> tuple[int, T]:
        """Return the number of the snapshot and an answer that depends only on it and a key; make it if it is not known."""
        visit = Visit.current()
        while True:
            whole = (self._database.snapshot().number, *key)
            with self._lock:
                if whole in self._kept:
                    self._kept.move_to_end(whole)
                    return self._kept[whole]
                is_mine = whole not in self._running
                work = self._running.setdefault(whole, _Work())
                with work.lock:
                    work.readers += 1
            if is_mine:
                return self._make(whole, work, make, visit)
            with visit.ending(work.drop):
                work.is_done.wait()
            if work.answer is not None:
                return work.answer
            if visit.is_over:
                raise QueryError("the reader left")
            # The one who computed it failed, or left: it is tried here, so that this reader gets the error.

    def _make(self, whole: tuple[object, ...], work: _Work, make: Callable[[duckdb.DuckDBPyConnection], T], visit: Visit) -> tuple[int, T]:
        def answered() -> tuple[int, T]:
            with self._database.reading() as (connection, number):
                return number, make(connection)

        try:
            with visit.ending(work.drop):
                number, answer = work.visit.run(answered)
            work.answer = (number, answer)
            with self._lock:
                self._kept[number, *whole[1:]] = work.answer
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            return number, answer
        finally:
            with self._lock:
                self._running.pop(whole, None)
            work.is_done.set()
