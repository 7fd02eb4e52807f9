"""Visit: what one reader waits for. When the reader leaves, the questions that are asked for nobody else end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

__all__ = ["Visit"]

T = TypeVar("T")


class Visit:
    """One request. When its reader leaves, `leave` ends what it waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._endings: list[Callable[[], object]] = []

    @staticmethod
    def current() -> Visit:
        """Return the visit of this thread; work without a request has one of its own, which never ends."""
        return _visit.get(None) or Visit()

    def run(self, make: Callable[[], T]) -> T:
        """Call a function whose questions belong to this visit."""
        before = _visit.set(self)
        try:
            return make()
        finally:
            _visit.reset(before)

    def leave(self) -> None:
        """End the questions of this visit. Returns at once."""
        with self._lock:
            self._is_over, endings, self._endings = True, self._endings, []
        for end in endings:
            end()

    @contextmanager
    def ending(self, end: Callable[[], object]) -> Iterator[None]:
        """Call a function, which must return at once, if the reader leaves during the block."""
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
