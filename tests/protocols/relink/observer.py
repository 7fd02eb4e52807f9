"""An observer of Relink connections: bytes of both sides become what an analyzer takes, without a lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wirelake.errors import DecodeError
from wirelake.protocols.analyzer import ConnectionEvent, Unreadable
from wirelake.protocols.kernel import FAULT, KIND, LENGTH
from wirelake.protocols.kernel import START as BEGIN
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.analyzer import Analyzer, Seen
from wirelake.protocols.relink.faults import UNREADABLE, Fault
from wirelake.protocols.relink.handshake import HandshakeReader
from wirelake.protocols.relink.scanner import COUNT, FLAGS, ODDITIES, SEQUENCE
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import DEFAULT_LIMITS, channels, message, packet_buffer

START = 1_700_000_000_000_000
SOURCE = "observed"

Happening = Seen | ConnectionEvent | Unreadable


class Watched:
    """One connection, read as the lake reads it."""

    def __init__(self, observer: Observer, name: bytes) -> None:
        self.observer, self.name = observer, name
        self._handshake = HandshakeReader()
        self._buffers = [packet_buffer(DEFAULT_LIMITS, self._handshake.limits(side)) for side in Speaker]
        self.is_closed = False
        observer.happened("opened", self, "client")

    @property
    def session(self) -> bytes:
        """The link, once there is one."""
        return self._handshake.session or self.name

    def say(self, speaker: Speaker, data: bytes) -> None:
        """Bytes of one side."""
        for taken, rows, parts in self._buffers[speaker].feed(data):
            for row in rows:
                self.observer.saw(self, speaker, taken, row, parts)
                if row[KIND] >= m.Kind.VERSION:
                    self._handshake.follow(speaker, taken, row)
                    for side in Speaker:
                        self._buffers[side].limits = self._handshake.limits(side) or self._buffers[side].limits

    def close(self, what: str = "closed", by: str = "") -> None:
        """The connection ends."""
        if self.is_closed:
            return
        self.is_closed = True
        for side in Speaker:
            if self._buffers[side].size:
                self.observer.lost(self, side, self._buffers[side].size)
        self.observer.happened(what, self, by)


class Observer:
    """Keeps all that happened, in order; `now` is microseconds."""

    def __init__(self) -> None:
        self.now = START
        self.watched: dict[bytes, Watched] = {}
        self.happenings: list[tuple[Watched, Happening]] = []
        self._offset = 0

    def connect(self) -> Watched:
        """Another connection."""
        name = len(self.watched).to_bytes(16, "big")
        self.watched[name] = Watched(self, name)
        return self.watched[name]

    def happened(self, what: str, watched: Watched, by: str) -> None:
        event = ConnectionEvent(watched.name, self.now, what, by, SOURCE, self._place(0), "tcp")
        self.happenings.append((watched, event))

    def lost(self, watched: Watched, speaker: Speaker, size: int) -> None:
        to_server, place = speaker is Speaker.CONNECTOR, self._place(size)
        cut = Unreadable(watched.name, self.now, to_server, "MESSAGE_CUT", Fault.MESSAGE_CUT.rule.clause, SOURCE, place, size)
        self.happenings.append((watched, cut))

    def saw(self, watched: Watched, speaker: Speaker, data: bytes, row: list[int], parts: list[int]) -> None:
        to_server, length = speaker is Speaker.CONNECTOR, row[LENGTH]
        if row[FAULT] in UNREADABLE:
            fault = Fault(row[FAULT])
            unreadable = Unreadable(watched.name, self.now, to_server, fault.name, fault.rule.clause, SOURCE, self._place(length), length)
            self.happenings.append((watched, unreadable))
            return
        fault = Fault(row[FAULT]) if row[FAULT] else None
        try:
            one = message(data, row, parts)
        except DecodeError:  # RELINK-31: all but its name can be read
            fault, end = Fault.ENDPOINT_NOT_UTF8, row[BEGIN] + length
            one = m.Request(
                "", epoch=int.from_bytes(data[end - 16 : end - 8], "little"), link_id=int.from_bytes(data[end - 8 : end], "little")
            )
        is_channel = m.Kind.COMMIT <= row[KIND] <= m.Kind.MESSAGE
        flags = m.HandshakeFlag(row[FLAGS] & 7)
        place = self._place(length)
        asked = isinstance(one, m.Request)
        seen = Seen(
            message_id=bytes(8) + place.to_bytes(8, "big"),
            connection_id=watched.name,
            ts=self.now,
            to_server=to_server,
            source=SOURCE,
            offset=place,
            length=length,
            size=length,
            fault=fault.name if fault is not None else None,
            type_name=m.name_of(type(one)),
            channel_ids=list(channels(data, row)) if is_channel and row[COUNT] else [] if is_channel else None,
            sequence=row[SEQUENCE] if is_channel and row[SEQUENCE] >= 0 else None,
            version=one.version if isinstance(one, m.Version) else None,
            connector_transactions=bool(flags & m.HandshakeFlag.CONNECTOR_TRANSACTIONS) if asked else None,
            listener_transactions=bool(flags & m.HandshakeFlag.LISTENER_TRANSACTIONS) if asked else None,
            require_old_link=bool(flags & m.HandshakeFlag.REQUIRE_OLD_LINK) if asked else None,
            epoch=str(one.epoch) if isinstance(one, m.Request | m.Reply) else None,
            link_id=str(one.link_id) if isinstance(one, m.Request | m.Reply) else None,
            oddities=row[ODDITIES],
        )
        self.happenings.append((watched, seen))

    def _place(self, length: int) -> int:
        self._offset += length + 100
        return self._offset - length

    def sessions(self) -> dict[bytes, list[Happening]]:
        """Session -> all that happened, in order of time."""
        found: dict[bytes, list[Happening]] = {}
        for watched, happening in self.happenings:
            found.setdefault(watched.session, []).append(happening)
        return found


def by_connection(happenings: Iterable[Happening]) -> list[Happening]:
    """RELINK-11: the same, connection by connection, in the order of their replies."""
    happenings = list(happenings)
    replies: dict[bytes, int] = {}
    for at, one in enumerate(happenings):
        if isinstance(one, Seen) and one.type_name == "reply":
            replies.setdefault(one.connection_id, at)
    events = [one for one in happenings if not isinstance(one, Seen)]
    seen = [one for one in happenings if isinstance(one, Seen)]
    return [*events, *sorted(seen, key=lambda one: replies.get(one.connection_id, -1))]


def feed(analyzer: Analyzer, happenings: Iterable[Happening]) -> Iterator[Analyzer]:
    """Let an analyzer see what happened; after each, it is given back, and may be exchanged for another by `send`."""
    for one in happenings:
        if isinstance(one, Seen):
            analyzer.message(one)
        elif isinstance(one, Unreadable):
            analyzer.unreadable(one)
        else:
            analyzer.event(one)
        analyzer = (yield analyzer) or analyzer


def analyzed(happenings: Iterable[Happening]) -> Analyzer:
    """An analyzer that has seen it all, connection by connection."""
    analyzer = Analyzer()
    for _ in feed(analyzer, by_connection(happenings)):
        pass
    analyzer.end()
    return analyzer
