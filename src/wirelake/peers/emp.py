"""EMP live: a peer is a session at work on a stream; a client makes one, a server many. Both ends may ask and answer.

```
async with serve("tcp://127.0.0.1:5040", on_request=lambda peer, request: request.body.upper()) as server:
    async with connect(server.address) as peer:
        print(await peer.request(b"hello", timeout=1))
```

It refuses to know the protocol's rules: the session keeps them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.errors import RequestTimeout, UsageError, WirelakeError
from wirelake.peers.admission import DEFAULT_SERVER_LIMITS, ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.client import Client
from wirelake.peers.live_peer import LivePeer
from wirelake.peers.server import Server
from wirelake.protocols.dialects import dialect
from wirelake.protocols.emp.events import (
    DataReceived,
    Ended,
    Noticed,
    Opened,
    RequestExpired,
    RequestReceived,
    ResponseReceived,
)
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import DEFAULT_PORT, MessageType, OtherExtension
from wirelake.protocols.emp.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.transports.address import parse
from wirelake.transports.stream import Stream
from wirelake.transports.tls import client_context

__all__ = ["DEFAULT_LIVE", "Live", "Peer", "RequestHandler", "ServerLimits", "connect", "serve"]

log = logging.getLogger("wirelake.emp")

RequestHandler = Callable[["Peer", RequestReceived], bytes | Awaitable[bytes]]
"""Answers a request; a plain function for quick work, a coroutine function for slow."""
DataHandler = Callable[["Peer", DataReceived], Awaitable[None] | None]
FailureHandler = Callable[[RequestReceived, Exception], bytes]


@dataclass(frozen=True)
class Live:
    """What a peer may be told beyond its session's options; every limit has its name here. Times are seconds."""

    session: Options = DEFAULT_OPTIONS
    on_request: RequestHandler | None = None
    on_data: DataHandler | None = None
    """Without it, what arrives waits to be read with `async for`."""
    on_failure: FailureHandler | None = None
    """EMP-19: makes the answer when `on_request` raised; without it the session ends with error 0."""
    max_in_flight: int = 1024
    """Messages of the peer being worked on; above that nothing more is read."""
    max_inbox: int = 1024
    """Messages waiting to be read; above that nothing more is read, also no answer to a request of ours."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of messages that wait or are worked on; above that nothing more is read."""
    max_unsent: int = 16 * 1024 * 1024
    """Bytes the peer asked for and does not read; above that nothing more is read."""
    linger: float = 1.0
    """EMP-33, EMP-34: how long to wait for the peer to close after our last word."""
    stall_timeout: float = 60.0
    """How long a peer may read nothing while we have something for it."""
    recorder: Recorder | None = None


DEFAULT_LIVE: Final = Live()


