"""Base classes of live peers: a session on a stream with its recording, and handlers.

Each protocol has a subclass that handles the events of its session.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from wirelake.capture.record.recorder import Connection, Dialect, Recorder
from wirelake.errors import RequestTimeout, SessionClosed, WirelakeError
from wirelake.peers.accountant import Account
from wirelake.peers.drivable import Drivable
from wirelake.peers.driver import Driver
from wirelake.peers.notices import NOTICE
from wirelake.peers.workload import Workload
from wirelake.protocols.faults import Faults
from wirelake.transports.stream import Stream

__all__ = ["ConnectionOptions", "LivePeer", "PeerOptions", "StreamPeer"]


SETTLED: Final = 10.0
"""Seconds of life after which a connection has progressed, even if nothing was said."""


class ConnectionOptions(Protocol):
    """Options that every connection has."""

    @property
    def max_memory(self) -> int: ...
    @property
    def max_unsent(self) -> int: ...
    @property
    def linger(self) -> float: ...
    @property
    def stall_timeout(self) -> float: ...
    @property
    def path_timeout(self) -> float | None: ...
    @property
    def recorder(self) -> Recorder | None: ...


class PeerOptions(ConnectionOptions, Protocol):
    """Options of peers that run handlers."""

    @property
    def max_in_flight(self) -> int: ...
    @property
    def max_inbox(self) -> int: ...
    @property
    def silence_timeout(self) -> float | None: ...


class SessionEnd(Protocol):
    """How a session ended."""

    @property
    def how(self) -> Any: ...
    @property
    def here(self) -> bool: ...
    @property
    def fault(self) -> Any: ...
    def reason(self) -> WirelakeError: ...


SessionT = TypeVar("SessionT", bound=Drivable)
EndedT = TypeVar("EndedT", bound=SessionEnd)
OpenedT = TypeVar("OpenedT")
FaultT = TypeVar("FaultT", bound=Faults)


class StreamPeer(Generic[SessionT, OpenedT, EndedT, FaultT]):
    """One side of a connection, with its recording. Subclasses fill `_handlers`: event type -> method."""

    def __init__(
        self,
        protocol: str,
        session: SessionT,
        stream: Stream,
        options: ConnectionOptions,
        *,
        is_client: bool,
        messages: Callable[[], list[bytes]] | None = None,
        gather: bool = False,
        dialect: Dialect = lambda: (),
        inflated_rate: float = math.inf,
    ) -> None:
        """`messages`, `gather` and `inflated_rate` go to the driver, `dialect` to the recorder."""
        self.stream = stream
        self.noticed: dict[FaultT, int] = {}
        """How often each tolerated rule was broken."""
        self._log = logging.getLogger(f"wirelake.{protocol}")
        self._session = session
        self.account = Account(self, options.max_memory)
        """The memory that is kept for this connection."""
        self._is_client = is_client
        self._record = None
        if options.recorder is not None:
            self._record = options.recorder.connection(
                protocol=protocol,
                role="client" if is_client else "server",
                transport=stream.kind,
                local=stream.local,
                remote=stream.remote,
                dialect=dialect,
            )
        self._driver = Driver(
            session,
            stream,
            self._handle,
            account=self.account,
            handle_many=self._handle_many,
            linger=options.linger,
            stall_timeout=options.stall_timeout,
            max_unsent=options.max_unsent,
            record=self._record,
            messages=messages,
            gather=gather,
            inflated_rate=inflated_rate,
        )
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[OpenedT] = self._loop.create_future()
        self._over = asyncio.Event()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {}
        self._is_useful = False
        """The peer sent a message after the handshake that was no keep-alive."""
        if options.path_timeout is not None:
            stream.watch_path(max(options.path_timeout, options.stall_timeout))

    # For the user.

    @property
    def ended(self) -> EndedT | None:
        """How the session ended; None while it is open."""
        ended: EndedT | None = self._session.ended
        return ended

    @property
    def is_open(self) -> bool:
        """The handshake is done and neither side has closed."""
        return self._opened.done() and self._session.ended is None

    @property
    def has_progressed(self) -> bool:
        """Whether the next attempt to connect need not wait longer than the first.

        After the handshake the peer sent a message that was no keep-alive, or the connection has lived for 10 seconds.
        """
        return self._opened.done() and (self._is_useful or self._driver.now - self._driver.since >= SETTLED)

    async def opened(self) -> OpenedT:
        """Wait for the handshake and return its result; raises the error that ended the session instead."""
        return await asyncio.shield(self._opened)

    def close(self, reason: str = "") -> None:
        """Close the session with a reason; `run` returns when output is flushed and the connection closed."""
        self._session.bye(reason)
        self._driver.wake()

    # For clients, servers and groups.

    @property
    def host(self) -> str:
        """See Guest."""
        return self.stream.remote[0]

    @property
    def since(self) -> float:
        """See Guest."""
        return self._driver.since

    @property
    def active_at(self) -> float:
        """See Guest."""
        return self._driver.active_at

    @property
    def is_proven(self) -> bool:
        """See Guest."""
        return self._session.is_proven

    @property
    def is_busy(self) -> bool:
        """Whether a request of the peer is being worked on."""
        return False

    def refresh(self) -> None:
        """See Holder."""
        self._driver.report()

    def balance(self) -> None:
        """See Holder."""

    def refuse_oldest(self, reason: str) -> None:
        """See Holder: a half message has no other answer than the end."""
        self.evict(reason)

    def evict(self, reason: str) -> None:
        """See Holder."""
        self._log.log(NOTICE, "closed the connection of %s: %s", self.host, reason)
        self.close(reason)
        self._driver.hurry(0.0)
        if self.stream.congested:
            self.stream.abort()  # it does not read what waits for it
        self._driver.free()
        self._driver.report()

    def hurry(self, seconds: float) -> None:
        """See Runnable."""
        self._driver.hurry(seconds)

    @property
    def trouble(self) -> str:
        """See Runnable."""
        return self._driver.trouble

    @property
    def first_bytes(self) -> bytes:
        """The first few bytes the peer sent."""
        return self._driver.first_bytes

    async def over(self) -> WirelakeError:
        """Wait for the end of the session; returns why it ended."""
        await self._over.wait()
        return self._reason()

    async def run(self) -> None:
        """Run until the connection is closed."""
        await self._drive()

    # For the peers of each protocol.

    async def _drive(self) -> None:
        """Run the driver, and close the recording at its end."""
        try:
            await self._driver.run()
        finally:
            if self._record is not None and self.ended is not None:
                self._record_end(self._record, self.ended.how.value)
            self._handlers = {}  # they refer to this object

    def _record_end(self, record: Connection, how: str) -> None:
        """Record who ended the connection, and what had not left by then."""
        driver, sides = self._driver, ("client", "server") if self._is_client else ("server", "client")
        by = "" if driver.ended_here is None else sides[0] if driver.ended_here else sides[1]
        record.closed(how, by, is_reset=driver.is_reset, unconfirmed=driver.unconfirmed)

    _handle_many: Callable[[list[Any]], None] | None = None
    """For peers whose events come in large numbers and cause no output at once: handles a list of them."""

    def _note_progress(self, kinds: Iterable[type[Any]]) -> None:
        """Take the first event of these kinds as a sign that the connection is useful; later ones cost nothing."""
        driver = self._driver
        if (handlers := driver.handlers) is None:
            return

        def take_first(event: Any) -> None:
            self._is_useful = True
            driver.handlers = handlers
            handlers[type(event)](event)

        driver.handlers = {**handlers, **dict.fromkeys(kinds, take_first)}

    def _handle(self, event: Any) -> None:
        self._handlers[type(event)](event)

    def _reason(self) -> WirelakeError:
        return self.ended.reason() if self.ended is not None else SessionClosed("the session is going on")

    def _require_going(self) -> None:
        """Raise the error that ended the session, if it ended."""
        if self._session.ended is not None:
            raise self._reason()

    def _tolerate(self, fault: FaultT, detail: str = "", level: int = NOTICE) -> None:
        """Count and log a broken rule that is tolerated."""
        self.noticed[fault] = self.noticed.get(fault, 0) + 1
        self._log.log(level, f"{fault.name} tolerated from %s: %s", self.stream.remote, detail or fault.text)  # a kind for each fault

    def _end(self, ended: EndedT, waiting: Iterable[asyncio.Future[Any]] = ()) -> None:
        """Log the end of the session, and fail everything that waits for it."""
        # Calls of a client raise the reason; a server has no caller, so its log says it.
        level = NOTICE if ended.fault is not None and ended.here and not self._is_client else logging.INFO
        self._log.log(level, "session with %s ended: %s", self.stream.remote, ended.reason())
        for future in (self._opened, *waiting):
            if not future.done():
                future.set_exception(ended.reason())  # one for each: they travel up different stacks
                future.exception()  # retrieved once, so that asyncio does not warn if nothing awaits it
        self._over.set()


class LivePeer(StreamPeer[SessionT, OpenedT, EndedT, FaultT]):
    """A peer that runs handlers: reading stops while too many of them, or too many messages, are waiting."""

    def __init__(
        self,
        protocol: str,
        session: SessionT,
        stream: Stream,
        options: PeerOptions,
        *,
        is_client: bool,
        messages: Callable[[], list[bytes]] | None = None,
        gather: bool = False,
        dialect: Dialect = lambda: (),
        inflated_rate: float = math.inf,
    ) -> None:
        super().__init__(
            protocol,
            session,
            stream,
            options,
            is_client=is_client,
            messages=messages,
            gather=gather,
            dialect=dialect,
            inflated_rate=inflated_rate,
        )
        self._work = Workload(
            self._driver.hold,
            self._driver.go_on,
            self.account,
            max_tasks=options.max_in_flight,
            max_waiting=options.max_inbox,
        )
        self._driver.silence_timeout = options.silence_timeout

    def close(self, reason: str = "") -> None:
        """Close the session with a reason.

        `run` returns when output is flushed and the connection closed; handlers are cancelled.
        """
        if self._session.ended is not None:
            self._work.cancel_attending()
        self._session.bye(reason)
        self._driver.wake()

    def balance(self) -> None:
        """See Holder."""
        self._work.balance()

    def evict(self, reason: str) -> None:
        """See Holder: handlers are cancelled at once."""
        super().evict(reason)
        self._work.cancel_answering()
        self._work.cancel_attending()

    @property
    def is_busy(self) -> bool:
        """Whether a request of the peer is being worked on."""
        return self._work.is_answering

    async def run(self) -> None:
        """Run until the connection is closed.

        If the peer closed, handlers finish what it sent before; answers are not sent any more.
        """
        async with self._work.group:
            try:
                await self._drive()
                await asyncio.sleep(0)  # what arrived with the last word is begun before it is cancelled
                self._work.cancel_answering()
                if self.ended is None or self.ended.here:
                    self._work.cancel_attending()
                await self._work.all_begun()
            except BaseException:
                self._work.cancel_answering()
                self._work.cancel_attending()
                raise

    async def _wait_for_capacity(self, timeout: float | None) -> None:
        """Wait until a request can be sent."""
        try:
            async with asyncio.timeout(timeout):
                await self._driver.ready()
        except TimeoutError:
            raise RequestTimeout("the peer reads too slowly: the request could not be sent in time") from None
