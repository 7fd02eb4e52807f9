"""Count running handlers and waiting messages of a peer; stop reading if too many."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeGuard

__all__ = ["Workload", "is_awaitable"]

_VALUES: Final = frozenset({bytes, str, int, float, bool, type(None), list, tuple, dict})
"""Types of answers that are certainly no awaitables."""


def is_awaitable(answer: object) -> TypeGuard[Awaitable[Any]]:
    """Whether a handler returned something to wait for; quick for plain values."""
    return type(answer) not in _VALUES and inspect.isawaitable(answer)


class Workload:
    """Counts tasks, messages and bytes; calls `hold` above a limit, and `go_on` below it."""

    def __init__(self, hold: Callable[[], None], go_on: Callable[[], None], *, max_tasks: int, max_waiting: int, max_bytes: int) -> None:
        self.group = asyncio.TaskGroup()
        self._hold = hold
        self._go_on = go_on
        self._max_tasks = max_tasks
        self._max_waiting = max_waiting
        self._max_bytes = max_bytes
        self._answering: set[asyncio.Task[None]] = set()
        self._attending: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._bytes = 0

    @property
    def held(self) -> int:
        """Bytes of messages that wait or are worked on."""
        return self._bytes

    @property
    def is_answering(self) -> bool:
        """Whether a request is being worked on."""
        return bool(self._answering)

    def answer(self, work: Coroutine[Any, Any, None], size: int) -> None:
        """Start a handler whose outcome the sender waits for."""
        self._start(work, self._answering, size)

    def attend(self, work: Coroutine[Any, Any, None], size: int) -> None:
        """Start a handler whose outcome the sender does not wait for."""
        self._start(work, self._attending, size)

    def put(self, size: int) -> None:
        """A message waits to be read."""
        self._waiting += 1
        self._bytes += size
        self._balance()

    def taken(self, size: int) -> None:
        """A message was read."""
        self._waiting -= 1
        self._bytes -= size
        self._balance()

    def cancel_answering(self) -> None:
        """Cancel handlers whose outcome the sender waits for."""
        for task in self._answering:
            task.cancel()

    def cancel_attending(self) -> None:
        """Cancel the other handlers."""
        for task in self._attending:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]], size: int) -> None:
        task = self.group.create_task(work)
        among.add(task)
        self._bytes += size

        def done(task: asyncio.Task[None]) -> None:
            among.discard(task)
            self._bytes -= size
            self._balance()

        task.add_done_callback(done)
        self._balance()

    def _balance(self) -> None:
        tasks = len(self._answering) + len(self._attending)
        if tasks >= self._max_tasks or self._waiting >= self._max_waiting or self._bytes >= self._max_bytes:
            self._hold()
        else:
            self._go_on()
