"""Subscriptions by pattern, each with a bounded inbox; urgent events come first.

A slow subscriber never holds up the connection: events beyond its inbox, or beyond the memory of the account, are dropped for it, and
counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from wirelake.peers.accountant import UNREAD, Account
from wirelake.protocols.topics import Topics

__all__ = ["Subscription", "Subscriptions"]

_SMALL: Final = lambda: 0  # noqa: E731 - for events without a body


class Ranked(Protocol):
    """What can be delivered: it says whether it is urgent."""

    @property
    def urgent(self) -> bool: ...


E = TypeVar("E", bound=Ranked)


class Subscription(Generic[E]):
    """`async for event in subscription`: events until it, or its node, is closed.

    Events that had arrived before are still read.
    """

    def __init__(self, pattern: str, max_inbox: int, account: Account, end: Callable[[Subscription[E]], None]) -> None:
        self.pattern = pattern
        self.lost = 0
        """Events that found the inbox, or the memory of the account, full."""
        self._max_inbox = max_inbox
        self._account = account
        self._end = end
        self._inbox: deque[tuple[E, int]] = deque()
        self._urgent: deque[tuple[E, int]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._inbox) + len(self._urgent)

    def __aiter__(self) -> AsyncIterator[E]:
        return self

    async def __anext__(self) -> E:
        """The next event, an urgent one if there is one; for one reader at a time."""
        while True:
            if queue := self._urgent or self._inbox:
                event, size = queue.popleft()
                self._account.taken(size)
                return event
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def __aenter__(self) -> Subscription[E]:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription; its inbox can still be read. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._end(self)
            self._wake()

    def put(self, event: E, size: int) -> bool:
        """Add an event of so many bytes of memory; false if the inbox or the account is full."""
        queue = self._urgent if event.urgent else self._inbox
        if len(queue) >= self._max_inbox or not self._account.admits(size):
            self.lost += 1
            return False
        queue.append((event, size))
        if self._waiter is not None:
            self._wake()
        return True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Subscriptions(Generic[E]):
    """All subscriptions of a node."""

    def __init__(self, max_inbox: int, account: Account) -> None:
        self._account = account
        self.lost = 0
        """Events that found an inbox full, each once for every such inbox."""
        self.unheard = 0
        """Events without a subscription."""
        self._max_inbox = max_inbox
        self._topics: Topics[Subscription[E]] = Topics()
        self._all: set[Subscription[E]] = set()

    def add(self, pattern: str) -> Subscription[E]:
        """A new subscription; raises UsageError for what is no pattern."""
        made: Subscription[E] = Subscription(pattern, self._max_inbox, self._account, self._end)
        self._topics.add(pattern, made)
        self._all.add(made)
        return made

    def deliver(self, name: str, event: E, measure: Callable[[], int] = _SMALL) -> None:
        """Put an event into every inbox that wants it; `measure` says how much memory its body takes."""
        listeners = self._topics.listeners(name)
        if not listeners:
            self.unheard += 1
            return
        size = measure() + UNREAD
        for one in listeners:
            if not one.put(event, size):
                self.lost += 1

    def close(self) -> None:
        """End all of them."""
        for one in list(self._all):
            one.close()

    def _end(self, one: Subscription[E]) -> None:
        self._topics.remove(one.pattern, one)
        self._all.discard(one)
