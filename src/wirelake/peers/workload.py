"""Run the handlers of a peer: so many at a time, others wait; stop reading if too much waits."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeGuard

from wirelake.peers.accountant import HANDLER, UNREAD, Account

__all__ = ["LOOKAHEAD", "Work", "Workload", "is_awaitable"]

LOOKAHEAD: Final = 4096
"""Bytes that are still read while the account is full: pings are answered, and cancels free memory."""

_VALUES: Final = frozenset({bytes, str, int, float, bool, type(None), list, tuple, dict})
"""Types of answers that are certainly no awaitables."""

Work: TypeAlias = Callable[[Awaitable[Any]], Coroutine[Any, Any, None]]
"""Waits for what a handler returned, and does the rest."""


def is_awaitable(answer: object) -> TypeGuard[Awaitable[Any]]:
    """Whether a handler returned something to wait for; quick for plain values."""
    return type(answer) not in _VALUES and inspect.isawaitable(answer)


class Workload:
    """Handlers that run and handlers that wait; calls `hold` while too much waits, and `go_on` afterwards.

    Reading goes on while all handlers are busy, so that pings are answered and messages confirmed. It stops when too many messages are
    unread, or a little after the account is full.
    """

    def __init__(
        self, hold: Callable[[int], None], go_on: Callable[[], None], account: Account, *, max_tasks: int, max_waiting: int
    ) -> None:
        self.group = asyncio.TaskGroup()
        self._hold = hold
        self._go_on = go_on
        self._account = account
        self._max_tasks = max_tasks
        self._max_waiting = max_waiting
        self._answering: set[asyncio.Task[None]] = set()
        self._attending: set[asyncio.Task[None]] = set()
        self._queue: OrderedDict[int, tuple[Work, Awaitable[Any], set[asyncio.Task[None]], int]] = OrderedDict()
        """Ticket -> handler that has not begun, in their order."""
        self._tickets = itertools.count(1)
        self._all_begun: asyncio.Future[None] | None = None
        self._unread = 0
        self._is_held = False

    @property
    def is_answering(self) -> bool:
        """Whether a request is being worked on."""
        return bool(self._answering)

    def answer(self, work: Work, answer: Awaitable[Any], size: int) -> int:
        """Start a handler whose outcome the sender waits for; its message takes so many bytes of memory.

        Returns a ticket with which it can be withdrawn if it has to wait; 0 if it begins at once.
        """
        return self._start(work, answer, self._answering, size)

    def withdraw(self, ticket: int) -> bool:
        """Drop a handler that waits for its turn; False if it has begun."""
        if (entry := self._queue.pop(ticket, None)) is None:
            return False
        self._drop(entry)
        self._note_begun()
        self.balance()
        return True

    def attend(self, work: Work, result: Awaitable[Any], size: int) -> None:
        """Start a handler whose outcome the sender does not wait for."""
        self._start(work, result, self._attending, size)

    def put(self, size: int) -> None:
        """A message of so many bytes of memory waits to be read."""
        self._unread += 1
        self._account.wait(size + UNREAD)
        self.balance()

    def taken(self, size: int) -> None:
        """A message was read."""
        self._unread -= 1
        self._account.wait(-size - UNREAD)
        self.balance()

    def cancel_answering(self) -> None:
        """Cancel handlers whose outcome the sender waits for."""
        self._cancel(self._answering)

    def cancel_attending(self) -> None:
        """Cancel the other handlers."""
        self._cancel(self._attending)

    async def all_begun(self) -> None:
        """Wait until no handler waits for its turn."""
        if self._queue:
            self._all_begun = asyncio.get_running_loop().create_future()
            await self._all_begun

    def balance(self) -> None:
        """Stop reading, or read again."""
        was_held, is_unread = self._is_held, self._unread >= self._max_waiting
        self._is_held = is_unread or self._account.is_full(was_full=was_held)
        if self._is_held:
            self._hold(0 if is_unread else LOOKAHEAD)
        elif was_held:
            self._go_on()

    def _start(self, work: Work, answer: Awaitable[Any], among: set[asyncio.Task[None]], size: int) -> int:
        size += HANDLER
        ticket = 0
        if len(self._answering) + len(self._attending) < self._max_tasks:
            self._begin(work, answer, among, size)
        else:
            ticket = next(self._tickets)
            self._queue[ticket] = (work, answer, among, size)
        self._account.wait(size)
        self.balance()
        return ticket

    def _begin(self, work: Work, answer: Awaitable[Any], among: set[asyncio.Task[None]], size: int) -> None:
        task = self.group.create_task(work(answer))
        among.add(task)

        def done(task: asyncio.Task[None]) -> None:
            among.discard(task)
            if task.cancelled() and inspect.iscoroutine(answer):
                answer.close()  # if it never began
            self._account.wait(-size)
            if self._queue:
                self._begin(*self._queue.popitem(last=False)[1])
            self._note_begun()
            self.balance()

        task.add_done_callback(done)

    def _note_begun(self) -> None:
        if not self._queue and self._all_begun is not None and not self._all_begun.done():
            self._all_begun.set_result(None)

    def _drop(self, entry: tuple[Work, Awaitable[Any], set[asyncio.Task[None]], int]) -> None:
        """Drop a handler that has not begun."""
        _, answer, _, size = entry
        self._account.wait(-size)
        if inspect.iscoroutine(answer):
            answer.close()

    def _cancel(self, among: set[asyncio.Task[None]]) -> None:
        """Cancel handlers at work, and drop those that have not begun."""
        for ticket in [ticket for ticket, entry in self._queue.items() if entry[2] is among]:
            self._drop(self._queue.pop(ticket))
        for task in among:
            task.cancel()
