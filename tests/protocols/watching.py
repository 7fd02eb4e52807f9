"""Histories as analyzers see them: recordings, decoded without Spark, and fed to the analyzer of each session."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
import pyarrow as pa

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.gold.fold.seen import connection_events, seen_messages, unreadable_ranges
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent, Exchange, Finding, SeenMessage, SessionAnalyzer, Standing, Unreadable
from wirelake.protocols.kernel import FAULT, LENGTH, PARTS, START

Step = ConnectionEvent | Unreadable | SeenMessage
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_NS = 1_700_000_000 * 10**9


class History(msgspec.Struct):
    """All that happened in one session."""

    events: list[ConnectionEvent] = []
    unreadable: list[Unreadable] = []
    messages: list[SeenMessage] = []

    @property
    def events_first(self) -> list[Step]:
        """As a lake feeds it."""
        return [*self.events, *self.unreadable, *self.messages]

    @property
    def in_time(self) -> list[Step]:
        """As it happened: events and unreadable bytes before messages of the same time."""
        before = sorted([*self.events, *self.unreadable], key=lambda one: (one.ts, one.source, one.offset))
        return sorted([*before, *self.messages], key=lambda one: one.ts)


class Judgement(msgspec.Struct):
    """What an analyzer tells of a session."""

    exchanges: list[Exchange]
    findings: list[Finding]
    standing: Standing
    is_whole: bool
    ended_on: list[bool]

    @property
    def rules(self) -> list[str]:
        """The names of broken rules, in the order of time; those that need a whole session count only in one."""
        return [one.rule for one in self.findings if self.is_whole or not one.needs_whole]


def judge(analyzer: type[SessionAnalyzer], steps: Iterable[Step], dice: random.Random | None = None, newest: int = NO_TIME) -> Judgement:
    """Feed a session; with dice, store and restore the state and take results out at random."""
    watching = analyzer()
    exchanges: list[Exchange] = []
    findings: list[Finding] = []
    for step in steps:
        if dice is not None and dice.random() < 0.2:
            watching = analyzer.decode(watching.encode())
        if dice is not None and dice.random() < 0.2:
            exchanges += watching.exchanges
            findings += watching.findings
            watching.exchanges.clear()
            watching.findings.clear()
        if isinstance(step, ConnectionEvent):
            watching.event(step)
        elif isinstance(step, Unreadable):
            watching.unreadable(step)
        else:
            watching.message(step)
    assert analyzer.decode(watching.encode()) == watching
    watching.end()
    exchanges += watching.exchanges
    findings = sorted([*findings, *watching.findings], key=lambda one: (one.ts, one.message_id or b"", one.rule, one.offset))
    exchanges.sort(key=lambda one: [(part.ts, part.message_id) for part in (one.sent, one.answer) if part])
    return Judgement(exchanges, findings, watching.standing(newest), watching.is_whole, [watching.ended_on(one) for one in findings])


Session = tuple[list[ConnectionEvent], list[Unreadable], list[SeenMessage]]
"""All that happened in one session: events, unreadable bytes, and messages in order."""


def sessions(protocol: str, paths: Iterable[Path], keyring: object | None = None) -> dict[bytes, Session]:
    """Connection -> its session, as the lake's decoder reads these recordings."""
    found = {name: [TABLES[name].schema.empty_table()] for name in (protocol, "connections", "quarantine")}
    for path in paths:
        decoder = Decoder(DecodeOptions(), keyring=keyring)
        blocks = read(identify(path), ports={}, sniff=protocols.sniff, dialect=protocols.dialect)
        for batches in (*map(decoder.feed, blocks), decoder.finish()):
            for name, tables in found.items():
                tables += [pa.Table.from_batches([batch]).cast(TABLES[name].schema) for batch in batches.get(name, ())]
    silver = {name: pa.concat_tables(parts) for name, parts in found.items()}
    seen = protocols.get(protocol).analyzer().MESSAGE
    every: dict[bytes, Session] = {}
    kinds = (connection_events(silver["connections"]), unreadable_ranges(silver["quarantine"]), seen_messages(silver[protocol], seen))
    for kind, of_kind in enumerate(kinds):
        for row in of_kind:
            every.setdefault(row.connection_id, ([], [], []))[kind].append(row)
    for _, _, messages in every.values():
        messages.sort(key=lambda message: (message.ts, message.message_id))
    return every


