"""The questions about a lake: filters as SQL against filters in Python, pages, ladders, sums."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.cases import examples
from tests.explore.rows import at, exchange, message, session, violation

from wirelake.errors import QueryError
from wirelake.explore.model import exchanges, findings, messages, overview, sessions, timeline
from wirelake.explore.model.conditions import condition
from wirelake.explore.model.database import Database
from wirelake.explore.model.rows import Missing, excerpt
from wirelake.explore.model.windows import EARLIEST, LATEST, bounds, has_untimed, windows
from wirelake.explore.query import QueryLimits
from wirelake.explore.reading.matching import matcher
from wirelake.explore.reading.records import Answer, Broken, Ends, Message, Request, address
from wirelake.filters import FIELDS, FilterError, parse
from wirelake.lake.store import delta, snapshot
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.analyzer import NO_TIME

SESSIONS = (b"S" * 16, b"T" * 16)
PEERS = {SESSIONS[0]: ("10.0.0.1", 4000, "10.0.0.2", 5040), SESSIONS[1]: ("fe80::1", 4001, "10.0.0.9", 0)}
NOW = at(120).timestamp()


def said(number: int, **columns: Any) -> dict[str, Any]:
    """Message `number`, with every column that filters look at."""
    session_id = SESSIONS[number % 3 == 2]
    base = {
        "message_id": number.to_bytes(16),
        "session_id": session_id,
        "connection_id": session_id,
        "protocol": "emp" if number % 2 else "relink",
        "direction": "to_server" if number % 2 else "to_client",
        "name": "data",
        "subject": ("orders.new", "Orders.Old", None, "a_b%c", "x[1]")[number % 5],
        "correlation_id": str(number) if number % 4 else None,
        "size": 100 * number,
        "status": ("ok", "error", "faulty")[number % 3],
        "body": BODIES[number % len(BODIES)],
        "body_json": '{"n":1}' if number % len(BODIES) == 0 else None,
        "source": "/data/a.pcapng" if number % 2 else "/data/B_1.pcap",
        "offset": number,
        "length": 1,
    }
    return message(number, ("request", "response", "event")[number % 3], **base) | columns


BODIES = (b'{"n": 1}', b"oat Milk", b"\xff\x00milk\\ 'x'\n\"", "Käse\n".encode(), None, b"", b"a\\b")
OWN: dict[str, list[dict[str, Any]]] = {
    "emp": [
        {"request": (None, True, False)[number % 3], "request_id": (None, 7, 2**64 - 1, 2**63)[number % 4], "type_name": "Data"}
        | {"version": number % 5 or None}
        for number in range(1, 32, 2)
    ],
    "relink": [
        {"channel_ids": (None, [], [b"\x01"], [b"\x01", b"\xab\xcd"])[number // 2 % 4], "link_id": number or None}
        for number in range(0, 32, 2)
    ],
}
"""Protocol -> the columns of its own table, of its messages in order."""


def own_row(number: int) -> dict[str, Any]:
    protocol, place = ("emp" if number % 2 else "relink"), number // 2
    return OWN[protocol][place]


COUNT = 30
MESSAGES = [said(number) for number in range(COUNT)] + [said(COUNT, ts=None), said(COUNT + 1, ts=None)]


def exchanged(request: int | None, response: int | None, latency_us: int | None, **columns: Any) -> dict[str, Any]:
    """The exchange of two messages, with their times."""
    ends = {"request_message_id": request, "response_message_id": response}
    ids = {name: None if number is None else number.to_bytes(16) for name, number in ends.items()}
    times = {"requested": None if request is None else at(request), "answered": None if response is None else at(response)}
    return exchange(latency_us, session_id=SESSIONS[0], **columns) | ids | times


EXCHANGES = [
    exchanged(3, 4, 1500, subject="orders.new"),
    exchanged(6, 7, 40_000_000, status="late"),
    exchanged(9, 7, 500),
    exchanged(12, None, None, attempts=2),
    exchanged(None, 13, None, status="unasked"),
]
VIOLATIONS = [
    violation("HELLO_REPEATED", message_id=(5).to_bytes(16), session_id=SESSIONS[1], ts=at(5)),
    violation(
        "PONG_LATE", message_id=(5).to_bytes(16), session_id=SESSIONS[1], severity="tolerated", clause="RELINK-22", ts=at(5), offset=1
    ),
    violation("SILENCE", message_id=None, session_id=SESSIONS[0], ts=at(8.5), offset=2),
]


def talk_rows() -> dict[str, list[dict[str, Any]]]:
    connections = [
        {"connection_id": one, "what": what, "by": by, "ts": at(when), "transport": "tcp", "source": "/data/a.pcapng", "offset": when}
        | {"client_address": host, "client_port": port, "server_address": server, "server_port": server_port or None, "protocol": "emp"}
        for one, (host, port, server, server_port) in PEERS.items()
        for what, by, when in (("seen", "client", 0), ("opened", "client", 0), ("reset", "server", 40))
    ]
    own: dict[str, list[dict[str, Any]]] = {"emp": [], "relink": []}
    for row in MESSAGES:
        leading = {name: row.get(name) for name in ("message_id", "session_id", "connection_id", "ts", "direction", "source", "offset")}
        own[row["protocol"]].append(leading | own_row(int.from_bytes(row["message_id"])))
    return {
        **own,
        "messages": MESSAGES,
        "exchanges": EXCHANGES,
        "violations": VIOLATIONS,
        "connections": connections,
        "sessions": [session(SESSIONS[0], requests=4, answered=3), session(SESSIONS[1], server_address=None, violations=2)],
        "quarantine": [
            {
                "session_id": SESSIONS[0],
                "ts": at(10.5),
                "layer": "emp",
                "reason": "GAP",
                "text": "bytes are missing",
                "raw": b"\x00\xff",
                "length": 2,
            }
            | {"source": "/data/a.pcapng", "offset": 77, "direction": "to_server"}
        ],
        "ledger": [
            {"source": "/data/a.pcapng", "source_id": b"A" * 8, "source_size": 10, "offset": 0, "length": 10, "category": category}
            | {"reason": "emp", "bytes": 5, "items": 3}
            for category in ("message", "container")
        ],
    }


@pytest.fixture(scope="module")
def talk(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("model") / "talk", talk_rows())


@pytest.fixture(scope="module")
def database(talk: Path) -> Iterator[Database]:
    with Database(talk) as opened:
        yield opened


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    """Each test has its own: a connection ends after the seconds that queries may take."""
    with database.connection() as opened:
        yield opened


DECIMALS = ("request_id", "link_id")
"""Columns that a reading has as text."""


def as_read(row: dict[str, Any]) -> Message:
    """The message of a row, as `wirelake read` would have it."""
    host, port, server, server_port = PEERS[row["session_id"]]
    ends = Ends("tcp", address(host, port), address(server, server_port), (host, server), (port, server_port))
    number = int.from_bytes(row["message_id"])
    answers = tuple(
        Answer("request", Request(None, 0, one.get("request_message_id") or b""), one["status"], one["latency_us"], None, "")
        for one in EXCHANGES
        if one.get("response_message_id") == row["message_id"]
    )
    broken = tuple(Broken(one["rule"], one["clause"], one["severity"]) for one in VIOLATIONS if one["message_id"] == row["message_id"])
    ts = NO_TIME if row["ts"] is None else round(row["ts"].timestamp() * 1e6)
    columns = {name: row.get(name) for name in ("message_id", "session_id", "connection_id", "protocol", "kind", "name", "subject")}
    own = {name: str(value) if name in DECIMALS and value is not None else value for name, value in own_row(number).items()}
    more = {name: row.get(name) for name in ("correlation_id", "size", "status", "body", "source", "offset", "length")}
    unused = {"fault": None, "body_json": row["body_json"], "verified": None, "number": number, "own": own}
    return Message(
        **columns, **more, **unused, ts=ts, to_server=row["direction"] == "to_server", ends=ends, answers=answers, violations=broken
    )


FILTERS = [
    "",
    "protocol:relink",
    "-protocol:relink kind:request,response",
    "name:DATA",
    "subject:orders.*",
    "-subject:orders.*",
    "subject:ORDERS.NEW",
    "subject:a_b%c",
    "subject:a?b*",
    "subject:*%*",
    "subject:*RDER*",
    "subject:**",
    "subject:*",
    "subject:[nox]*",
    "subject:[!o]*",
    "subject:*[[]*",
    "subject:x[1]",
    "id:7",
    "id:1?",
    "-id:*",
    "status:ok",
    "status:late,unasked",
    "-status:ok",
    "status:answered",
    "status:ans*",
    "-status:[a-l]*",
    "rule:HELLO_*",
    "rule:relink-22",
    "-rule:*",
    "severity:tolerated",
    "type:message",
    "-type:message",
    "host:10.0.0.1",
    "host:fe80*",
    "-host:10.0.0.2",
    "port:4000",
    "port:>4000",
    "port:0",
    "from:10.0.0.1",
    "from:10.0.0.1:4000",
    "from:10.0.0.1:4001",
    "to:10.0.0.*",
    "to:[fe80*",
    "transport:TCP",
    "transport:udp",
    f"session:{SESSIONS[0].hex()}",
    f"session:{SESSIONS[0].hex()[:6]}*",
    f"session:{SESSIONS[0].hex()[:6]}",
    f"-session:{SESSIONS[0].hex()[:6]}",
    f"-connection:{SESSIONS[1].hex().upper()}",
    "source:*.pcapng",
    "source:/data/b_1.pcap",
    "size:>1k",
    "size:300..600",
    "size:100,200",
    "-size:<=500",
    "latency:>1ms",
    "latency:<1ms",
    "latency:>=500us",
    "latency:<=40s",
    "latency:40s",
    "latency:500us..1ms",
    "latency:>600us",
    "latency:30s..1m",
    "-latency:>0",
    "since:100s",
    "until:100s",
    "since:110s until:2025-03-01T12:00:12Z",
    "since:100s,110s",
    "-since:100s",
    "orders",
    "-orders",
    "hello",
    "RELINK",
    '"a_b"',
    "since:1w -subject:*old*",
    "kind:request or kind:event",
    "not kind:request or rule:*",
    "(kind:request or status:late) -(host:10.0.0.1 size:>500)",
    "-(subject:* or rule:*)",
    "body:*milk*",
    "body:*MILK?*",
    "milk",
    'body:"*""*"',
    "body:*'x'*",
    "body:a?b",
    'body:" *"',
    "body:*milk\\*",
    "body:a\\b",
    "body:*\\\\*",
    "body:*x5c*",
    "body:KÄSE*",
    "body:*",
    'body:"{""n"":1}"',
    "-body:*",
    "emp.request_id:7",
    "emp.request_id:18446744073709551615",
    "emp.request_id:9223372036854775808..18446744073709551614",
    "emp.request_id:>1.5k",
    "emp.request_id:*",
    "emp.request:true",
    "emp.request:0",
    "-emp.request:*",
    "emp.type_name:d?TA",
    "emp.version:<=2",
    "relink.channel_ids:01",
    "relink.channel_ids:AB*",
    "-relink.channel_ids:*",
    "relink.link_id:>3",
    "host:10.0.0.0/30",
    "host:10.0.0.0/8 -host:10.0.0.2/32",
    "host:fe80::/10",
    "host:0.0.0.0/0",
    "host:::/0",
    "from:10.0.0.8/29",
    "to:fe80::1/128",
    "-from:10.0.0.0/24",
    "ts:>2025-03-01T12:00:12Z",
    "ts:2025-03-01T12:00:10..2025-03-01T12:00:20",
    "ts:2025-03-01T12:00:10",
    "-ts:<=2025-03-01T12:00:12",
    "ts:*",
    "latency:*",
    "size:*",
    f"session:{SESSIONS[1].hex()[:8]}",
]


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_in_sql_lets_through_what_it_lets_through_in_python(connection: Any, text: str) -> None:
    wanted = parse(text, now=NOW)
    matches = matcher(wanted)
    expected = {row["message_id"].hex() for row in MESSAGES if matches(as_read(row).values(wanted.fields()))}
    found = messages.search(connection, wanted, limit=1000).rows
    assert {line.id for line in found} == expected
    assert messages.count(connection, wanted) == len(expected)


ATOMS = st.sampled_from([text for text in FILTERS if text and " " not in text])
COMBINED = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map(lambda part: f"not ({part})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: " or ".join(f"({part})" for part in parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: " and ".join(f"({part})" for part in parts)),
    ),
    max_leaves=6,
)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=COMBINED)
def test_any_combination_of_terms_lets_the_same_through_in_sql_and_in_python(database: Database, text: str) -> None:
    wanted = parse(text, now=NOW)
    matches = matcher(wanted)
    chosen = condition(wanted)
    with database.connection() as connection:
        sql = f"SELECT hex(m.message_id) FROM messages m WHERE {chosen.sql}"
        found = {row[0].lower() for row in connection.execute(sql, list(chosen.values)).fetchall()}
    assert found == {row["message_id"].hex() for row in MESSAGES if matches(as_read(row).values(wanted.fields()))}


def test_every_field_of_filters_is_tried() -> None:
    assert {term.field for text in FILTERS for term in parse(text).every_term()} >= set(FIELDS) - {"number"}


@pytest.mark.parametrize("value", ["x' OR '1'='1", '"; DROP TABLE ends; --', "%", "\\", "$1", "?"])
@pytest.mark.parametrize("field", ["subject", "name", "id", "source", "rule", "from", "host", "body"])
def test_values_never_become_sql(field: str, value: str) -> None:
    compiled = condition(parse(f'{field}:"{value.replace(chr(34), "")}"', now=NOW))
    assert "DROP" not in compiled.sql
    assert "1'='1" not in compiled.sql
    assert compiled.sql.count("?") == len(compiled.values)


@pytest.mark.parametrize(("text", "ids"), [("status:unanswered", [12]), ("type:unanswered", [12]), ("type:violation", [5])])
def test_a_lake_shows_the_messages_that_records_are_about(connection: Any, text: str, ids: list[int]) -> None:
    assert [int(line.id, 16) for line in messages.search(connection, parse(text)).rows] == ids


def test_a_lake_has_no_numbers_of_messages(connection: Any) -> None:
    with pytest.raises(FilterError) as caught:
        messages.search(connection, parse("number:5"))
    assert caught.value.term == "number:5"


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [7, 30, 31, 32, 1000])
def test_pages_have_every_message_once(connection: Any, limit: int, newest_first: bool) -> None:
    seen, after = [], None
    for _ in range(COUNT + 3):
        place = None if after is None else messages.Place.parse(after)
        page = messages.search(connection, parse(""), after=place, limit=limit, newest_first=newest_first)
        assert len(page.rows) <= limit
        seen += [int(line.id, 16) for line in page.rows]
        after = page.after
        if after is None:
            break
    timed = list(range(COUNT))
    assert seen == ([*timed[::-1], COUNT + 1, COUNT] if newest_first else [*timed, COUNT, COUNT + 1])


@pytest.fixture(scope="module")
def pieces(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The same lake in many small files, in no order of time."""
    lake = fill(tmp_path_factory.mktemp("pieces") / "lake", talk_rows() | {"messages": []})
    table = TABLES["messages"]
    for number, part in enumerate((MESSAGES[place::7] for place in (3, 0, 6, 1, 5, 2, 4)), 2):
        for piece, some in enumerate((part[:3], part[3:])):
            sheet = Sheet(lake, table, number, name=f"part-{number:08d}-{piece:032x}.parquet")
            sheet.add(pa.RecordBatch.from_pylist(some, schema=table.schema))
            delta.append(lake, table, [file for file in [sheet.close()] if file], 2 * number + piece)
    with Database(lake, QueryLimits()) as database, database.connection() as opened:
        yield opened