class Peer(LivePeer[Session, int, Ended, Fault]):
    """One end of a live conversation; it opens with the version of the peer."""

    def __init__(self, speaker: Speaker, stream: Stream, live: Live = DEFAULT_LIVE) -> None:
        options = live.session
        if live.on_request is None and options.answers_requests:
            options = msgspec.structs.replace(options, answers_requests=False)  # EMP-19
        session = Session(speaker, options)
        spoken = lambda: dialect(session.options.limits)  # noqa: E731 - `auto` is known only after the peer's hello
        super().__init__("emp", session, stream, live, is_client=speaker is Speaker.CLIENT, dialect=spoken)
        self.speaker = speaker
        self.live = live
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._inbox: deque[DataReceived] = deque()
        self._inbox_changed = asyncio.Event()
        self._handlers = {
            Opened: self._on_opened,
            DataReceived: self._on_data,
            RequestReceived: self._on_request,
            ResponseReceived: self._on_response,
            RequestExpired: self._on_expired,
            Noticed: self._on_noticed,
            Ended: self._on_ended,
        }

    # For the user.

    async def request(
        self,
        body: bytes,
        *,
        timeout: float | None = None,
        compress: bool = False,
        type_id: int = MessageType.DATA,
        extensions: tuple[OtherExtension, ...] = (),
    ) -> bytes:
        """Ask, and wait for the answer. Raises RequestTimeout, or what ended the session; cancelling gives the request up."""
        asked = self._loop.time()
        if self._driver.busy:
            await self._room(self.live.session.request_timeout if timeout is None else timeout)
        self._require_going()
        request_id = self._session.request(body, asked, timeout=timeout, compress=compress, type_id=type_id, extensions=extensions)
        self._driver.wake(len(body))
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answers[request_id] = answer
        try:
            return await answer
        except asyncio.CancelledError:
            if self._answers.pop(request_id, None) is not None:
                self._session.abandon(request_id)
            raise

    async def send(
        self, body: bytes, *, compress: bool = False, type_id: int = MessageType.DATA, extensions: tuple[OtherExtension, ...] = ()
    ) -> None:
        """Send a message nobody answers; waits while the peer reads too slowly, and raises if the session ends meanwhile."""
        self._require_going()
        self._session.send(body, compress=compress, type_id=type_id, extensions=extensions)
        self._driver.wake(len(body))
        if self._driver.busy:
            await self._driver.ready()
            self._require_going()

    def __aiter__(self) -> AsyncIterator[DataReceived]:
        """What arrives that is no answer, until the peer says bye; raises if the session ends in any other way."""
        return self

    async def __anext__(self) -> DataReceived:
        """The next message that is no answer."""
        while not self._inbox:
            if (ended := self._session.ended) is not None:
                if ended.fault is not None or ended.error is not None:
                    raise ended.reason()
                raise StopAsyncIteration
            self._inbox_changed.clear()
            await self._inbox_changed.wait()
        message = self._inbox.popleft()
        self._work.taken(len(message.body))
        return message

    def fail(self, fault: Fault, detail: str = "") -> None:
        """End the session with the error this fault is answered with."""
        self._session.fail(fault, detail)
        self._driver.wake()

    # Inside.

    def _on_opened(self, event: Opened) -> None:
        if not self._opened.done():
            self._opened.set_result(event.version)

    def _on_response(self, event: ResponseReceived) -> None:
        answer = self._answers.pop(event.request_id, None)
        if answer is not None and not answer.done():
            answer.set_result(event.body)

    def _on_expired(self, event: RequestExpired) -> None:
        answer = self._answers.pop(event.request_id, None)
        if answer is not None and not answer.done():
            answer.set_exception(RequestTimeout(f"no answer to request {event.request_id} in time"))

    def _on_noticed(self, event: Noticed) -> None:
        self._tolerate(event.fault)

    def _on_ended(self, event: Ended) -> None:
        self._end(event, self._answers.values())
        self._answers.clear()
        self._inbox_changed.set()

    def _on_data(self, event: DataReceived) -> None:
        if self.live.on_data is None:
            self._inbox.append(event)
            self._inbox_changed.set()
            self._work.put(len(event.body))
        else:
            self._work.attend(self._attend(event), len(event.body))

    def _on_request(self, request: RequestReceived) -> None:
        if self.live.on_request is None:  # the session ended it already
            return
        try:
            answer = self.live.on_request(self, request)
        except Exception as reason:
            self._failed(request, reason)
            return
        if inspect.isawaitable(answer):
            self._work.answer(self._answer(request, answer), len(request.body))
        else:
            self._respond(request, answer)

    async def _attend(self, event: DataReceived) -> None:
        try:
            result = self.live.on_data(self, event) if self.live.on_data else None
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("on_data failed for a message from %s", self.stream.remote)
            self.fail(Fault.HANDLER_FAILED, "on_data")

    async def _answer(self, request: RequestReceived, answer: Awaitable[bytes]) -> None:
        try:
            body = await answer
        except asyncio.CancelledError:
            if self._session.ended is not None:
                raise
            self._failed(request, RuntimeError("the handler was cancelled"))  # by itself: the peer still waits
        except Exception as reason:
            self._failed(request, reason)
        else:
            self._respond(request, body)
            await self._driver.ready()

    def _failed(self, request: RequestReceived, reason: Exception) -> None:
        log.warning("request %d from %s failed: %r", request.request_id, self.stream.remote, reason)
        if self.live.on_failure is None:
            self.fail(Fault.HANDLER_FAILED, f"request {request.request_id}")
            return
        try:
            body = self.live.on_failure(request, reason)
        except Exception:
            log.exception("on_failure failed for request %d from %s", request.request_id, self.stream.remote)
            self.fail(Fault.HANDLER_FAILED, f"request {request.request_id}")
        else:
            self._respond(request, body)

    def _respond(self, request: RequestReceived, body: bytes) -> None:
        if self._session.ended is None:
            try:
                self._session.respond(request.request_id, body, type_id=request.type_id)
            except (WirelakeError, TypeError) as reason:  # for instance an answer over the size limit, or one that is no bytes
                log.warning("request %d from %s cannot be answered: %s", request.request_id, self.stream.remote, reason)
                self.fail(Fault.HANDLER_FAILED, f"request {request.request_id}: {reason}")
            else:
                self._driver.wake(len(body))


def connect(
    address: str,
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    reconnect: Backoff | None = None,
    connect_timeout: float = 10.0,
) -> Client[Peer]:
    """A client of the server at `tcp://host:port` or `tls://host:port`; use it with `async with`."""
    target = parse(address, DEFAULT_PORT)
    if tls is not None and target.scheme != "tls":
        raise UsageError(f"{target}: a TLS context belongs to tls://")
    context = (tls or client_context()) if target.scheme == "tls" else None
    return Client(
        target, lambda stream: Peer(Speaker.CLIENT, stream, live), tls=context, reconnect=reconnect, connect_timeout=connect_timeout
    )


def serve(
    address: str,
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    on_request: RequestHandler | None = None,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
) -> Server[Peer]:
    """A server at `tcp://host:port` or `tls://host:port` (port 0: any that is free); use it with `async with`."""
    target = parse(address, DEFAULT_PORT)
    if (target.scheme == "tls") != (tls is not None):
        raise UsageError(f"{target}: give a TLS context with tls:// and none with tcp://")
    if on_request is not None:
        live = replace(live, on_request=on_request)
    return Server(target, lambda stream: Peer(Speaker.SERVER, stream, live), tls=tls, limits=limits)
