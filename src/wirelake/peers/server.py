"""A server of any protocol: accepts connections, gives each a peer, and closes all of them in order.

It refuses to know what is said on them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeVar

from wirelake.errors import ConnectFailed, UsageError
from wirelake.peers.client import Runnable
from wirelake.peers.notices import NOTICE
from wirelake.transports import reach
from wirelake.transports.address import Target
from wirelake.transports.stream import Stream
from wirelake.transports.tcp import plain

__all__ = ["Listen", "Server"]

log = logging.getLogger("wirelake.server")

P = TypeVar("P", bound=Runnable)

Listen = Callable[[Target, ssl.SSLContext | None, Callable[[reach.Arrival], None]], Awaitable[reach.Listener]]
"""Accepts connections until the listener is closed; raises OSError."""


class Server(Generic[P]):
    """Listens from `async with` on; at its end it says bye to everybody and waits for them to be gone."""

    def __init__(
        self,
        target: Target,
        make: Callable[[Stream], P],
        *,
        tls: ssl.SSLContext | None = None,
        max_connections: int = 10_000,
        listen: Listen = reach.listen,
    ) -> None:
        self.target = target
        self.peers: set[P] = set()
        """Who is connected now."""
        self.accepted = 0
        """Connections taken so far."""
        self._make = make
        self._tls = tls
        self._max_connections = max_connections
        self._listen = listen
        self._listener: reach.Listener | None = None
        self._group: asyncio.TaskGroup | None = None
        self._fresh: set[reach.Arrival] = set()
        """Accepted, and nobody has looked at it yet."""
        self._arriving: set[asyncio.Task[None]] = set()
        """On their way to a peer, for instance in the handshake of TLS."""

    @property
    def address(self) -> str:
        """Where it listens, as a client wants it."""
        return str(self.target)

    async def __aenter__(self) -> Server[P]:
        if self._group is not None:
            raise UsageError("the server is in use already")
        try:
            self._listener = await self._listen(self.target, self._tls, self._accept)
        except OSError as reason:
            raise ConnectFailed(f"cannot listen at {self.target}: {plain(reason)}") from None
        self.target = self.target._replace(port=self._listener.port)
        self._group = await asyncio.TaskGroup().__aenter__()
        self._group.create_task(self._listener.run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._arriving:
            task.cancel()
        for peer in list(self.peers):
            peer.close("the server is shutting down")
        group, self._group = self._group, None
        try:
            if group is not None:
                await group.__aexit__(None, None, None)
        finally:
            for arrival in self._fresh:
                arrival.close()
            self._fresh.clear()

    def _accept(self, arrival: reach.Arrival) -> None:
        if self._group is None or len(self.peers) + len(self._arriving) >= self._max_connections:
            log.warning("refused a connection at %s: %d are the limit", self.target, self._max_connections)
            arrival.close()
            return
        self.accepted += 1
        self._fresh.add(arrival)
        task = self._group.create_task(self._live(arrival))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _live(self, arrival: reach.Arrival) -> None:
        self._fresh.discard(arrival)
        try:
            stream = await arrival.stream()
        except OSError as reason:
            log.log(NOTICE, "refused a connection at %s: %s", self.target, plain(reason))
            return
        if (task := asyncio.current_task()) is not None:
            self._arriving.discard(task)
        await self._attend(self._make(stream), stream)

    async def _attend(self, peer: P, stream: Stream) -> None:
        """One connection to its end."""
        self.peers.add(peer)
        try:
            await peer.run()
        except Exception:
            log.exception("the peer at %s broke down", stream.remote)  # one bad connection must not end the others
        finally:
            self.peers.discard(peer)