def fed(analyzer: type[SessionAnalyzer], session: Session) -> SessionAnalyzer:
    """An analyzer that was fed as the lake does it: events first."""
    watching = analyzer()
    events, unreadable, messages = session
    for event in events:
        watching.event(event)
    for bytes_lost in unreadable:
        watching.unreadable(bytes_lost)
    for message in messages:
        watching.message(message)
    watching.end()
    return watching


def results(analyzer: SessionAnalyzer) -> tuple[object, ...]:
    """All that an analyzer tells, in an order of its own."""
    exchanges, findings = sorted(map(repr, analyzer.exchanges)), sorted(map(repr, analyzer.findings))
    return exchanges, findings, analyzer.standing(), analyzer.is_whole, (analyzer.requests, analyzer.answered), analyzer.last_word


def rules(analyzer: SessionAnalyzer) -> list[str]:
    """The rules that were broken, as far as they count."""
    return sorted(finding.rule for finding in analyzer.findings if analyzer.is_whole or not finding.needs_whole)


class Talk:
    """A recording of one connection, step by step; then its analyzer."""

    PROTOCOL: ClassVar[str]
    KEYRING: ClassVar[object | None] = None

    def __init__(self, folder: Path, transport: str = "tcp") -> None:
        self.now = START_NS
        self.path = folder / "talk.pcapng"
        self.path.unlink(missing_ok=True)
        self.recorder = Recorder(self.path, protocol=self.PROTOCOL, clock=lambda: self.now, flush_seconds=60)
        self.connection = self.recorder.connection(role="client", transport=transport, local=("127.0.0.1", 1), remote=("127.0.0.1", 2))

    def at(self, seconds: float) -> Self:
        """From here on, it is so many seconds after the start."""
        self.now = START_NS + round(seconds * 1e9)
        return self

    def client(self, *said: bytes) -> Self:
        """The client sends this."""
        for data in said:
            self.connection.sent(data)
        return self

    def server(self, *said: bytes) -> Self:
        """The server sends this."""
        for data in said:
            self.connection.received(data)
        return self

    def closed(self) -> Self:
        """The connection ends."""
        self.connection.closed("eof")
        return self

    def session(self) -> Session:
        """What was recorded; the recording ends."""
        self.recorder.close()
        return self.session_so_far()

    def session_so_far(self) -> Session:
        """What was recorded and flushed."""
        (session,) = sessions(self.PROTOCOL, [self.path], self.KEYRING).values()
        return session

    def analyzed(self) -> SessionAnalyzer:
        """The analyzer of what was recorded."""
        return fed(protocols.get(self.PROTOCOL).analyzer(), self.session())


def rows(paths: Iterable[Path]) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables that decoding fills, of recordings."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    known = {"ports": protocols.ports(), "sniff": protocols.sniff, "dialect": protocols.dialect}
    for path in paths:
        decoder = Decoder(DecodeOptions())
        for batches in [*(decoder.feed(block) for block in read(identify(path), **known)), decoder.finish()]:
            for name, made in batches.items():
                for batch in made:
                    found[name] += pa.Table.from_batches([batch]).cast(TABLES[name].schema).to_pylist()
    return found


