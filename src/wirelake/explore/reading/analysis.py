"""Analysis: decoded rows go in, block by block; messages in order, answers and broken rules come out.

The protocols' analyzers judge, as they do in a lake. Here they are fed as things happen: a broken rule is shown with the message that
breaks it. A rule that only counts in a session without gaps counts if there was no gap so far.

Messages of a block are in order of time; a later block has later messages, unless the capture itself is out of order. A session ends with
its connection, or with the input: then its unanswered requests are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from wirelake import protocols
from wirelake.explore.reading.records import (
    LATE_MICROS,
    NOWHERE,
    SHOWN_BYTES,
    Answer,
    Broken,
    Ends,
    Message,
    Record,
    Request,
    Unanswered,
    Unreadable,
    Unrecognised,
    Violation,
    address,
)
from wirelake.lake.decode.batches import Batches
from wirelake.lake.gold.fold.seen import analyzer_of, connection_events, seen_messages, unreadable_ranges, values
from wirelake.lake.tables import connections, messages, quarantine, unrecognised
from wirelake.protocols import analyzer as analysis
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent, Exchange, Finding, SeenMessage, SessionAnalyzer
from wirelake.protocols.faults import VIOLATIONS
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.protocol import SessionKind

__all__ = ["MAX_SESSIONS", "Analysis", "Counter", "narrowed"]

K = TypeVar("K")
V = TypeVar("V")

MAX_SESSIONS: Final = 100_000
"""Sessions that are watched at the same time; beyond this, those that began first end."""
MAX_NUMBERS: Final = 1 << 17
"""Messages whose number is remembered, for answers that name their request; twice as many at most."""
MAX_CHECKED: Final = 1000
"""Sessions that are asked at once what is overdue; the others' turn comes later."""
MAX_MISSED: Final = 1000
"""Findings of one session that a clock tells; later ones are told when the next message comes, or at the end."""

_FIRST, _MIDDLE, _LAST = 0, 1, 2
"""The order of what has the same time: openings, messages, ends."""
_ENDS: Final = ("closed", "reset")
_SIDE: Final = {True: "client", False: "server", None: None}
_COLUMNS: Final = tuple("direction" if name == "to_server" else name for name in Message.__struct_fields__[:19])
"""The columns of `messages` that a `Message` is made of."""
_LEADING: Final = frozenset(["message_id", "session_id", "connection_id", "ts", "direction", "source", "offset", "length", "observer"])
"""Columns that a protocol's own table shares with `messages`."""


class Counter:
    """Numbers messages, across all files of one reading."""

    def __init__(self) -> None:
        self.messages = 0
        self.violations = 0
        """Broken rules of the specification."""
        self.unanswered = 0
        self.unreadable = 0
        """Bytes."""
        self.unrecognised = 0
        """Bytes."""

    def handed_on(self, record: Record) -> None:
        """A record is given to the reader: it may stop in the middle of a block."""
        if isinstance(record, Violation):
            self.violations += record.severity in VIOLATIONS
        elif isinstance(record, Unanswered):
            self.unanswered += 1


class _Lost(NamedTuple):
    """What the decoder could not read."""

    found: analysis.Unreadable
    protocol: str | None
    session_id: bytes | None
    layer: str
    text: str


class _Said(NamedTuple):
    """A message, as it is shown and as its analyzer takes it."""

    message: Message
    seen: SeenMessage


class _Happened(NamedTuple):
    """An event of a connection."""

    event: ConnectionEvent
    protocol: str


_Item = tuple[int, int, bytes, _Lost | _Said | _Happened]
"""Its time, the order at that time, its place in the file, and the thing itself."""


class _Session:
    """A session that is watched."""

    __slots__ = ("analyzer", "ends", "missed", "protocol")

    def __init__(self, protocol: str, ends: Ends) -> None:
        self.protocol = protocol
        self.analyzer: SessionAnalyzer = analyzer_of(protocol)()
        self.ends = ends
        self.missed: set[tuple[object, ...]] = set()
        """What was told as overdue by a clock; at most `MAX_MISSED`."""


