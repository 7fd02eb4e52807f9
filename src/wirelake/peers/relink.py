"""Relink live: a connector keeps one link over connection after connection, a listener hosts the links of many endpoints at one address.

```
async def take(link):
    async for message in link:
        print(message.body)

demo = Endpoint("demo", connector_id_size=4)
async with serve("tcp://127.0.0.1:5047", {demo: take}) as listener:
    async with connect(listener.address, demo) as link:
        await link.channel(b"chan").send(b"hello")  # returns when it was consumed
```

It refuses to know the protocol's rules: links and sessions keep them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final

import msgspec

from wirelake.errors import SessionClosed, UsageError, WirelakeError
from wirelake.peers.backoff import Backoff
from wirelake.peers.client import Client
from wirelake.peers.driver import Driver
from wirelake.peers.relink_channels import Channel, Inbound, Receipt, Transaction
from wirelake.peers.relink_link import DEFAULT_LIVE, Link, Live
from wirelake.peers.server import Server
from wirelake.protocols.relink.conversation import Speaker
from wirelake.protocols.relink.events import Ended, Event, MessageReceived, Opened
from wirelake.protocols.relink.link import Link as Core
from wirelake.protocols.relink.messages import DEFAULT_PORT
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.registry import Registry
from wirelake.protocols.relink.session import Session
from wirelake.transports.address import Target, parse
from wirelake.transports.stream import Stream
from wirelake.transports.tls import client_context

__all__ = [
    "DEFAULT_LIVE",
    "Channel",
    "Connection",
    "Connector",
    "Endpoint",
    "Inbound",
    "Link",
    "LinkHandler",
    "Listener",
    "Live",
    "Receipt",
    "Transaction",
    "connect",
    "serve",
]

log = logging.getLogger("wirelake.relink")

LinkHandler = Callable[[Link], Awaitable[None]]
"""What a listener does with a link; when it returns, the link is shut down."""
SCHEMES: Final = ("tcp", "tls", "unix")
RECONNECT: Final = Backoff(first=0.2, most=60.0)
"""RELINK-25: how a connector tries again unless told otherwise."""


class Connection:
    """One connection of a link: a session at work on a stream."""

    def __init__(
        self, session: Session, stream: Stream, live: Live, find: Callable[[Core], Link], ended: Callable[[], None] = lambda: None
    ) -> None:
        self.session = session
        self.stream = stream
        self._find = find
        self._ended = ended
        self._link: Link | None = None
        self._opened: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._record = None
        if live.recorder is not None:
            self._record = live.recorder.connection(
                protocol="relink",
                role="client" if session.speaker is Speaker.CONNECTOR else "server",
                transport=stream.kind,
                local=stream.local,
                remote=stream.remote,
            )
        self.driver = Driver(
            session,
            stream,
            self._handle,
            linger=live.linger,
            stall_timeout=live.stall_timeout,
            max_unsent=live.max_unsent,
            record=self._record,
        )

    @property
    def is_open(self) -> bool:
        """The handshake is done and nobody has closed."""
        return self._opened.done() and self.session.ended is None

    async def opened(self) -> Opened:
        """Wait for the handshake; raises what ended the connection instead."""
        return await asyncio.shield(self._opened)

    async def over(self) -> WirelakeError:
        """Wait for the end of the connection; says why it ended."""
        await self._over.wait()
        return self.session.ended.reason() if self.session.ended is not None else SessionClosed("the connection is going on")

    def close(self, reason: str = "") -> None:
        """Close the connection; the link lives on."""
        self.session.bye(reason)
        self.driver.wake()

    async def run(self) -> None:
        """Live until the connection is closed."""
        try:
            await self.driver.run()
        finally:
            if self._record is not None and self.session.ended is not None:
                self._record.closed(self.session.ended.how.value)

    def _handle(self, event: Event) -> None:
        if type(event) is MessageReceived and self._link is not None:  # by far the commonest
            self._link.deliver(event)
            return
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
            self._on_ended(event)

    def _on_ended(self, event: Ended) -> None:
        log.info("connection with %s ended: %s", self.stream.remote, event.reason())
        if self._link is not None:
            self._link.detach(self)
        if not self._opened.done():
            self._opened.set_exception(event.reason())
            self._opened.exception()  # whoever awaits it learns it; if nobody does, nobody is warned
        self._over.set()
        self._ended()


class Connector:
    """A link to a listener, from `async with` on; at its end it is shut down."""

    def __init__(
        self,
        target: Target,
        endpoint: Endpoint,
        live: Live,
        *,
        tls: ssl.SSLContext | None,
        reconnect: Backoff | None,
        connect_timeout: float,
    ) -> None:
        self._live = live
        self._core = Core(Speaker.CONNECTOR, endpoint, live.session)
        self._link: Link | None = None
        self._client = Client(
            target, self._make, tls=tls, reconnect=reconnect, connect_timeout=connect_timeout, again=lambda: not self._core.is_over
        )

    async def __aenter__(self) -> Link:
        self._link = Link(self._core, self._live)
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

    def _make(self, stream: Stream) -> Connection:
        return Connection(Session(Speaker.CONNECTOR, self._live.session, link=self._core), stream, self._live, self._find)

    def _find(self, _: Core) -> Link:
        if self._link is None:
            raise UsageError("the connector is not in use: enter it with `async with`")
        return self._link


class Listener:
    """Endpoints at one address, from `async with` on; at its end all links are shut down."""

    def __init__(
        self, target: Target, endpoints: Mapping[Endpoint, LinkHandler], live: Live, *, tls: ssl.SSLContext | None, max_connections: int
    ) -> None:
        self._live = live
        self._handlers = dict(endpoints)
        epoch = time.time_ns() // 1000  # RELINK-9
        self.registry = Registry(endpoints, epoch, lambda: secrets.randbits(63), live.session)
        self.links: dict[Core, Link] = {}
        """Every link there is, with a connection or without."""
        self._server = Server(target, self._make, tls=tls, max_connections=max_connections)
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
                await asyncio.gather(*(link.close() for link in links if not link.is_over))
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

    def _make(self, stream: Stream) -> Connection:
        session = Session(Speaker.LISTENER, self._live.session, registry=self.registry, remote=stream.remote[0])
        return Connection(session, stream, self._live, self._find, self._plan_expiry)

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
            self.links[core] = link = Link(core, self._live)
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


def connect(
    address: str,
    endpoint: Endpoint,
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    reconnect: Backoff | None = RECONNECT,
    connect_timeout: float = 10.0,
) -> Connector:
    """A connector to the listener at `tcp://host:port`, `tls://host:port` or `unix:/path`; use it with `async with`."""
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if tls is not None and target.scheme != "tls":
        raise UsageError(f"{target}: a TLS context belongs to tls://")
    context = (tls or client_context()) if target.scheme == "tls" else None
    return Connector(target, endpoint, _lively(live), tls=context, reconnect=reconnect, connect_timeout=connect_timeout)


def serve(
    address: str,
    endpoints: Mapping[Endpoint, LinkHandler],
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    max_connections: int = 10_000,
) -> Listener:
    """A listener at `tcp://host:port`, `tls://host:port` or `unix:/path` (port 0: any that is free); use it with `async with`."""
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if (target.scheme == "tls") != (tls is not None):
        raise UsageError(f"{target}: give a TLS context with tls:// and none otherwise")
    if len({one.name for one in endpoints}) != len(endpoints):
        raise UsageError("two endpoints of one name")
    return Listener(target, endpoints, _lively(live), tls=tls, max_connections=max_connections)


def _lively(live: Live) -> Live:
    """RELINK-25: jitter needs chance, which the room does not have."""
    options: Options = msgspec.structs.replace(live.session, random=random.random)
    return msgspec.structs.replace(live, session=options)
