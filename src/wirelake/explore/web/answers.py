"""Answers: what was computed for a snapshot is kept, and what several requests ask for is computed once.

A reader who leaves a page, or types another filter, ends the questions that nobody else waits for.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wirelake.errors import QueryError
from wirelake.explore.model.database import Database

if TYPE_CHECKING:
    import duckdb

__all__ = ["KEPT", "Answers", "Visit"]

T = TypeVar("T")
KEPT: Final = 64
"""Answers that are kept."""
_INTERRUPT_SECONDS: Final = 0.02


class Visit:
    """One request. When its reader leaves, `leave` ends what it waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._endings: list[Callable[[], object]] = []

    def run(self, make: Callable[[], T]) -> T:
        """Call a function whose questions belong to this visit."""
        _visit.set(self)
        return make()

    def leave(self) -> None:
        """End the questions of this visit."""
        with self._lock:
            self._is_over, endings, self._endings = True, self._endings, []
        for end in endings:
            end()

    @contextmanager
    def ending(self, end: Callable[[], object]) -> Iterator[None]:
        """Call a function if the reader leaves during the block."""
        with self._lock:
            self._endings.append(end)
            is_over = self._is_over
        if is_over:
            end()
        try:
            yield
        finally:
            with self._lock:
                if end in self._endings:
                    self._endings.remove(end)

    @property
    def is_over(self) -> bool:
        """Whether the reader left."""
        return self._is_over


_visit: Final[ContextVar[Visit]] = ContextVar("visit")


class _Work:
    """A question that is being answered."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.lock = threading.Lock()
        self.readers = 0
        self.connection: duckdb.DuckDBPyConnection | None = None
        self.answer: tuple[int, Any] | None = None

    def drop(self) -> None:
        """A reader left: without readers the question ends."""
        with self.lock:
            self.readers -= 1
            is_left = not self.readers
        if is_left and not self.is_done.is_set():
            threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        """Interrupt the question until it is over: an interrupt between two queries has no effect."""
        import duckdb  # noqa: PLC0415 - as everywhere

        while not self.is_done.wait(_INTERRUPT_SECONDS):
            if self.connection is not None:
                with contextlib.suppress(duckdb.Error):  # it was closed meanwhile
                    self.connection.interrupt()


class Answers:
    """Answers about a lake, by key. Threads may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], tuple[int, Any]] = OrderedDict()
        self._running: dict[tuple[object, ...], _Work] = {}

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a connection to the newest snapshot, whose questions end if the reader leaves."""
        with self._database.connection() as connection, _current().ending(connection.interrupt):
            yield connection

    def get(self, key: tuple[object, ...], make: Callable[[duckdb.DuckDBPyConnection], T]) -> tuple[int, T]:
        """Return the number of the snapshot and an answer that depends only on it and a key; make it if it is not known."""
        visit = _current()
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
        try:
            with self._database.reading() as (connection, number), visit.ending(work.drop):
                work.connection = connection
                answer = make(connection)
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


def _current() -> Visit:
    """The visit of this thread; work without a request has one of its own, which never ends."""
    return _visit.get(None) or Visit()
