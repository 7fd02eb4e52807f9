"""What all live peers of a conversation have: a session at work on a stream, recorded, with handlers at work, from opening to end.

It refuses to know protocols: each has a peer of its own, which says what the events of its session mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from wirelake.capture.record.recorder import Dialect, Recorder
from wirelake.errors import RequestTimeout, SessionClosed, WirelakeError
from wirelake.peers.driver import Drivable, Driver
from wirelake.peers.notices import NOTICE
from wirelake.peers.workload import Workload
from wirelake.protocols.faults import Faults
from wirelake.transports.stream import Stream

__all__ = ["LivePeer", "Manners"]


class Manners(Protocol):
    """What every peer may be told, whatever it speaks."""

    @property
    def max_in_flight(self) -> int: ...
    @property
    def max_inbox(self) -> int: ...
    @property
    def max_held(self) -> int: ...
    @property
    def max_unsent(self) -> int: ...
    @property
    def linger(self) -> float: ...
    @property
    def stall_timeout(self) -> float: ...
    @property
    def recorder(self) -> Recorder | None: ...


class Parting(Protocol):
    """How a session ended."""

    @property
    def how(self) -> Any: ...
    @property
    def here(self) -> bool: ...
    @property
    def fault(self) -> Any: ...
    def reason(self) -> WirelakeError: ...


SessionT = TypeVar("SessionT", bound=Drivable)
EndedT = TypeVar("EndedT", bound=Parting)
OpenedT = TypeVar("OpenedT")
FaultT = TypeVar("FaultT", bound=Faults)


class LivePeer(Generic[SessionT, OpenedT, EndedT, FaultT]):
    """One end of a live conversation. Who inherits fills `_handlers` with what each event of its session leads to."""

    def __init__(
        self,
        protocol: str,
        session: SessionT,
        stream: Stream,
        manners: Manners,
        *,
        is_client: bool,
        messages: Callable[[], list[bytes]] | None = None,
        gather: bool = False,
        dialect: Dialect = lambda: (),
    ) -> None:
        """`is_client` is who opened the connection; `messages` and `gather` are the driver's, `dialect` is the recorder's."""
        self.stream = stream
        self.noticed: dict[FaultT, int] = {}
        """How often each tolerated rule was broken."""
        self._log = logging.getLogger(f"wirelake.{protocol}")
        self._session = session
        self._is_client = is_client
        self._record = None
        if manners.recorder is not None:
            self._record = manners.recorder.connection(
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
            linger=manners.linger,
            stall_timeout=manners.stall_timeout,
            max_unsent=manners.max_unsent,
            record=self._record,
            messages=messages,
            gather=gather,
        )
        self._work = Workload(
            self._driver.hold,
            self._driver.go_on,
            max_tasks=manners.max_in_flight,
            max_waiting=manners.max_inbox,
            max_bytes=manners.max_held,
        )
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[OpenedT] = self._loop.create_future()
        self._over = asyncio.Event()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {}

    # For the user.

    @property
    def ended(self) -> EndedT | None:
        """How the conversation ended, once it did."""
        ended: EndedT | None = self._session.ended
        return ended

    @property
    def is_open(self) -> bool:
        """What comes before the first message is done, and nobody has parted."""
        return self._opened.done() and self._session.ended is None

    @property
    def has_progressed(self) -> bool:
        """What comes before the first message is done; nothing is said again on the next connection that could end that one, too."""
        return self._opened.done()

    async def opened(self) -> OpenedT:
        """Wait for what comes before the first message, such as a handshake; what it led to. Raises what ended the session instead."""
        return await asyncio.shield(self._opened)

    def close(self, reason: str = "") -> None:
        """Part, and say why; `run` returns when that is flushed and the connection closed. Handlers that still run are cancelled."""
        if self._session.ended is not None:
            self._work.cancel_attending()
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
    def held(self) -> int:
        """See Guest."""
        return self._driver.held + self._work.held

    @property
    def is_busy(self) -> bool:
        """Whether a request of the peer is being worked on."""
        return self._work.is_answering

    def hurry(self, seconds: float) -> None:
        """See Runnable."""
        self._driver.hurry(seconds)

    @property
    def trouble(self) -> str:
        """See Runnable."""
        return self._driver.trouble

    @property
    def first_bytes(self) -> bytes:
        """What the peer sent first, a few bytes of it."""
        return self._driver.first_bytes

    async def over(self) -> WirelakeError:
        """Wait for the end of the conversation; says why it ended."""
        await self._over.wait()
        return self._reason()

    async def run(self) -> None:
        """Live until the connection is closed. If the peer parted, what it sent before is attended to; nothing is answered any more."""
        async with self._work.group:
            await self._drive()
            await asyncio.sleep(0)  # what arrived with the last word is begun before it is cancelled
            self._work.cancel_answering()
            if self.ended is None or self.ended.here:
                self._work.cancel_attending()

    # For the peers of each protocol.

    async def _drive(self) -> None:
        """From the first byte to the last, and the end of the recording."""
        try:
            await self._driver.run()
        finally:
            if self._record is not None and self.ended is not None:
                self._record.closed(self.ended.how.value)
            self._handlers = {}  # they refer to this object

    def _handle(self, event: Any) -> None:
        self._handlers[type(event)](event)

    def _reason(self) -> WirelakeError:
        return self.ended.reason() if self.ended is not None else SessionClosed("the session is going on")

    def _require_going(self) -> None:
        """Say why the session ended, in the words and with the type of its end."""
        if self._session.ended is not None:
            raise self._reason()

    async def _room(self, timeout: float | None) -> None:
        """Wait until a request can be sent."""
        try:
            async with asyncio.timeout(timeout):
                await self._driver.ready()
        except TimeoutError:
            raise RequestTimeout("the peer reads too slowly: the request could not be sent in time") from None

    def _tolerate(self, fault: FaultT, detail: str = "", level: int = NOTICE) -> None:
        """Write down a rule that was broken and is tolerated."""
        self.noticed[fault] = self.noticed.get(fault, 0) + 1
        self._log.log(level, f"{fault.name} tolerated from %s: %s", self.stream.remote, detail or fault.text)  # a kind for each fault

    def _end(self, ended: EndedT, waiting: Iterable[asyncio.Future[Any]] = ()) -> None:
        """The session is over: whoever waits learns why."""
        # A client is told by what its calls raise; a server has nobody else to tell.
        level = NOTICE if ended.fault is not None and ended.here and not self._is_client else logging.INFO
        self._log.log(level, "session with %s ended: %s", self.stream.remote, ended.reason())
        for one in (self._opened, *waiting):
            if not one.done():
                one.set_exception(ended.reason())  # one for each: they travel up different stacks
                one.exception()  # whoever awaits it learns it; if nobody does, nobody is warned
        self._over.set()
