"""Incoming requests of a YAMP peer: handlers, their progress, failure and cancellation.

Handlers are called in order; slow ones run concurrently.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from wirelake.errors import RequestCancelled, RequestFailed, WirelakeError
from wirelake.peers.driver import Driver
from wirelake.peers.notices import NOTICE
from wirelake.peers.workload import Workload, is_awaitable
from wirelake.peers.yamp.service import Call
from wirelake.protocols.weight import weigh
from wirelake.protocols.yamp.events import CancelReceived, Noticed, RequestReceived
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.session import Session

if TYPE_CHECKING:
    from wirelake.peers.yamp.peer import Peer

__all__ = ["IncomingRequests"]

log = logging.getLogger("wirelake.yamp")


class IncomingRequests:
    """The requests of one peer."""

    def __init__(self, peer: Peer, session: Session, driver: Driver, work: Workload) -> None:
        self._peer = peer
        self._session = session
        self._driver = driver
        self._work = work
        self._calls: dict[bytes, Call] = {}

    def take(self, event: RequestReceived) -> None:
        """The peer asks."""
        answerer = self._peer.service.answerer(event.uri)
        if answerer is None:  # YAMP-38
            log.log(NOTICE, "request from %s for unknown uri %r", self._peer.stream.remote, event.uri)
            self._session.respond_failure(event.uid, f"unknown uri {event.uri!r}")
            return
        try:
            call = Call(self._peer, event.uid, event.uri, answerer.fit(event.body), event.progressive, self._report)
        except msgspec.ValidationError as reason:  # YAMP-44
            self._peer.notice(Noticed(Fault.BODY_UNDECODABLE, f"request {event.uri!r}: {reason}"))
            self._session.respond_failure(event.uid, f"the body does not fit: {reason}")
            return
        try:
            if self._peer.options.on_request is not None:
                self._peer.options.on_request(self._peer, call)
            answer = answerer.handle(self._peer, call)
        except Exception as reason:
            self._failed(call, reason)
            return
        if is_awaitable(answer):
            self._calls[event.uid] = call
            call.ticket = self._work.answer(partial(self._answer, call), answer, event.memory or weigh(event.body, event.size))
        else:
            self._finish(call, self._session.respond, answer)

    async def _answer(self, call: Call, answer: Awaitable[Any]) -> None:
        call.task = asyncio.current_task()
        try:
            if call.cancelled:  # before it began
                raise asyncio.CancelledError
            body = await answer
        except asyncio.CancelledError:
            if self._session.ended is not None or call.killed:
                raise
            if call.cancelled:
                self._session.respond_cancelled(call.uid)
                self._driver.wake()
            else:
                self._failed(call, RuntimeError("the handler was cancelled"))  # by itself: the peer still waits
        except Exception as reason:
            self._failed(call, reason)
        else:
            self._finish(call, self._session.respond, body)
            del body  # it is output now, and waits there for the peer
            await self._driver.ready()
        finally:
            self._calls.pop(call.uid, None)
            if inspect.iscoroutine(answer):
                answer.close()  # if it never began

    def cancel(self, event: CancelReceived) -> None:
        """YAMP-33, YAMP-34: a handler at work learns of it as of any cancellation. One that waits for its turn never begins.

        One that has done its work answers.
        """
        if (call := self._calls.get(event.request_uid)) is not None:
            call.cancelled = True
            call.killed |= event.kill
            if call.task is not None:
                call.task.cancel()
            elif call.ticket and self._work.withdraw(call.ticket):
                del self._calls[call.uid]
                if not call.killed:
                    self._session.respond_cancelled(call.uid)
                    self._driver.wake()

    def _failed(self, call: Call, reason: Exception) -> None:
        """YAMP-40: what a handler raised, as an answer."""
        if isinstance(reason, RequestFailed):
            self._finish(call, self._session.respond_error, reason.body)
            return
        if isinstance(reason, RequestCancelled):
            self._finish(call, self._session.respond_cancelled)
            return
        log.warning("request %r from %s failed: %r", call.uri, self._peer.stream.remote, reason)
        if self._peer.options.on_failure is None:
            self._finish(call, self._session.respond_failure, "the request failed")
            return
        try:
            body = self._peer.options.on_failure(self._peer, call, reason)
        except Exception:
            log.exception("on_failure failed for request %r from %s", call.uri, self._peer.stream.remote)
            self._finish(call, self._session.respond_failure, "the request failed")
        else:
            self._finish(call, self._session.respond_error, body)

    def _finish(self, call: Call, answer: Callable[..., None], *body: Any) -> None:
        """Answer if the request is still open; an answer that cannot be sent becomes an error."""
        if self._session.ended is not None or not self._session.is_serving(call.uid):
            return
        try:
            answer(call.uid, *body)
        except WirelakeError as reason:  # for instance a body that the serializer refuses, or one over the size limit
            log.warning("request %r from %s cannot be answered: %s", call.uri, self._peer.stream.remote, reason)
            self._session.respond_failure(call.uid, "the answer cannot be sent")
        self._driver.wake(self._session.last_size)

    async def _report(self, call: Call, body: Any) -> bool:
        if self._session.ended is not None or not self._session.is_serving(call.uid):
            return False
        told = self._session.report(call.uid, body)
        if told:
            self._driver.wake(self._session.last_size)
            await self._driver.ready()
        return told
