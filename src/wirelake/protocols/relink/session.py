"""One side of a Relink connection: bytes and time in; bytes, events and a deadline out.

Messages, acknowledgements and channels belong to a link (`link/core.py`), which outlives its connections.

After every call on a session or its link: take `output()`, then `events()`, then read `deadline`. The order matters: `output` also ends the
session once both sides have shut the link down, which is an event. `receive` never raises for what the peer did. `now` is any
steadily growing number of seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, PARTS, START
from wirelake.protocols.relink.events import Ended, Ending, Noticed, Opened, Ponged, SessionEvent
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.handshake import HandshakeReader
from wirelake.protocols.relink.keepalive import Keepalive
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.inbox import Inbox
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
from wirelake.protocols.relink.scanner import COUNT, ID_SIZE, IDS, ODD_BITS, ODD_EMPTY, ODD_FORM, ODDITIES, PART_COLUMNS, SEQUENCE, first_id
from wirelake.protocols.relink.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.relink.wire import channels, encode, message, packet_buffer, payload
from wirelake.protocols.stream_session import StreamSession

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Session"]

_ALLOWED: Final[dict[tuple[State, Speaker], dict[int, State]]] = {
    (state, speaker): {
        TYPES[message_type]: after for (before, sender, message_type), after in TRANSITIONS.items() if (before, sender) == (state, speaker)
    }
    for state in State
    for speaker in Speaker
}
"""TRANSITIONS by packet type instead of class: it is looked up for every packet."""
_MESSAGE: Final = int(Kind.MESSAGE)
_CLASSES: Final[dict[int, type[AnyMessage]]] = {number: message_type for message_type, number in TYPES.items()}
_PING, _PONG = encode(Ping()), encode(Pong())
_NOT_THE_PEERS: Final = frozenset(
    {
        *(Fault.HANDSHAKE_TIMEOUT, Fault.PONG_TIMEOUT, Fault.PACKET_TIMEOUT, Fault.CLOSED_WITHOUT_PARTING, Fault.CLOSED_INSIDE_MESSAGE),
        *(Fault.LINK_LOST, Fault.LINKS_OVER_LIMIT),
    }
)
"""Faults that end a connection though the peer broke no rule (RELINK-12)."""
_ODDITIES: Final = {ODD_BITS: Fault.UNUSED_BITS_SET, ODD_FORM: Fault.NOT_MINIMAL, ODD_EMPTY: Fault.MULTICAST_EMPTY}


class Session(StreamSession[SessionEvent]):
    """One side of a connection.

    A connector's session is made for its link; a listener's finds its link in a registry.
    """

    def __init__(
        self,
        speaker: Speaker,
        options: Options = DEFAULT_OPTIONS,
        *,
        link: LinkCore | None = None,
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
        """The link of this connection; a listener gets it in the handshake."""
        self._inbox: Inbox
        """The link's, once the connection is open."""
        self._registry = registry
        self._handshake = HandshakeReader(options.limits, link.endpoint.id_sizes if link is not None else None)
        self._buffer = packet_buffer(options.limits, self._handshake.limits(self.peer) or ())
        self._output: list[bytes] = []
        self._events: list[SessionEvent] = []
        self._is_open = False
        self._requires_old_link = False
        """RELINK-10: our request asks for the old link or none."""
        self._now = 0.0
        self._handshake_deadline: float | None = None
        self._keepalive = Keepalive(options)

    # Output.

    def output(self) -> bytes:
        """Take the bytes to send now.

        The application acts on the link, not on the session. So this call also collects the link's packets and acknowledgements, and
        ends the session if both sides have shut down and every message was consumed (§3.6). Take `events()` after it.
        """
        self._take_link_packets()
        self._finish_if_shut()
        return super().output()

    def events(self) -> list[SessionEvent]:
        """Take the events since the last call, those of the link included."""
        events = super().events()
        if self._is_open and self.link is not None:
            events += self.link.events()
        return events

    @property
    def deadline(self) -> float | None:
        """When to call `tick` next."""
        timers = [self._handshake_deadline, self._keepalive.deadline]
        if self._is_open and self.link is not None:
            timers += (self.link.inbox.deadline, self.link.inbox.barrier_deadline)
        return min((timer for timer in timers if timer is not None), default=None)

    # Calls of the owner.

    def start(self, now: float) -> None:
        """§1: begin the handshake; the connector sends its version."""
        self._now = now
        if self.options.handshake_timeout is not None:
            self._handshake_deadline = now + self.options.handshake_timeout
        if self.speaker is Speaker.CONNECTOR:
            self._send(Version(VERSION))

    def ping(self, now: float) -> int:
        """§3.4: send a ping; return its number on this connection. RELINK-25: raises without a connection."""
        if not self._is_open or self.link is None:
            raise LocalProtocolError(Fault.NOT_OPEN)
        self._take_link_packets()
        self._output.append(_PING)
        number = self._keepalive.ping(now)
        self.link.inbox.pinged(number)
        return number

    def bye(self, detail: str = "") -> None:
        """Close the connection; the link stays."""
        if self.ended is None:
            self._take_link_packets()
            self._end(Ended(Ending.CLOSED, self.speaker, True, detail=detail))

    def fail(self, fault: Fault, detail: str = "") -> None:
        """RELINK-12: close the connection because of a fault."""
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
            self._release_link(link, link_id)
            self._events += link.events()

    # Input: bytes and time.

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the peer; never raises."""
        self._now = now
        self._keepalive.heard(now)
        if self.link is not None and self._is_open:
            self.link.set_time(now)
        for taken, rows, parts in self._buffer.feed(data):
            self._take_rows(taken, rows, parts, now)
            if self.ended is not None:
                return
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
            inbox = self.link.inbox
            self.link.tick(now)
            if self._keepalive.wants_ping(now) or (inbox.barrier_deadline is not None and now >= inbox.barrier_deadline):
                self.ping(now)

    def pause(self) -> None:
        """The owner stops reading: do not take unread bytes for a silent peer."""
        self._keepalive.pause()

    def resume(self, now: float) -> None:
        """The owner reads again."""
        self._keepalive.resume(now)
        if self._is_open:
            self._keepalive.watch_packet(self._buffer.size, 0, now)

    @property
    def unfinished(self) -> int:
        """See Drivable: half packets, and what the link keeps."""
        return self._buffer.memory + (self._inbox.memory if self._is_open else 0)

    @property
    def is_proven(self) -> bool:
        """See Drivable: whether the handshake is done."""
        return self._is_open

    @property
    def asked(self) -> int:
        """See Drivable."""
        return self._keepalive.pinged

    def drained(self, count: int, now: float) -> None:
        """RELINK-25: bytes that were sent before the last ping have left."""
        self._keepalive.drained(count, now)

    def supersede(self, now: float) -> None:
        """RELINK-11: another connection took the link over; the latest one keeps it."""
        self._now = now
        self.bye("another connection took the link over")

    # Internal.

    def _send(self, part: Version | Request | Reply) -> None:
        self.state = TRANSITIONS[self.state, self.speaker, type(part)]
        self._output.append(encode(part))

    def _take_link_packets(self) -> None:
        """Queue the packets of the link before those the session adds."""
        if self.link is not None and self._is_open:
            packets = self.link.packets()
            if packets:
                self._output += packets
                if self.link.has_said_shutdown:
                    self.state = _ALLOWED[self.state, self.speaker][TYPES[Shutdown]]

    def _take_rows(self, data: bytes, rows: list[list[int]], parts: list[int], now: float) -> None:
        """Take packets in order; messages of one part that follow each other on one channel, the commonest, together."""
        channel, run = b"", list[tuple[bytes, ...]]()
        for row in rows:
            _, _, kind, fault, _, part, part_count, _, _, ids, id_count, id_size, _, _, odd = row
            if kind == _MESSAGE and part_count == id_count == 1 and not fault and not odd and self._is_open:
                one, place = data[ids : ids + id_size], part * PART_COLUMNS
                if run and one != channel:
                    self._take_run(channel, run)
                    run = []
                channel, start = one, parts[place]
                run.append((data[start : start + parts[place + 1]],))
                continue
            if run:
                self._take_run(channel, run)
                run = []
            if self.ended is not None:
                return
            self._take(data, row, parts, now)
        if run:
            self._take_run(channel, run)

    def _take_bulk(self, data: bytes, rows: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]) -> bool:
        """Take messages of one part each on one channel, the commonest, without a look at each of them."""
        size, at = int(rows[0, ID_SIZE]), int(rows[0, IDS])
        channel = data[at : at + size]
        is_plain = (
            len(parts) == len(rows)
            and bool((rows[:, KIND] == _MESSAGE).all() and (rows[:, COUNT] == 1).all() and (rows[:, PARTS] == 1).all())
            and not rows[:, (FAULT, ODDITIES)].any()
        )
        if not is_plain or {data[place : place + size] for place in rows[:, IDS].tolist()} != {channel}:
            return False
        starts, ends = parts[:, 0].tolist(), parts.sum(axis=1).tolist()
        self._take_run(channel, [(data[start:end],) for start, end in zip(starts, ends, strict=True)])
        return True

    def _take_plain_run(self, data: bytes, start: int, payloads: list[tuple[bytes, ...]]) -> bool:
        """Take messages of one part each on one channel, the commonest, one after the other."""
        if self.ended is None and self._is_open:
            self._take_run(first_id(data, start, self._buffer.limits), payloads)
        return True

    def _take_run(self, channel: bytes, run: list[tuple[bytes, ...]]) -> None:
        """Take messages of a channel: `_take` without checks that cannot fail here."""
        if self.ended is None:
            try:
                self._inbox.deliver_many(channel, run)
            except Violation as breach:
                self.fail(breach.fault, breach.detail)

    def _take(self, data: bytes, row: list[int], parts: list[int], now: float) -> None:
        kind, fault = row[KIND], row[FAULT]
        if fault:
            self.fail(Fault(fault), f"byte {row[FAULT_AT] - row[START]} of a packet")
            return
        after = _ALLOWED[self.state, self.peer].get(kind)
        if after is None:
            self.fail(refusal(self.state, self.peer, _CLASSES[kind]), Kind(kind).name.lower())
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
                link = cast(LinkCore, self.link)
                sequence = row[SEQUENCE] if row[SEQUENCE] >= 0 else None
                link.take(kind, channels(data, row), sequence, payload(data, row, parts) if kind == Kind.MESSAGE else ())
        except Violation as breach:
            self.fail(breach.fault, breach.detail)
        except DecodeError as reason:
            self.fail(cast(Fault, reason.fault), reason.detail)

    def _take_general(self, kind: int) -> None:
        if kind == Kind.PING:  # RELINK-25: one pong per ping, in order
            self._take_link_packets()
            self._output.append(_PONG)
        elif kind == Kind.PONG:
            answered = self._keepalive.pong()
            if answered is None:
                self._events.append(Noticed(Fault.PONG_UNSOLICITED))
                return
            cast(LinkCore, self.link).inbox.ponged(answered)
            self._events.append(Ponged(answered))

    def _take_handshake(self, data: bytes, row: list[int], parts: list[int], now: float) -> None:
        part = message(data, row, parts)
        if isinstance(part, Version):
            self._take_version(part)
        elif isinstance(part, Request):
            self._take_request(part, now)
        elif isinstance(part, Reply):
            self._take_reply(part, now)
        self._handshake.follow(self.peer, data, row)
        self._buffer.limits = self._handshake.limits(self.peer) or self._buffer.limits

    def _take_version(self, version: Version) -> None:
        if self.speaker is Speaker.LISTENER:
            self._send(Version(min(VERSION, version.version)))  # RELINK-5
        elif version.version != VERSION:
            raise Violation(Fault.VERSION_UNSUPPORTED, f"version {version.version}")
        else:
            link = cast(LinkCore, self.link)
            self._requires_old_link = link.id != 0 and (self.options.require_old_link or link.has_said_shutdown)  # RELINK-10, RELINK-23
            flags = link.endpoint.flags | (HandshakeFlag.REQUIRE_OLD_LINK if self._requires_old_link else 0)
            self._send(Request(link.endpoint.name, *link.endpoint.id_sizes, flags, link.epoch, link.id))

    def _take_request(self, request: Request, now: float) -> None:
        registry = cast(Registry, self._registry)
        link, resumed = registry.admit(request, self.remote)
        if link is None:  # RELINK-10
            self._send(Reply(registry.epoch, 0))
            self.bye("the required link is not known here")
            return
        if isinstance(link.owner, Session):
            link.owner.supersede(now)
        self.link = link
        self._send(Reply(registry.epoch, link.id))
        self._open(link, registry.epoch, link.id, now, resumed=resumed)

    def _take_reply(self, reply: Reply, now: float) -> None:
        """RELINK-10: the listener resumes, replaces or refuses our link."""
        link = cast(LinkCore, self.link)
        if reply.link_id == 0:
            if not self._requires_old_link:
                raise Violation(Fault.LINK_REFUSED)
            link.lose(Fault.LINK_LOST)
            link.is_over = True
            self._events += link.events()
            self._end(Ended(Ending.CLOSED, self.peer, False, detail="the listener does not know the link any more"))
            return
        resumed = (reply.epoch, reply.link_id) == (link.epoch, link.id)
        if not resumed and self._requires_old_link:
            raise Violation(Fault.LINK_REPLACED)
        if not resumed and link.id:
            link.lose(Fault.LINK_LOST, replaced=True)
        self._open(link, reply.epoch, reply.link_id, now, resumed=resumed)

    def _open(self, link: LinkCore, epoch: int, link_id: int, now: float, *, resumed: bool) -> None:
        self._is_open = True
        self._handshake_deadline = None
        self._keepalive.open()
        self._events.append(Opened(epoch, link_id, resumed))
        link.attach(self, epoch, link_id, now, resumed=resumed)
        self._inbox = link.inbox
        self._buffer.bulk = self._take_bulk
        self._buffer.take_run = self._take_plain_run

    def _finish_if_shut(self) -> None:
        """§3.6: both sides have sent shutdown: flush, close the connection, forget the link."""
        link = self.link
        if link is not None and self._is_open and link.finish():
            link_id = link.id
            self._take_link_packets()
            self._end(Ended(Ending.SHUTDOWN, self.speaker, True))
            self._release_link(link, link_id)

    def _release_link(self, link: LinkCore, link_id: int) -> None:
        """Let a listener forget a link that is over or lost."""
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