STEPPED = ["", "status:unanswered", "status:*a*", "latency:>600us", "rule:HELLO_REPEATED", "since:110s", "-since:110s", "-orders"]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("text", STEPPED)
def test_a_search_in_small_steps_finds_the_same_in_the_same_order(
    connection: Any, pieces: Any, monkeypatch: pytest.MonkeyPatch, text: str, newest_first: bool
) -> None:
    """Each step looks at one small time range, and is cut off after it."""
    monkeypatch.setattr("wirelake.explore.model.windows.FIRST_ROWS", 4)
    wanted = parse(text, now=NOW)
    whole = [line.id for line in messages.search(connection, wanted, limit=1000, newest_first=newest_first).rows]
    seen, after, steps = [], None, 0
    while True:
        place = None if after is None else messages.Place.parse(after)
        page = messages.search(pieces, wanted, after=place, limit=5, newest_first=newest_first, seconds=0)
        seen += [line.id for line in page.rows]
        after, steps = page.after, steps + 1
        if after is None:
            break
    assert seen == whole
    assert steps > 1
    assert messages.search(pieces, wanted, limit=1000, newest_first=newest_first).after is None


def test_windows_cover_every_time_once(pieces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.explore.model.windows.FIRST_ROWS", 1)
    forward = list(windows(pieces))
    assert len(forward) > 3
    assert (forward[0].first, forward[-1].last) == (EARLIEST, LATEST)
    assert all(one.last + 1 == other.first for one, other in pairwise(forward))
    backward = list(windows(pieces, newest_first=True))
    assert (backward[0].last, backward[-1].first) == (LATEST, EARLIEST)
    assert all(one.first - 1 == other.last for one, other in pairwise(backward))
    assert has_untimed(pieces)
    assert bounds(pieces) == (round(at(0).timestamp() * 1e6), round(at(COUNT - 1).timestamp() * 1e6))


@pytest.mark.parametrize("text", ["", "since:2025-03-01"])
def test_a_line_has_its_broken_rules_and_its_exchange(connection: Any, text: str) -> None:
    """With and without messages that have no time."""
    rows = {int(line.id, 16): line for line in messages.search(connection, parse(text)).rows}
    assert len(rows) == (COUNT if text else COUNT + 2)
    assert sorted(rows[5].rules) == ["EMP-25 HELLO_REPEATED", "RELINK-22 PONG_LATE"]
    assert rows[5].severity == "error"
    assert (rows[4].answer, rows[4].latency_us, rows[4].request) == ("answered", 1500, (3).to_bytes(16).hex())
    assert rows[7].latency_us == 500
    assert (rows[12].answer, rows[12].attempts) == ("unanswered", 2)
    assert (rows[1].sender, rows[1].receiver) == ("10.0.0.1:4000", "10.0.0.2:5040")
    assert (rows[2].sender, rows[2].receiver) == ("10.0.0.9", "[fe80::1]:4001")


def test_one_message_has_its_neighbours_in_the_session(connection: Any) -> None:
    found = messages.one(connection, (4).to_bytes(16).hex())
    assert (int(found.previous or "", 16), int(found.next or "", 16)) == (3, 6)
    assert found.exchanges[0].request == (3).to_bytes(16).hex()
    first = messages.one(connection, (0).to_bytes(16).hex())
    assert first.previous is None


@pytest.mark.parametrize("text", ["", "zz", "00", "ff" * 16, "../../etc/passwd"])
def test_a_message_that_is_not_there_is_missing(connection: Any, text: str) -> None:
    with pytest.raises(Missing, match="message"):
        messages.one(connection, text)


def test_a_ladder_has_messages_and_what_happened_between_them(connection: Any) -> None:
    found = sessions.ladder(connection, SESSIONS[0].hex()[:8])
    assert found.lanes == ["10.0.0.1:4000", "10.0.0.2:5040"]
    assert found.total == len(found.rows) == sum(row["session_id"] == SESSIONS[0] for row in MESSAGES)
    assert [(one.type, one.name) for one in found.incidents] == [
        ("event", "opened"),
        ("violation", "SILENCE"),
        ("unreadable", "GAP"),
        ("event", "reset"),
    ]
    window = sessions.ladder(connection, SESSIONS[0].hex(), first=6, limit=2)
    assert [int(line.id, 16) for line in window.rows] == [9, 10]
    assert window.incidents == []


def test_a_node_has_a_lane_for_each_receiver(connection: Any) -> None:
    assert sessions.ladder(connection, SESSIONS[1].hex()).lanes == ["10.0.0.1:4000", "10.0.0.9", "[fe80::1]:4001"]


@pytest.mark.parametrize("text", ["", "5", "54' OR true --", "%"])
def test_a_session_that_is_not_one_is_missing(connection: Any, text: str) -> None:
    with pytest.raises(Missing, match="session"):
        sessions.find(connection, text)


@pytest.mark.parametrize("text", ["", "protocol:emp", "since:100s", "subject:nothing"])
def test_a_histogram_counts_what_a_search_finds(connection: Any, text: str) -> None:
    wanted = parse(text, now=NOW)
    found = timeline.histogram(connection, wanted, buckets=10)
    assert found.total == sum(line.ts is not None for line in messages.search(connection, wanted, limit=1000).rows)
    assert len(found.errors) == len(found.violations) <= 11
    assert all(len(bars) == len(found.errors) for bars in found.series.values())


def test_the_whole_histogram_has_every_broken_rule(connection: Any) -> None:
    found = timeline.histogram(connection, parse(""))
    assert (sum(found.violations), sum(found.errors)) == (3, 20)
    assert (found.start, found.width) == (round(at(0).timestamp() * 1e6), 500_000)


def test_exchanges_come_slowest_first_on_demand(connection: Any) -> None:
    found = exchanges.search(connection, order="slowest")
    assert [one.latency_us for one in found] == [40_000_000, 1500, 500, None, None]
    for limit, offset in itertools.product(range(1, 7), range(4)):  # those without a latency come last, if there is room
        assert exchanges.search(connection, order="slowest", limit=limit, offset=offset) == found[offset : offset + limit]
    assert exchanges.search(connection, parse("subject:a_b*"), status="answered")[0].request_excerpt == r"Käse\n"
    assert [one.status for one in exchanges.search(connection, status="unasked")] == ["unasked"]


def test_findings_and_sums(connection: Any) -> None:
    assert [(rule.rule, rule.count) for rule in findings.rules(connection)] == [("HELLO_REPEATED", 1), ("SILENCE", 1), ("PONG_LATE", 1)]
    assert [one.rule for one in findings.violations(connection, rule="RELINK-22")] == ["PONG_LATE"]
    assert findings.bytes_of(connection, "/data/a.pcapng", 77).raw == b"\x00\xff"
    sums = overview.sums(connection)
    assert (sums.messages, sums.sources, sums.quarantined_bytes, sums.exchanges["late"]) == (len(MESSAGES), 1, 2, 1)
    source, parts = overview.source(connection, (b"A" * 8).hex())
    assert (source.messages, source.bytes, len(parts)) == (3, {"container": 5, "message": 5}, 2)


def test_a_question_that_takes_too_long_ends(talk: Path) -> None:
    slow = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 7"
    with (
        Database(talk, QueryLimits(seconds=0.2)) as database,
        pytest.raises(QueryError, match=r"longer than 0\.2 s"),
        database.connection() as one,
    ):
        one.execute(slow).fetchall()


def test_a_question_that_takes_too_much_memory_ends(talk: Path) -> None:
    large = "SELECT list(a.range) FROM range(100000000) a"
    with Database(talk, QueryLimits(megabytes=64)) as database, pytest.raises(QueryError, match="memory"), database.connection() as one:
        one.execute(large).fetchall()


def test_readers_of_an_older_commit_finish_with_it(fill: Callable[..., Path], tmp_path: Path) -> None:
    lake = fill(tmp_path / "lake", {"messages": [said(1)]})
    snapshot.publish(lake)
    with Database(lake) as database, database.connection() as before:
        table = TABLES["messages"]
        sheet = Sheet(lake, table, 2)
        sheet.add(pa.RecordBatch.from_pylist([said(2)], schema=table.schema))
        delta.append(lake, table, [sheet.close()], 2)
        snapshot.publish(lake)
        with database.connection() as after:
            assert messages.count(after, parse("")) == 2
        assert messages.count(before, parse("")) == 1


def test_excerpts_are_one_line_of_visible_text() -> None:
    assert excerpt(b"a\n\x1b[31m") == "a\\n\\x1b[31m"
    assert excerpt("grün".encode(), most=3) == "gr"
    assert excerpt(b"\xff\x00\x01\x02\x03\x04") == "ff 00 01 02 03 04"
    assert excerpt(None) is None


HOSTS = [
    *("10.0.0.1", "10.0.0.255", "10.0.1.0", "192.168.7.9", "9.255.255.255", "0.0.0.1", "255.255.255.255"),
    *(
        "::",
        "::1",
        "1::",
        "fe80::1",
        "fe80::ffff:0:1",
        "2001:db8::8:800:200c:417a",
        "2001:db8:0:1:2:3:4:5",
        "::ffff:10.0.0.1",
        "::ffff:a00:1",
    ),
    *("/run/peer.socket", "peer.example", ""),
]
NETWORKS = [
    *("10.0.0.0/8", "10.0.0.0/24", "10.0.0.0/31", "10.0.0.1/32", "0.0.0.0/0", "192.168.0.0/20", "128.0.0.0/1"),
    *("::/0", "::/128", "::1/128", "fe80::/10", "2001:db8::/32", "2001:db8:0:1::/64", "::ffff:0:0/96", "::ffff:10.0.0.0/104", "8000::/1"),
]


def test_networks_have_the_same_addresses_in_sql_and_in_python(fill: Callable[..., Path], tmp_path: Path) -> None:
    ids = {host: bytes([number + 1]) * 16 for number, host in enumerate(HOSTS)}
    rows: dict[str, list[dict[str, Any]]] = {
        "connections": [{"connection_id": one, "what": "seen", "client_address": host or None, "ts": at(0)} for host, one in ids.items()],
        "messages": [said(0, connection_id=one, session_id=one, message_id=one) for one in ids.values()],
    }
    with Database(fill(tmp_path / "lake", rows)) as opened, opened.connection() as connection:
        for text in NETWORKS:
            wanted = parse(f"host:{text}")
            found = {line.id for line in messages.search(connection, wanted, limit=1000).rows}
            inside = {host for host in HOSTS if matcher(wanted)({"host": (host, "")})}
            assert found == {ids[host].hex() for host in inside}, text
            assert inside, text
