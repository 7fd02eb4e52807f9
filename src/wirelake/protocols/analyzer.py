"""The analyzer of a session: watches both sides, and says what was asked and answered, and which rules were broken.

A live session is one side of a conversation. An analyzer is an observer: it gets the events of the session's connections, the bytes that
could not be read, and every message, in order of time; ties are in the order of `message_id`. Events and unreadable bytes may come
earlier, but not later than messages with a later time. It tells `exchanges` and `findings` as soon as they are certain; the caller takes
them out of the lists. `end()` tells what depends on the end. Calling it does not change the session: more messages may follow on a copy
that was taken before.

Analyzers are structs, so that their state can be stored between two messages (`encode`, `decode`) with the same results. They know
neither Spark nor sockets nor clocks. Each protocol has one in its `analyzer.py`; `any_analyzer` has the one of protocols that bring none.

Nothing in a state grows for ever: each container has a limit, or says why it needs none. Beyond a limit the oldest is told as it stands,
and forgotten; an observer that has forgotten something does not blame a side for it. So results depend only on the order of messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

from wirelake.errors import FaultLike
from wirelake.protocols.connections import (
    MAX_CONNECTIONS,
    MISSING,
    NO_TIME,
    UNCONFIRMED,
    WIRE,
    Connection,
    ConnectionEvent,
    Connections,
    Event,
    Unconfirmed,
    earliest,
)
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.state_table import StateTable

__all__ = [
    "CONFIRMED",
    "DELIVERY",
    "KILLED",
    "MAX_UNPROVEN",
    "NO_TIME",
    "REQUEST",
    "ConnectionEvent",
    "Exchange",
    "Finding",
    "Part",
    "SeenMessage",
    "SessionAnalyzer",
    "Standing",
    "Timeouts",
    "Unreadable",
    "delay",
]

PONG_MISSING_SECONDS: Final = 60
"""A side that sends messages for so long after a ping, and never a pong, does not answer pings."""
MAX_UNPROVEN: Final = 4096
"""Findings of a session that wait for proof; beyond this, the first is forgotten."""
REQUEST: Final = "request"
"""Kind of an exchange: a request and its answer."""
DELIVERY: Final = "delivery"
"""Kind of an exchange: a message on a channel and its acknowledgement."""
CONFIRMED: Final = "confirmed"
"""Outcome of a call that was delivered, and that nothing answered."""
KILLED: Final = "killed"
"""Outcome of a request that was killed: no answer comes, and what still comes is discarded (YAMP-34)."""


class SeenMessage(msgspec.Struct, gc=False):
    """A message as an observer sees it.

    Each protocol's own struct adds fields. All fields are named after columns of the protocol's table, and have their values; only
    `direction` is `to_server`, times are microseconds since 1970 (`NO_TIME`: none), and decimal numbers are text.
    """

    message_id: bytes
    connection_id: bytes
    ts: int
    to_server: bool
    source: str
    offset: int
    length: int
    size: int
    fault: str | None


class Unreadable(msgspec.Struct, gc=False):
    """Bytes that could not be read: a row of `quarantine`."""

    connection_id: bytes | None
    ts: int
    to_server: bool | None
    reason: str
    clause: str | None
    """None: no sender is to blame, the capture has a gap."""
    source: str
    offset: int
    length: int


class Part(msgspec.Struct, gc=False):
    """One half of an exchange."""

    ts: int
    message_id: bytes
    size: int


class Exchange(msgspec.Struct, gc=False):
    """A request with its answer, a response without a request, or a message on a channel."""

    by_client: bool
    """Whether the client asked."""
    correlation_id: str
    subject: str | None
    sent: Part | None
    """None: the request was not captured."""
    answer: Part | None
    """None: there is none."""
    progress: int | None
    """Progress messages before the answer; None without an answer, and for deliveries."""
    cancelled: bool
    attempts: int
    outcome: str | None
    kind: str = REQUEST

    @property
    def is_unanswered(self) -> bool:
        """Whether an answer is missing that somebody waits for."""
        return self.answer is None and self.outcome not in (CONFIRMED, KILLED)


class Finding(msgspec.Struct, gc=False):
    """A broken rule, and where."""

    rule: str
    ts: int
    to_server: bool | None
    """The side at fault; None if unknown."""
    message_id: bytes | None
    """None for bytes that are no message, and for messages that are missing."""
    source: str
    offset: int
    length: int
    needs_whole: bool
    """Whether it only counts if the session was captured from its beginning and without a gap (`is_whole`)."""
    detail: str | None = None
    """What was measured, such as how late; None for most rules."""


class Unproven(msgspec.Struct, gc=False, array_like=True):
    """A finding of a capture that counts when the other side is seen again on its connection."""

    connection_id: bytes
    finding: Finding


class UnansweredPing(msgspec.Struct, gc=False, array_like=True):
    """The first ping of a side, while the other side never sent a pong."""

    by_client: bool
    ts: int
    source: str
    offset: int
    length: int


class Parting(msgspec.Struct, gc=False, order=True, array_like=True):
    """The first close or error message."""

    ts: int
    message_id: bytes
    how: str
    """`bye` or `error`."""
    by: str
    """`client` or `server`."""


class Standing(msgspec.Struct, frozen=True):
    """How a session stood at its end, or so far."""

    opened: int
    last_seen: int
    handshake: str | None
    """`complete`, `refused` or `incomplete`; None for protocols without one."""
    client_version: int | None
    server_version: int | None
    error_code: int | None
    ended_how: str
    """`bye`, `error`, `reset`, `eof`, `silence` or `open`."""
    ended_by: str | None
    silences: int | None
    """Pauses longer than the protocol allows; None for protocols without such a limit."""


class Timeouts(NamedTuple):
    """The rules about connections of one protocol."""

    inside: FaultLike
    """Broken by a side that closes inside its own message."""
    cut: FaultLike | None = None
    """Broken by a side that closes without a closing message; None if the protocol has none."""
    late: FaultLike | None = None
    """Broken by a side that does not complete the handshake in time; None if the protocol has none."""
    seconds: float | None = None
    """How long a handshake may take, from the protocol's live options; None: any time."""
    excuses: tuple[FaultLike, ...] = ()
    """Faults that justify closing without a closing message."""


