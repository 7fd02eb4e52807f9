"""The base of a YAMP session: handshake, keep-alive, close and redirect.

`session.py` adds events and requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from wirelake.errors import LocalProtocolError, SessionClosed, UsageError
from wirelake.protocols.kernel import FAULT, KIND, START
from wirelake.protocols.reply_timer import ReplyClock
from wirelake.protocols.stream_session import StreamSession
from wirelake.protocols.yamp.events import Ended, Ending, Noticed, Opened, PongReceived, SessionEvent
from wirelake.protocols.yamp.faults import UNREADABLE, Fault
from wirelake.protocols.yamp.messages import TYPES, VERSION, Close, CloseRedirect, Handshake, Message, Ping, Pong, name_of
from wirelake.protocols.yamp.options import DEFAULT_OPTIONS, Options, Serializer
from wirelake.protocols.yamp.scanner import CODE, ODD_BOOL, ODD_REASON, ODD_SERIALIZER, ODD_URI, ODDITIES, ROW_COLUMNS, UID_SIZE
from wirelake.protocols.yamp.serializers.bodies import attempt
from wirelake.protocols.yamp.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.yamp.wire import BUILDERS, buffer, encode, message, scan

__all__ = ["BaseSession", "Draw"]

Draw = Callable[[int], bytes]
"""Gives so many random bytes, as `os.urandom` does."""
POOL: Final = 256
"""Uids made of one draw."""
_VERSION: Final = bytes((byte & 0x0F) | 0x40 for byte in range(256))
_VARIANT: Final = bytes((byte & 0x3F) | 0x80 for byte in range(256))

_ODD: Final = {
    ODD_BOOL: Fault.BOOL_ODD,
    ODD_URI: Fault.URI_EMPTY,
    ODD_REASON: Fault.REASON_NOT_UTF8,
    ODD_SERIALIZER: Fault.SERIALIZER_EMPTY,
}
_MESSAGES: Final[dict[int, type[Message]]] = {number: one for one, number in TYPES.items()}
_OPEN: Final = State.OPEN
_STEADY: Final = {
    speaker: frozenset(kind for (before, sender, kind), after in TRANSITIONS.items() if before is after is _OPEN and sender is speaker)
    for speaker in Speaker
}
"""By speaker: messages that an open session allows, and that leave it open."""


class Uids:
    """YAMP-24: UUIDs of version 4."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._pool = b""
        self._at = 0

    def next(self) -> bytes:
        """The next uid."""
        at = self._at
        if at == len(self._pool):
            pool = bytearray(self._draw(POOL * UID_SIZE))
            pool[6::UID_SIZE] = pool[6::UID_SIZE].translate(_VERSION)
            pool[8::UID_SIZE] = pool[8::UID_SIZE].translate(_VARIANT)
            self._pool, at = bytes(pool), 0
        self._at = at + UID_SIZE
        return self._pool[at : at + UID_SIZE]


