"""Incoming calls of a wolpertinger peer: started in order, slow ones run concurrently."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from wirelake.errors import RequestFailed, WirelakeError
from wirelake.peers.driver import Driver
from wirelake.peers.notices import NOTICE
from wirelake.peers.wolpertinger.components import Declared, Misfit, Offer, methods_of
from wirelake.peers.workload import Workload, is_awaitable
from wirelake.protocols.weight import weigh
from wirelake.protocols.wolpertinger.events import CallReceived
from wirelake.protocols.wolpertinger.layer2.calls import ErrorCode
from wirelake.protocols.wolpertinger.session import Session

if TYPE_CHECKING:
    from wirelake.peers.wolpertinger.peer import Peer

__all__ = ["ComponentInstance", "IncomingCalls"]

_CODES: Final = frozenset(ErrorCode)

log = logging.getLogger("wirelake.wolpertinger")


class ComponentInstance:
    """A component of one connection: its instance, made when it is first called, and its methods."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self.instance: object = None
        """WOLP-20: the one of this connection."""
        self.methods: Mapping[str, Declared] = methods_of(offer.of)
        """What is known of each method."""

    def make(self, peer: Peer) -> object:
        """Make the instance."""
        self.instance = self._offer.of() if self._offer.make is None else self._offer.make(peer)
        return self.instance


class IncomingCalls:
    """The calls of one peer."""

    def __init__(self, peer: Peer, session: Session, driver: Driver, work: Workload, offers: tuple[Offer, ...]) -> None:
        self._peer = peer
        self._session = session
        self._driver = driver
        self._work = work
        self._on_call = peer.options.on_call
        self._instances = {offer.called: ComponentInstance(offer) for offer in offers}

    def take(self, event: CallReceived) -> None:
        """The peer calls; the session has found the method and judged its trust (WOLP-20)."""
        component = self._instances[event.component]
        declared = component.methods[event.method]
        try:
            parameters = declared.fit(event.parameters)
        except Misfit as reason:
            log.log(NOTICE, "call of %s.%s from %s refused: %s", event.component, event.method, self._peer.stream.remote, reason)
            self._fail(event, ErrorCode.INVALID_PARAMETERS)
            return
        try:
            if self._on_call is not None:
                self._on_call(self._peer, f"{event.component}.{event.method}", event.parameters)
            if (instance := component.instance) is None:
                instance = component.make(self._peer)
            answer = getattr(instance, declared.attribute)(*parameters)
        except Exception as reason:
            self._failed(event, reason)
            return
        if is_awaitable(answer):
            self._work.answer(partial(self._answer, event, declared), answer, weigh(event.parameters, event.size))
        else:
            self._respond(event, declared, answer)

    async def _answer(self, event: CallReceived, declared: Declared, answer: Awaitable[Any]) -> None:
        try:
            value = await answer
        except asyncio.CancelledError:
            if asyncio.current_task() is not None and asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            self._failed(event, RuntimeError("the method was cancelled"))  # by itself: the peer still waits
        except Exception as reason:
            self._failed(event, reason)
        else:
            self._respond(event, declared, value)
            del value  # it is output now, and waits there for the peer
            await self._driver.ready()
        finally:
            if inspect.iscoroutine(answer):
                answer.close()  # if it never began

    def _respond(self, event: CallReceived, declared: Declared, value: Any) -> None:
        if self._session.ended is not None:
            return
        if not event.returns:
            self._session.done(event.call_id)
            return
        try:
            self._session.respond(event.call_id, declared.answer(value), self._driver.now)
        except WirelakeError as reason:  # for instance a value that no data type can carry
            log.warning("%s.%s from %s cannot be answered: %s", event.component, event.method, self._peer.stream.remote, reason)
            self._fail(event, ErrorCode.UNSPECIFIED)
        else:
            self._driver.wake()

    def _failed(self, event: CallReceived, reason: Exception) -> None:
        """WOLP-20: what a method raised, as an answer: RequestFailed with a code, or anything else as 100."""
        if isinstance(reason, RequestFailed) and isinstance(reason.body, int) and reason.body in _CODES:  # WOLP-15: no others are sent
            self._fail(event, reason.body)
            return
        log.warning("%s.%s from %s failed: %r", event.component, event.method, self._peer.stream.remote, reason)
        self._fail(event, ErrorCode.UNSPECIFIED)

    def _fail(self, event: CallReceived, code: int) -> None:
        if self._session.ended is None:
            self._session.fail(event.call_id, code, self._driver.now)
            self._driver.wake()