class Analysis:
    """Watches all sessions of a chain of captures, each of which begins when the one before has ended."""

    def __init__(self, counter: Counter, *, whole: bool = False, waits: Callable[[bytes], bool] = lambda _connection_id: False) -> None:
        """With `whole`, messages have every field of their protocol's table.

        `waits` says whether bytes of a connection wait for more: then its session does not end with it, but with the input, when those
        bytes are known to be the beginning of a message that never ended.
        """
        self._counter = counter
        self._waits_for_more = waits
        self._whole = whole
        self.newest = NO_TIME
        """Time of the last message."""
        self._sessions: dict[bytes, _Session] = {}
        self._ends: dict[bytes, Ends] = {}
        """Connection -> its sides."""
        self._links: dict[bytes, bytes] = {}
        """Connection -> its session, where that is a link."""
        self._early: dict[bytes, list[ConnectionEvent]] = {}
        """Connection -> its events before its link was known."""
        self._nodes: dict[bytes, set[bytes]] = {}
        """Connection -> the nodes that used it."""
        self._numbers: dict[bytes, int] = {}
        self._said_unrecognised: dict[tuple[object, ...], None] = {}
        self._asked = 0
        """Where the next question for what is overdue begins, among the sessions."""

    # What the caller feeds.

    def block(self, rows: Batches, raw: Iterator[bytes] | None = None) -> Iterator[Record]:
        """The records of one block's rows; `raw` has the bytes of every message, in the order of the rows.

        A broken rule that only later messages of the block prove comes after the message that broke it.
        """
        for record in self._in_order(rows, raw):
            self._counter.handed_on(record)
            yield record

    def _in_order(self, rows: Batches, raw: Iterator[bytes] | None) -> Iterator[Record]:
        found = list(self._records(rows, raw))
        late: dict[int, list[Violation]] = {}
        for one in found:
            if isinstance(one, Violation) and one.message is None and one.number is not None:
                late.setdefault(one.number, []).append(one)
        if not late:
            yield from found
            return
        moved = set()
        for one in found:
            if isinstance(one, Message) and (broken := late.get(one.number or 0)):
                one.violations += tuple(Broken(each.rule, each.clause, each.severity) for each in broken)
                moved.add(one.number)
                yield one
                for each in broken:
                    each.message, each.ends = one, one.ends
                    yield each
            elif not (isinstance(one, Violation) and one.number in moved and one in late[one.number or 0]):
                yield one

    def _records(self, rows: Batches, raw: Iterator[bytes] | None) -> Iterator[Record]:
        for _, _, _, happened in sorted(self._happenings(rows, raw), key=_order):
            if isinstance(happened, _Lost):
                yield from self._unreadable(happened)
            elif isinstance(happened, _Said):
                after = self._message(*happened)
                yield happened.message
                yield from after
            else:
                yield from self._event(*happened)
        while len(self._sessions) > MAX_SESSIONS:
            yield from self._end(next(iter(self._sessions)))
        yield from self._unrecognised(rows)

    def end(self) -> Iterator[Record]:
        """Nothing more comes: end all sessions."""
        for session_id in list(self._sessions):
            for record in self._end(session_id):
                self._counter.handed_on(record)
                yield record

    def overdue(self, now: int) -> Iterator[Record]:
        """Rules that are broken because something did not come until `now`, in microseconds since 1970.

        They are what would be found if every session ended now, after a last message of this moment. Asks some sessions each time.
        """
        ids = list(self._sessions)
        start = self._asked % max(len(ids), 1)
        asked = (ids[start:] + ids[:start])[:MAX_CHECKED]
        self._asked = start + len(asked)
        for session_id in asked:
            session = self._sessions[session_id]
            if session.analyzer.last_seen == NO_TIME or len(session.missed) >= MAX_MISSED:
                continue
            later = type(session.analyzer).decode(session.analyzer.encode())
            later.last_said = now
            later.findings = []
            later.end()
            is_whole = later.is_whole
            for finding in later.findings:
                is_missing = finding.message_id is None and finding.ts <= now and (is_whole or not finding.needs_whole)
                if is_missing and (key := _place(finding)) not in session.missed:
                    session.missed.add(key)
                    yield self._violation(session, session_id, finding, None)

    # Rows to values.

    def _happenings(self, rows: Batches, raw: Iterator[bytes] | None) -> list[_Item]:
        """Everything in a block."""
        found: list[_Item] = []
        for batch in rows.get(connections.TABLE.name, ()):
            self._meet(batch)
            for event, protocol in zip(connection_events(batch), values(batch["protocol"]), strict=True):
                rank = _LAST if event.what in ("finished", *_ENDS) else _FIRST
                found.append((event.ts, rank, event.offset.to_bytes(8), _Happened(event, protocol)))
        for batch in rows.get(quarantine.TABLE.name, ()):
            more = (values(batch[name]) for name in ("protocol", "session_id", "layer", "text"))
            for one in map(_Lost, unreadable_ranges(batch), *more):
                found.append((one.found.ts, _MIDDLE, one.found.offset.to_bytes(8), one))
        own_tables = {name: iter(batches) for name, batches in rows.items() if name != messages.TABLE.name}
        for batch in rows.get(messages.TABLE.name, ()):
            if not batch.num_rows:
                continue
            protocol = batch["protocol"][0].as_py()
            own = next(own_tables[protocol])
            for said in self._pairs(protocol, batch, own, raw):
                found.append((said.message.ts, _MIDDLE, said.message.message_id[8:], said))
        return found

    def _pairs(self, protocol: str, batch: pa.RecordBatch, own: pa.RecordBatch, raw: Iterator[bytes] | None) -> Iterator[_Said]:
        """The messages of one batch."""
        columns = [values(pc.equal(batch["direction"], "to_server") if name == "direction" else batch[name]) for name in _COLUMNS]
        shown = list(map(Message, *columns))
        if self._whole:
            for message, fields in zip(shown, _own_fields(own), strict=True):
                message.own = fields
        if raw is not None:
            for message in shown:
                message.raw = next(raw)
        descriptor = protocols.get(protocol)
        if descriptor.session_kind is SessionKind.LINK:
            self._links |= {one.connection_id: one.session_id for one in shown if one.session_id != one.connection_id}
        elif descriptor.session_kind is SessionKind.NODE:
            for one in shown:
                self._nodes.setdefault(one.connection_id, set()).add(one.session_id)
        seen = seen_messages(own if descriptor.analyzer is not None else batch, analyzer_of(protocol).MESSAGE)
        return map(_Said, shown, seen)

    def _meet(self, batch: pa.RecordBatch) -> None:
        """Remember the sides of connections."""
        names = ("connection_id", "transport", "client_address", "client_port", "server_address", "server_port")
        for name, transport, client, client_port, server, server_port in zip(*(values(batch[name]) for name in names), strict=True):
            if name not in self._ends:
                self._ends[name] = Ends(
                    transport,
                    address(client, client_port),
                    address(server, server_port),
                    (client or "", server or ""),
                    (client_port or 0, server_port or 0),
                )
        _forget(self._ends, MAX_SESSIONS)
        _forget(self._links, MAX_SESSIONS)
        _forget(self._nodes, MAX_SESSIONS)
        _forget(self._early, MAX_SESSIONS)

    # Values to records.

    def _session(self, protocol: str, session_id: bytes, connection_id: bytes | None) -> _Session:
        """The session that is watched under this id."""
        session = self._sessions.get(session_id)
        if session is None:
            early = self._sessions.pop(connection_id, None) if connection_id is not None and connection_id != session_id else None
            # Messages before the link was agreed on belong to it, too.
            session = early or _Session(protocol, self._ends.get(connection_id or b"", NOWHERE))
            self._sessions[session_id] = session
        return session

    def _event(self, event: ConnectionEvent, protocol: str) -> Iterator[Record]:
        connection_id = event.connection_id
        kind = protocols.get(protocol).session_kind
        if kind is SessionKind.NODE:
            sessions = [self._session(protocol, one, None) for one in self._nodes.get(connection_id, ())]
        else:
            sessions = [self._session(protocol, self._links.get(connection_id, connection_id), connection_id)]
            if kind is SessionKind.LINK and connection_id not in self._links:
                self._early.setdefault(connection_id, []).append(event)
        for session in sessions:
            session.analyzer.event(event)
            yield from self._judged(session, self._links.get(connection_id, connection_id), None)
        if event.what in _ENDS and kind is SessionKind.CONNECTION and not self._waits_for_more(connection_id):
            yield from self._end(connection_id)

    def _unreadable(self, lost: _Lost) -> Iterator[Record]:
        found = lost.found
        if found.connection_id is not None and lost.protocol is not None:
            session_id = self._links.get(found.connection_id, found.connection_id)
            session = self._session(lost.protocol, session_id, found.connection_id)
            session.analyzer.unreadable(found)
            yield from self._judged(session, session_id, None)
        if found.clause is None or found.connection_id is None:
            self._counter.unreadable += found.length
            ends = self._ends.get(found.connection_id or b"", NOWHERE)
            yield Unreadable(lost.layer, found.reason, lost.text, found.source, found.offset, found.length, found.ts, lost.protocol, ends)

    def _message(self, message: Message, seen: SeenMessage) -> Sequence[Record]:
        """Number a message and let its session judge it; returns what comes after it."""
        counter = self._counter
        counter.messages += 1
        message.number = counter.messages
        if message.ts > self.newest:
            self.newest = message.ts
        connection_id, session_id = message.connection_id, message.session_id
        message.ends = self._ends.get(connection_id, NOWHERE)
        if session_id == connection_id:
            session_id = message.session_id = self._links.get(connection_id, session_id)
        numbers = self._numbers
        numbers[message.message_id] = message.number
        if len(numbers) > 2 * MAX_NUMBERS:
            _, self._numbers = split_oldest(numbers, MAX_NUMBERS)
        session = self._sessions.get(session_id) or self._session(message.protocol, session_id, connection_id)
        analyzer = session.analyzer
        if self._early and session_id != connection_id:
            events = self._early.pop(connection_id, ())
            if events and self._sessions.pop(connection_id, None) is not None:  # the link was there before: it gets this connection, too
                for event in events:
                    analyzer.event(event)
        if analyzer.unconfirmed:
            message.is_unconfirmed = not analyzer.watch(seen)
        else:
            analyzer.message(seen)
        if not analyzer.exchanges and not analyzer.findings:
            return ()
        after: list[Record] = []
        if analyzer.exchanges:
            exchanges, analyzer.exchanges = analyzer.exchanges, []
            answers = []
            for exchange in exchanges:
                if exchange.is_unanswered:
                    after.append(self._waits(session, session_id, exchange))
                else:
                    answers.append(self._answer(exchange, message.message_id))
            message.answers = tuple(answers)
        if analyzer.findings:
            broken = list(self._judged(session, session_id, message))
            message.violations = tuple(Broken(one.rule, one.clause, one.severity) for one in broken if one.message is message)
            after += broken
        return after

    def _judged(self, session: _Session, session_id: bytes, message: Message | None) -> Iterator[Violation]:
        """The findings of a session that count."""
        analyzer = session.analyzer
        if not analyzer.findings:
            return
        findings, analyzer.findings = analyzer.findings, []
        is_whole = analyzer.is_whole
        for finding in findings:
            if (is_whole or not finding.needs_whole) and not (session.missed and _place(finding) in session.missed):
                yield self._violation(session, session_id, finding, message)

    def _violation(self, session: _Session, session_id: bytes, finding: Finding, message: Message | None) -> Violation:
        faults = protocols.get(session.protocol).faults.__members__
        rule = faults.get(finding.rule)
        severity = "error" if rule is None else rule.severity.label
        is_its = message is not None and finding.message_id == message.message_id
        ends = message.ends if message is not None else session.ends
        return Violation(
            finding.rule,
            None if rule is None else rule.clause,
            severity,
            finding.rule if rule is None else rule.text,
            finding.ts,
            session.protocol,
            _SIDE[finding.to_server],
            session_id,
            finding.source,
            finding.offset,
            finding.length,
            ends,
            message if is_its else None,
            finding.detail,
            None if finding.message_id is None else self._numbers.get(finding.message_id),
        )

    def _answer(self, exchange: Exchange, message_id: bytes) -> Answer:
        sent, answer = exchange.sent, exchange.answer
        request = None if sent is None else Request(self._numbers.get(sent.message_id), sent.ts, sent.message_id)
        latency = None
        if sent is not None and answer is not None and NO_TIME not in (sent.ts, answer.ts):
            latency = answer.ts - sent.ts
        status = "unasked" if sent is None else "late" if latency is not None and latency > LATE_MICROS else "answered"
        if exchange.outcome == "confirmed":
            status = "confirmed"
        by = None if answer is None or answer.message_id == message_id else self._numbers.get(answer.message_id)
        return Answer(exchange.kind, request, status, latency, exchange.outcome, exchange.correlation_id, by)

    def _waits(self, session: _Session, session_id: bytes, exchange: Exchange) -> Unanswered:
        sent = exchange.sent
        request = Request(None, NO_TIME, b"") if sent is None else Request(self._numbers.get(sent.message_id), sent.ts, sent.message_id)
        return Unanswered(
            exchange.kind,
            request,
            session.protocol,
            exchange.correlation_id,
            exchange.subject,
            exchange.by_client,
            exchange.cancelled,
            session_id,
            session.ends,
        )

    def _end(self, session_id: bytes) -> Iterator[Record]:
        """End a session: what was owed is known now."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.analyzer.end()
        for exchange in session.analyzer.exchanges:
            if exchange.is_unanswered and exchange.sent is not None:
                yield self._waits(session, session_id, exchange)
        session.analyzer.exchanges = []
        yield from self._judged(session, session_id, None)

    def _unrecognised(self, rows: Batches) -> Iterator[Record]:
        names = ("source", "transport", "client_address", "server_address", "server_port", "reason", "packets", "bytes", "first_seen")
        for batch in rows.get(unrecognised.TABLE.name, ()):
            for row in zip(*(values(batch[name]) for name in names), strict=True):
                one = Unrecognised(*row)
                self._counter.unrecognised += one.bytes
                if row[:6] not in self._said_unrecognised:
                    self._said_unrecognised[row[:6]] = None
                    yield one
        _forget(self._said_unrecognised, MAX_SESSIONS)


def _place(finding: Finding) -> tuple[object, ...]:
    """What makes a finding without a message the same as one that was told before."""
    return finding.rule, finding.to_server, finding.source, finding.offset, finding.message_id


def _order(happened: _Item) -> tuple[int, int, bytes]:
    return happened[:3]


def _forget(known: dict[K, V], most: int) -> None:
    """Drop the older half of a table that is over its limit."""
    if len(known) > most:
        for key in list(known)[: len(known) // 2]:
            del known[key]


def _own_fields(own: pa.RecordBatch) -> Iterator[dict[str, object]]:
    names = [name for name in own.schema.names if name not in _LEADING]
    for row in zip(*(values(own[name]) for name in names), strict=True):
        yield dict(zip(names, row, strict=True))


def narrowed(rows: Batches, *, whole: bool, most: int = SHOWN_BYTES) -> Batches:
    """The same rows with what reading needs: no column that nothing takes, and no value that is longer than `most`."""
    kept: Batches = {}
    for table, batches in rows.items():
        if table == messages.TABLE.name:
            columns: Iterable[str] = [*_COLUMNS, "direction"]
        elif table in protocols.names():
            taken = analyzer_of(table).MESSAGE.__struct_fields__ if protocols.get(table).analyzer is not None else ()
            columns = () if not whole and not taken else ("direction", *taken)
        else:
            kept[table] = batches
            continue
        kept[table] = [_cut(batch, None if whole else frozenset(columns), most) for batch in batches]
    return kept


def _cut(batch: pa.RecordBatch, columns: frozenset[str] | None, most: int) -> pa.RecordBatch:
    names = [name for name in batch.schema.names if columns is None or name in columns]
    return pa.RecordBatch.from_arrays([_short(batch[name], most) for name in names], names=names)


def _short(column: pa.Array, most: int) -> pa.Array:
    if pa.types.is_binary(column.type) and column.nbytes > most:
        return pc.binary_slice(column, 0, most)
    if pa.types.is_string(column.type) and column.nbytes > most:
        return pc.utf8_slice_codeunits(column, 0, most)
    return column
