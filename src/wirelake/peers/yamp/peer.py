"""A live YAMP peer: a session on a stream.

Both sides may send requests and answer them (YAMP-45).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from wirelake.errors import RemoteProtocolError, RequestCancelled, RequestTimeout
from wirelake.peers.live_peer import LivePeer
from wirelake.peers.notices import NOTICE
from wirelake.peers.subscriptions import Subscription, Subscriptions
from wirelake.peers.yamp.event_delivery import EventDelivery
from wirelake.peers.yamp.incoming_requests import IncomingRequests
from wirelake.peers.yamp.options import Options
from wirelake.peers.yamp.outgoing_request import OutgoingRequest
from wirelake.peers.yamp.service import ReceivedEvent, Service
from wirelake.protocols.dialects import dialect
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
    ResponseUnreadable,
)
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.options import Options as SessionOptions
from wirelake.protocols.yamp.session import Session
from wirelake.protocols.yamp.state_machine import Speaker
from wirelake.transports.stream import Stream

__all__ = ["Peer"]

USEFUL = (EventReceived, RequestReceived, CancelReceived, ProgressReceived, ResponseReceived, ResponseUnreadable)
"""Messages of the peer that are no keep-alive."""
LOUD = frozenset({Fault.BODY_UNDECODABLE, Fault.HANDSHAKE_REPEATED, Fault.PROGRESS_UNASKED})
"""Tolerated faults that are logged as warnings."""


class Peer(LivePeer[Session, str, Ended, Fault]):
    """A YAMP connection for its user: requests, events and closing.

    It opens with the serializer that was agreed on.
    """

    def __init__(self, speaker: Speaker, stream: Stream, options: Options | None = None) -> None:
        options = options or Options()
        session = Session(speaker, _session_options(speaker, stream, options), draw=os.urandom)
        spoken = dialect(session.options.limits)
        is_client = speaker is Speaker.CLIENT
        super().__init__("yamp", session, stream, options, is_client=is_client, messages=session.messages, dialect=lambda: spoken)
        self.speaker = speaker
        self.options = options
        self.unheard = 0
        """YAMP-39: events without a handler or subscription."""
        self.service = options.service or Service()
        self._asks: dict[bytes, OutgoingRequest] = {}
        self._pings: dict[bytes, tuple[float, list[asyncio.Future[float]]]] = {}
        """Payload of a ping by hand -> when it was sent, and the futures that wait for its pong."""
        self._answering = IncomingRequests(self, self._session, self._driver, self._work)
        self._attendance = EventDelivery(self._work, self._refused)
        self._subscriptions: Subscriptions[ReceivedEvent] = Subscriptions(options.max_inbox)
        self._handlers = {
            Opened: self._on_opened,
            EventReceived: self._on_event,
            RequestReceived: self._answering.take,
            CancelReceived: self._answering.cancel,
            ProgressReceived: self._on_progress,
            ResponseReceived: self._on_response,
            ResponseUnreadable: self._on_unreadable_response,
            RequestExpired: self._on_expired,
            PongReceived: self._on_pong,
            Noticed: self.notice,
            Ended: self._on_ended,
        }
        self._driver.handlers = self._handlers
        self._note_progress(USEFUL)

    # For the user.

    @property
    def serializer(self) -> str:
        """What bodies are in."""
        return self._session.serializer

    async def send(self, uri: str, body: Any = None) -> None:
        """0x05 event: send it.

        Waits while the peer reads too slowly, and raises if the session ends meanwhile.
        """
        session, driver = self._session, self._driver
        if session.ended is not None:
            raise self._reason()
        session.send(uri, body)
        driver.wake(session.last_size)
        if driver.busy:
            await driver.ready()
            self._require_going()

    async def request(self, uri: str, body: Any = None, *, timeout: float | None = None, of: Any = None) -> Any:
        """0x06 request: ask, and wait for the answer; with a type, the answer must fit it.

        Raises RequestFailed with the peer's body, RequestCancelled, RequestTimeout, RemoteProtocolError for an answer that cannot be read,
        or what ended the session. Cancelling kills the request. A timeout of `math.inf` is none.
        """
        began = self._loop.time()
        if self._driver.busy:
            await self._wait_for_capacity(self.options.request_timeout if timeout is None else timeout)
        ask = self._ask(uri, body, began, timeout, of, progressive=False)
        try:
            return await ask.outcome
        except asyncio.CancelledError:
            ask.kill()
            raise

    async def ask(self, uri: str, body: Any = None, *, timeout: float | None = None, of: Any = None) -> OutgoingRequest:
        """0x06 request, progressive: send a request and receive its steps.

        Every step restarts the timeout (YAMP-30).
        """
        began = self._loop.time()
        if self._driver.busy:
            await self._wait_for_capacity(self.options.request_timeout if timeout is None else timeout)
        return self._ask(uri, body, began, timeout, of, progressive=True)

    def subscribe(self, pattern: str) -> Subscription[ReceivedEvent]:
        """`async for event in peer.subscribe("weather.*")`.

        A slow reader loses events; `lost` counts them.
        """
        return self._subscriptions.add(pattern)

    def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        """All events of the peer, from now on; `subscribe` chooses by uri."""
        return aiter(self.subscribe(">"))

    async def ping(self, timeout: float | None = None) -> float:
        """0x01 system.ping: seconds until the pong came; known peers never answer (YAMP-18).

        Raises RequestTimeout after `timeout` seconds (`ping_timeout` of the session unless given), or what ended the session. A ping that
        is given up, by the timeout or by cancelling, does not end the session.
        """
        self._require_going()
        payload = self._session.ping(self._loop.time())
        self._driver.wake()
        waiting: asyncio.Future[float] = self._loop.create_future()
        began, others = self._pings.setdefault(payload, (self._loop.time(), []))
        others.append(waiting)
        timeout = self.options.ping_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                return await waiting - began
        except TimeoutError:
            raise RequestTimeout(f"no pong in {timeout:g} s") from None
        finally:
            others.remove(waiting)
            if not others and self._pings.pop(payload, None) is not None:
                self._session.give_up_ping()

    def redirect(self, url: str) -> None:
        """0x04 system.close-redirect: send a client somewhere else, and close."""
        self._session.redirect(url)
        self._driver.wake()

    async def run(self) -> None:
        """Live until the connection is closed; see LivePeer."""
        try:
            await super().run()
        finally:
            del self._answering, self._attendance  # they refer to this object

    # For groups.

    def send_packed(self, uri: str, body: Any, packed: dict[str, bytes]) -> bool:
        """0x05 event to one of many: never waits, and skips a peer that reads too slowly.

        `packed` holds the body by serializer.
        """
        if not self.is_open or self.stream.unsent > self.options.max_unsent:
            return False
        if self.serializer not in packed:
            packed[self.serializer] = self._session.pack(body)
        self._session.send_packed(uri, packed[self.serializer])
        self._wake()
        return True

    # Inside.

    def _wake(self) -> None:
        self._driver.wake(self._session.last_size)

    def _ask(self, uri: str, body: Any, began: float, timeout: float | None, of: Any, *, progressive: bool) -> OutgoingRequest:
        session = self._session
        if session.ended is not None:
            raise self._reason()
        if timeout is None:
            timeout = self.options.request_timeout
        uid = session.request(uri, body, began, timeout=timeout, progressive=progressive)
        self._driver.note_request(began)
        self._driver.post(session.last_size, None if timeout is None else began + timeout)
        ask = self._asks[uid] = OutgoingRequest(uid, uri, self._loop.create_future(), of, self._cancel, self._work.taken)
        return ask

    def _cancel(self, ask: OutgoingRequest, kill: bool) -> bool:
        """YAMP-33, YAMP-34: take a request of ours back."""
        if self._asks.get(ask.uid) is not ask or not self._session.cancel(ask.uid, kill=kill):
            return False
        self._driver.wake()
        if kill:
            del self._asks[ask.uid]
            ask.fail(RequestCancelled(f"{ask.uri!r} was killed"))
        return True

    def _on_opened(self, event: Opened) -> None:
        if not self._opened.done():
            self._opened.set_result(event.serializer)

    def _on_event(self, event: EventReceived) -> None:
        received = ReceivedEvent(self, event.uri, event.body, event.uid)
        before = self._subscriptions.unheard
        self._subscriptions.deliver(event.uri, received)
        listeners = self.service.listeners(event.uri)
        if listeners:
            self._attendance.bring(received, listeners, event.size)
        elif self._subscriptions.unheard > before:
            self.unheard += 1

    def _refused(self, event: ReceivedEvent, why: str) -> None:
        self.notice(Noticed(Fault.BODY_UNDECODABLE, f"event {event.uri!r}: {why}"))

    def _on_response(self, event: ResponseReceived) -> None:
        if (ask := self._asks.pop(event.request_uid, None)) is not None:
            ask.resolve(event)

    def _on_unreadable_response(self, event: ResponseUnreadable) -> None:
        if (ask := self._asks.pop(event.request_uid, None)) is not None:
            ask.fail(RemoteProtocolError(Fault.BODY_UNDECODABLE, f"answer to {ask.uri!r}: {event.detail}"))

    def _on_expired(self, event: RequestExpired) -> None:
        if (ask := self._asks.pop(event.request_uid, None)) is not None:
            ask.expire()
        self._driver.note_timeout()

    def _on_progress(self, event: ProgressReceived) -> None:
        ask = self._asks.get(event.request_uid)
        if ask is not None and ask.step(event.body, event.size):
            self._work.put(event.size)

    def _on_pong(self, event: PongReceived) -> None:
        _, waiting = self._pings.pop(event.payload, (0.0, []))
        for one in waiting:
            if not one.done():
                one.set_result(self._loop.time())

    def notice(self, event: Noticed) -> None:
        """Write down a rule that was broken and is tolerated."""
        self._tolerate(event.fault, event.detail, logging.WARNING if event.fault in LOUD else NOTICE)

    def _on_ended(self, event: Ended) -> None:
        for ask in self._asks.values():  # YAMP-49
            ask.fail(event.reason())
        self._asks.clear()
        self._subscriptions.close()
        self._end(event, [one for _, waiting in self._pings.values() for one in waiting])
        self._pings.clear()


def _session_options(speaker: Speaker, stream: Stream, options: Options) -> SessionOptions:
    """YAMP-15: over UDP a session must expect loss, and a server must ping."""
    if stream.kind != "udp":
        return options
    is_quiet_server = speaker is Speaker.SERVER and options.ping_interval is None
    interval = options.datagram_ping_interval if is_quiet_server else options.ping_interval
    return msgspec.structs.replace(options, datagrams=True, ping_interval=interval)
