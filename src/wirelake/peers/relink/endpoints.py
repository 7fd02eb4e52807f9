"""Connections of links: a connector opens one after the other, a listener accepts them."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, cast

from wirelake.errors import UsageError, WirelakeError
from wirelake.peers.admission import ServerLimits
from wirelake.peers.backoff import Backoff, BackoffTimer
from wirelake.peers.client import Client
from wirelake.peers.live_peer import StreamPeer
from wirelake.peers.relink.link import Link
from wirelake.peers.relink.options import Options
from wirelake.peers.server import Server
from wirelake.protocols.relink.events import Ended, Ending, MessageReceived, Opened, SessionEvent
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.core import LinkCore as Core
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.options import Endpoint
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.transports.address import Target
from wirelake.transports.stream import Stream

__all__ = ["Connection", "Connector", "LinkHandler", "Listener"]

log = logging.getLogger("wirelake.relink")

_MESSAGES: Final = {MessageReceived}
"""The types of events, if all of them are messages."""

REFUSED_SHARE: Final = 0.8
"""RELINK-25: the least part of its back-off that a connector waits after a connection that ended at an announcement."""

LinkHandler = Callable[[Link], Awaitable[None]]
"""What a listener does with a link; when it returns, the link is shut down."""


class Connection(StreamPeer[Session, Opened, Ended, Fault]):
    """One connection of a link: a session on a stream."""

    def __init__(
        self, session: Session, stream: Stream, options: Options, find: Callable[[Core], Link], ended: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__("relink", session, stream, options, is_client=session.speaker is Speaker.CONNECTOR)
        self.session = session
        self.driver = self._driver
        self._find = find
        self._on_end = ended
        self._link: Link | None = None

    @property
    def has_progressed(self) -> bool:
        """See `LinkCore.has_progressed`."""
        return self.session.link is not None and self.session.link.has_progressed

    @property
    def held(self) -> int:
        """See Guest."""
        return super().held + (0 if self._link is None else self._link.held)

    def _handle_many(self, events: list[SessionEvent]) -> None:
        """Messages, by far the commonest events, are delivered together."""
        if self._link is not None and set(map(type, events)) == _MESSAGES:
            self._link.deliver_many(cast(list[MessageReceived], events))
            return
        run: list[MessageReceived] = []
        for event in events:
            if type(event) is MessageReceived and self._link is not None:
                run.append(event)
                continue
            if run and self._link is not None:
                self._link.deliver_many(run)
                run = []
            self._handle(event)
        if run and self._link is not None:
            self._link.deliver_many(run)

    def _handle(self, event: SessionEvent) -> None:
        if isinstance(event, Opened) and self.session.link is not None:
            self._link = self._find(self.session.link)
            self._link.attach(self)
            if not self._opened.done():
                self._opened.set_result(event)
        elif self._link is None and self.session.link is not None and self.session.speaker is Speaker.CONNECTOR:
            self._link = self._find(self.session.link)  # a link may be lost in the handshake
        if self._link is not None:
            self._link.handle(event)
        if isinstance(event, Ended):
            if self._link is not None:
                self._link.detach(self)
                if self._opened.done() and not event.here and event.how is Ending.CLOSED and not self._driver.is_broken:
                    self._link.core.refuse()
                    self._link.drain()
            self._end(event)
            self._on_end()


class Connector:
    """A link to a listener, from `async with` on; at its end it is shut down."""

    def __init__(
        self,
        target: Target,
        endpoint: Endpoint,
        options: Options,
        *,
        tls: ssl.SSLContext | None,
        reconnect: Backoff | None,
        connect_timeout: float,
    ) -> None:
        self._options = options
        self._core = Core(Speaker.CONNECTOR, endpoint, options)
        self._link: Link | None = None
        self._client = Client(
            target,
            self._make,
            tls=tls,
            reconnect=reconnect,
            connect_timeout=connect_timeout,
            backoff=None if reconnect is None else BackoffTimer(reconnect, self._wait),
            again=lambda: not self._core.is_over,
            on_give_up=self._give_up,
        )

    async def __aenter__(self) -> Link:
        self._link = Link(self._core, self._options)
        await self._client.__aenter__()
        return self._link

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._link is not None and not self._link.is_over:
                if error is None:
                    await self._link.close()
                else:
                    self._link.abandon()
        finally:
            await self._client.__aexit__(kind, error, trace)

    def _wait(self, least: float, most: float) -> float:
        """RELINK-22: a peer that ends connections at the announcement of closed channels gets no short waits, only some jitter."""
        return random.uniform(REFUSED_SHARE * most if self._core.inbox.is_announcing else least, most)  # noqa: S311 - jitter, no secret

    def _give_up(self) -> None:
        """Without further connections the link cannot continue: every unresolved message gets its outcome."""
        if self._link is not None and self._client.connections:
            self._link.abandon()

    def _make(self, stream: Stream) -> Connection:
        return Connection(Session(Speaker.CONNECTOR, self._options, link=self._core), stream, self._options, self._find)

    def _find(self, _: Core) -> Link:
        if self._link is None:
            raise UsageError("the connector is not in use: enter it with `async with`")
        return self._link


class Listener:
    """Endpoints at one address, from `async with` on; at its end all links are shut down."""

    def __init__(
        self,
        target: Target,
        endpoints: Mapping[Endpoint, LinkHandler],
        options: Options,
        *,
        tls: ssl.SSLContext | None,
        limits: ServerLimits | None,
    ) -> None:
        self._options = options
        self._handlers = dict(endpoints)
        epoch = time.time_ns() // 1000  # RELINK-9
        self.registry = Registry(endpoints, epoch, lambda: secrets.randbits(63), options)
        self.links: dict[Core, Link] = {}
        """Every link there is, with a connection or without."""
        self._server = Server(target, self._make, tls=tls, limits=limits)
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Where it listens, as a connector wants it."""
        return self._server.address

    async def __aenter__(self) -> Listener:
        await self._server.__aenter__()
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        group, self._group = self._group, None
        try:
            links = list(self.links.values())
            if error is None:
                await asyncio.gather(*(self._shut(link) for link in links if not link.is_over))
            for link in links:
                link.abandon()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            try:
                await self._server.__aexit__(kind, error, trace)
            finally:
                if group is not None:
                    for task in list(self._tasks):
                        task.cancel()
                    await group.__aexit__(None, None, None)

    async def _shut(self, link: Link) -> None:
        """Shut a link down; one without a connection gets only the time of a quick reconnection."""
        await link.close(None if link.is_connected else min(self._options.linger, self._options.close_timeout))

    def _make(self, stream: Stream) -> Connection:
        session = Session(Speaker.LISTENER, self._options, registry=self.registry, remote=stream.remote[0])
        return Connection(session, stream, self._options, self._find, self._plan_expiry)

    def _plan_expiry(self) -> None:
        """RELINK-24: a link without a connection is given up after a while."""
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.registry.deadline
        if deadline is not None and self._group is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        for core in self.registry.expire(asyncio.get_running_loop().time()):
            if core in self.links:
                self.links[core].drain()
        self._plan_expiry()

    def _find(self, core: Core) -> Link:
        link = self.links.get(core)
        if link is None:
            self.links[core] = link = Link(core, self._options)
            if self._group is not None:
                task = self._group.create_task(self._attend(link, core.id))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return link

    async def _attend(self, link: Link, link_id: int) -> None:
        """Run the endpoint's handler, then shut the link down."""
        try:
            await self._handlers[link.endpoint](link)
        except asyncio.CancelledError:
            raise
        except WirelakeError as reason:
            log.info("a handler of endpoint %r ended: %s", link.endpoint.name, reason)
        except Exception:
            log.exception("a handler of endpoint %r failed", link.endpoint.name)  # one link must not end the others
        if not link.is_over:
            await link.close()
        self.links.pop(link.core, None)
        self.registry.release(link_id)
