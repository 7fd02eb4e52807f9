"""YAMP as an observer sees it: handshakes and their echoes, requests with responses, pings with pongs, closes and redirects.

The state machine, the faults, the timeouts and the check of redirects are those of the live session. A live session has a clock; an
observer finds a missing pong with the next message of the side that owes it, or at the end (YAMP-18).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from wirelake.errors import FaultLike
from wirelake.protocols.analyzer import NO_TIME, SeenMessage, Timeouts, delay
from wirelake.protocols.reply_timer import MIN_RATE
from wirelake.protocols.request_pairs import ANSWER, OTHER, REQUEST, Correlated, PairColumns, PairingAnalyzer
from wirelake.protocols.state_table import StateTable, state_table
from wirelake.protocols.used_ids import UsedKeys
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import TYPES, VERSION, Handshake, MessageType, ResponseType, name_of
from wirelake.protocols.yamp.options import DEFAULT_OPTIONS
from wirelake.protocols.yamp.redirect import objection
from wirelake.protocols.yamp.state_machine import MACHINE, State

if TYPE_CHECKING:
    from wirelake.protocols.bulk_pairs import Stretch

__all__ = ["KILLED", "OUTCOMES", "Analyzer", "Seen"]

KILLED: Final = "killed"
"""The outcome of a request that was killed: what still comes is discarded (YAMP-34)."""
OUTCOMES: Final = {ResponseType.DONE: "returned", ResponseType.ERROR: "failed", ResponseType.CANCELLED: "cancelled"}
"""0x08 response: what a last response says -> the outcome of its request."""

_NAMES: Final = tuple(name_of(message) for message, _ in sorted(TYPES.items(), key=lambda entry: entry[1]))
"""By number of the message type."""
_HANDSHAKE: Final = int(MessageType.HANDSHAKE)
_PING: Final = int(MessageType.PING)
_PONG: Final = int(MessageType.PONG)
_CLOSE: Final = int(MessageType.CLOSE)
_CLOSE_REDIRECT: Final = int(MessageType.CLOSE_REDIRECT)
_EVENT: Final = int(MessageType.EVENT)
_REQUEST: Final = int(MessageType.REQUEST)
_CANCEL: Final = int(MessageType.CANCEL)
_RESPONSE: Final = int(MessageType.RESPONSE)
_PROGRESS: Final = int(ResponseType.PROGRESS)
_OPEN: Final = int(State.OPEN)
_PARTINGS: Final = (_CLOSE, _CLOSE_REDIRECT)

_DATAGRAMS: Final = "udp"
"""YAMP-15: the transport whose messages are repeated and lost; there neither is a fault."""
_PING_MICROS: Final = round((DEFAULT_OPTIONS.ping_timeout or 0) * 1_000_000)
"""YAMP-18: how long a ping waits for its pong; 0: any time."""
_MICROS_A_BYTE: Final = round(1_000_000 / MIN_RATE)
"""YAMP-18, as EMP-32: how much a byte of a large message postpones a pong."""
_LARGE: Final = round(MIN_RATE)
"""Shorter messages postpone nothing."""
_REFUSAL: Final = Fault.SERIALIZER_UNSUPPORTED.rule.close_reason or ""
"""YAMP-4: the reason of the close that refuses a serializer."""
_REFUSAL_CHARACTERS: Final = len(_REFUSAL) + 256
"""The part of a reason that can name a serializer: the name has at most 255 characters."""
_MAX_PINGS: Final = 4096
"""Pings of one side that are remembered while they wait for a pong. Later ones are not judged, so that the first stay known."""
_MAX_LATE: Final = 256
"""Answers after a kill that are remembered until the fastest round trip is known: the first ones of a session."""
_LARGEST_VERSION: Final = 0x7FFF
"""The largest version that the column of `sessions` can hold; a larger one is null there."""


class Seen(SeenMessage, gc=False):
    """A YAMP message."""

    type: int
    version: int | None
    serializer: str | None
    payload: bytes | None
    reason: str | None
    url: str | None
    uid: bytes | None
    uri: str | None
    progressive: bool | None
    request_uid: bytes | None
    kill: bool | None
    response_type: int | None
    oddities: int


class WaitingPing(msgspec.Struct, gc=False, array_like=True):
    """A ping without a pong so far."""

    message: Seen
    carried: int
    """Bytes of large messages up to it."""


class WaitingPings(msgspec.Struct):
    """The pings of one side without a pong."""

    of_payload: dict[bytes, list[WaitingPing]] = msgspec.field(default_factory=dict)
    """Oldest first."""
    count: int = 0

    def add(self, ping: WaitingPing) -> None:
        """Remember a ping, unless too many wait."""
        if self.count < _MAX_PINGS:
            self.of_payload.setdefault(ping.message.payload or b"", []).append(ping)
            self.count += 1

    def take(self, payload: bytes) -> list[WaitingPing]:
        """The pings with this payload; they no longer wait."""
        waiting = self.of_payload.pop(payload, [])
        self.count -= len(waiting)
        return waiting

    def drop_first(self, payload: bytes) -> None:
        """Forget the first ping with this payload; the others come after those with other payloads."""
        waiting = self.of_payload.pop(payload)
        self.count -= 1
        if len(waiting) > 1:
            self.of_payload[payload] = waiting[1:]


class LateAnswer(msgspec.Struct, gc=False, array_like=True):
    """An answer to a request that was killed."""

    message: Seen
    delay: int
    """How long after the kill."""


class Analyzer(PairingAnalyzer):
    """Watches one YAMP connection."""

    MESSAGE: ClassVar[type[SeenMessage]] = Seen
    STATES: ClassVar[StateTable | None] = state_table(MACHINE)
    ODDITIES: ClassVar[tuple[FaultLike, ...]] = (
        Fault.BOOL_ODD,
        Fault.URI_EMPTY,
        Fault.REASON_NOT_UTF8,
        Fault.SERIALIZER_EMPTY,
        Fault.BODY_UNDECODABLE,
    )
    TIMEOUTS: ClassVar[Timeouts] = Timeouts(
        Fault.CLOSED_INSIDE_MESSAGE, Fault.CLOSED_WITHOUT_WORD, Fault.HANDSHAKE_TIMEOUT, DEFAULT_OPTIONS.handshake_timeout
    )
    """YAMP-12, YAMP-20, YAMP-13: shake hands in time, and close with system.close, never inside a message."""
    PAIRS: ClassVar[PairColumns | None] = PairColumns("uid", "uri", "response_type", {int(kind): how for kind, how in OUTCOMES.items()})

    wanted: Handshake | None = None
    """The first handshake of the client."""
    echo: Handshake | None = None
    """The first handshake of the server."""
    place: Seen | None = None
    """The message of the one that came alone; None once both came."""
    refusal: str | None = None
    """YAMP-4: the beginning of the server's first close that refuses a serializer."""
    carried: int = 0
    """Bytes of large messages, both ways; see `emp.analyzer`."""
    client_pings: WaitingPings = msgspec.field(default_factory=WaitingPings)
    server_pings: WaitingPings = msgspec.field(default_factory=WaitingPings)
    client_uids: UsedKeys = msgspec.field(default_factory=UsedKeys)
    """YAMP-24: uids of messages of the client."""
    server_uids: UsedKeys = msgspec.field(default_factory=UsedKeys)
    client_round_trip: int = 0
    """The fastest answer to a request or ping of the client, in microseconds; 0: none was measured."""
    server_round_trip: int = 0
    late_answers: list[LateAnswer] = msgspec.field(default_factory=list)
    """See `_MAX_LATE`."""

    def message(self, message: SeenMessage) -> None:
        """See `SessionAnalyzer`."""
        assert isinstance(message, Seen)  # noqa: S101 - see MESSAGE
        kind, ts = message.type, message.ts
        if self.first_said == NO_TIME:
            self.first_said = ts
        self.last_said = ts
        if self.unanswered_pings:
            self._heard(message, Fault.PONG_MISSING.name)
        if kind in _PARTINGS:
            self._parted(message, "bye")
        else:
            self.last_word = ts
        # In the state OPEN, no user message is forbidden, and none changes the state.
        if kind < _EVENT or self.states.get(message.connection_id) != _OPEN:
            self._step(message, _NAMES[kind])
        if message.oddities:
            self._odd(message.oddities, message)
        if message.fault is not None:
            self._found(message.fault, message, needs_whole=False)
            return
        if message.length >= _LARGE:
            self.carried += message.length
        owed = self.server_pings if message.to_server else self.client_pings
        if owed.count:
            self._expire(owed, ts)
        if kind >= _EVENT and self._has_used_uid(message):
            in_flight = self.pairs.of_client if message.to_server else self.pairs.of_server
            if kind != _REQUEST or message.uid is None or message.uid.hex() not in in_flight:
                self._found(Fault.UID_REUSED.name, message, needs_whole=True)
        if kind == _REQUEST:
            self._asks(message)
        elif kind == _RESPONSE:
            self._answers(message)
        elif kind == _CANCEL:
            self._cancels(message)
        elif kind < _EVENT:
            self._system(message)

    def end(self) -> None:
        """See `SessionAnalyzer`."""
        for pings in (self.client_pings, self.server_pings):
            for waiting in pings.of_payload.values():
                for ping in waiting:
                    self._judge_pong(ping, None)
        self._judge_refusal()
        self._judge_late_answers()
        PairingAnalyzer.end(self)

    @property
    def may_pair(self) -> bool:
        """See `PairingAnalyzer`. Where a pong is due, every message counts (YAMP-18)."""
        return not self.client_pings.count and not self.server_pings.count and not self.unanswered_pings

    def correlated(self, stretch: Stretch) -> Correlated:
        """See `PairingAnalyzer`."""
        kind = stretch.numbers("type")
        is_request, is_response, is_cancel = (kind == one for one in (_REQUEST, _RESPONSE, _CANCEL))
        has_id = ~stretch.is_null("uid") & is_request | ~stretch.is_null("request_uid") & (is_response | is_cancel)
        is_plain = (stretch.numbers("oddities") == 0) & (stretch.numbers("length") < _LARGE) & ~is_cancel
        is_plain &= is_request | (stretch.numbers("response_type") != _PROGRESS)
        about = has_id & stretch.is_null("fault")
        ids = stretch.ids("uid", "request_uid", ~is_request)
        uids = stretch.keys("uid")
        return Correlated(
            about * (is_plain * (is_request * REQUEST + is_response * ANSWER) + ~is_plain * OTHER),
            stretch.flags("to_server") ^ is_response,
            ids.codes,
            lambda texts: ids.find(map(bytes.fromhex, texts)),
            kind == _PING,
            (kind >= _EVENT) & ~stretch.is_null("uid") & stretch.is_null("fault") if self.transport != _DATAGRAMS else None,
            lambda places: uids[places],
            self._uids_of,
        )

    def names_of(self, stretch: Stretch) -> tuple[Any, list[str]]:
        """See `PairingAnalyzer`."""
        return stretch.numbers("type"), list(_NAMES)

    def paired(self, by_client: Any, delays: Any) -> None:
        """See `PairingAnalyzer`."""
        for of_client in (True, False):
            measured = delays[(by_client == of_client) & (delays > 0)]
            if len(measured):
                self._measured(of_client, int(measured.min()))

    def _greetings(self) -> tuple[int | None, int | None, bool, int | None]:
        wanted, echo = self.wanted, self.echo
        is_accepted = echo is not None and echo == wanted and echo.version == VERSION
        return _small(wanted), _small(echo), is_accepted, None

    def _system(self, message: Seen) -> None:
        kind = message.type
        if kind == _PING:
            self._pings(message)
        elif kind == _PONG:
            self._pongs(message)
        elif kind == _HANDSHAKE:
            self._greets(message)
        elif kind == _CLOSE:
            reason = message.reason
            if not message.to_server and self.refusal is None and reason is not None and reason.startswith(_REFUSAL.format("")):
                self.refusal = reason[:_REFUSAL_CHARACTERS]
        elif not message.to_server and message.url is not None and objection(message.url) is not None:
            self._found(Fault.REDIRECT_REFUSED.name, message, needs_whole=False)  # YAMP-22

    def _greets(self, message: Seen) -> None:
        """YAMP-3, YAMP-8, YAMP-11: a version that is supported, once, and the same from both sides."""
        handshake = Handshake(message.version or 0, message.serializer or "")
        self._greeted(message)
        if handshake.version != VERSION:
            self._found(Fault.VERSION_UNSUPPORTED.name, message, needs_whole=False)
        if (self.wanted if message.to_server else self.echo) is not None:
            if self.transport != _DATAGRAMS:
                self._found(Fault.HANDSHAKE_REPEATED.name, message, needs_whole=True)
            return
        if message.to_server:
            self.wanted, other = handshake, self.echo
        else:
            self.echo, other = handshake, self.wanted
        if other is None:
            self.place = message
            return
        if other != handshake:
            echo = self.place if message.to_server else message
            if echo is not None:
                self._found(Fault.ECHO_DIFFERS.name, echo, needs_whole=False)
        self.place = None

    def _judge_refusal(self) -> None:
        """YAMP-4: which serializers a server knows is not on the wire, but its answer has the text that the ruling gives."""
        wanted, place = self.wanted, self.place
        if wanted is None or place is None or self.refusal is None:
            return
        if self.refusal.startswith(_REFUSAL.format(f"{wanted.serializer} ")):
            self._found(Fault.SERIALIZER_UNSUPPORTED.name, place, needs_whole=False)

    def _asks(self, message: Seen) -> None:
        """YAMP-25, YAMP-15: a request has a uid that is not in flight."""
        uid = message.uid
        if uid is None:
            return
        if self._ask(message, uid.hex(), message.uri, message.progressive is not False):
            fault = Fault.REQUEST_REPEATED if self.transport == _DATAGRAMS else Fault.REQUEST_UID_IN_FLIGHT
            self._found(fault.name, message, needs_whole=True)

    def _answers(self, message: Seen) -> None:
        """YAMP-37, YAMP-29: a response needs a waiting request, and progress one that asked for it."""
        if message.request_uid is None:
            return
        by_client, uid = not message.to_server, message.request_uid.hex()
        asked = self.pairs.waiting(by_client, uid)
        if message.response_type != _PROGRESS:
            if asked is not None:
                self._measured(by_client, message.ts - asked.sent.ts)
                if asked.killed != NO_TIME and len(self.late_answers) < _MAX_LATE:
                    self.late_answers.append(LateAnswer(msgspec.structs.replace(message, payload=None), message.ts - asked.killed))
            if not self._answer(message, uid, message.uri, _OUTCOMES.get(message.response_type)):
                self._found(Fault.RESPONSE_UNMATCHED.name, message, needs_whole=True)
        elif asked is not None:
            asked.progress += 1
            if not asked.progressive:
                self._found(Fault.PROGRESS_UNASKED.name, message, needs_whole=False)

    def _cancels(self, message: Seen) -> None:
        """0x07 cancel: it takes back a request of the same side; a kill decides the outcome, whatever still comes (YAMP-34)."""
        uid = message.request_uid
        asked = None if uid is None else self.pairs.waiting(message.to_server, uid.hex())
        if asked is not None:
            asked.cancelled = True
            if message.kill and asked.note is None:
                asked.note, asked.killed = KILLED, message.ts

    def _has_used_uid(self, message: Seen) -> bool:
        """YAMP-24: whether the same side used the uid before. A datagram may come twice."""
        if self.is_used is not None:
            return self.is_used
        return message.uid is not None and self.transport != _DATAGRAMS and self._uids_of(message.to_server).take(message.uid)

    def _uids_of(self, client: bool) -> UsedKeys:
        return self.client_uids if client else self.server_uids

    def _measured(self, of_client: bool, micros: int) -> None:
        """A request or ping was answered. Clocks that are too coarse measure nothing."""
        if micros <= 0 or self.transport == _DATAGRAMS:
            return
        if of_client:
            self.client_round_trip = min(self.client_round_trip or micros, micros)
        else:
            self.server_round_trip = min(self.server_round_trip or micros, micros)

    def _judge_late_answers(self) -> None:
        """YAMP-34: an answer may cross the kill on its way. One that comes later than a round trip did not."""
        for answer in self.late_answers:
            fastest = self.server_round_trip if answer.message.to_server else self.client_round_trip
            if fastest and answer.delay > fastest:
                self._found(Fault.ANSWERED_AFTER_KILL.name, answer.message, needs_whole=False)

    def _pings(self, message: Seen) -> None:
        if self.transport == _DATAGRAMS:
            return
        self._pinged(message)
        if _PING_MICROS:
            pings = self.client_pings if message.to_server else self.server_pings
            pings.add(WaitingPing(message, self.carried))

    def _pongs(self, message: Seen) -> None:
        """YAMP-17: a pong answers all pings with its payload; one that answers none is to be ignored (YAMP-19)."""
        self._ponged(message)
        pings = self.server_pings if message.to_server else self.client_pings
        waiting = pings.take(message.payload or b"")
        if waiting:
            self._measured(not message.to_server, message.ts - waiting[0].message.ts)
        for ping in waiting:
            self._judge_pong(ping, message.ts)

    def _due(self, ping: WaitingPing) -> int:
        """YAMP-18: when the pong is due, later by what was carried since the ping."""
        return ping.message.ts + _PING_MICROS + (self.carried - ping.carried) * _MICROS_A_BYTE

    def _judge_pong(self, ping: WaitingPing, ponged: int | None) -> None:
        due = self._due(ping)
        if (ponged is None or ponged > due) and self._went_by(due, ponged):
            self._missed(Fault.PING_TIMEOUT.name, ping.message, due, detail=delay(ping.message.ts, ponged))

    def _expire(self, pings: WaitingPings, now: int) -> None:
        """Judge and forget pings whose pong is due, when the side that owes it sends something else.

        Messages of one side come one after the other: what it sends later cannot postpone the pong any more. A message of the side that
        asked proves nothing: a large one of the other may be on its way.
        """
        while pings.count:
            payload, waiting = next(iter(pings.of_payload.items()))
            if now <= self._due(waiting[0]):
                return
            self._judge_pong(waiting[0], None)
            pings.drop_first(payload)


_OUTCOMES: Final[dict[int | None, str]] = {int(kind): outcome for kind, outcome in OUTCOMES.items()}


def _small(handshake: Handshake | None) -> int | None:
    return None if handshake is None or handshake.version > _LARGEST_VERSION else handshake.version
