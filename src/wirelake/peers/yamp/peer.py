"""One end of a live YAMP conversation: a session at work on a stream. Both ends may ask and answer (YAMP-45).

It refuses to know the protocol's rules: the session keeps them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

import msgspec

from wirelake.errors import RemoteProtocolError, RequestCancelled, RequestTimeout, SessionClosed, WirelakeError
from wirelake.peers.driver import Driver
from wirelake.peers.subscriptions import Subscription, Subscriptions
from wirelake.peers.workload import Workload
from wirelake.peers.yamp.answering import Answering
from wirelake.peers.yamp.asking import Ask
from wirelake.peers.yamp.attendance import Attendance
from wirelake.peers.yamp.live import DEFAULT_LIVE, Live
from wirelake.peers.yamp.service import Heard, Service
from wirelake.protocols.yamp.conversation import Speaker
from wirelake.protocols.yamp.events import (
    CancelReceived,
    Ended,
    EventReceived,
    Noticed,
    Opened,
    PongReceived,
    ProgressReceived,
    RequestExpired,
    RequestReceived,
    ResponseReceived,
    ResponseSpoilt,
    SessionEvent,
)
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.options import Options
from wirelake.protocols.yamp.session import Session
from wirelake.transports.stream import Stream

__all__ = ["Peer"]

log = logging.getLogger("wirelake.yamp")

LOUD = frozenset({Fault.BODY_UNDECODABLE, Fault.HANDSHAKE_REPEATED, Fault.PROGRESS_UNASKED})
"""Tolerated faults that somebody should hear of."""


class Peer:
    """What one may do with a connection, and what it does by itself."""

    def __init__(self, speaker: Speaker, stream: Stream, live: Live = DEFAULT_LIVE) -> None:
        self.speaker = speaker
        self.stream = stream
        self.live = live
        self.noticed: dict[Fault, int] = {}
        """How often each tolerated rule was broken."""
        self.unheard = 0
        """YAMP-39: events that nobody listens to."""
        self.service = live.service or Service()
        self._session = Session(speaker, _options(speaker, stream, live), draw=os.urandom)
        self._record = None
        if live.recorder is not None:
            self._record = live.recorder.connection(
                protocol="yamp",
                role="client" if speaker is Speaker.CLIENT else "server",
                transport=stream.kind,
                local=stream.local,
                remote=stream.remote,
            )
        self._driver = Driver(
            self._session,
            stream,
            self._handle,
            linger=live.linger,
            stall_timeout=live.stall_timeout,
            max_unsent=live.max_unsent,
            record=self._record,
            messages=self._session.messages,
        )
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[str] = self._loop.create_future()
        self._over = asyncio.Event()
        self._asks: dict[bytes, Ask] = {}
        self._pings: list[asyncio.Future[float]] = []
        self._pinged = 0.0
        self._work = Workload(
            self._driver.hold, self._driver.go_on, max_tasks=live.max_in_flight, max_waiting=live.max_inbox, max_bytes=live.max_held
        )
        self._answering = Answering(self, self._session, self._driver, self._work)
        self._attendance = Attendance(self._work, self._refused)
        self._subscriptions: Subscriptions[Heard] = Subscriptions(live.max_inbox)
        self._handlers: dict[type[SessionEvent], Callable[[Any], None]] = {
            Opened: self._on_opened,
            EventReceived: self._on_event,
            RequestReceived: self._answering.take,
            CancelReceived: self._answering.cancel,
            ProgressReceived: self._on_progress,
            ResponseReceived: self._on_response,
            ResponseSpoilt: self._on_spoilt,
            RequestExpired: self._on_expired,
            PongReceived: self._on_pong,
            Noticed: self.notice,
            Ended: self._on_ended,
        }

    # For the user.

    @property
    def ended(self) -> Ended | None:
        """How the conversation ended, once it did."""
        return self._session.ended

    @property
    def is_open(self) -> bool:
        """The handshake is done and nobody has parted."""
        return self._opened.done() and self._session.ended is None

    @property
    def serializer(self) -> str:
        """What bodies are in."""
        return self._session.serializer

    async def opened(self) -> str:
        """Wait for the handshake; the serializer that was agreed on. Raises what ended the session instead."""
        return await asyncio.shield(self._opened)

    async def send(self, uri: str, body: Any = None) -> None:
        """0x05 event: send it; waits while the peer reads too slowly, and raises if the session ends meanwhile."""
        self._require_going()
        self._session.send(uri, body)
        self._wake()
        if self._driver.busy:
            await self._driver.ready()
            self._require_going()

    async def request(self, uri: str, body: Any = None, *, timeout: float | None = None, of: Any = None) -> Any:
        """0x06 request: ask, and wait for the answer; with a type, the answer must fit it.

        Raises RequestFailed with the peer's body, RequestCancelled, RequestTimeout, RemoteProtocolError for an answer that cannot be read,
        or what ended the session. Cancelling kills the request. A timeout of `math.inf` is none.
        """
        ask = await self._ask(uri, body, timeout, of, progressive=False)
        try:
            return await ask.outcome
        except asyncio.CancelledError:
            ask.kill()
            raise

    async def ask(self, uri: str, body: Any = None, *, timeout: float | None = None, of: Any = None) -> Ask:
        """0x06 request, progressive: ask, and hear of the steps; every step restarts the timeout (YAMP-30)."""
        return await self._ask(uri, body, timeout, of, progressive=True)

    def subscribe(self, pattern: str) -> Subscription[Heard]:
        """`async for event in peer.subscribe("weather.*")`; who reads too slowly loses events, and finds how many in `lost`."""
        return self._subscriptions.add(pattern)

    async def ping(self) -> float:
        """0x01 system.ping: seconds until the pong came. Raises what ended the session; known peers never answer (YAMP-18)."""
        self._require_going()
        if not self._pings:
            self._pinged = self._loop.time()
        self._session.ping(self._loop.time())
        self._driver.wake()
        waiting: asyncio.Future[float] = self._loop.create_future()
        self._pings.append(waiting)
        return await waiting

    def redirect(self, url: str) -> None:
        """0x04 system.close-redirect: send a client somewhere else, and close."""
        self._session.redirect(url)
        self._driver.wake()

    def close(self, reason: str = "") -> None:
        """0x03 system.close: say why; `run` returns when it is flushed and the connection closed. Handlers that still run are cancelled."""
        if self._session.ended is not None:
            self._work.cancel_attending()
        self._session.bye(reason)
        self._driver.wake()

    # For clients, servers and groups.

    async def over(self) -> WirelakeError:
        """Wait for the end of the conversation; says why it ended."""
        await self._over.wait()
        return self._reason()

    async def run(self) -> None:
        """Live until the connection is closed. If the peer parted, what it sent before is attended to; nothing is answered any more."""
        async with self._work.group:
            try:
                await self._driver.run()
            finally:
                if self._record is not None and self.ended is not None:
                    self._record.closed(self.ended.how.value)
            await asyncio.sleep(0)  # what arrived with the last word is begun before it is cancelled
            self._work.cancel_answering()
            if self.ended is None or self.ended.here:
                self._work.cancel_attending()

    def send_packed(self, uri: str, body: Any, packed: dict[str, bytes]) -> bool:
        """0x05 event to one of many: nobody waits, and who reads too slowly does not get it; `packed` holds the body by serializer."""
        if not self.is_open or self.stream.unsent > self.live.max_unsent:
            return False
        if self.serializer not in packed:
            packed[self.serializer] = self._session.pack(body)
        self._session.send_packed(uri, packed[self.serializer])
        self._wake()
        return True

    # Inside.

    def _reason(self) -> WirelakeError:
        return self.ended.reason() if self.ended is not None else SessionClosed("the session is going on")

    def _require_going(self) -> None:
        """Say why the session ended, in the words and with the type of its end."""
        if self._session.ended is not None:
            raise self._reason()

    def _wake(self) -> None:
        self._driver.wake(self._session.last_size)

    async def _ask(self, uri: str, body: Any, timeout: float | None, of: Any, *, progressive: bool) -> Ask:
        asked = self._loop.time()
        if self._driver.busy:
            await self._room(self.live.session.request_timeout if timeout is None else timeout)
        self._require_going()
        uid = self._session.request(uri, body, asked, timeout=timeout, progressive=progressive)
        self._wake()
        ask = self._asks[uid] = Ask(uid, uri, self._loop.create_future(), of, self._cancel, self._work.taken)
        return ask

    async def _room(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._driver.ready()
        except TimeoutError:
            raise RequestTimeout("the peer reads too slowly: the request could not be sent in time") from None

    def _cancel(self, ask: Ask, kill: bool) -> bool:
        """YAMP-33, YAMP-34: take a request of ours back."""
        if self._asks.get(ask.uid) is not ask or not self._session.cancel(ask.uid, kill=kill):
            return False
        self._driver.wake()
        if kill:
            del self._asks[ask.uid]
            ask.fail(RequestCancelled(f"{ask.uri!r} was killed"))
        return True

    def _handle(self, event: SessionEvent) -> None:
        self._handlers[type(event)](event)

    def _on_opened(self, event: Opened) -> None:
        if not self._opened.done():
            self._opened.set_result(event.serializer)

    def _on_event(self, event: EventReceived) -> None:
        heard = Heard(self, event.uri, event.body, event.uid)
        before = self._subscriptions.unheard
        self._subscriptions.deliver(event.uri, heard)
        listeners = self.service.listeners(event.uri)
        if listeners:
            self._attendance.bring(heard, listeners, event.size)
        elif self._subscriptions.unheard > before:
            self.unheard += 1

    def _refused(self, heard: Heard, why: str) -> None:
        self.notice(Noticed(Fault.BODY_UNDECODABLE, f"event {heard.uri!r}: {why}"))

    def _on_response(self, event: ResponseReceived) -> None:
        if (ask := self._asks.pop(event.request_uid, None)) is not None:
            ask.resolve(event)

    def _on_spoilt(self, event: ResponseSpoilt) -> None:
        if (ask := self._asks.pop(event.request_uid, None)) is not None:
            ask.fail(RemoteProtocolError(Fault.BODY_UNDECODABLE, f"answer to {ask.uri!r}: {event.detail}"))

    def _on_expired(self, event: RequestExpired) -> None:
        if (ask := self._asks.pop(event.request_uid, None)) is not None:
            ask.expire()

    def _on_progress(self, event: ProgressReceived) -> None:
        ask = self._asks.get(event.request_uid)
        if ask is not None and ask.step(event.body, event.size):
            self._work.put(event.size)

    def _on_pong(self, _: PongReceived) -> None:
        for waiting in self._pings:
            if not waiting.done():
                waiting.set_result(self._loop.time() - self._pinged)
        self._pings.clear()

    def notice(self, event: Noticed) -> None:
        """Write down a rule that was broken and is tolerated."""
        self.noticed[event.fault] = self.noticed.get(event.fault, 0) + 1
        level = logging.WARNING if event.fault in LOUD else logging.DEBUG
        log.log(level, "%s tolerated from %s: %s", event.fault.name, self.stream.remote, event.detail or event.fault.text)

    def _on_ended(self, event: Ended) -> None:
        log.info("session with %s ended: %s", self.stream.remote, event.reason())
        if not self._opened.done():
            self._opened.set_exception(event.reason())
            self._opened.exception()  # whoever awaits it learns it; if nobody does, nobody is warned
        for ask in self._asks.values():  # YAMP-49
            ask.fail(event.reason())  # one for each: they travel up different stacks
        for waiting in self._pings:
            if not waiting.done():
                waiting.set_exception(event.reason())
        self._asks.clear()
        self._pings.clear()
        self._subscriptions.close()
        self._over.set()


def _options(speaker: Speaker, stream: Stream, live: Live) -> Options:
    """YAMP-15: what a session must know of a transport that loses."""
    options = live.session
    if stream.kind == "udp":
        interval = live.datagram_ping_interval if speaker is Speaker.SERVER and options.ping_interval is None else options.ping_interval
        options = msgspec.structs.replace(options, datagrams=True, ping_interval=interval)
    return options
