"""Relink as an observer sees it: a link over its connections, its channels, and what became of every message.

A connection may be cut at any time, and its link goes on with the next. What a channel is, its numbers and its rules, is in
`channel_analyzer`; all channels of a side are in `side_analyzer`; what became of messages in `deliveries`. If a side breaks one rule
several times on a connection, only the first time counts: its peer then closes the connection (RELINK-12). Tolerated faults are listed
each time.

A link is judged connection by connection, in the order in which listeners agreed to them: one end may still send on a connection while
the other is on the next already, and those messages come before all messages there (RELINK-11). See `RANKED_BY`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from wirelake.errors import FaultLike
from wirelake.protocols.analyzer import MAX_UNPROVEN, NO_TIME, Exchange, Finding, Part, Parting, SeenMessage, SessionAnalyzer
from wirelake.protocols.connections import MAX_CONNECTIONS
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.relink.channel_analyzer import UNKNOWN, Circumstances
from wirelake.protocols.relink.deliveries import CLOSE, CLOSED, CONSUMED, CURSORS, DECISION, MESSAGE, RECEIVED, RESULT
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import VERSION
from wirelake.protocols.relink.options import DEFAULT_OPTIONS
from wirelake.protocols.relink.side_analyzer import Half
from wirelake.protocols.relink.state_machine import MACHINE, State
from wirelake.protocols.state_table import StateTable, state_table

__all__ = ["ODDITIES", "Analyzer", "Seen"]

ODDITIES: Final = (Fault.UNUSED_BITS_SET, Fault.NOT_MINIMAL, Fault.MULTICAST_EMPTY)
"""What the bits of the column `oddities` mean, lowest first."""
_HANDSHAKE_MICROS: Final = None if DEFAULT_OPTIONS.handshake_timeout is None else round(DEFAULT_OPTIONS.handshake_timeout * 1_000_000)
"""RELINK-4: how long the whole handshake may take; None: any time."""
_NO_LINK: Final = "0"
_HANDSHAKE: Final = frozenset(("version", "request", "reply"))
_NO_WORDS: Final = frozenset(("received", "consumed", "committed", "uncommitted", "closed", "shutdown"))
"""Acknowledgements, and the closing message."""
_OPEN: Final = int(State.OPEN)
_BY_SENDER: Final = tuple(DECISION <= cursor <= CLOSE for cursor in range(CLOSED + 1))
"""Cursor -> whether the sender of the channel moves it; the receiver moves all others."""


class Seen(SeenMessage, gc=False):
    """A Relink packet, or a part of the handshake."""

    type_name: str
    channel_ids: list[bytes] | None
    sequence: int | None
    version: int | None
    connector_transactions: bool | None
    listener_transactions: bool | None
    require_old_link: bool | None
    epoch: str | None
    link_id: str | None
    oddities: int


class Wire(msgspec.Struct):
    """One connection of the link."""

    began: Seen | None = None
    """The first readable part of the handshake, or packet about the link."""
    is_answered: bool = False
    """The listener has said its version."""
    asked: Seen | None = None
    agreed: Seen | None = None
    is_linked: bool = False
    """The listener gave a link."""
    order: int = -1
    """Its place among the connections of the link; -1: it has none yet."""
    is_open: bool = False
    """The link can be judged by what is sent here."""
    is_talking: bool = False
    """The state machine allows all packets about channels."""
    is_resumed: bool = False
    resume_client: Seen | None = None
    resume_server: Seen | None = None
    client_pings: int = 0
    """Pings of the client without a pong."""
    server_pings: int = 0
    is_breached: bool = False
    """RELINK-12: a rule was broken; whoever closes the connection does right."""
    broken: dict[str, int] = msgspec.field(default_factory=dict)
    """Rule -> bits of the sides that broke it: at most as many as there are rules."""
    of_client: Circumstances = msgspec.field(default_factory=lambda: Circumstances(False, False, False, False))
    """What counts for channels of the client."""
    of_server: Circumstances = msgspec.field(default_factory=lambda: Circumstances(False, False, False, False))


class Analyzer(SessionAnalyzer):
    """Watches one Relink link."""

    MESSAGE: ClassVar[type[SeenMessage]] = Seen
    STATES: ClassVar[StateTable | None] = state_table(MACHINE)
    ODDITIES: ClassVar[tuple[FaultLike, ...]] = ODDITIES
    RANKED_BY: ClassVar[str | None] = "reply"
    """RELINK-11: feed it connection by connection, in the order of their replies, and each in order of time.

    In order of time over all connections, a packet about channels on a connection that has a successor is not judged, and resolves nothing.
    Where no two connections overlap, both orders are the same.
    """

    wires: dict[bytes, Wire] = msgspec.field(default_factory=dict)
    """At most twice `MAX_CONNECTIONS`, and the one that has the link; see `_forget_wires`."""
    has_begun: bool = False
    """Whether a handshake began on a connection that is forgotten."""
    order: int = -1
    """The connection that has the link now."""
    is_known: bool = False
    """The link was seen from its first connection on."""
    client: Half = msgspec.field(default_factory=lambda: Half(by_client=True))
    server: Half = msgspec.field(default_factory=lambda: Half(by_client=False))
    client_version: int | None = None
    server_version: int | None = None
    is_accepted: bool = False
    proven: list[Finding] = msgspec.field(default_factory=list)
    """What a capture of a later connection shows: it may follow from a gap in an earlier one, which is known at the end. At most
    `MAX_UNPROVEN`.
    """

    def message(self, message: SeenMessage) -> None:
        """See `SessionAnalyzer`."""
        assert isinstance(message, Seen)  # noqa: S101 - see MESSAGE
        name, ts = message.type_name, message.ts
        if ts > self.last_said:
            self.last_said = ts
        if ts < self.first_said or self.first_said == NO_TIME:
            self.first_said = ts
        if ts > self.last_word and name not in _NO_WORDS:
            self.last_word = ts
        if self.unproven:
            self._prove(message.connection_id, message.to_server)
        if self.unanswered_pings:
            self._heard(message, Fault.PONG_MISSING.name)
        wire = self.wires.get(message.connection_id)
        if wire is None:
            if self.has_forgotten and name not in _HANDSHAKE:
                return  # of a connection that is forgotten
            wire = self.wires[message.connection_id] = Wire()
            if len(self.wires) > 2 * MAX_CONNECTIONS:
                self._forget_wires()
        cursor = CURSORS.get(name)
        if wire.is_talking and cursor is not None and message.fault is None and not message.oddities:
            self._channels(message, wire, cursor)
        else:
            self._any(message, wire, cursor)

    def unsent(self, message: SeenMessage) -> None:
        """See `SessionAnalyzer`. Its channel counts it: the sender repeats it, or the other side has it nevertheless (RELINK-14)."""
        assert isinstance(message, Seen)  # noqa: S101 - see MESSAGE
        cursor = CURSORS.get(message.type_name)
        if cursor is None or not _BY_SENDER[cursor]:
            return
        half, found = self.client if message.to_server else self.server, len(self.findings)
        half.attempts = 0
        self.message(message)
        half.attempts = 1
        del self.findings[found:]

    def _any(self, message: Seen, wire: Wire, cursor: int | None) -> None:
        """What may be wrong by itself, or change the state of the connection."""
        name, fault = message.type_name, message.fault
        if fault is not None:
            self._found(fault, message, needs_whole=False)
        if message.oddities:
            self._odd(message.oddities, message)
        self._step(message, name)
        wire.is_talking = self.states.get(message.connection_id, 0) >= _OPEN
        if name == "shutdown":
            parting = Parting(message.ts, message.message_id, "bye", "client" if message.to_server else "server")
            if self.parting is None or parting < self.parting:
                self.parting = parting
        if cursor is None:
            self._general(message, wire)
        elif fault is None:
            self._channels(message, wire, cursor)

    def end(self) -> None:
        """See `SessionAnalyzer`."""
        for half in (self.client, self.server):
            self._tell(half.rest())
        self._judge_handshakes()
        self._judge_parting()
        self.findings += self.proven
        self.proven = []

    def _greetings(self) -> tuple[int | None, int | None, bool, int | None]:
        return self.client_version, self.server_version, self.is_accepted, None

    def _proved(self, finding: Finding) -> None:
        """See `SessionAnalyzer`."""
        if self.order > 0:
            self.proven.append(finding)
            del self.proven[:-MAX_UNPROVEN]
        else:
            super()._proved(finding)

    # The handshake, and packets about the connection.

    def _general(self, message: Seen, wire: Wire) -> None:
        name, to_server = message.type_name, message.to_server
        if name in _HANDSHAKE:
            self._greets(message)
        if message.fault is not None:
            if name == "reply" and message.link_id != _NO_LINK:
                self._open(wire)
            return
        if wire.began is None and name not in ("ping", "pong", "nop"):
            wire.began = message
        if name == "ping":
            self._pinged(message)
            if to_server:
                wire.client_pings += 1
            else:
                wire.server_pings += 1
        elif name == "pong":
            self._pongs(message, wire)
        elif name == "resume":
            self._resumes(message, wire)
        elif name == "shutdown":
            half, of = (self.client, wire.of_client) if to_server else (self.server, wire.of_server)
            half.is_shut = of.is_shut = True
        elif name == "version":
            wire.is_answered |= not to_server
            if not to_server and message.version != VERSION:
                self._found(Fault.VERSION_UNSUPPORTED.name, message, needs_whole=False)  # §1
        elif name == "request":
            wire.asked = wire.asked or message
            if wire.agreed is not None:
                self._agree(wire)
        elif name == "reply" and wire.agreed is None:
            wire.agreed = message
            if wire.asked is not None:
                self._agree(wire)
            elif message.link_id != _NO_LINK:
                self._open(wire)

    def _greets(self, message: Seen) -> None:
        """Fields of both handshakes, for `sessions`."""
        ts, version = message.ts, message.version
        if message.to_server:
            self.client_greeted = ts if self.client_greeted == NO_TIME else min(self.client_greeted, ts)
            if version is not None:
                self.client_version = version if self.client_version is None else min(self.client_version, version)
            return
        self.server_greeted = ts if self.server_greeted == NO_TIME else min(self.server_greeted, ts)
        if version is not None:
            self.server_version = version if self.server_version is None else min(self.server_version, version)
        self.is_accepted |= message.type_name == "reply" and message.link_id != _NO_LINK

    def _agree(self, wire: Wire) -> None:
        """§1: a link was asked for, and given or not."""
        asked, agreed = wire.asked, wire.agreed
        if asked is None or agreed is None:
            return
        is_same = asked.epoch == agreed.epoch and asked.link_id == agreed.link_id
        if agreed.link_id == _NO_LINK:
            if not asked.require_old_link:
                self._broke(Fault.LINK_REFUSED.name, agreed, wire)  # RELINK-10
        elif asked.require_old_link and asked.link_id != _NO_LINK and not is_same:
            self._broke(Fault.LINK_REPLACED.name, agreed, wire)  # RELINK-10
        self._judge_handshake(wire, agreed.ts)
        self.client.transactional, self.server.transactional = bool(asked.connector_transactions), bool(asked.listener_transactions)
        if agreed.link_id != _NO_LINK:
            wire.is_open, wire.is_resumed = True, is_same
            self._open(wire)
            if is_same:
                for resume in (wire.resume_client, wire.resume_server):
                    if resume is not None:
                        self._forgets(resume, wire)

    def _open(self, wire: Wire) -> None:
        """The link goes on here."""
        wire.is_linked = True
        if wire.order < 0:
            self.order = wire.order = self.order + 1
        if not wire.is_open:
            self.is_known = False
        elif not wire.is_resumed:
            for half in (self.client, self.server):
                self._tell(half.replace(wire.order))
            self.is_known = True
        for half in (self.client, self.server):
            half.purge()
        # Of a link that was captured, connections between two that were seen may be missing.
        self.is_known &= not (self.is_captured and wire.is_resumed)
        is_known, is_resumed = self.is_known, wire.is_resumed
        wire.of_client = Circumstances(is_known, is_resumed, is_resumed and wire.resume_server is None, self.client.is_shut)
        wire.of_server = Circumstances(is_known, is_resumed, is_resumed and wire.resume_client is None, self.server.is_shut)

    def _pongs(self, message: Seen, wire: Wire) -> None:
        """RELINK-25: one pong per ping; every connection starts again."""
        self._ponged(message)
        waits = wire.server_pings if message.to_server else wire.client_pings
        if not waits:
            self._found(Fault.PONG_UNSOLICITED.name, message, needs_whole=True)
        elif message.to_server:
            wire.server_pings -= 1
        else:
            wire.client_pings -= 1

    def _resumes(self, message: Seen, wire: Wire) -> None:
        """RELINK-20, RELINK-21: from here on the other side may send."""
        asked, agreed = wire.asked, wire.agreed
        is_second = (wire.resume_client if message.to_server else wire.resume_server) is not None
        is_fresh = asked is not None and agreed is not None and (asked.epoch, asked.link_id) != (agreed.epoch, agreed.link_id)
        if is_second or is_fresh:
            self._found(Fault.RESUME_UNEXPECTED.name, message, needs_whole=True)
        if is_second:
            return
        if message.to_server:
            wire.resume_client, wire.of_server.is_early = message, False
        else:
            wire.resume_server, wire.of_client.is_early = message, False
        if wire.is_resumed:
            self._forgets(message, wire)
            half = self.server if message.to_server else self.client
            self._tell(half.resume(wire.order))

    def _forgets(self, resume: Seen, wire: Wire) -> None:
        """RELINK-21: a channel that was acknowledged must be reported; if it was closing, it is closed."""
        half = self.server if resume.to_server else self.client
        is_forgotten = False
        for channel in half.channels.values():
            if channel.connection < wire.order and not channel.is_judged:
                is_forgotten |= channel.is_acknowledged
                channel.is_judged = True
                channel.deliveries.is_over |= channel.turn == CLOSE and channel.is_heard
        if is_forgotten and self.is_known:
            self._broke(Fault.RESUME_INCONSISTENT.name, resume, wire)

    # Channels.

    def _channels(self, message: Seen, wire: Wire, cursor: int) -> None:
        """A packet about channels."""
        half, of = (self.client, wire.of_client) if message.to_server == _BY_SENDER[cursor] else (self.server, wire.of_server)
        ids, order = message.channel_ids, wire.order
        if ids and order == self.order and not of.is_early and len(ids) == 1:
            channel = half.channels.get(ids[0])
            if channel is not None and channel.connection == order and channel.turn == MESSAGE and not channel.is_closing:
                if cursor == MESSAGE:
                    forgotten = half.send(ids[0], channel, channel.count(), Part(message.ts, message.message_id, message.size))
                    if forgotten:
                        self._tell(forgotten)
                    return
                if cursor <= (DECISION if half.transactional else CONSUMED) and channel.advance(cursor, message.sequence):
                    if cursor != RECEIVED:
                        part = Part(message.ts, message.message_id, message.size)
                        self._tell(half.cover(ids[0], channel, cursor, message.sequence, message.type_name, part))
                    return
        self._judge_channels(message, wire, cursor, half, of)
        if half.is_full:
            self._tell(half.limit())

    def _judge_channels(self, message: Seen, wire: Wire, cursor: int, half: Half, of: Circumstances) -> None:
        """A packet that may break a rule."""
        is_off = not half.transactional and wire.is_open and cursor in (DECISION, RESULT)
        if is_off:
            self._broke(Fault.TRANSACTIONS_OFF.name, message, wire)  # RELINK-13
        ids = message.channel_ids
        if not ids:
            return
        if wire.order < 0:
            self.order = wire.order = self.order + 1
        elif wire.order < self.order:
            return
        if len(ids) > 1 and cursor in (CLOSE, CLOSED):
            ids = list(dict.fromkeys(ids))  # RELINK-19: twice is once
        part, is_unknown = Part(message.ts, message.message_id, message.size), False
        is_judged = wire.is_open and not is_off and not half.has_forgotten
        for channel_id in ids:
            channel = half.channels.get(channel_id)
            if channel is None and cursor < DECISION and not of.is_early:
                is_unknown = True  # RELINK-13: it is ignored
                continue
            if channel is None or channel.connection != wire.order:
                if channel is not None and channel.deliveries.reports:
                    self._tell(half.resume_channel(channel_id, channel))
                channel = half.arrive(channel_id, channel, wire.order)
            rule = channel.see(cursor, message.sequence, of)
            if rule is UNKNOWN:
                is_unknown = True
                continue
            if rule is not None and is_judged:
                self._broke(rule, message, wire)
            self._tell(half.deliver(channel_id, channel, cursor, message.sequence, message.type_name, part, is_report=of.is_early))
        if is_unknown and is_judged:
            self._found(UNKNOWN, message, needs_whole=True)

    def _tell(self, exchanges: list[Exchange]) -> None:
        for exchange in exchanges:
            self._exchanged(exchange)

    # Findings.

    def _broke(self, rule: str, message: Seen, wire: Wire) -> None:
        """RELINK-12: only the first time counts that a side breaks a rule on a connection."""
        side, sides = 2 if message.to_server else 1, wire.broken.get(rule, 0)
        if not sides & side:
            wire.broken[rule] = sides | side
            wire.is_breached = True
            self._found(rule, message, needs_whole=True)

    def _judge_handshakes(self) -> None:
        """RELINK-4: handshakes that were never finished."""
        self._judge_unfinished(self.wires.values(), self.last_seen)
        if not self.has_begun:
            self._judge_handshake(Wire(), self.last_seen)

    def _judge_unfinished(self, wires: Iterable[Wire], now: int) -> None:
        for wire in wires:
            self.has_begun |= wire.began is not None
            if wire.began is not None and (wire.agreed is None or wire.asked is None):
                self._judge_handshake(wire, now if wire.agreed is None else wire.agreed.ts)

    def _forget_wires(self) -> None:
        """Forget the connections that were seen first, except the one that has the link. They are judged by what was seen so far."""
        oldest, newest = split_oldest(self.wires, MAX_CONNECTIONS)
        current = {connection_id: wire for connection_id, wire in oldest if wire.order == self.order}
        self._judge_unfinished((wire for connection_id, wire in oldest if connection_id not in current), self.last_said)
        self.wires = {**current, **newest}
        self._follow(self.wires)

    def _judge_handshake(self, wire: Wire, until: int) -> None:
        """RELINK-4: the whole handshake has to be finished in time."""
        began, opened = wire.began, self.opened
        since = began.ts if began is not None else opened.ts if opened is not None and opened.ts != NO_TIME else self.first_seen
        if _HANDSHAKE_MICROS is None or since == NO_TIME or until <= since + _HANDSHAKE_MICROS:
            return
        deadline = since + _HANDSHAKE_MICROS
        is_asked = wire.asked is not None and wire.asked.ts <= deadline
        is_listener = self.client_greeted != NO_TIME and (not wire.is_answered or is_asked)
        source, offset = ("", 0) if began is None else (began.source, began.offset)
        if began is None:
            first = self.connections.first
            if first is not None:
                source, offset = first.source, first.offset
        wire.is_breached = True
        rule = Fault.HANDSHAKE_TIMEOUT.name
        self.findings.append(Finding(rule, deadline, not is_listener, None, source, offset, 0, needs_whole=True))

    def _judge_parting(self) -> None:
        """RELINK-23: only the last connection of a link can have been closed without parting, unless a rule was broken on it."""
        closed = self.closed
        if closed is None or not self.is_end_seen or self.spoilt_by or (self.client.is_shut and self.server.is_shut):
            return
        last = max((wire for wire in self.wires.values() if wire.is_linked), key=lambda wire: wire.order, default=None)
        if last is None or last.is_breached:
            return
        side = {"client": True, "server": False}.get(closed.by)
        rule = Fault.CLOSED_WITHOUT_PARTING.name
        self.findings.append(Finding(rule, closed.ts, side, None, closed.source, closed.offset, 0, needs_whole=True))