class BaseSession(StreamSession[SessionEvent]):
    """Base class of `Session`: everything but events and requests."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, *, draw: Draw) -> None:
        if options.serializer not in options.serializers:  # YAMP-5: an empty name is never sent
            raise UsageError(f"no serializer {options.serializer!r} among {', '.join(options.serializers)}")
        self.speaker = speaker
        self.peer = speaker.other
        self.options = options
        self.state = INITIAL
        self.ended: Ended | None = None
        self._own_steady, self._peer_steady = _STEADY[speaker], _STEADY[speaker.other]
        self._is_lossy = options.datagrams
        self._serializer: Serializer = options.serializers[options.serializer]
        self._buffer = buffer(options.limits)
        self._inline = options.max_body_inline
        self._then: Callable[[Any], None] | None = None
        """What takes the outcome of `job`."""
        self._datagram = b""
        self._output: list[bytes] = []
        self.last_size = 0
        """Bytes of the last message that was sent."""
        self._events: list[SessionEvent] = []
        self._uids = Uids(draw)
        self._agreed: Handshake | None = None
        self._handshake_deadline: float | None = None
        self._next_handshake: float | None = None
        self._next_ping: float | None = None
        self._pong = ReplyClock(options.ping_timeout, options.min_rate)
        self.asked = 0
        """See Drivable: keep-alive pings."""
        self._ping_payload: bytes | None = None
        """The keep-alive ping that waits for its pong."""
        self._manual_payload: bytes | None = None
        """The payload of a ping of the owner that waits for its pong."""
        self._takers: dict[type[Message], Callable[[Any, float], None]] = {
            Handshake: self._take_handshake,
            Ping: lambda ping, _: self._say(Pong(ping.payload)),  # YAMP-17: verbatim
            Pong: self._take_pong,
            Close: lambda close, _: self._end(Ended(Ending.CLOSE, self.peer, False, detail=close.reason)),  # YAMP-20: no echo
            CloseRedirect: lambda redirect, _: self._end(Ended(Ending.REDIRECT, self.peer, False, detail=redirect.url)),
        }

    # Output.

    def messages(self) -> list[bytes]:
        """Take the messages to send now, one by one: for transports that keep them apart (YAMP-14, YAMP-15)."""
        messages, self._output = self._output, []
        return messages

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called next, whatever else happens."""
        first = self._pong.deadline
        for timer in (self._handshake_deadline, self._next_handshake, self._next_ping):
            if timer is not None and (first is None or timer < first):
                first = timer
        return first

    @property
    def frames(self) -> bytes:
        """The whole messages that the last `receive` took, or the datagram; `rest` is what it could not take."""
        return self._datagram if self.options.datagrams else self._buffer.taken

    @property
    def is_proven(self) -> bool:
        """See Drivable: the handshake is done."""
        return self._agreed is not None

    @property
    def serializer(self) -> str:
        """The name of the negotiated serializer; this side's own before the handshake."""
        return (self._agreed.serializer if self._agreed else "") or self.options.serializer

    # Commands of the owner.

    def start(self, now: float) -> None:
        """0x00 system.handshake: a client says what it wants; both wait for the other's."""
        if self.options.handshake_timeout is not None:
            self._handshake_deadline = now + self.options.handshake_timeout
        if self.speaker is Speaker.CLIENT:
            self._greet(now)

    def ping(self, now: float) -> bytes:  # noqa: ARG002 - every input of a session carries the time
        """0x01 system.ping: ask for a pong, and return its payload; while one is on its way no other is sent.

        No timeout runs: only keep-alive ends a session (YAMP-18). An owner that waits no longer calls `give_up_ping`.
        """
        self._require_open()
        if self._manual_payload is None:
            self._manual_payload = self._send_ping()
        return self._manual_payload

    def give_up_ping(self) -> None:
        """YAMP-18: forget a ping of the owner; the session goes on, and the next ping is a new one."""
        self._manual_payload = None

    def bye(self, detail: str = "") -> None:
        """0x03 system.close: say why; the session is over here. A client that has said nothing yet says nothing."""
        if self.ended is None:
            if (self.state, self.speaker, Close) in TRANSITIONS:
                self._close(detail)
            self._end(Ended(Ending.CLOSE, self.speaker, True, detail=detail))

    def redirect(self, url: str) -> None:
        """0x04 system.close-redirect: send the client somewhere else; the session is over here."""
        if self.speaker is not Speaker.SERVER:  # YAMP-21
            raise LocalProtocolError(Fault.REDIRECT_BY_CLIENT)
        if self.ended is None:
            self._say(CloseRedirect(url))
            self._end(Ended(Ending.REDIRECT, self.speaker, True, detail=url))

    def fail(self, fault: Fault, detail: str = "") -> None:
        """The close this fault is answered with, if any, and the end of the session."""
        if self.ended is None:
            reason = fault.rule.close_reason
            is_sent = reason is not None and (self.state, self.speaker, Close) in TRANSITIONS
            if reason is not None and is_sent:
                self._close(reason.format(detail))
            self._end(Ended(Ending.CLOSE if is_sent else Ending.CLOSED, self.speaker, True, fault, detail))

    # Input: bytes of the peer, and time.

    def receive(self, data: bytes, now: float) -> None:
        """Bytes from the peer, or one datagram. Whatever they are, this does not raise."""
        if self._is_lossy:
            self._receive_datagram(data, now)
            return
        if (seen := self._buffer.glance(data)) is not None:
            if self.ended is None:
                self._take(data, seen[0], now)
            return
        batches = iter(self._buffer.feed(data))
        for taken, rows, parts in batches:
            left = iter(rows)
            for row in left:
                if self.ended is not None:
                    return
                self._take(taken, row, now)
                if self.job is not None:
                    self._defer(taken, left, parts, batches)
        if self._buffer.size:  # as EMP-32
            self._pong.moved(len(data), now)

    def receive_eof(self, now: float) -> None:  # noqa: ARG002 - every input of a session carries the time
        """YAMP-20: the peer closed the connection."""
        if self.ended is None:
            fault = Fault.CLOSED_INSIDE_MESSAGE if self._buffer.rest else Fault.CLOSED_WITHOUT_WORD
            self._end(Ended(Ending.CLOSED, self.peer, False, fault))

    def tick(self, now: float) -> None:
        """Time passed: timers that are due fire."""
        if self._handshake_deadline is not None and now >= self._handshake_deadline:  # YAMP-12
            self.fail(Fault.HANDSHAKE_TIMEOUT)
        if self._pong.is_over(now):  # YAMP-18
            self.fail(Fault.PING_TIMEOUT)
        if self.ended is not None:
            return
        if self._next_ping is not None and now >= self._next_ping:
            self._keep_alive(now)
        if self._next_handshake is not None and now >= self._next_handshake:  # YAMP-15
            self._greet(now)

    def pause(self) -> None:
        """The owner stops reading for a while: a pong that waits unread is not a silent peer."""
        self._pong.pause()

    def resume(self, now: float) -> None:
        """The owner reads again."""
        self._pong.resume(now)

    def drained(self, count: int, now: float) -> None:
        """As EMP-32: bytes that were sent before the last ping have left."""
        self._pong.drained(count, now)

    def release(self) -> None:
        """See Drivable."""
        super().release()
        self._then = None
        self._takers = {}  # they refer to this object

    # Internals.

    def _parse_apart(self, data: bytes, then: Callable[[Any], None]) -> None:
        """Let the owner parse a body, and go on with what `attempt` makes of it."""
        self.job, self._then = partial(attempt, self._serializer, data), then

    def _take_outcome(self, outcome: Any) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(outcome)

    def _take_row(self, data: bytes, row: list[int], _: list[int], now: float) -> None:
        self._take(data, row, now)

    def _advance(self, speaker: Speaker, message_type: type[Message]) -> bool:
        """The only place where the state changes."""
        after = TRANSITIONS.get((self.state, speaker, message_type))
        if after is None:
            return False
        self.state = after
        return True

    def _say(self, outgoing: Message) -> None:
        self._put(type(outgoing), encode(outgoing, self.options.limits))

    def _put(self, kind: type[Message], data: bytes) -> None:
        """Send a message that is encoded already, if the state machine allows it."""
        if self._is_lossy and len(data) > self.options.max_datagram:
            raise LocalProtocolError(Fault.DATAGRAM_TOO_LARGE, f"{len(data)} bytes, {self.options.max_datagram} fit")
        if not (self.state is _OPEN and kind in self._own_steady) and not self._advance(self.speaker, kind):
            raise LocalProtocolError(refusal(self.state, self.speaker, kind))
        self._output.append(data)
        self.last_size = len(data)

    def _close(self, reason: str) -> None:
        self._say(Close(reason.encode(errors="replace").decode()))

    def _greet(self, now: float) -> None:
        self._say(Handshake(VERSION, self.options.serializer))
        self._next_handshake = now + self.options.handshake_interval if self.options.datagrams else None

    def _require_open(self) -> None:
        if self.ended is not None:
            raise SessionClosed(str(self.ended.reason()))
        if self.state is not State.OPEN:  # YAMP-10
            raise LocalProtocolError(Fault.SPOKE_TOO_SOON)

    def _end(self, ended: Ended) -> None:
        self.ended = ended
        self._handshake_deadline = self._next_handshake = self._next_ping = None
        self._pong.stop()
        self._events.append(ended)

    def _notice(self, fault: Fault, detail: str = "") -> None:
        self._events.append(Noticed(fault, detail))

    def _receive_datagram(self, data: bytes, now: float) -> None:
        """YAMP-15: one whole message, or nothing."""
        self._datagram = data
        row = [0] * ROW_COLUMNS
        count, _, end, _ = scan(data, 0, len(data), row, [], self.options.limits.for_scan())
        if self.ended is not None:
            return
        if not count or (end != len(data) and row[FAULT] not in UNREADABLE):
            self._notice(Fault.DATAGRAM_CUT, f"{len(data)} bytes")
        else:
            self._take(data, row, now)

    def _take(self, data: bytes, row: list[int], now: float) -> None:
        """Take one message of the peer. Checks, in order: readable, allowed in this state, allowed at all."""
        fault, kind = row[FAULT], row[KIND]
        if self.state is _OPEN and not fault and not row[ODDITIES] and (message_type := _MESSAGES[kind]) in self._peer_steady:
            self._takers[message_type](BUILDERS[kind](data, row), now)  # none of what follows can fail
            return
        if fault and fault in UNREADABLE:
            self.fail(Fault(fault), str(data[row[START]]))
            return
        message_type = _MESSAGES[kind]
        if not self._advance(self.peer, message_type):
            self.fail(refusal(self.state, self.peer, message_type), name_of(message_type))
        elif fault:  # YAMP-36
            self.fail(Fault(fault), str(row[CODE]))
        else:
            if row[ODDITIES]:
                for odd, tolerated in _ODD.items():
                    if row[ODDITIES] & odd:
                        self._notice(tolerated)
            self._takers[message_type](message(data, row), now)

    def _take_handshake(self, handshake: Handshake, now: float) -> None:
        if self._agreed is not None:
            if self.speaker is Speaker.SERVER and self.options.datagrams:  # YAMP-15: the echo may have been lost
                self._say(self._agreed)
            else:  # YAMP-11
                self._notice(Fault.HANDSHAKE_REPEATED)
        elif self.speaker is Speaker.CLIENT:
            wanted = Handshake(VERSION, self.options.serializer)
            if handshake == wanted:
                self._open(handshake, now)
            else:  # YAMP-8
                self.fail(Fault.ECHO_DIFFERS, f"version {handshake.version}, serializer {handshake.serializer!r}")
        elif handshake.version != VERSION:  # YAMP-3
            self.fail(Fault.VERSION_UNSUPPORTED, str(handshake.version))
        elif handshake.serializer not in self.options.serializers and (
            handshake.serializer or not self.options.accept_empty_serializer
        ):  # YAMP-4, 5
            self.fail(Fault.SERIALIZER_UNSUPPORTED, f"{handshake.serializer} not supported. Use {', '.join(self.options.serializers)}")
        elif self.options.redirect_to is not None:
            self.redirect(self.options.redirect_to)
        else:
            self._say(handshake)  # YAMP-7: the same handshake
            self._open(handshake, now)

    def _open(self, agreed: Handshake, now: float) -> None:
        self._agreed = agreed
        self._serializer = self.options.serializers[self.serializer]
        self._handshake_deadline = self._next_handshake = None
        self._plan_ping(now)
        self._events.append(Opened(agreed.version, agreed.serializer))

    def _plan_ping(self, now: float) -> None:
        self._next_ping = None if self.options.ping_interval is None else now + self.options.ping_interval

    def _keep_alive(self, now: float) -> None:
        self._ping_payload = self._send_ping()
        self._next_ping = None
        self._pong.ask(now)
        self.asked += 1

    def _send_ping(self) -> bytes:
        """YAMP-17: the payload is ASCII text, because a peer may hold it as a string."""
        payload = self._uids.next().hex().encode()
        self._say(Ping(payload))
        return payload

    def _take_pong(self, pong: Pong, now: float) -> None:
        if pong.payload == self._manual_payload:
            self._manual_payload = None
        elif pong.payload == self._ping_payload:
            self._ping_payload = None
            self._pong.stop()
            self._plan_ping(now)
        else:  # YAMP-19
            self._notice(Fault.PONG_UNSOLICITED)
            return
        self._events.append(PongReceived(pong.payload))
