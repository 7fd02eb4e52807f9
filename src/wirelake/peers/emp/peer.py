"""A live EMP peer: a session on a stream, with handlers for what the other side sends."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import cast

import msgspec

from wirelake.errors import RequestTimeout, WirelakeError
from wirelake.peers.emp.options import Options
from wirelake.peers.live_peer import LivePeer
from wirelake.peers.workload import is_awaitable
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
from wirelake.protocols.emp.messages import MessageType, OtherExtension
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.transports.stream import Stream

__all__ = ["Peer"]

log = logging.getLogger("wirelake.emp")


class Peer(LivePeer[Session, int, Ended, Fault]):
    """One side of a connection; `opened` gives the version of the peer."""

    def __init__(self, speaker: Speaker, stream: Stream, options: Options | None = None) -> None:
        options = options or Options()
        if options.on_request is None and options.answers_requests:
            options = msgspec.structs.replace(options, answers_requests=False)  # EMP-19
        session = Session(speaker, options)
        dialect_flags = lambda: dialect(session.options.limits)  # noqa: E731 - `auto` is known only after the peer's hello
        is_client, rate = speaker is Speaker.CLIENT, options.max_inflated_rate
        super().__init__("emp", session, stream, options, is_client=is_client, dialect=dialect_flags, inflated_rate=rate)
        self.speaker = speaker
        self.options = options
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
        self._driver.handlers = self._handlers
        self._note_progress((DataReceived, RequestReceived, ResponseReceived))

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
        """Send a request and wait for the answer.

        Raises RequestTimeout, or the error that ended the session. Cancelling abandons the request.
        """
        began, session, driver = self._loop.time(), self._session, self._driver
        if timeout is None:
            timeout = self.options.request_timeout
        if driver.busy:
            await self._wait_for_capacity(timeout)
        if session.ended is not None:
            raise self._reason()
        request_id = session.request(body, began, timeout=timeout, compress=compress, type_id=type_id, extensions=extensions)
        driver.note_request(began)
        driver.post(len(body), None if timeout is None else began + timeout)
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
        """Send a message without an answer.

        Waits while the peer reads too slowly, and raises if the session ends meanwhile.
        """
        session, driver = self._session, self._driver
        if session.ended is not None:
            raise self._reason()
        session.send(body, compress=compress, type_id=type_id, extensions=extensions)
        driver.wake(len(body))
        if driver.busy:
            await driver.ready()
            self._require_going()

    def __aiter__(self) -> AsyncIterator[DataReceived]:
        """Messages that are no answers, until the peer says bye; raises if the session ends in any other way."""
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
        self._driver.note_timeout()

    def _on_noticed(self, event: Noticed) -> None:
        self._tolerate(event.fault)

    def _on_ended(self, event: Ended) -> None:
        self._end(event, self._answers.values())
        self._answers.clear()
        self._inbox_changed.set()

    def _on_data(self, event: DataReceived) -> None:
        on_data = self.options.on_data
        if on_data is None:
            self._inbox.append(event)
            self._inbox_changed.set()
            self._work.put(len(event.body))
            return
        try:
            result = on_data(self, event)
        except Exception:
            self._data_failed()
            return
        if result is not None and is_awaitable(result):
            self._work.attend(self._attend(result), len(event.body))

    def _on_request(self, request: RequestReceived) -> None:
        if self.options.on_request is None:  # the session ended it already
            return
        try:
            answer = self.options.on_request(self, request)
        except Exception as reason:
            self._failed(request, reason)
            return
        if type(answer) is bytes:  # by far the commonest
            self._respond(request, answer)
        elif is_awaitable(answer):
            self._work.answer(self._answer(request, answer), len(request.body))
        else:
            self._respond(request, cast(bytes, answer))

    async def _attend(self, result: Awaitable[None]) -> None:
        try:
            await result
        except Exception:
            self._data_failed()

    def _data_failed(self) -> None:
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
        if self.options.on_failure is None:
            self.fail(Fault.HANDLER_FAILED, f"request {request.request_id}")
            return
        try:
            body = self.options.on_failure(self, request, reason)
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
