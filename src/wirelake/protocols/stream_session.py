"""The base of sessions of all stream protocols: frames, output, events, open requests."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Generic, TypeVar

from wirelake.protocols.buffer import LARGE, Buffer

__all__ = ["StreamSession"]

EventT = TypeVar("EventT")


class StreamSession(Generic[EventT]):
    """Base class of the sessions of stream protocols.

    Subclasses set the attributes that start with an underscore.
    """

    _buffer: Buffer
    _output: list[bytes]
    """Frames to send."""
    _events: list[EventT]
    _requests: Sized = ()
    """Requests of this side without an answer."""
    _peer_requests: Sized = ()
    """Requests of the peer without an answer."""
    sent_sizes: Sequence[int] = ()
    """How long the frames of the last `output` are, if it was large."""

    def output(self) -> bytes:
        """Take the bytes to send now."""
        output = self._output
        if not output:
            return b""
        data = self._join(output) if len(output) > 1 or self.sent_sizes or len(output[0]) > LARGE else output[0]
        output.clear()
        return data

    def events(self) -> list[EventT]:
        """Take the events since the last call."""
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    @property
    def pending(self) -> int:
        """Requests of this side without an answer."""
        return len(self._requests)

    @property
    def serving(self) -> int:
        """Requests of the peer without an answer."""
        return len(self._peer_requests)

    @property
    def frames(self) -> bytes:
        """The whole frames that the last `receive` took; `rest` is the incomplete one behind them."""
        return self._buffer.taken

    @property
    def frame_sizes(self) -> Sequence[int]:
        """How long each of `frames` is, if they are large together."""
        return self._buffer.sizes()

    @property
    def rest(self) -> bytes:
        """Bytes received that are no whole frame."""
        return self._buffer.rest

    @property
    def unfinished(self) -> int:
        """Bytes of memory that only further input frees, about."""
        return self._buffer.memory

    @property
    def retained(self) -> int:
        """Bytes of memory that are kept until the peer confirms something, about."""
        return 0

    def forget_taken(self) -> None:
        """Free the whole frames of the last `receive`: `frames` is empty then."""
        self._buffer.forget_taken()

    @property
    def walked(self) -> int:
        """Bytes of the last `receive` that would take less time with a compiled scanner."""
        return self._buffer.walked

    def compile(self) -> None:
        """Compile the scanner of what is received: see `Buffer.compile`."""
        self._buffer.compile()

    def release(self) -> None:
        """Free memory: the session is over, and nothing more will be received."""
        self._buffer.clear()

    def _join(self, frames: Sequence[bytes]) -> bytes:
        """Join frames to one piece to send."""
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.sent_sizes = [len(frame) for frame in frames] if len(data) > LARGE else ()
        return data
