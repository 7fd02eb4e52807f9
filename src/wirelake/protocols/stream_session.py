"""The base of sessions of all stream protocols: frames, output, events, open requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from wirelake.protocols.buffer import LARGE, Buffer, Frames

__all__ = ["StreamSession"]

EventT = TypeVar("EventT")
Incoming = tuple[bytes, list[int], list[int]]
"""Bytes, the row of a frame in them, and the parts of its batch."""


def _nothing() -> None:
    """Do nothing: a job that only lets others have their turn."""


class StreamSession(Generic[EventT]):
    """Base class of the sessions of stream protocols.

    Subclasses set the attributes that start with an underscore.
    """

    _buffer: Buffer
    ended: Any
    """None, or how the session ended."""
    _output: list[bytes]
    """Frames to send."""
    _events: list[EventT]
    _requests: Sized = ()
    """Requests of this side without an answer."""
    _peer_requests: Sized = ()
    """Requests of the peer without an answer."""
    _inflated = 0
    """Bytes that decompressing made so far."""
    job: Callable[[], Any] | None = None
    """See Drivable."""
    inflated_a_turn: float = math.inf
    """See Drivable."""
    _incoming: Iterator[Incoming] = iter(())
    """Frames that arrived together with one that left a `job`."""
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
    def held(self) -> int:
        """How many bytes `rest` has."""
        return self._buffer.size

    @property
    def inflated(self) -> int:
        """See Drivable."""
        return self._inflated

    @property
    def walked(self) -> int:
        """Bytes of the last `receive` that would take less time with a compiled scanner."""
        return self._buffer.walked

    def compile(self) -> None:
        """Compile the scanner of what is received: see `Buffer.compile`."""
        self._buffer.compile()

    def finish(self, outcome: Any, now: float) -> None:
        """Take the outcome of `job`, and go on with what arrived together with its frame; see Drivable."""
        self.job = None
        if self.ended is not None:
            return
        self._take_outcome(outcome)
        enough = self.inflated + self.inflated_a_turn
        for taken, row, parts in self._incoming:
            if self.ended is not None:
                return
            self._take_row(taken, row, parts, now)
            self._pause_above(enough)
            if self.job is not None:
                return

    def release(self) -> None:
        """Free memory: the session is over, and nothing more will be received."""
        self._incoming, self.job = iter(()), None
        self._buffer.clear()

    def _take_outcome(self, outcome: Any) -> None:
        """Take what a job of this session returned."""

    def _take_row(self, data: bytes, row: list[int], parts: list[int], now: float) -> None:
        """Take one frame of the peer."""

    def _pause_above(self, enough: float) -> None:
        """Leave the rest to another turn of the owner if so much was decompressed in this one."""
        if self.job is None and self.inflated > enough:
            self.job = _nothing

    def _defer(self, data: bytes, rows: Iterator[list[int]], parts: list[int], batches: Iterator[Frames]) -> None:
        """Keep the frames of a receipt that come after one that left a job."""
        buffer = self._buffer
        inner, buffer.take_run, buffer.bulk = (buffer.take_run, buffer.bulk), None, None  # they would overtake
        incoming = [(data, row, parts) for row in rows]
        incoming += [(taken, row, others) for taken, further, others in batches for row in further]
        buffer.take_run, buffer.bulk = inner
        self._incoming = iter(incoming)

    def _join(self, frames: Sequence[bytes]) -> bytes:
        """Join frames to one piece to send."""
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.sent_sizes = [len(frame) for frame in frames] if len(data) > LARGE else ()
        return data
