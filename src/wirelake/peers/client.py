"""A client of any protocol: one connection, or several in turn with a back-off between."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from wirelake.errors import ConnectFailed, ConnectionLost, Redirected, SessionClosed, UsageError, WirelakeError
from wirelake.peers.backoff import Backoff, BackoffTimer
from wirelake.transports import reach
from wirelake.transports.address import ENCRYPTED, Target
from wirelake.transports.stream import Stream
from wirelake.transports.tcp import plain
from wirelake.transports.tls import client_context

__all__ = ["Client", "Dial", "Follow", "Runnable"]

log = logging.getLogger("wirelake.client")


class Runnable(Protocol):
    """The part of a peer that clients and servers use."""

    @property
    def is_open(self) -> bool:
        """The handshake is done and neither side has closed."""

    @property
    def has_progressed(self) -> bool:
        """Whether the connection was useful after its handshake; the back-off then starts again."""

    @property
    def first_bytes(self) -> bytes:
        """What the peer sent first, a few bytes of it."""

    @property
    def trouble(self) -> str:
        """The error of TLS when it ended the connection; empty otherwise."""

    async def run(self) -> None:
        """Live until the connection is closed."""

    async def opened(self) -> object:
        """Wait for the handshake."""

    async def over(self) -> WirelakeError:
        """Wait for the end of the session, which comes before that of the connection; returns why it ended."""

    def close(self, reason: str = "") -> None:
        """Close the session."""

    def hurry(self, seconds: float) -> None:
        """Be closed in so many seconds, whether the peer reads or not."""


P = TypeVar("P", bound=Runnable)

Follow = Callable[[str, Target, int], Target]
"""(url, current target, redirects so far) -> next target.

Raises WirelakeError if the redirect must not be followed.
"""
Dial = Callable[[Target, ssl.SSLContext | None], Awaitable[Stream]]
"""Opens a connection; raises OSError."""
_TLS_RECORDS: Final = (0x15, 0x16)
"""The types of the records that TLS begins with: alert and handshake."""
_TLS_VERSION: Final = b"\x03"
"""The first byte of a record's version, whichever version of TLS it is."""
RESTED: Final = 60.0
"""Seconds after which a connection was no mere step from one redirect to the next."""


