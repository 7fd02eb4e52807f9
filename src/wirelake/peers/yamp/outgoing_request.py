"""A request in flight: progress as an asynchronous iterator, outcome, and cancellation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import msgspec

from wirelake.errors import RemoteProtocolError, RequestCancelled, RequestFailed, RequestTimeout, WirelakeError
from wirelake.protocols.yamp.events import ResponseReceived
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import ResponseType

__all__ = ["OutgoingRequest"]


class OutgoingRequest:
    """`async for step in ask`, then `await ask.answer()`.

    Leaving `async with ask` before that kills the request.
    """

    __slots__ = ("_cancel", "_changed", "_discards", "_of", "_read", "_steps", "outcome", "uid", "uri")

    def __init__(
        self,
        uid: bytes,
        uri: str,
        outcome: asyncio.Future[Any],
        of: Any,
        cancel: Callable[[OutgoingRequest, bool], bool],
        read: Callable[[int], None],
    ) -> None:
        self.uid = uid
        self.uri = uri
        self.outcome = outcome
        self._of = of
        self._cancel = cancel
        self._read = read
        self._steps: deque[tuple[Any, int]] = deque()
        self._changed: asyncio.Event | None = None
        self._discards = False

    # For the user.

    async def answer(self) -> Any:
        """The answer of the peer; unread steps are discarded. Raises as `Peer.request` does."""
        self._discards = True
        self._discard()
        return await asyncio.shield(self.outcome)

    def cancel(self) -> bool:
        """YAMP-33: ask the peer to stop gracefully; what comes of it is the answer.

        False if there is one already.
        """
        return self._cancel(self, False)

    def kill(self) -> bool:
        """YAMP-34: kill the request at the peer; here it ends at once. False if it had ended."""
        return self._cancel(self, True)

    def __aiter__(self) -> AsyncIterator[Any]:
        """The steps, until there is an outcome; raises it if it is an error."""
        return self

    async def __anext__(self) -> Any:
        """The next step; for one reader at a time."""
        if self._changed is None:
            self._changed = asyncio.Event()
            self.outcome.add_done_callback(lambda _: self._wake())
        while not self._steps:
            if self.outcome.done():
                self.outcome.result()
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        body, size = self._steps.popleft()
        self._read(size)
        return body

    async def __aenter__(self) -> OutgoingRequest:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        self._discards = True
        self._discard()

    # For the peer.

    def step(self, body: Any, size: int) -> bool:
        """Add a step; false if nothing will read it."""
        if self._discards or self.outcome.done():
            return False
        self._steps.append((body, size))
        self._wake()
        return True

    def resolve(self, response: ResponseReceived) -> None:
        """The outcome came."""
        if self.outcome.done():
            return
        if response.response_type == ResponseType.DONE:
            try:
                self.outcome.set_result(response.body if self._of is None else msgspec.convert(response.body, self._of))
            except msgspec.ValidationError as reason:  # YAMP-44
                self.fail(RemoteProtocolError(Fault.BODY_UNDECODABLE, f"answer to {self.uri!r}: {reason}"))
        elif response.response_type == ResponseType.ERROR:
            self.fail(RequestFailed(response.body, f"{self.uri!r} failed: {response.body!r}"))
        else:
            self.fail(RequestCancelled(f"{self.uri!r} was cancelled"))

    def expire(self) -> None:
        """YAMP-41: nothing came in time."""
        self.fail(RequestTimeout(f"no answer to {self.uri!r} in time"))

    def fail(self, reason: WirelakeError) -> None:
        """There will be no other outcome than this."""
        if not self.outcome.done():
            self.outcome.set_exception(reason)
            self.outcome.exception()  # retrieved, so that asyncio does not warn if no task awaits it

    # Inside.

    def _discard(self) -> None:
        while self._steps:
            self._read(self._steps.popleft()[1])

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
