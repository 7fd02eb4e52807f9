"""Outgoing calls of a wolpertinger peer: their limit, outcomes, and errors."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from wirelake.errors import DeliveryFailed, RemoteProtocolError, RequestCancelled, RequestFailed, RequestTimeout, WirelakeError
from wirelake.peers.driver import Driver
from wirelake.protocols.wolpertinger.events import CallDone, CallFailed, CallReturned, Failure
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import error_name
from wirelake.protocols.wolpertinger.layer2.values import native
from wirelake.protocols.wolpertinger.session import Session

__all__ = ["OutgoingCalls"]


class OutgoingCalls:
    """The calls of one peer."""

    def __init__(self, session: Session, driver: Driver, most: int) -> None:
        self._session = session
        self._driver = driver
        self._free = most
        """Calls that may still begin; an `asyncio.Semaphore` takes longer to say so."""
        self._queue: deque[asyncio.Future[None]] = deque()
        """Callers that wait for their turn, in order."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[str, str, asyncio.Future[Any]]] = {}

    async def call(
        self, component: str, name: str, parameters: Sequence[Any], *, returns: bool = True, timeout: float | None = None
    ) -> Any:
        """Call, and wait for what becomes of it; cancelling gives it up."""
        if self._free:
            self._free -= 1
        else:
            await self._wait_for_turn()
        session, driver = self._session, self._driver
        try:
            if driver.busy:
                await driver.ready()
            if session.ended is not None:
                raise session.ended.reason()
            now = self._loop.time()
            call_id = session.call(component, name, parameters, now, returns=returns, timeout=timeout)
            driver.note_request(now)
            outcome: asyncio.Future[Any] = self._loop.create_future()
            self._waiting[call_id] = component, name, outcome
            driver.wake()
            try:
                return native(await outcome)
            except asyncio.CancelledError:
                self._waiting.pop(call_id, None)
                session.cancel(call_id)
                raise
        finally:
            if self._queue:
                self._pass_on()
            else:
                self._free += 1

    async def _wait_for_turn(self) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has its turn already
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the place of a call to the caller that waits longest."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def returned(self, event: CallReturned) -> None:
        """A RemoteMethodResponse."""
        if (found := self._waiting.pop(event.call_id, None)) is not None and not found[2].done():
            found[2].set_result(event.value)

    def done(self, event: CallDone) -> None:
        """A call without a response was delivered."""
        if (found := self._waiting.pop(event.call_id, None)) is not None and not found[2].done():
            found[2].set_result(None)

    def failed(self, event: CallFailed) -> None:
        """There will be no other outcome than this."""
        found = self._waiting.pop(event.call_id, None)
        if found is not None and not found[2].done():
            component, method, outcome = found
            name = f"{component}.{method}"
            outcome.set_exception(
                self._session.ended.reason() if event.why is Failure.ENDED and self._session.ended else _ENDINGS[event.why](name, event)
            )
            outcome.exception()  # retrieved, so that asyncio does not warn if no task awaits it
        if event.why in (Failure.TIMEOUT, Failure.UNDELIVERED):
            self._driver.note_timeout()


def _error(name: str, event: CallFailed) -> WirelakeError:
    code = event.code or 0
    return RequestFailed(code, f"{name} failed with error {code} ({error_name(code) or 'unknown'})")


_ENDINGS: Final[dict[Failure, Callable[[str, CallFailed], WirelakeError]]] = {
    Failure.ERROR: _error,
    Failure.TIMEOUT: lambda name, _: RequestTimeout(f"no response to {name} in time"),
    Failure.REFUSED: lambda name, event: DeliveryFailed(event.code, f"{name} was refused with result {event.code}: {event.text}"),
    Failure.UNDELIVERED: lambda name, event: DeliveryFailed(event.code, f"{name} was not delivered: the peer confirms nothing"),
    Failure.UNREADABLE: lambda name, _: RemoteProtocolError(Fault.ANSWER_WRONG, f"the response to {name} cannot be read"),
    Failure.RESET: lambda name, _: RequestCancelled(f"the connection was reset before {name} was answered"),
}
