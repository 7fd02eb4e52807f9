"""Runs any session over any stream: bytes and time in, bytes and events out.

It flushes output, keeps the timers, applies back-pressure, and closes the stream in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, cast

from wirelake.capture.record.recorder import Connection
from wirelake.peers.accountant import Account
from wirelake.peers.drivable import Drivable
from wirelake.peers.turns import SMALL, TIGHT, Turn, in_thread
from wirelake.transports.stream import FramedStream, MessageStream, PushStream, Stream
from wirelake.transports.tcp import plain

__all__ = ["Driver"]

log = logging.getLogger("wirelake.driver")

SHARE: Final = 16
"""Events handled before the output they caused is sent.

Two peers with many requests in flight then work at the same time, not in turns.
"""
FLUSH_POLL: Final = 0.01
"""Seconds between two looks at what is still unsent when a connection is being closed."""
LINGERS: Final = 10
"""Linger times that a peer has to close after our bye, so long as it sends something: it has not read so far yet."""
FIRST_BYTES: Final = 8
"""Bytes of the peer that are kept from the beginning: enough to tell what else it may speak."""
BULK: Final = 1024 * 1024
"""Bytes of large reads that were scanned plain, after which a connection has its scanner compiled, in a thread.

Compiling takes a second of CPU, so short conversations go without. So do those whose messages are read without the scanner (`buffer.Run`).
"""
LARGE_READ: Final = 64 * 1024
"""Bytes of one read that count as bulk.

