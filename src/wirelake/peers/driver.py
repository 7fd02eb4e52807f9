"""One loop drives any session over any stream: bytes and time in, bytes and events out, flush, timers, back-pressure and the end.

It refuses to know protocols: a session says what to send, when to wake it, and when it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from wirelake.capture.recording import Connection
from wirelake.transports.stream import Stream

__all__ = ["Drivable", "Driver"]

FLUSH_POLL: Final = 0.01
"""Seconds between two looks at what is still unsent when a connection is being closed."""


class Drivable(Protocol):
    """What a session offers, whatever the protocol."""

    ended: Any

    @property
    def deadline(self) -> float | None: ...
    @property
    def frames(self) -> bytes: ...
    @property
    def rest(self) -> bytes: ...
    def start(self, now: float) -> None: ...
    def receive(self, data: bytes, now: float) -> None: ...
    def receive_eof(self, now: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def output(self) -> bytes: ...
    def events(self) -> list[Any]: ...
    def pause(self) -> None: ...
    def resume(self, now: float) -> None: ...


class Driver:
    """A session at work on a stream. Call `wake` after telling the session something."""

    def __init__(
        self,
        session: Drivable,
        stream: Stream,
        handle: Callable[[Any], None],
        *,
        linger: float,
        stall_timeout: float,
        record: Connection | None = None,
    ) -> None:
        self._session = session
        self._stream = stream
        self._handle = handle
        self._linger = linger
        self._stall_timeout = stall_timeout
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._flush_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._readable = asyncio.Event()
        self._readable.set()
        self._over = asyncio.Event()

    @property
    def now(self) -> float:
        """The time every call of the session gets."""
        return self._loop.time()

    async def run(self) -> None:
        """From the first byte to the last; returns when the stream is closed."""
        self._session.start(self.now)
        self._settle()
        reading = asyncio.ensure_future(self._read())
        ending = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, ending):
                task.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()
            await self._close()

    def wake(self) -> None:
        """The session was told something: send what it has to say, once for all that happens in this turn of the loop."""
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._settle)

    async def ready(self) -> None:
        """Back-pressure for senders: returns at once unless the peer reads too slowly."""
        if self._stream.congested:
            await self._drain()

    def hold(self) -> None:
        """Back-pressure for the peer: stop reading."""
        if self._readable.is_set():
            self._readable.clear()
            self._session.pause()

    def go_on(self) -> None:
        """Read again."""
        if not self._readable.is_set():
            self._readable.set()
            self._session.resume(self.now)
            self._arm()

    # Inside.

    async def _read(self) -> None:
        while self._session.ended is None:
            await self._readable.wait()
            try:
                data = await self._stream.receive()
            except OSError:
                data = b""
            if data:
                self._session.receive(data, self.now)
                if self._record is not None and (frames := self._session.frames):
                    self._record.received(frames)
            else:
                self._session.receive_eof(self.now)
            answered = self._settle()
            if answered and self._stream.congested:
                await self._drain()  # a peer that asks and does not listen gets no more attention

    def _settle(self) -> bool:
        """After every call: drain the output, drain the events, read the deadline again. Says whether anything was sent."""
        self._flush_planned = False
        sent = False
        while True:
            if data := self._session.output():
                sent = True
                self._stream.send(data)
                if self._record is not None:
                    self._record.sent(data)
            events = self._session.events()
            if not events:
                break
            for event in events:
                self._handle(event)
        if self._session.ended is not None:
            self._over.set()
        self._arm()
        return sent

    def _arm(self) -> None:
        deadline = None if self._session.ended is not None else self._session.deadline
        if deadline is None:
            return
        if self._timer is None or self._timer.cancelled() or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._session.tick(self.now)
        self._settle()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout):
                await self._stream.drain()
        except (OSError, TimeoutError):
            self._stream.abort()  # a peer that reads nothing for so long is gone
            self._session.receive_eof(self.now)
            self._settle()

    async def _close(self) -> None:
        """Send the last word so that it arrives: finish, discard what still comes for a moment, close."""
        if self._record is not None and (rest := self._session.rest):
            self._record.received(rest)
        try:
            await self._flush()
            self._stream.finish()
            if self._session.ended is not None and self._session.ended.here:
                async with asyncio.timeout(self._linger):
                    while data := await self._stream.receive():
                        if self._record is not None:
                            self._record.received(data)
            async with asyncio.timeout(self._linger):
                await self._stream.close()
        except (OSError, TimeoutError):
            self._stream.abort()
            with contextlib.suppress(OSError):
                await self._stream.close()

    async def _flush(self) -> None:
        """Wait until everything queued is on its way; give up when none of it moved for the stall time."""
        before, since = self._stream.unsent, self.now
        while (unsent := self._stream.unsent) and self.now - since < self._stall_timeout:
            if unsent < before:
                before, since = unsent, self.now
            await asyncio.sleep(FLUSH_POLL)