class SessionAnalyzer(msgspec.Struct, kw_only=True):
    """Watches one session. Protocols override `_message`, `_end` and what they know better."""

    MESSAGE: ClassVar[type[SeenMessage]] = SeenMessage
    """The struct that `message` takes."""
    HAS_HANDSHAKE: ClassVar[bool] = True
    """Whether sessions open with a handshake and end with a closing message or an error.

    Else an error is a message like any other.
    """
    IS_NODE: ClassVar[bool] = False
    """Whether the session is a node: it uses connections, but neither opens nor ends with them."""
    TIMEOUTS: ClassVar[Timeouts | None] = None
    ODDITIES: ClassVar[tuple[FaultLike, ...]] = ()
    """What the bits of the column `oddities` mean, lowest first."""
    SILENCE_SECONDS: ClassVar[float | None] = None
    """Seconds without a message after which a session is silent; None: only the end of its connection counts."""
    RANKED_BY: ClassVar[str | None] = None
    """Name of the message by which connections that overlap come one after the other; None: all messages are in order of time."""
    STATES: ClassVar[StateTable | None] = None
    """The protocol's state machine; None: nothing is ever forbidden."""

    transport: str = ""
    connections: Connections = msgspec.field(default_factory=Connections)
    first_said: int = NO_TIME
    last_said: int = NO_TIME
    last_word: int = NO_TIME
    """Time of the last message that is neither a close, an error nor an acknowledgement."""
    client_greeted: int = NO_TIME
    server_greeted: int = NO_TIME
    parting: Parting | None = None
    spoilt_by: set[str] = msgspec.field(default_factory=set)
    """Reasons of unreadable bytes: at most as many as the protocol has faults."""
    unfinished: set[bool] = msgspec.field(default_factory=set)
    """Sides, as directions, that began a message that never ended."""
    cuts: dict[bytes, int] = msgspec.field(default_factory=dict)
    """Connection -> time of the first message on it that was cut: what follows there may follow from the hole. At most twice
    `MAX_CONNECTIONS`.
    """
    has_gap: bool = False
    is_captured: bool = False
    """Whether packets were captured: some may be missing. A recording has all that its peer sent and received."""
    unproven: list[Unproven] = msgspec.field(default_factory=list)
    """At most `MAX_UNPROVEN`."""
    unanswered_pings: list[UnansweredPing] = msgspec.field(default_factory=list)
    """At most one of each side."""
    pong_judged: set[bool] = msgspec.field(default_factory=set)
    """Sides, as directions, that sent a pong, or are known not to answer pings."""
    states: dict[bytes, int] = msgspec.field(default_factory=dict)
    """Connection -> its state; those in the initial state are missing. At most twice `MAX_CONNECTIONS`, see `_follow`."""
    has_forgotten: bool = False
    """Whether connections were forgotten, because the session has too many: their states are unknown."""
    unconfirmed: dict[bytes, Unconfirmed] = msgspec.field(default_factory=dict)
    """Connection -> what had not left when it broke. At most twice `MAX_CONNECTIONS`."""
    unsent_messages: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    """Unconfirmed messages of client and server."""
    unsent_bytes: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    requests: int = 0
    """Exchanges whose request was captured, so far."""
    answered: int = 0
    exchanges: list[Exchange] = msgspec.field(default_factory=list)
    """New exchanges; the caller takes them out."""
    findings: list[Finding] = msgspec.field(default_factory=list)
    """New findings; the caller takes them out."""

    # What the caller feeds.

    def event(self, event: ConnectionEvent) -> None:
        """Something happened to a connection of the session."""
        self.transport = self.transport or event.transport
        if event.what == UNCONFIRMED:
            self.unconfirmed[event.connection_id] = Unconfirmed.of(event)
            if len(self.unconfirmed) > 2 * MAX_CONNECTIONS:
                self.unconfirmed = split_oldest(self.unconfirmed, MAX_CONNECTIONS)[1]
            return
        self.is_captured |= event.observer_kind == WIRE
        self.has_gap |= event.what == MISSING
        self.connections.event(event)
        if self.unproven and event.by and self.connections.has_ended(event.connection_id, event.by):
            self._prove(event.connection_id, event.by == "client")

    def unreadable(self, found: Unreadable) -> None:
        """Bytes of the session could not be read."""
        self.spoilt_by.add(found.reason)
        if found.clause is None:
            self.has_gap = True
        else:
            self.findings.append(
                Finding(found.reason, found.ts, found.to_server, None, found.source, found.offset, found.length, needs_whole=False)
            )
        if found.reason == "MESSAGE_CUT":
            if found.to_server is not None:
                self.unfinished.add(found.to_server)
            if found.connection_id is not None:
                before = self.cuts.pop(found.connection_id, found.ts)
                self.cuts[found.connection_id] = min(before, found.ts)
                if len(self.cuts) > 2 * MAX_CONNECTIONS:
                    self.cuts = split_oldest(self.cuts, MAX_CONNECTIONS)[1]

    def watch(self, message: SeenMessage) -> bool:
        """The next message of either side. Returns whether it counts: an unconfirmed one does not.

        It is `message` if `unconfirmed` is empty.
        """
        lost = self.unconfirmed.get(message.connection_id)
        if lost is None or not lost.has(message.ts, message.length, to_server=message.to_server):
            self.message(message)
            return True
        index = 0 if message.to_server else 1
        self.unsent_messages[index] += 1
        self.unsent_bytes[index] += message.size
        self.unsent(message)
        return False

    def message(self, message: SeenMessage) -> None:
        """The next message that left its sender: a `MESSAGE`. Every protocol has its own."""
        raise NotImplementedError

    def unsent(self, message: SeenMessage) -> None:
        """The next message that had not left when its connection broke. The other side does not know it, and nothing follows from it."""

    def end(self) -> None:
        """Tell what depends on the end of the session: requests without an answer, and what was owed. Call it last, and once."""
        self._judge_connections()

    # What the caller may ask.

    @property
    def is_whole(self) -> bool:
        """Whether the session was captured from its beginning and without a gap, so far: only then can absence be judged."""
        if self.has_gap:
            return False
        if self.opened is not None or self.is_captured:
            return self.opened is not None
        greeted = earliest(self.client_greeted, self.server_greeted)
        return greeted != NO_TIME and greeted == self.first_said

    @property
    def opened(self) -> Event | None:
        """The opening of its first connection; None if it was not captured."""
        return None if self.IS_NODE else self.connections.opened

    @property
    def last_connection(self) -> Connection | None:
        """The connection that began last, with which the session ends."""
        return None if self.IS_NODE else self.connections.last

    @property
    def is_end_seen(self) -> bool:
        """Whether all that both sides sent up to the end of the last connection was seen: in a capture, both must have finished."""
        last = self.last_connection
        return not self.is_captured or (last is not None and len(last.finished) > 1)

    @property
    def closed(self) -> Event | None:
        """The end of the last connection; None if it is open."""
        last = self.last_connection
        return None if last is None else last.closed

    @property
    def first_seen(self) -> int:
        """Time of the first message or event."""
        return self.first_said if self.IS_NODE else earliest(self.first_said, self.connections.first_happened)

    @property
    def last_seen(self) -> int:
        """Time of the last message or event."""
        return self.last_said if self.IS_NODE else max(self.last_said, self.connections.last_happened)

    @property
    def has_ended(self) -> bool:
        """Whether a connection or a message ended the session."""
        return self.closed is not None or (self.parting is not None and self.HAS_HANDSHAKE)

    def ended_on(self, finding: Finding) -> bool:
        """Whether nothing but closing messages and acknowledgements came after a finding, and the session is over."""
        is_last = self.last_word == NO_TIME or finding.ts == NO_TIME or finding.ts >= self.last_word
        return self.has_ended and is_last

    def standing(self, newest: int = NO_TIME) -> Standing:
        """How the session stands; `newest` is the time of the last message of its protocol, by which silence is judged."""
        last, last_seen = self.last_connection, self.last_seen
        closed, reset = (None, None) if last is None else (last.closed, last.reset)
        has_greeted = [at != NO_TIME for at in (self.client_greeted, self.server_greeted)]
        both_greeted = any(has_greeted) if self.IS_NODE else all(has_greeted)
        parting = self.parting
        if not self.HAS_HANDSHAKE and parting is not None and (closed is None or self.last_word > parting.ts):
            parting = None  # life went on after the error
        client_version, server_version, is_accepted, error_code = self._greetings()
        is_timed = newest != NO_TIME and last_seen != NO_TIME
        is_silent = self.SILENCE_SECONDS is not None and is_timed and newest - last_seen > self.SILENCE_SECONDS * 1e6
        opened = self.opened
        how = "silence" if is_silent else "open" if self.IS_NODE else _ended_how(parting, reset, closed)
        by = parting.by if parting else reset.by if reset else closed.by if closed else ""
        handshake = "complete" if both_greeted and is_accepted else "refused" if both_greeted or parting else "incomplete"
        return Standing(
            opened=opened.ts if opened is not None and opened.ts != NO_TIME else self.first_seen,
            last_seen=last_seen,
            handshake=handshake if self.HAS_HANDSHAKE else None,
            client_version=client_version,
            server_version=server_version,
            error_code=error_code,
            ended_how=how,
            ended_by=None if self.IS_NODE else by or None,
            silences=self._silences(),
        )

    def encode(self) -> bytes:
        """The state, to go on later with the same results. What was not taken out of `exchanges` and `findings` is in it."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, state: bytes) -> Self:
        """The analyzer of a stored state."""
        return msgspec.msgpack.decode(state, type=cls)

    # What protocols use and override.

    def _greetings(self) -> tuple[int | None, int | None, bool, int | None]:
        """Versions of client and server, whether the handshake was accepted, and the code of the first error."""
        return None, None, True, None

    def _silences(self) -> int | None:
        return None

    def _said(self, ts: int) -> None:
        """A message was sent, of whatever kind."""
        if self.first_said == NO_TIME:
            self.first_said = ts
        self.last_said = ts

    def _step(self, message: SeenMessage, name: str) -> None:
        """Move the state machine of the message's connection, and report a message that it forbids.

        A message that breaks a rule by itself changes the state like any other, but is not reported a second time.
        """
        states = self.STATES
        if states is None:
            return
        state = self.states.get(message.connection_id)
        at = (states.initial if state is None else state, message.to_server, name)
        if at in states.quiet:
            return
        rule = states.refusals.get(at)
        if rule is not None and message.fault is None and not (state is None and self.has_forgotten):
            self._found(rule, message, needs_whole=True)
        after = states.moves.get(at)
        if after is not None:
            self.states[message.connection_id] = after
            if len(self.states) > 2 * MAX_CONNECTIONS:
                self._follow(split_oldest(self.states, MAX_CONNECTIONS)[1])

    def _follow(self, connection_ids: Iterable[bytes]) -> None:
        """Forget the states of all other connections."""
        self.states = {connection_id: self.states[connection_id] for connection_id in connection_ids if connection_id in self.states}
        self.has_forgotten = True

    def _greeted(self, message: SeenMessage) -> None:
        """A handshake message was sent."""
        if message.to_server:
            if self.client_greeted == NO_TIME:
                self.client_greeted = message.ts
        elif self.server_greeted == NO_TIME:
            self.server_greeted = message.ts

    def _parted(self, message: SeenMessage, how: str) -> None:
        """A close (`bye`) or an error was sent."""
        if self.parting is None:
            self.parting = Parting(message.ts, message.message_id, how, "client" if message.to_server else "server")

    def _found(self, rule: str, message: SeenMessage, *, needs_whole: bool) -> None:
        """A message breaks a rule; with `needs_whole`, by what was seen before, or not.

        In a capture, the other side may have sent what explains it, in packets that are missing at the end of what was seen of it. Later
        bytes of that side, or its end, show that nothing is missing, or that there is a gap. A datagram shows neither.
        """
        finding = Finding(
            rule,
            message.ts,
            message.to_server,
            message.message_id,
            message.source,
            message.offset,
            message.length,
            needs_whole=needs_whole,
        )
        if needs_whole and self._is_behind_cut(message.connection_id, message.ts):
            return
        if not (needs_whole and self.is_captured):
            self.findings.append(finding)
        elif self.connections.has_ended(message.connection_id, _NAMES[not message.to_server]):
            self._proved(finding)
        elif self.transport != "udp":
            self.unproven.append(Unproven(message.connection_id, finding))
            del self.unproven[:-MAX_UNPROVEN]

    def _prove(self, connection_id: bytes, side: bool) -> None:
        """A side was seen up to here: what depends on it and was found of the other side before counts.

        Call it for every message while `unproven` has some.
        """
        waiting = []
        for one in self.unproven:
            if one.connection_id == connection_id and one.finding.to_server is not side:
                self._proved(one.finding)
            else:
                waiting.append(one)
        self.unproven = waiting

    def _proved(self, finding: Finding) -> None:
        self.findings.append(finding)

    def _missed(self, rule: str, message: SeenMessage, due: int, *, needs_whole: bool = True, detail: str | None = None) -> None:
        """A message was not answered when the answer was due. The finding blames the other side, and names no message."""
        side = not message.to_server
        if not (needs_whole and self._is_behind_cut(message.connection_id, due)):
            self.findings.append(
                Finding(rule, due, side, None, message.source, message.offset, message.length, needs_whole=needs_whole, detail=detail)
            )

    def _is_behind_cut(self, connection_id: bytes, ts: int) -> bool:
        """Whether a message of this connection was cut before this time: the hole may be why something is missing."""
        cut = self.cuts.get(connection_id)
        return cut is not None and cut < ts

    def _pinged(self, message: SeenMessage) -> None:
        """A ping was sent."""
        by_client = message.to_server
        if (not by_client) not in self.pong_judged and all(ping.by_client is not by_client for ping in self.unanswered_pings):
            self.unanswered_pings.append(UnansweredPing(by_client, message.ts, message.source, message.offset, message.length))

    def _ponged(self, message: SeenMessage) -> None:
        """A pong was sent: its side answers pings."""
        if message.to_server not in self.pong_judged:
            self._judge_pongs_of(message.to_server)

    def _heard(self, message: SeenMessage, rule: str) -> None:
        """A message of any kind was sent. A side that is there, and never answered a ping in so long, does not answer pings.

        Call it for every message while `unanswered_pings` has some.
        """
        for ping in self.unanswered_pings:
            due = ping.ts + PONG_MISSING_SECONDS * 1_000_000
            if ping.by_client is not message.to_server and message.ts > due and not self._is_behind_cut(message.connection_id, due):
                self.findings.append(Finding(rule, due, message.to_server, None, ping.source, ping.offset, ping.length, needs_whole=True))
                self._judge_pongs_of(message.to_server)
                return

    def _judge_pongs_of(self, side: bool) -> None:
        self.pong_judged.add(side)
        self.unanswered_pings = [ping for ping in self.unanswered_pings if ping.by_client is side]

    def _odd(self, oddities: int, message: SeenMessage) -> None:
        """A message has faults that are tolerated."""
        for bit, fault in enumerate(self.ODDITIES):
            if oddities >> bit & 1:
                self._found(fault.name, message, needs_whole=False)

    def _went_by(self, due: int, done: int | None) -> bool:
        """Whether a required message (None: never sent) was not there when it was `due`.

        The session must have been seen until after `due`, and no side may have left by then.
        """
        closed = self.closed
        left = [at for at in (closed.ts if closed else NO_TIME, self.parting.ts if self.parting else NO_TIME) if at != NO_TIME]
        return self.last_seen > due and (not left or min(left) > due) and (done is None or done > due)

    def _exchanged(self, exchange: Exchange) -> None:
        """An exchange is certain."""
        if exchange.sent is not None:
            self.requests += 1
            self.answered += not exchange.is_unanswered
        self.exchanges.append(exchange)

    def _judge_connections(self) -> None:
        """Rules about how connections begin and end."""
        timeouts = self.TIMEOUTS
        if timeouts is None:
            return
        closed, opened = self.closed, self.opened
        is_rude = self.parting is None or timeouts.cut is None
        if closed is not None and is_rude and not any(fault.name in self.spoilt_by for fault in timeouts.excuses):
            side = _SIDES.get(closed.by)
            is_inside = bool(self.unfinished) if side is None else side in self.unfinished
            fault = timeouts.inside if is_inside else timeouts.cut
            if fault is not None and (is_inside or self.is_end_seen):
                self.findings.append(Finding(fault.name, closed.ts, side, None, closed.source, closed.offset, 0, needs_whole=True))
        if timeouts.late is None or timeouts.seconds is None or opened is None or opened.ts == NO_TIME:
            return
        deadline = opened.ts + round(timeouts.seconds * 1_000_000)
        client, server, parted = (
            at != NO_TIME and at <= deadline
            for at in (self.client_greeted, self.server_greeted, self.parting.ts if self.parting else NO_TIME)
        )
        if self.last_seen > deadline and not parted and not (client and server):
            late_side = True if server else False if client else None
            self.findings.append(Finding(timeouts.late.name, deadline, late_side, None, opened.source, opened.offset, 0, needs_whole=True))


def delay(asked: int, answered: int | None) -> str:
    """How long an answer took, in words; None: it never came."""
    return "none came" if answered is None else f"it came after {(answered - asked) / 1_000_000:.3f} s"


_SIDES: Final = {"client": True, "server": False}
_NAMES: Final = {side: name for name, side in _SIDES.items()}


def _ended_how(parting: Parting | None, reset: Event | None, closed: Event | None) -> str:
    if parting is not None:
        return parting.how
    return "reset" if reset is not None else "eof" if closed is not None else "open"
