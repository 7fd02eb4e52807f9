"""Handlers of a YAMP peer: one per request uri, any number for event patterns (YAMP-47).

A service is made once and may serve many peers:

```
service = Service()

@service.request("sum", of=list[int])
async def add(peer, call):
    await call.progress("half of it")
    return sum(call.body)

@service.on("weather.*")
def show(peer, event):
    print(event.uri, event.body)
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.topics import Topics

if TYPE_CHECKING:
    from wirelake.peers.yamp.peer import Peer

__all__ = ["Answerer", "Call", "EventHandler", "EventSubscriber", "ReceivedEvent", "RequestHandler", "Service"]


class Call:
    """A request as its handler sees it."""

    __slots__ = ("_report", "body", "cancelled", "killed", "peer", "progressive", "task", "ticket", "uid", "uri")

    def __init__(
        self, peer: Peer, uid: bytes, uri: str, body: Any, progressive: bool, report: Callable[[Call, Any], Awaitable[bool]]
    ) -> None:
        self.peer = peer
        self.uid = uid
        self.uri = uri
        self.body = body
        self.progressive = progressive
        """The peer wants progress steps."""
        self.cancelled = False
        """The peer took the request back.

        A handler at work learns it as CancelledError, and may clean up, or answer all the same.
        """
        self.killed = False
        """… and will not listen to any answer (YAMP-34)."""
        self.task: asyncio.Task[Any] | None = None
        self.ticket = 0
        """Of `Workload`: not 0 if it has to wait for its turn."""
        self._report = report

    async def progress(self, body: Any = None) -> bool:
        """Send a progress step; waits while the peer reads too slowly.

        False if it does not want steps (YAMP-29).
        """
        return await self._report(self, body)


class ReceivedEvent(msgspec.Struct, frozen=True):
    """An event as its listeners see it."""

    peer: Peer
    uri: str
    body: Any
    uid: bytes

    @property
    def urgent(self) -> bool:
        """No event of YAMP is more urgent than another."""
        return False


RequestHandler = Callable[["Peer", Call], Any]
"""Answers with what it returns, or fails with what it raises.

A plain function for quick work, a coroutine function for slow.
"""
EventHandler = Callable[["Peer", ReceivedEvent], Awaitable[None] | None]
"""Receives the events whose uri fits its pattern."""
H = TypeVar("H", bound=Callable[..., Any])


class Answerer(msgspec.Struct, frozen=True):
    """The handler of requests of a uri, and the type their body must fit."""

    handle: RequestHandler
    of: Any = None

    def fit(self, body: Any) -> Any:
        """The body as the handler wants it; raises msgspec.ValidationError."""
        return body if self.of is None else msgspec.convert(body, self.of)


class EventSubscriber(msgspec.Struct, frozen=True, eq=False):
    """A handler of events; compared by identity, so that one function can be registered twice."""

    number: int
    """Handlers are called in the order of their registration."""
    pattern: str
    handle: EventHandler
    of: Any = None

    def fit(self, event: ReceivedEvent) -> ReceivedEvent:
        """The event as the handler wants it; raises msgspec.ValidationError."""
        return event if self.of is None else msgspec.structs.replace(event, body=msgspec.convert(event.body, self.of))


class Service:
    """Handlers by uri and pattern.

    `*` in a pattern is any one level of a uri, a last `>` all that follow (see `protocols.topics`).
    """

    def __init__(self, separator: str = ".") -> None:
        self._answerers: dict[str, Answerer] = {}
        self._otherwise: Answerer | None = None
        self._topics: Topics[EventSubscriber] = Topics(separator)
        self._listeners: list[EventSubscriber] = []
        self._count = 0

    @overload
    def request(self, uri: str, handler: H, *, of: Any = None) -> H: ...
    @overload
    def request(self, uri: str, *, of: Any = None) -> Callable[[H], H]: ...
    def request(self, uri: str, handler: Any = None, *, of: Any = None) -> Any:
        """Answer requests of a uri; with a type, bodies that do not fit it are refused.

        A second handler of a uri is an error.
        """
        if handler is None:
            return lambda given: self.request(uri, given, of=of)
        if uri in self._answerers:  # YAMP-47
            raise UsageError(f"requests of {uri!r} have a handler already")
        self._answerers[uri] = Answerer(handler, of)
        return handler

    def otherwise(self, handler: H) -> H:
        """Answer requests of every uri that has no handler of its own."""
        if self._otherwise is not None:  # YAMP-47
            raise UsageError("requests of other uris have a handler already")
        self._otherwise = Answerer(handler)
        return handler

    @overload
    def on(self, pattern: str, handler: H, *, of: Any = None) -> H: ...
    @overload
    def on(self, pattern: str, *, of: Any = None) -> Callable[[H], H]: ...
    def on(self, pattern: str, handler: Any = None, *, of: Any = None) -> Any:
        """Handle events whose uri fits a pattern.

        With a type, bodies that do not fit it are dropped, and counted.
        """
        if handler is None:
            return lambda given: self.on(pattern, given, of=of)
        listener = EventSubscriber(self._count, pattern, handler, of)
        self._topics.add(pattern, listener)
        self._listeners.append(listener)
        self._count += 1
        return handler

    def off(self, pattern: str, handler: EventHandler) -> None:
        """Remove a handler; undoes one `on`."""
        for listener in self._listeners:
            if listener.pattern == pattern and listener.handle == handler:
                self._topics.remove(pattern, listener)
                self._listeners.remove(listener)
                return
        raise UsageError(f"this handler does not listen to {pattern!r}")

    def answerer(self, uri: str) -> Answerer | None:
        """The handler of requests of a uri."""
        return self._answerers.get(uri, self._otherwise)

    def listeners(self, uri: str) -> list[EventSubscriber]:
        """The handlers of an event, in the order of their registration."""
        return sorted(self._topics.listeners(uri), key=lambda listener: listener.number)