class Client(Generic[P]):
    """`async with client as peer` gives the peer of the first connection.

    `await client.peer()` gives that of the current one.
    """

    def __init__(
        self,
        target: Target,
        make: Callable[[Stream], P],
        *,
        tls: ssl.SSLContext | None = None,
        reconnect: Backoff | None = None,
        connect_timeout: float = 10.0,
        backoff: BackoffTimer | None = None,
        follow: Follow | None = None,
        again: Callable[[], bool] = lambda: True,
        dial: Dial = reach.connect,
        on_give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`again` says whether another connection is wanted when one has ended; `dial` opens it.

        `on_give_up` is called when there will be no further connection.
        """
        self.target = target
        """Where it is connected, or tries to be: not where it began, after a redirect."""
        self._home = target
        self._follow = follow
        self._hops = 0
        self.connections = 0
        """Handshakes finished so far."""
        self._make = make
        self._tls = tls
        self._reconnect = reconnect
        self._backoff = backoff or BackoffTimer(reconnect or Backoff(attempts=1))
        self._connect_timeout = connect_timeout
        self._again = again
        self._dial = dial
        self._on_give_up = on_give_up
        self._closing = False
        self._progressed = False
        self._peer: P | None = None
        self._current: asyncio.Future[P] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> P:
        if self._group is not None:
            raise UsageError("the client is in use already")
        self._closing = False
        self._current = asyncio.get_running_loop().create_future()
        self._group = await asyncio.TaskGroup().__aenter__()
        self._task = self._group.create_task(self._keep())
        try:
            return await asyncio.shield(self._current)
        except BaseException:
            await self._stop()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stop()

    async def peer(self) -> P:
        """The peer of the current connection.

        Waits while there is none, raises if there will be none any more.
        """
        if self._current is None:
            raise SessionClosed("the client is not in use: enter it with `async with`")
        peer = await asyncio.shield(self._current)
        while not peer.is_open:  # it has just ended, and the client is about to notice
            await asyncio.sleep(0)
            peer = await asyncio.shield(self._current)
        return peer

    # Inside.

    async def _stop(self) -> None:
        self._closing = True
        if self._peer is not None:
            self._peer.close()
        elif self._task is not None:
            self._task.cancel()
        group, self._group = self._group, None
        try:
            if group is not None:
                await group.__aexit__(None, None, None)
        finally:
            self._no_more(SessionClosed("the client was closed"))

    async def _keep(self) -> None:
        """Connect, live, and do it again if that is wanted."""
        while not self._closing:
            before, began = self.connections, asyncio.get_running_loop().time()
            reason = await self._once()
            opened = self.connections > before
            if asyncio.get_running_loop().time() - began > RESTED:
                self._hops = 0
            if (url := _redirect(reason)) is not None and self._follow is not None and not self._closing:
                try:
                    self.target = self._follow(url, self.target, self._hops)
                except WirelakeError as refused:
                    reason = refused
                else:
                    self._hops += 1
                    log.info("redirected to %s", self.target)
                    continue
            self.target, self._hops = self._home, 0
            delay = (
                None
                if self._reconnect is None or self._closing or not self._again()
                else self._backoff.next(opened, progressed=self._progressed)
            )
            if delay is None:
                self._no_more(reason)
                self._on_give_up()
                return
            log.info("connection to %s: %s; next attempt in %.2f s", self.target, reason, delay)
            await asyncio.sleep(delay)

    async def _once(self) -> WirelakeError:
        """One connection, from nothing to its end; says why it ended."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                stream = await self._dial(self.target, self._context())
        except TimeoutError:
            return ConnectFailed(f"cannot connect to {self.target}: no answer in {self._connect_timeout:g} s")
        except OSError as reason:
            return ConnectFailed(f"cannot connect to {self.target}: {plain(reason)}")
        except UsageError as reason:  # for instance a library that is not installed
            self._closing = True
            return reason
        self._peer = peer = self._make(stream)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(peer.run())
                try:
                    await peer.opened()
                except WirelakeError as reason:
                    hint = "" if peer.trouble else _hint(self.target.scheme, peer.first_bytes, reason)
                    failed = ConnectFailed(f"no handshake with {self.target}: {peer.trouble or reason}{hint}")
                    failed.__cause__ = reason
                    return failed
                self.connections += 1
                if self._current is not None and not self._current.done():
                    self._current.set_result(peer)
                ended = await peer.over()
                self._progressed = peer.has_progressed
                self._current = asyncio.get_running_loop().create_future()  # who asks from now on gets the next one
        finally:
            self._peer = None
        return ended

    def _context(self) -> ssl.SSLContext | None:
        """What TLS needs, if it is wanted where we go."""
        return (self._tls or client_context()) if self.target.scheme in ENCRYPTED else None

    def _no_more(self, reason: WirelakeError) -> None:
        if self._current is not None and not self._current.done():
            self._current.set_exception(reason)
            self._current.exception()  # retrieved, so that asyncio does not warn if no task awaits it


def _hint(scheme: str, first: bytes, reason: WirelakeError) -> str:
    """What the server may have wanted.

    With TLS 1.3 it refuses a client's certificate only after the client's handshake.
    """
    if scheme == "tcp" and _may_want_tls(first, reason):
        return " (does it want tls://?)"
    return " (does it want a certificate from us?)" if scheme in ENCRYPTED and not first and isinstance(reason, ConnectionLost) else ""


def _may_want_tls(first: bytes, reason: WirelakeError) -> bool:
    """Whether a failed handshake looks like a server that wants TLS.

    Such a server closes at once, or answers with a TLS record.
    """
    if not first:
        return isinstance(reason, ConnectionLost)
    return len(first) >= len(_TLS_VERSION) + 1 and first[0] in _TLS_RECORDS and first[1:].startswith(_TLS_VERSION)


def _redirect(reason: WirelakeError) -> str | None:
    """The url of a redirect, whether it came in the handshake or later."""
    for error in (reason, reason.__cause__):
        if isinstance(error, Redirected):
            return error.url
    return None
