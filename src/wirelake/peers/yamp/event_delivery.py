"""Deliver events to their handlers in order, one after the other (YAMP-48).

A slow handler delays later events, and loses none.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from wirelake.peers.workload import Workload, is_awaitable
from wirelake.peers.yamp.service import EventSubscriber, ReceivedEvent

__all__ = ["EventDelivery"]

log = logging.getLogger("wirelake.yamp")


class EventDelivery:
    """Events of one peer that its handlers have not processed yet."""

    def __init__(self, work: Workload, refused: Callable[[ReceivedEvent, str], None]) -> None:
        self._work = work
        self._refused = refused
        self._queue: deque[tuple[ReceivedEvent, list[EventSubscriber], int]] = deque()
        self._busy = False

    def bring(self, event: ReceivedEvent, listeners: list[EventSubscriber], measure: Callable[[], int]) -> None:
        """Call the handlers now, or after those of the events before; `measure` says how much memory the body takes."""
        if self._busy:
            size = measure()
            self._queue.append((event, listeners, size))
            self._work.put(size)
            return
        for place, listener in enumerate(listeners):
            if (slow := self._tell(listener, event)) is not None:
                self._busy = True
                self._work.attend(partial(self._go_on, event, listeners[place + 1 :]), slow, measure())
                return

    async def _go_on(self, event: ReceivedEvent, listeners: list[EventSubscriber], slow: Awaitable[Any]) -> None:
        """Finish one event, then all that came meanwhile."""
        try:
            await self._finish(slow, event)
            await self._tell_all(listeners, event)
            while self._queue:
                event, listeners, size = self._queue.popleft()
                self._work.taken(size)
                await self._tell_all(listeners, event)
        finally:
            self._busy = False

    async def _tell_all(self, listeners: list[EventSubscriber], event: ReceivedEvent) -> None:
        for listener in listeners:
            if (slow := self._tell(listener, event)) is not None:
                await self._finish(slow, event)

    def _tell(self, listener: EventSubscriber, event: ReceivedEvent) -> Awaitable[Any] | None:
        """Call a listener; what it still has to do is given back. Its failure is its own."""
        try:
            result = listener.handle(event.peer, listener.fit(event))
        except msgspec.ValidationError as reason:  # YAMP-44
            self._refused(event, str(reason))
        except Exception:
            log.exception("a listener to %r failed for an event from %s", listener.pattern, event.peer.stream.remote)
        else:
            return result if is_awaitable(result) else None
        return None

    async def _finish(self, slow: Awaitable[Any], event: ReceivedEvent) -> None:
        try:
            await slow
        except Exception:
            log.exception("a listener failed for an event %r from %s", event.uri, event.peer.stream.remote)
