"""One side of a Relink connection: bytes and time in; bytes, events and a deadline out. What it learns goes into a link that outlives it.

After every call: drain `output()`, drain `events()`, read `deadline` again. `receive` never raises for what the peer did. It refuses to
know sockets and clocks: `now` is any steadily growing number of seconds.
"""

from __future__ import annotations

from typing import Final, cast

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.buffer import Framed
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, PART, PARTS, START
from wirelake.protocols.relink.events import Ended, Ending, Event, Noticed, Opened, Ponged
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.handshake import HandshakeReader
from wirelake.protocols.relink.keepalive import Keepalive
from wirelake.protocols.relink.link.inbox import Inbox
from wirelake.protocols.relink.link.link import Link
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.messages import (
    TYPES,
    VERSION,
    AnyMessage,
    HandshakeFlag,
    Kind,
    Ping,
    Pong,
    Reply,
    Request,
    Shutdown,
    Version,
)
from wirelake.protocols.relink.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.relink.scanner import COUNT, ID_SIZE, IDS, ODD_BITS, ODD_EMPTY, ODD_FORM, ODDITIES, PART_COLUMNS, SEQUENCE
from wirelake.protocols.relink.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.relink.wire import channels, encode, message, packet_buffer, payload

__all__ = ["Session"]

_ALLOWED: Final[dict[tuple[State, Speaker], dict[int, State]]] = {
    (state, speaker): {TYPES[said]: after for (before, who, said), after in TRANSITIONS.items() if (before, who) == (state, speaker)}
    for state in State
    for speaker in Speaker
}
"""The table again, by the number of what is said: it is asked for every packet."""
_MESSAGE: Final = int(Kind.MESSAGE)
_SAID: Final[dict[int, type[AnyMessage]]] = {number: one for one, number in TYPES.items()}
_PING, _PONG = encode(Ping()), encode(Pong())
_NOT_THE_PEERS: Final = frozenset(
    {
        *(Fault.HANDSHAKE_TIMEOUT, Fault.PONG_TIMEOUT, Fault.PACKET_TIMEOUT, Fault.CLOSED_WITHOUT_PARTING, Fault.CLOSED_INSIDE_MESSAGE),
        *(Fault.LINK_LOST, Fault.LINKS_OVER_LIMIT),
    }
)
"""What ends a connection without the peer having broken the protocol (RELINK-12)."""
_ODDITIES: Final = {ODD_BITS: Fault.UNUSED_BITS_SET, ODD_FORM: Fault.NOT_MINIMAL, ODD_EMPTY: Fault.MULTICAST_EMPTY}


