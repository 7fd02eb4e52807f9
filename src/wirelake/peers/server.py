"""A server of any protocol: accepts connections, gives each a peer, closes all in order."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from wirelake.errors import ConnectFailed, UsageError
from wirelake.peers.accountant import Account, Accountant
from wirelake.peers.admission import DEFAULT_SERVER_LIMITS, Guest, ServerLimits, evictable, over_time
from wirelake.peers.client import Runnable
from wirelake.peers.notices import NOTICE
from wirelake.transports import reach
from wirelake.transports.address import Target
from wirelake.transports.stream import Stream
from wirelake.transports.tcp import plain

__all__ = ["Listen", "Server"]

log = logging.getLogger("wirelake.server")

DRAIN_POLL: Final = 0.05
"""Seconds between two looks at whether requests are still being worked on, at shutdown."""


class Served(Runnable, Guest, Protocol):
    """What a peer offers to a server."""

    @property
    def account(self) -> Account:
        """The memory that is kept for it."""

    @property
    def is_busy(self) -> bool:
        """Whether a request of the peer is being worked on."""


P = TypeVar("P", bound=Served)

Listen = Callable[[Target, ssl.SSLContext | None, Callable[[reach.Arrival], None]], Awaitable[reach.Listener]]
"""Accepts connections until the listener is closed; raises OSError."""


class Server(Generic[P]):
    """Listens from `async with` on; at its end it sends a bye to all peers and waits until they have left."""

    def __init__(
        self,
        target: Target,
        make: Callable[[Stream], P],
        *,
        tls: ssl.SSLContext | None = None,
        limits: ServerLimits | None = None,
        listen: Listen = reach.listen,
    ) -> None:
        self.target = target
        self.peers: set[P] = set()
        """The connected peers."""
        self.accepted = 0
        """Connections taken so far."""
        self._make = make
        self._tls = tls
        self.limits = limits or DEFAULT_SERVER_LIMITS
        self._max_connections = self.limits.connections
        self.accountant = Accountant(self.limits.max_memory, self.limits.max_memory_per_host)
        """The memory that is kept for all of them."""
        self._sweeper: asyncio.Task[None] | None = None
        self._listen = listen
        self._listener: reach.Listener | None = None
        self._group: asyncio.TaskGroup | None = None
        self._hosts: Counter[str] = Counter()
        """Connections by the host they come from, those that arrive or leave included."""
        self._leaving: set[P] = set()
        """Closed here, and not gone yet."""
        self._fresh: set[reach.Arrival] = set()
        """Accepted connections whose task has not started yet."""
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
        self._sweeper = self._group.create_task(self._sweep())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._arriving:
            task.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._drain()
        for peer in list(self.peers):
            peer.close("the server is shutting down")
            peer.hurry(self.limits.linger)
        group, self._group = self._group, None
        try:
            if group is not None:
                await group.__aexit__(None, None, None)
        finally:
            for arrival in self._fresh:
                arrival.close()
            self._fresh.clear()

    def _accept(self, arrival: reach.Arrival) -> None:
        if self._group is None or not self._make_capacity(arrival.host):
            log.warning("refused a connection at %s from %s: the server is full", self.target, arrival.host)
            arrival.close()
            return
        self.accepted += 1
        self._fresh.add(arrival)
        task = self._group.create_task(self._live(arrival))
        self._arriving.add(task)
        self._hosts[arrival.host] += 1
        task.add_done_callback(lambda task: self._gone(task, arrival.host))

    def _gone(self, task: asyncio.Task[None], host: str) -> None:
        self._arriving.discard(task)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def _make_capacity(self, host: str) -> bool:
        """Whether there is space for one more connection of a host; may close another one for it."""
        limits, now = self.limits, asyncio.get_running_loop().time()
        count = len(self.peers) + len(self._arriving) - len(self._leaving)
        of_host = self._hosts[host] - sum(one.host == host for one in self._leaving)
        is_full = of_host >= limits.max_connections_per_host
        if not is_full and count < self._max_connections:
            return True
        victim = evictable((one for one in self.peers if one not in self._leaving), limits, now, host if is_full else None)
        if victim is None:
            return False
        self._close(victim, "the server is full")
        return True

    def _close(self, peer: P, reason: str) -> None:
        log.log(NOTICE, "closed the connection of %s at %s: %s", peer.host, self.target, reason)
        self._leaving.add(peer)
        peer.close(reason)
        peer.hurry(self.limits.linger)

    async def _sweep(self) -> None:
        """Close what is idle or silent, and give memory back."""
        while True:
            await asyncio.sleep(self.limits.sweep_interval)
            self._sweep_once(asyncio.get_running_loop().time())
            self.accountant.sweep()

    def _sweep_once(self, now: float) -> None:
        present = [one for one in self.peers if one not in self._leaving]
        for peer, reason in over_time(present, self.limits, now):
            self._close(peer, reason)

    async def _drain(self) -> None:
        """Wait for requests that are being worked on."""
        clock = asyncio.get_running_loop().time
        until = clock() + self.limits.drain
        while clock() < until and any(peer.is_busy for peer in self.peers):
            await asyncio.sleep(min(DRAIN_POLL, self.limits.drain))

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
        self.accountant.open(peer.account, peer.host)
        try:
            await peer.run()
        except Exception:
            log.exception("the peer at %s broke down", stream.remote)  # one bad connection must not end the others
        finally:
            peer.account.close()
            self.peers.discard(peer)
            self._leaving.discard(peer)