While the thread compiles, the loop may wait 5 ms for the interpreter lock after each read. A peer that exchanges small messages would be
slowed down far more by that than compiling could gain.
"""
UNANSWERED: Final = 3
"""Requests in a row that timed out, after which a peer that says nothing may be given up."""
LITTLE: Final = 4096
"""Bytes given since the system was asked last that count as gone at once: to ask takes as long as to send them."""
OWNER: Final = 1
"""Nothing is read because the owner has enough."""
BUDGET: Final = 2
"""… because too much was decompressed in too little time."""
JOB: Final = 4
"""… because a thread is at work on what was read."""
INFLATED_A_TURN: Final = 256 * 1024
"""Decompressed bytes after which the rest of a receipt waits for another turn: others are served in between."""
BURST: Final = 1.0
"""Seconds of its budget that a connection may use at once."""
SLICE: Final = 64 * 1024
"""Bytes a sender may leave to the next turn of the loop; with more, it waits for that turn."""


class Driver:
    """Runs a session on a stream. Call `wake` after every call of the session."""

    def __init__(
        self,
        session: Drivable,
        stream: Stream,
        handle: Callable[[Any], None],
        *,
        account: Account,
        handle_many: Callable[[list[Any]], None] | None = None,
        linger: float,
        stall_timeout: float,
        max_unsent: int,
        record: Connection | None = None,
        messages: Callable[[], list[bytes]] | None = None,
        gather: bool = False,
        inflated_rate: float = math.inf,
    ) -> None:
        """With `messages`, what the session has to say comes from there if the stream keeps messages apart.

        With `gather`, what a receipt makes the session say waits for handlers that answer at once, or else for this turn of the loop to
        end: a protocol that confirms what it receives then says so together with what its owner answers or asks next.

        `inflated_rate` is the budget a second of what the session decompresses: beyond it, reading waits until its time has come.
        """
        self._session = session
        self._stream = stream
        self._push_stream = stream if isinstance(stream, PushStream) else None
        """The same stream, if it can call when bytes arrive."""
        self._messages = messages if isinstance(stream, MessageStream) else None
        self._framed_stream = stream if isinstance(stream, FramedStream) else None
        if self._framed_stream is not None:
            self._framed_stream.on_unfinished = self._report_unfinished
        self._handle = handle
        self._account = account
        self._handle_many = handle_many
        self.handlers: Mapping[type[Any], Callable[[Any], None]] | None = None
        """Event type -> what handles it, for owners that need no more: saves a call for each event."""
        self._linger = linger
        self._stall_timeout = stall_timeout
        self._max_unsent = max_unsent
        self._record = record
        self._gather = gather
        self._loop = asyncio.get_running_loop()
        self.flush_planned = False
        """What the session has to say is sent when this turn of the loop ends: `wake` would only count it."""
        self._is_fresh = True
        """Nothing was sent by `post` since bytes arrived, or since the last planned flush."""
        self._planned = 0
        """Bytes that were to be sent since the last flush."""
        self._pushed = 0
        """How many of them were sent before it."""
        self._is_settling = False
        """Events are being handled: their output is sent afterwards."""
        self._is_woken = False
        """`wake` was called meanwhile."""
        self._is_draining = False
        """Reading stops because the peer does not read."""
        self._turn = Turn()
        self._unhandled = b""
        """Bytes that arrived and wait for the next turn."""
        self._to_handle = 0
        """How many bytes that arrived are not handled yet: `_unhandled`, or the rest of it in the middle of a turn."""
        self._is_waiting = False
        """The last turn is over: nothing is read before the next."""
        self._is_datagram = stream.kind == "udp"
        """What arrives at once is one message, and never cut."""
        self._alarm = asyncio.Event()
        """A push stream has something that takes time: a peer that does not read, a turn that is over, or an error."""
        self._failure: Exception | None = None
        """What the session or a handler raised while a push stream called."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the timer fires; not every loop's handle can say so of a moment that has passed."""
        self._readable = asyncio.Event()
        self._readable.set()
        self._holds = 0
        """Why nothing is read: bits of `OWNER`, `BUDGET`, `JOB`."""
        self._ahead: int | None = None
        """Bytes that are still handled before nothing is read: the owner has enough."""
        self._outcome: asyncio.Future[Any] | None = None
        """Of the session's job."""
        self._inflated_rate = inflated_rate
        session.inflated_a_turn = INFLATED_A_TURN
        self._inflated = session.inflated
        """What the session had decompressed when it was asked last."""
        self._paid_until = 0.0
        """When all that was decompressed so far is within the budget."""
        self._waits: set[asyncio.Timeout] = set()
        self.trouble = ""
        """The error of TLS when it ended the connection, for instance that it wants a certificate of ours."""
        self.is_broken = False
        """The connection was reset or given up: the peer did not close it."""
        self.is_reset = False
        """The peer reset it."""
        self._is_given_up = False
        self._hurry: float | None = None
        self.since = self.active_at = self._loop.time()
        """When it began, and when bytes came or were sent last."""
        self.silence_timeout: float | None = None
        """How long nothing may come while requests time out."""
        self._is_heard = True
        """Bytes of the peer came since a request was sent."""
        self._asked_at = 0.0
        """When the first request was sent since bytes came."""
        self._unanswered = 0
        """Requests since then that timed out, in a row."""
        self._given = 0
        self._reported = 0
        """How much was given when the account got a report of what is unsent."""
        self._known_gone = 0
        """Bytes that had left the stream when it was asked last: it is asked again only if too much may be unsent."""
        self._asked = session.asked
        self._question = 0
        """How much was given to the stream up to the last question of the session."""
        self._told = 0
        """How much of that the session knows to have left."""
        self._left = 0
        """How much had left when the system was asked last."""
        self._bulk = 0
        """Bytes of large reads that were scanned plain so far."""
        self.first_bytes = b""
        """What the peer sent first, up to `FIRST_BYTES`."""

    @property
    def now(self) -> float:
        """The time every call of the session gets."""
        return self._loop.time()

    async def run(self) -> None:
        """From the first byte to the last; returns when the stream is closed."""
        if self._session.ended is None:
            self._session.start(self.now)
        self._settle()
        try:
            await self._listen()
            await self._part()
        except BaseException as reason:
            self._session.bye("cancelled" if isinstance(reason, asyncio.CancelledError) else f"broke down: {reason!r}")
            self._settle()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            try:
                await self._close()
            finally:
                self._release()

    def wake(self, size: int = 0) -> None:
        """Send the session's output, of about this size.

        The first output in a turn of the event loop is sent at once, all other output of the turn together at its end.
        """
        self._planned += size
        if self._is_settling:
            self._is_woken = True
        elif not self.flush_planned:
            self.flush_planned = True
            self._loop.call_soon(self._settle)
            if self._is_fresh:
                self._push()
        elif self._planned - self._pushed >= SLICE:  # what is not given to the stream is in no account
            planned = self._planned
            self._push()
            self._planned = self._pushed = planned

    def post(self, size: int, due: float | None) -> None:
        """`wake`, if the session only queued a message: no event came of it, and no deadline before `due`.

        Then the first message after a receipt needs no flush at the end of the turn: a request that follows a response is one write.
        """
        if not self._is_fresh or self.flush_planned or self._is_settling:
            self.wake(size)
            return
        self._is_fresh = False
        self._push()
        if due is not None and (self._timer is None or due < self._due):
            self._arm()

    @property
    def busy(self) -> bool:
        """There is enough to send already: wait with `ready`."""
        return self._planned >= SLICE or self._stream.congested

    async def ready(self) -> None:
        """Back-pressure for senders: returns soon unless the peer reads too slowly.

        It also returns when the session ends meanwhile.
        """
        if self._planned >= SLICE:
            self._settle()
            await asyncio.sleep(0)  # who only sends must let others live
        if self._stream.congested:
            await self._drain()

    def note_request(self, now: float) -> None:
        """Note that a request of ours was sent: silence counts from the first one since bytes came."""
        if self._is_heard:
            self._is_heard, self._asked_at, self._unanswered = False, now, 0

    def note_timeout(self) -> None:
        """Note that a request of ours timed out, and give the peer up if it has been silent for too long.

        A peer is not silent while we do not read, nor while our output still waits for it: see `stall_timeout`.
        """
        if self.silence_timeout is None or self._is_heard or not self._readable.is_set() or self._stream.unsent:
            return
        self._unanswered += 1
        if self._unanswered >= UNANSWERED and self.now - self._asked_at >= self.silence_timeout:
            self._give_up(f"{self._unanswered} requests in a row timed out, and nothing came for {self.now - self._asked_at:.0f} s")
            self.wake()

    def report(self) -> None:
        """Report to the account what is kept here."""
        self._report_unfinished()
        self._account.report_unsent(self._stream.unsent + self._session.retained)
        self._reported = self._given

    def free(self) -> None:
        """Free what has arrived, once the session has ended."""
        if self._record is not None and (rest := self._session.rest + self._unhandled):
            self._record.received(rest)
        self._unhandled, self._to_handle = b"", 0
        self._free_session()
        if self._framed_stream is not None:
            self._framed_stream.discard()

    def hurry(self, seconds: float) -> None:
        """Wait no longer than this for the peer to read what is left; what was recorded is written first."""
        if self._record is not None:
            self._record.flush()
        self._hurry = min(self.now + seconds, self._hurry if self._hurry is not None else float("inf"))

    def hold(self, ahead: int = 0) -> None:
        """Back-pressure for the peer: stop reading, after so many bytes more if it is asked again and again."""
        if not ahead:
            self._hold(OWNER)
        elif self._ahead is None:
            self._ahead = ahead

    def go_on(self) -> None:
        """Read again."""
        self._ahead = None
        if self._holds & OWNER:
            self._go_on(OWNER)

    # Inside.

    def _hold(self, why: int) -> None:
        """Stop reading until every reason is gone."""
        self._holds |= why
        if self._readable.is_set():
            self._readable.clear()
            self._session.pause()
            if self._push_stream is not None:
                self._push_stream.pause()

    def _go_on(self, why: int) -> None:
        self._holds &= ~why
        if not self._holds and not self._readable.is_set():
            self._readable.set()
            self._is_heard = True  # perhaps: nothing was read meanwhile
            if self._session.ended is not None:
                return
            self._session.resume(self.now)
            if self._is_waiting:
                self._alarm.set()
            elif self._push_stream is not None and not self._is_draining:
                self._push_stream.resume()
            self._arm()

    def _pay(self, now: float) -> None:
        """Wait until what was decompressed is within its budget, but for a second of it."""
        size, self._inflated = self._session.inflated - self._inflated, self._session.inflated
        self._paid_until = max(self._paid_until, now) + size / self._inflated_rate
        if (wait := self._paid_until - now - BURST) > 0 and not self._holds & BUDGET:
            self._hold(BUDGET)
            self._loop.call_later(wait, self._go_on, BUDGET)

    def _work(self, now: float) -> None:
        """Let a thread do the session's job, in the time of its budget.

        Nothing more of the peer is read before it is done, so that all stays in order.
        """
        self._hold(JOB)
        if (wait := self._paid_until - now - BURST) > 0:
            self._loop.call_later(wait, self._begin_job)
        else:
            self._begin_job()

    def _begin_job(self) -> None:
        if (job := self._session.job) is not None:
            self._outcome = in_thread(job)
            self._outcome.add_done_callback(self._take_outcome)

    def _take_outcome(self, done: asyncio.Future[Any]) -> None:
        now = self._loop.time()
        if not done.cancelled():
            try:
                self._session.finish(done.result(), now)
                self._report_unfinished()
                self._settle(self._gather)
            except Exception as reason:
                self._fail(reason)
            if self._session.inflated != self._inflated:
                self._pay(now)
            if self._session.ended is None and self._failure is None and self._session.job is not None:
                self._work(now)
                return
        self._go_on(JOB)

    def _release(self) -> None:
        """Give memory back at once: what refers to itself in a circle would wait for the garbage collector."""
        self._free_session()
        self._handle, self._handle_many, self._messages, self.handlers = _ignore, None, None, None

    def _free_session(self) -> None:
        self._session.release()
        if self._outcome is not None:
            self._outcome.cancel()

    async def _listen(self) -> None:
        """Read until the session ends."""
        try:
            async with self._while_alive(None):
                await self._read()
        except TimeoutError:
            if self._session.ended is None:
                raise
        finally:
            if self._record is not None and (rest := self._session.rest + self._unhandled):
                self._record.received(rest)
            self._unhandled, self._to_handle = b"", 0

    async def _read(self) -> None:
        if self._push_stream is not None:
            await self._watch(self._push_stream)
            return
        while self._session.ended is None:
            await self._readable.wait()
            if self._failure is not None:
                raise self._failure
            if self._is_waiting:
                await self._turn.next()
                self._take_turn()
                continue
            try:
                data = await self._stream.receive()
            except OSError as reason:
                self._take_end(reason)
            else:
                if data:
                    if self._account.tight:
                        self._wait_for_turn(data)
                    else:
                        self._unhandled = data
                        self._take_turn()
                else:
                    self._take_end(None)
            if self._is_overfull:
                await self._drain_first()

    async def _watch(self, stream: PushStream) -> None:
        """Let the stream call when bytes arrive; do here what takes time."""
        stream.attach(self._take_pushed, self._take_end)
        if not self._readable.is_set():
            stream.pause()
        try:
            while self._session.ended is None:
                await self._alarm.wait()
                self._alarm.clear()
                if self._failure is not None:
                    raise self._failure
                if self._is_overfull:
                    await self._drain_first()
                if self._is_waiting and self._readable.is_set():
                    await self._turn.next()
                    self._take_turn()
                    self._alarm.set()  # there may be more to do
                elif self._readable.is_set():
                    stream.resume()
        finally:
            stream.detach()

    async def _drain_first(self) -> None:
        """Read no more before the peer has read enough: a peer that asks and does not listen gets no more attention.

        That takes more than what makes senders wait: two peers that both stopped reading because they are congested would wait for each
        other.
        """
        self._is_draining = True
        self._session.pause()
        try:
            await self._drain()
        finally:
            self._is_draining = False
        if self._readable.is_set():
            self._session.resume(self.now)

    def _take_pushed(self, data: bytes) -> None:
        """Take bytes inside a call of the event loop: what goes wrong is raised in `run`."""
        try:
            if self._account.tight:
                self._wait_for_turn(data)
            elif len(data) <= SMALL:  # no more will come in this turn of the loop
                self._take(data)
            else:
                self._unhandled = data
                self._take_turn()
        except Exception as reason:
            self._fail(reason)
        else:
            is_overfull = self._given - self._known_gone > self._max_unsent and self._is_overfull
            if (self._is_waiting or is_overfull) and self._push_stream is not None:
                self._push_stream.pause()
                self._alarm.set()

    def _fail(self, reason: Exception) -> None:
        """Raise this in `run`."""
        self._failure = reason
        self._alarm.set()
        if self._push_stream is not None:
            self._push_stream.detach()

    def _wait_for_turn(self, data: bytes) -> None:
        """Handle what arrived in a later turn: the memory of the host is tight, and what is given up is free by then."""
        self._unhandled, self._to_handle, self._is_waiting = data, len(data), True
        self._report_unfinished()

    def _take_turn(self) -> None:
        """Handle bytes that arrived for as long as one turn may take; only a little while the memory of the host is tight."""
        turn, data, at, account = self._turn, self._unhandled, 0, self._account
        self._unhandled, self._to_handle = b"", len(data)
        is_whole = self._is_datagram or len(data) <= SMALL
        turn.begin()
        while at < len(data) and self._readable.is_set() and self._session.ended is None:
            if turn.is_over or (at and account.tight):
                break
            piece = min(turn.piece, TIGHT) if account.tight else turn.piece
            if self._ahead is not None:
                piece = min(piece, self._ahead)
            size = len(data) if is_whole else min(piece, len(data) - at)
            began = time.perf_counter()
            self._to_handle -= size
            self._take(data if size == len(data) else data[at : at + size])
            at += size
            turn.measured(size, time.perf_counter() - began)
        self._unhandled = data[at:] if at else data
        self._to_handle = len(self._unhandled)
        self._is_waiting = bool(self._unhandled) or (bool(data) and turn.is_over)
        self._report_unfinished()

    @property
    def _is_overfull(self) -> bool:
        """More waits for the peer to read it than may."""
        unsent = self._stream.unsent
        self._known_gone = self._given - unsent
        return unsent > self._max_unsent

    def _take(self, data: bytes) -> None:
        """Bytes of the peer."""
        now = self.active_at = self._loop.time()
        self._is_heard, is_ahead = True, self._ahead is not None
        if len(self.first_bytes) < FIRST_BYTES:
            self.first_bytes += data[: FIRST_BYTES - len(self.first_bytes)]
        self._session.receive(data, now)
        if len(data) >= LARGE_READ and self._bulk < BULK:
            self._count_bulk(self._session.walked)
        if self._record is not None and (frames := self._session.frames):
            self._record.received(frames, lambda: self._session.frame_sizes)
        if self._session.unfinished != self._account.unfinished:
            self._report_unfinished()
        self._settle(self._gather)
        if is_ahead and self._ahead is not None:
            self._ahead -= len(data)
            if self._ahead <= 0:
                self._hold(OWNER)
        if self._session.inflated != self._inflated:
            self._pay(now)
        if self._session.job is not None and self._session.ended is None:
            self._work(now)

    def _report_unfinished(self) -> None:
        if (unfinished := self._session.unfinished) >= LARGE_READ:
            self._session.forget_taken()
            unfinished = self._session.unfinished
        if self._framed_stream is not None:
            unfinished += self._framed_stream.unfinished
        self._account.report_unfinished(unfinished + self._to_handle)

    def _count_bulk(self, size: int) -> None:
        self._bulk += size
        if self._bulk >= BULK:
            self._loop.run_in_executor(None, self._session.compile)

    def _take_end(self, reason: OSError | None) -> None:
        """The peer closed the connection, or it broke."""
        self.is_broken = reason is not None
        self.is_reset = isinstance(reason, (ConnectionResetError, BrokenPipeError))
        if isinstance(reason, ssl.SSLError):
            self.trouble = plain(reason)
        self._session.receive_eof(self.now)
        self._settle(self._gather)

    def _settle(self, gather: bool = False) -> None:
        """After every call: drain the output, drain the events, read the deadline again."""
        session = self._session
        events = session.events()
        if not gather:
            self.flush_planned, self._is_fresh = False, True
            if not events:  # else what they cause is sent together with what is there
                self._push()
                events = session.events()
        self._is_woken = False
        while events:
            self._is_settling = True
            try:
                if len(events) == 1 and self.handlers is not None:  # by far the commonest
                    self.handlers[type(events[0])](events[0])
                else:
                    self._handle_all(events)
            finally:
                self._is_settling = False
            if not gather:
                self._push()
            events = session.events()
        if gather and (self._is_woken or session.ended is not None):  # handlers have answered: there is nothing to wait for
            self._push()
        if session.ended is not None:
            self._stop()
        elif not gather or self._is_woken:
            self._arm()
        elif not self.flush_planned:  # only now: tasks that the events have woken send first
            self.flush_planned = True
            self._loop.call_soon(self._settle)

    def _stop(self) -> None:
        """The session has ended: read no more, and end what waits for its peer."""
        if self._push_stream is not None:
            self._push_stream.detach()
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(self.now)

    def _handle_all(self, events: list[Any]) -> None:
        """Handle events, and send now and then what they cause."""
        handlers, handle = self.handlers, self._handle
        if self._handle_many is not None:
            self._handle_many(events)
        elif handlers is not None:
            for number, event in enumerate(events, 1):
                handlers[type(event)](event)
                if number % SHARE == 0:
                    self._push()
        else:
            for number, event in enumerate(events, 1):
                handle(event)
                if number % SHARE == 0:
                    self._push()

    def _push(self) -> None:
        """Give the stream what the session has to say."""
        self._planned = self._pushed = 0
        session = self._session
        if self._messages is not None:
            if not (messages := self._messages()):
                return
            cast(MessageStream, self._stream).send_messages(messages)
            data = b"".join(messages)
            self._record_sent(data, [len(message) for message in messages])
        elif data := session.output():
            self._stream.send(data)
            if self._record is not None:
                self._record_sent(data, session.sent_sizes)
        else:
            return
        self._given += len(data)
        if self._given - self._reported > SLICE:
            self.report()
        self.active_at = self._loop.time()
        if (asked := session.asked) != self._asked:
            self._asked, self._question = asked, self._given
            if self._given - self._left <= LITTLE and not self._stream.unsent:
                self._told = self._given
            else:
                self._told = self._left = self._gone

    def _record_sent(self, data: bytes, sizes: Sequence[int]) -> None:
        if self._record is not None:
            self._record.sent(data, lambda: sizes)

    def _arm(self) -> None:
        session = self._session
        if session.ended is not None or (deadline := session.deadline) is None:
            return
        if self._timer is None or self._due > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._due = self._loop.call_at(deadline, self._tick), deadline

    def _tick(self) -> None:
        self._timer = None
        if self._told < self._question and (count := min(self._gone, self._question) - self._told) > 0:
            self._told += count
            self._session.drained(count, self.now)
        self._session.tick(self.now)
        self._settle()

    @contextlib.asynccontextmanager
    async def _while_alive(self, seconds: float | None) -> AsyncIterator[None]:
        """A timeout that the end of the session sets off, too."""
        async with asyncio.timeout(seconds) as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)

    async def _drain(self) -> None:
        """Wait until the peer has read enough, however slowly.

        Give it up when it reads nothing for the stall time.
        """
        while self._session.ended is None:
            before = self._gone
            try:
                async with self._while_alive(self._stall_timeout):
                    await self._stream.drain()
                return
            except OSError:  # a TimeoutError is one
                if self._gone > before or self._session.ended is not None:
                    continue
            self._give_up("it reads nothing")
            self._settle()

    def _give_up(self, why: str) -> None:
        """End the connection without a goodbye, which the peer would not hear."""
        log.warning("gave up on %s: %s", self._stream.remote, why)
        self._stream.abort()
        self.is_broken = self._is_given_up = True
        self._session.receive_eof(self.now)

    @property
    def ended_here(self) -> bool | None:
        """Whether this side ended the connection. None: neither did, the path between them broke."""
        if self.is_broken and not (self._is_given_up or self.is_reset):
            return None
        return self._is_given_up or bool(self._session.ended.here)

    @property
    def unconfirmed(self) -> int:
        """Bytes, the last of those given to the stream, that had not left this machine when the connection broke or was aborted."""
        return min(self._given, self._stream.abandoned)

    @property
    def _gone(self) -> int:
        """Bytes that were given to the stream and have left this machine, as far as it knows."""
        return self._given - self._stream.unsent - self._stream.unacknowledged

    async def _part(self) -> None:
        """Send the last message so that it arrives: flush, finish, and discard input for a moment."""
        ended = self._session.ended
        try:
            # After a bye of ours, what was sent before it is still owed; in all other cases the peer is not worth a long wait.
            is_owed = ended.here and ended.fault is None
            await self._flush(self._stall_timeout if is_owed else self._linger)
            if self._hurry is not None and self._stream.unsent:
                self._stream.abort()  # the peer does not read it
                return
            self._stream.finish()
            if ended.here:
                await self._await_close(LINGERS * self._linger if is_owed else self._linger)
        except OSError:  # a TimeoutError is one
            self._stream.abort()

    async def _await_close(self, patience: float) -> None:
        """Discard what the peer sends until it closes; raises TimeoutError if it does not.

        It has the linger time after its last sign of life. Taking bytes always is one; what it sends is one for `patience` seconds. A
        connection that is closed too early is reset, and what the peer has not read by then is lost.
        """
        until, waiting = self.now + patience, self._stream.unacknowledged
        while True:
            is_heard = False
            try:
                async with asyncio.timeout(self._linger):
                    while data := await self._stream.receive():
                        is_heard = True
                        if self._record is not None:
                            self._record.received(data)
                    return
            except TimeoutError:
                before, waiting = waiting, self._stream.unacknowledged
                is_hurried = self._hurry is not None and self.now >= self._hurry
                if is_hurried or not (waiting < before or (is_heard and self.now < until)):
                    raise

    async def _flush(self, patience: float) -> None:
        """Wait until all output is sent; give up when none of it moved for this long, or after `hurry`."""
        before, since = self._stream.unsent, self.now
        while (unsent := self._stream.unsent) and self.now - since < patience and (self._hurry is None or self.now < self._hurry):
            if unsent < before:
                before, since = unsent, self.now
            await asyncio.sleep(FLUSH_POLL)

    async def _close(self) -> None:
        """Close in good time, or at once after `hurry`; nothing stays open."""
        try:
            async with asyncio.timeout(self._linger):
                await self._stream.close()
        except TimeoutError:
            self._stream.abort()
            await self._stream.close()
        except BaseException:
            self._stream.abort()
            raise


def _ignore(_: object) -> None:
    """Ignore events after the end."""