class Session(Framed):
    """A connection as one of its two ends lives it: a connector's belongs to its link, a listener's finds its link in a registry."""

    def __init__(
        self,
        speaker: Speaker,
        options: Options = DEFAULT_OPTIONS,
        *,
        link: Link | None = None,
        registry: Registry | None = None,
        remote: str = "",
    ) -> None:
        if (link is None) == (speaker is Speaker.CONNECTOR) or (registry is None) == (speaker is Speaker.LISTENER):
            raise LocalProtocolError(Fault.NOT_OPEN, "a connector needs a link, a listener a registry")
        self.speaker = speaker
        self.peer = speaker.other
        self.options = options
        self.remote = remote
        self.state = INITIAL
        self.ended: Ended | None = None
        self.link = link
        """The link this connection is for; a listener learns it in the handshake."""
        self._inbox: Inbox
        """The link's, once the connection is open."""
        self._registry = registry
        self._handshake = HandshakeReader(options.limits, link.endpoint.id_sizes if link is not None else None)
        self._buffer = packet_buffer(options.limits, self._handshake.limits(self.peer) or ())
        self._output: list[bytes] = []
        self._events: list[Event] = []
        self._is_open = False
        self._requires = False
        """RELINK-10: our request said that only the old link will do."""
        self._now = 0.0
        self._handshake_deadline: float | None = None
        self._keepalive = Keepalive(options)

    # What comes out.

    def output(self) -> bytes:
        """The bytes to send now; they are gone from here."""
        self._output_link()
        self._finish_if_shut()
        if not self._output:
            return b""
        data = self._join(self._output)
        self._output.clear()
        return data

    def events(self) -> list[Event]:
        """What happened since the last call, on the link as well."""
        events, self._events = self._events, []
        if self._is_open and self.link is not None and self.link.line.events:
            events += self.link.events()
        return events

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called next, whatever else happens."""
        timers = [self._handshake_deadline, self._keepalive.deadline]
        if self._is_open and self.link is not None:
            timers += (self.link.inbox.deadline, self.link.inbox.barrier_deadline)
        return min((timer for timer in timers if timer is not None), default=None)

    # What the caller does.

    def start(self, now: float) -> None:
        """§1: the connector begins."""
        self._now = now
        if self.options.handshake_timeout is not None:
            self._handshake_deadline = now + self.options.handshake_timeout
        if self.speaker is Speaker.CONNECTOR:
            self._say(Version(VERSION))

    def ping(self, now: float) -> int:
        """§3.4: ask for a pong; says which ping on this connection it is. RELINK-25: raises without a connection."""
        if not self._is_open or self.link is None:
            raise LocalProtocolError(Fault.NOT_OPEN)
        self._output_link()
        self._output.append(_PING)
        number = self._keepalive.ping(now)
        self.link.inbox.pinged(number)
        return number

    def bye(self, detail: str = "") -> None:
        """Close the connection; the link stays."""
        if self.ended is None:
            self._output_link()
            self._end(Ended(Ending.CLOSED, self.speaker, True, detail=detail))

    def fail(self, fault: Fault, detail: str = "") -> None:
        """RELINK-12: close the connection, because a rule was broken."""
        if self.ended is not None:
            return
        link = self.link
        self._end(Ended(Ending.ERROR, self.speaker, True, fault, detail))
        if link is not None and fault not in _NOT_THE_PEERS:
            link_id = link.id
            if fault is Fault.RESUME_INCONSISTENT:  # RELINK-21
                link.lose(fault)
            else:
                link.strike()
            self._released(link, link_id)
            self._events += link.events()

    # What the world does.

    def receive(self, data: bytes, now: float) -> None:
        """Bytes from the peer. Whatever they are, this does not raise."""
        self._now = now
        self._keepalive.heard(now)
        if self.link is not None and self._is_open:
            self.link.line.now = now
        for taken, rows, parts in self._buffer.feed(data):
            for row in rows:
                if self.ended is not None:
                    return
                if row[KIND] == _MESSAGE and self._is_open and not row[FAULT] and not row[ODDITIES]:
                    self._take_message(taken, row, parts)
                else:
                    self._take(taken, row, parts, now)
        if self.ended is None and self._is_open:
            self._keepalive.watch_packet(self._buffer.size, len(data), now)

    def receive_eof(self, now: float) -> None:
        """The peer closed the connection, or the network did."""
        self._now = now
        if self.ended is None:
            fault = Fault.CLOSED_INSIDE_MESSAGE if self._buffer.size else Fault.CLOSED_WITHOUT_PARTING
            self._end(Ended(Ending.CLOSED, self.peer, False, fault))

    def tick(self, now: float) -> None:
        """Time passed: timers that are due fire."""
        if self.ended is not None:
            return
        self._now = now
        if self._handshake_deadline is not None and now >= self._handshake_deadline:  # RELINK-4
            self.fail(Fault.HANDSHAKE_TIMEOUT)
        elif self._keepalive.is_packet_late(now):  # RELINK-25
            self.fail(Fault.PACKET_TIMEOUT)
        elif self._keepalive.is_pong_late(now):  # RELINK-25
            self.fail(Fault.PONG_TIMEOUT)
        elif self._is_open and self.link is not None:
            self.link.line.now = now
            inbox = self.link.inbox
            inbox.tick()
            if self._keepalive.wants_ping(now) or (inbox.barrier_deadline is not None and now >= inbox.barrier_deadline):
                self.ping(now)

    def pause(self) -> None:
        """The owner stops reading for a while: what waits unread is not a silent peer."""
        self._keepalive.pause()

    def resume(self, now: float) -> None:
        """The owner reads again."""
        self._keepalive.resume(now)
        if self._is_open:
            self._keepalive.watch_packet(self._buffer.size, 0, now)

    @property
    def is_proven(self) -> bool:
        """See Drivable: the handshake is done."""
        return self._is_open

    @property
    def asked(self) -> int:
        """See Drivable."""
        return self._keepalive.pinged

    def drained(self, count: int, now: float) -> None:
        """RELINK-25: bytes that were sent before the last ping have left."""
        self._keepalive.drained(count, now)

    def supersede(self, now: float) -> None:
        """RELINK-11: another connection took the link over; the last one wins."""
        self._now = now
        self.bye("another connection took the link over")

    # Inside.

    def _say(self, said: AnyMessage) -> None:
        self.state = TRANSITIONS[self.state, self.speaker, type(said)]
        self._output.append(encode(said))

    def _output_link(self) -> None:
        """What the link has to say goes before what the session says now."""
        if self.link is not None and self._is_open:
            self.link.inbox.flush()
            line = self.link.line
            if line.output:
                self._output += line.output
                line.output.clear()
                if self.link.has_said_shutdown:
                    self.state = _ALLOWED[self.state, self.speaker][TYPES[Shutdown]]

    def _take_message(self, data: bytes, row: list[int], parts: list[int]) -> None:
        """The commonest of all, which no open state forbids: see `_take`."""
        try:
            if row[COUNT] == 1 and row[PARTS] == 1:
                at, part = row[IDS], row[PART] * PART_COLUMNS
                start = parts[part]
                self._inbox.deliver(data[at : at + row[ID_SIZE]], (data[start : start + parts[part + 1]],))
            else:
                self._inbox.take_message(channels(data, row), payload(data, row, parts))
        except Violation as breach:
            self.fail(breach.fault, breach.detail)

    def _take(self, data: bytes, row: list[int], parts: list[int], now: float) -> None:
        kind, fault = row[KIND], row[FAULT]
        if fault:
            self.fail(Fault(fault), f"byte {row[FAULT_AT] - row[START]} of a packet")
            return
        after = _ALLOWED[self.state, self.peer].get(kind)
        if after is None:
            self.fail(refusal(self.state, self.peer, _SAID[kind]), Kind(kind).name.lower())
            return
        self.state = after
        if row[ODDITIES]:
            self._events += [Noticed(noticed) for bit, noticed in _ODDITIES.items() if row[ODDITIES] & bit]
        try:
            if kind >= Kind.VERSION:
                self._take_handshake(data, row, parts, now)
            elif kind <= Kind.PONG:
                self._take_general(kind)
            else:
                link = cast(Link, self.link)
                sequence = row[SEQUENCE] if row[SEQUENCE] >= 0 else None
                link.take(kind, channels(data, row), sequence, payload(data, row, parts) if kind == Kind.MESSAGE else ())
        except Violation as breach:
            self.fail(breach.fault, breach.detail)
        except DecodeError as reason:
            self.fail(cast(Fault, reason.fault), reason.detail)

    def _take_general(self, kind: int) -> None:
        if kind == Kind.PING:  # RELINK-25: one pong per ping, in order
            self._output_link()
            self._output.append(_PONG)
        elif kind == Kind.PONG:
            answered = self._keepalive.pong()
            if answered is None:
                self._events.append(Noticed(Fault.PONG_UNSOLICITED))
                return
            cast(Link, self.link).inbox.ponged(answered)
            self._events.append(Ponged(answered))

    def _take_handshake(self, data: bytes, row: list[int], parts: list[int], now: float) -> None:
        said = message(data, row, parts)
        if isinstance(said, Version):
            self._take_version(said)
        elif isinstance(said, Request):
            self._take_request(said, now)
        elif isinstance(said, Reply):
            self._take_reply(said, now)
        self._handshake.follow(self.peer, data, row)
        self._buffer.limits = self._handshake.limits(self.peer) or self._buffer.limits

    def _take_version(self, said: Version) -> None:
        if self.speaker is Speaker.LISTENER:
            self._say(Version(min(VERSION, said.version)))  # RELINK-5
        elif said.version != VERSION:
            raise Violation(Fault.VERSION_UNSUPPORTED, f"version {said.version}")
        else:
            link = cast(Link, self.link)
            self._requires = link.id != 0 and (self.options.require_old_link or link.has_said_shutdown)  # RELINK-10, RELINK-23
            flags = link.endpoint.flags | (HandshakeFlag.REQUIRE_OLD_LINK if self._requires else 0)
            self._say(Request(link.endpoint.name, *link.endpoint.id_sizes, flags, link.epoch, link.id))

    def _take_request(self, said: Request, now: float) -> None:
        registry = cast(Registry, self._registry)
        link, resumed = registry.admit(said, self.remote)
        if link is None:  # RELINK-10
            self._say(Reply(registry.epoch, 0))
            self.bye("the required link is not known here")
            return
        if isinstance(link.owner, Session):
            link.owner.supersede(now)
        self.link = link
        self._say(Reply(registry.epoch, link.id))
        self._open(link, registry.epoch, link.id, now, resumed=resumed)

    def _take_reply(self, said: Reply, now: float) -> None:
        """RELINK-10: what the listener makes of our link."""
        link = cast(Link, self.link)
        if said.link_id == 0:
            if not self._requires:
                raise Violation(Fault.LINK_REFUSED)
            link.lose(Fault.LINK_LOST)
            link.is_over = True
            self._events += link.events()
            self._end(Ended(Ending.CLOSED, self.peer, False, detail="the listener does not know the link any more"))
            return
        resumed = (said.epoch, said.link_id) == (link.epoch, link.id)
        if not resumed and self._requires:
            raise Violation(Fault.LINK_REPLACED)
        if not resumed and link.id:
            link.lose(Fault.LINK_LOST, replaced=True)
        self._open(link, said.epoch, said.link_id, now, resumed=resumed)

    def _open(self, link: Link, epoch: int, link_id: int, now: float, *, resumed: bool) -> None:
        self._is_open = True
        self._handshake_deadline = None
        self._keepalive.open()
        self._events.append(Opened(epoch, link_id, resumed))
        link.attach(self, epoch, link_id, now, resumed=resumed)
        self._inbox = link.inbox

    def _finish_if_shut(self) -> None:
        """§3.6: both have said shutdown: flush, close, forget."""
        link = self.link
        if link is not None and self._is_open and link.finish():
            link_id = link.id
            self._output_link()
            self._end(Ended(Ending.SHUTDOWN, self.speaker, True))
            self._released(link, link_id)

    def _released(self, link: Link, link_id: int) -> None:
        """A listener forgets a link that is over or lost."""
        if self._registry is not None and (link.is_over or link.id != link_id):
            self._registry.release(link_id)
            link.is_over = True

    def _end(self, ended: Ended) -> None:
        self.ended = ended
        self._handshake_deadline = None
        self._keepalive.close()
        link = self.link
        if link is not None and self._is_open:
            self._is_open = False
            self._events += link.events()
            link.detach(self, self._now)
        self._events.append(ended)