def histories(paths: Iterable[Path], protocol: str) -> dict[bytes, History]:
    """The histories of all sessions of one protocol, by session."""
    found, seen, of_connection = rows(paths), protocols.get(protocol).analyzer().MESSAGE, {}
    sessions: dict[bytes, History] = {}
    for row in sorted(found[protocol], key=lambda row: (row["ts"], row["message_id"])):
        session = sessions.setdefault(row["session_id"], History())
        session.messages.append(seen_from(seen, row))
        of_connection.setdefault(row["connection_id"], set()).add(row["session_id"])
    for row in found["connections"]:
        for session_id in of_connection.get(row["connection_id"], ()):
            sessions[session_id].events.append(ConnectionEvent(**_fields(ConnectionEvent, row)))
    for row in found["quarantine"]:
        if row["session_id"] in sessions:
            sessions[row["session_id"]].unreadable.append(Unreadable(**_fields(Unreadable, row)))
    return sessions


def seen_from(seen: type[SeenMessage], row: dict[str, Any]) -> SeenMessage:
    """A message of a row of its protocol's table."""
    return seen(**_fields(seen, row))


def _fields(kind: type[msgspec.Struct], row: dict[str, Any]) -> dict[str, Any]:
    direction = row.get("direction")
    plain = {**row, "to_server": None if direction is None else direction == "to_server", "ts": micros(row["ts"])}
    return {name: _plain(plain[name]) for name in kind.__struct_fields__}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def micros(when: datetime | None) -> int:
    """Microseconds since 1970."""
    return NO_TIME if when is None else (when - EPOCH) // timedelta(microseconds=1)


Said = tuple[float, str, bytes]
"""Seconds, who (`client`, `server`), and what; or an event (`opened`, `finished`, `closed`, `reset`), and who (bytes)."""
PLACE = {"connection_id": b"c", "source": "here.pcapng", "transport": "tcp"}
EVENTS = ("opened", "finished", "closed", "reset")


def history(protocol: str, said: Sequence[Said]) -> History:
    """A history of one connection, written by hand. Bytes that are no message are unreadable, as in a lake."""
    one = History()
    for at, (seconds, who, data) in enumerate(said):
        ts = round(seconds * 1_000_000)
        if who in EVENTS:
            one.events.append(ConnectionEvent(ts=ts, what=who, by=data.decode(), offset=at * 1000, **PLACE))
            continue
        for row in _read(protocol, data):
            where = {"connection_id": b"c", "ts": ts, "to_server": who == "client", "source": "here.pcapng", "offset": at * 1000}
            where["offset"] += row.pop("start")
            if "clause" in row:
                one.unreadable.append(Unreadable(**where, **row))
            else:
                seen = protocols.get(protocol).analyzer().MESSAGE
                own = row | where | {"message_id": b"m" + where["offset"].to_bytes(8)}
                one.messages.append(seen(**{name: _plain(own[name]) for name in seen.__struct_fields__}))
    return one


def _read(protocol: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The messages in bytes as rows of their own columns; or what makes them unreadable."""
    descriptor = protocols.get(protocol)
    limits = descriptor.limits()
    scanner = Scanner(protocol, limits)
    octets, stops = np.frombuffer(data, np.uint8), np.array([len(data)], np.int64)
    ends = stops.copy()
    for scanned, parts, _ in scanner.walk(octets, np.array([0], np.int64), stops, ends, scanner.scan_limits):
        good = scanner.columns.readable(scanned)
        for row in scanned[~good].tolist():
            fault = descriptor.faults(row[FAULT])
            yield {"start": row[START], "length": row[LENGTH], "reason": fault.name, "clause": fault.clause}
        own_parts = parts[np.repeat(good, scanned[:, PARTS])]
        made = scanner.columns.columns(octets, scanned[good], own_parts, limits, True, 1 << 30)
        table = pa.table({**made.shared, **made.own}).to_pylist()
        for row, own in zip(scanned[good].tolist(), table, strict=True):
            yield {**own, "start": row[START], "length": row[LENGTH], "size": row[LENGTH]}
    if ends[0] < len(data):
        cut = descriptor.cut()
        yield {"start": int(ends[0]), "length": len(data) - int(ends[0]), "reason": cut.name, "clause": cut.clause}
