"""Queries open only files that may have their rows, and answer as if they had opened all."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable, QueryBuilder

from wirelake.errors import QueryError, UsageError
from wirelake.explore import file_filters
from wirelake.explore.file_filters import condition_of
from wirelake.explore.model import messages as questions
from wirelake.explore.model.database import Database
from wirelake.explore.query import opened, query
from wirelake.filters import parse
from wirelake.lake import open_lake
from wirelake.lake.store import delta, journal, settings, snapshot
from wirelake.lake.store.commit import prepare
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.store.skipping import UNKNOWN, All, AnyOf, Comparison, Nullness
from wirelake.lake.tables import messages

FILES = 40
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with 40 files of messages: a minute each, three messages. The last has no statistics, the first a message without a time."""
    folder = tmp_path_factory.mktemp("skipping") / "lake"
    journal.initialise(folder)
    settings.hold(folder)
    prepare(folder)
    files = []
    for number in range(FILES):
        sheet = Sheet(folder, messages.TABLE, 1)
        given = [
            {
                "message_id": (number * 3 + place).to_bytes(16),
                "session_id": bytes(16),
                "connection_id": bytes(16),
                "ts": None if number == place == 0 else BEGIN + timedelta(minutes=number, seconds=place * 20),
                "protocol": "emp" if number % 2 else "yamp",
                "direction": "to_server",
                "kind": "event",
                "name": "data",
                "subject": f"it's {number:02d}",
                "status": "error" if number == 7 else "ok",
                "size": 10,
            }
            for place in range(3)
        ]
        sheet.add(pa.RecordBatch.from_pylist([dict.fromkeys(messages.TABLE.schema.names) | one for one in given], messages.TABLE.schema))
        file = sheet.close()
        files.append(file if number < FILES - 1 else File(file.path, file.size, file.rows))
    delta.append(folder, messages.TABLE, files, 1)
    snapshot.publish(folder)
    return folder


def files_read(plan: str) -> int:
    return sum(map(int, re.findall(r"Total Files Read:\s*(\d+)", plan)))


@pytest.mark.parametrize(
    ("where", "rows", "files"),
    [
        ("ts BETWEEN '2026-01-01 00:10:00' AND '2026-01-01 00:11:59'", 6, 3),
        ("ts >= '2026-01-01 00:10:00' AND ts < '2026-01-01 00:11:00'", 3, 2),
        ("ts = '2026-01-01 00:10:20'", 1, 2),
        ("ts > '2026-01-01 00:10:40'", 87, 29),
        ("ts < '2026-01-01 00:00:00'", 0, 0),
        ("ts IS NULL", 1, 2),
        ("date_trunc('minute', ts) = '2026-01-01 00:05:00'", 3, 2),
        ("ts < '2026-01-01 00:01:00' OR ts >= '2026-01-01 00:38:00'", 8, 3),
        ("status = 'error'", 3, 2),
        ("subject = 'it''s 05'", 3, 2),
        ("subject LIKE 'it''s 05%'", 3, 2),
        ("subject = 'x\n(ts >= ''2030-01-01 00:00:00+00''::TIMESTAMP WITH TIME ZONE)\ny'", 0, 0),
        ("subject IN ('it''s 03', 'it''s 20')", 6, 3),
        ("protocol = 'emp' AND ts < '2026-01-01 00:04:00'", 6, 3),
        ("NOT (ts >= '2026-01-01 00:04:00')", 11, 5),
        ("fault IS NOT NULL", 0, 0),
        ("ts >= '2026-01-01 00:10:00' AND lower(subject) = 'it''s 12'", 3, 30),
        ("size + 1 > 5", 120, 40),
    ],
)
def test_a_query_opens_few_files_and_finds_all_rows(lake, where, rows, files):
    sql = f"SELECT count(*) AS n FROM messages WHERE {where}"
    with opened(lake) as connection:
        assert connection.execute(sql).fetchall() == [(rows,)]
    assert query(lake, sql).to_pylist() == [{"n": rows}]
    assert files_read(query(lake, f"EXPLAIN ANALYZE {sql}").to_pylist()[0]["explain_value"]) == files


def test_every_scan_of_a_table_finds_its_files(lake):
    sql = (
        "WITH early AS (SELECT * FROM messages WHERE ts < '2026-01-01 00:02:00')"
        " SELECT (SELECT count(*) FROM early) AS early, count(*) AS late FROM messages WHERE ts >= '2026-01-01 00:37:00'"
    )
    assert query(lake, sql).to_pylist() == [{"early": 5, "late": 9}]
    everything = "SELECT count(*) AS n, (SELECT count(*) FROM messages WHERE ts < '2026-01-01 00:01:00') AS early FROM messages"
    assert query(lake, everything).to_pylist() == [{"n": 120, "early": 2}]


def test_a_query_without_a_plan_says_why(lake):
    with pytest.raises(QueryError, match="nothing_such"):
        query(lake, "SELECT nothing_such FROM messages")
    with pytest.raises(QueryError, match="one statement"):
        query(lake, "SELECT 1; SELECT 2")
    assert len(query(lake, "DESCRIBE messages")) == len(messages.TABLE.schema)


def test_the_clock_may_go_on_between_plan_and_query():
    at = "(ts <= '2026-01-01 00:00:00+00'::TIMESTAMP WITH TIME ZONE)"
    widened = condition_of(at, file_filters.CLOCK_SLACK)
    assert widened == All((Comparison("ts", "<=", BEGIN + file_filters.CLOCK_SLACK),))
    asks = duckdb.sql("SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'CONSISTENT_WITHIN_QUERY'").fetchall()
    assert len(asks) > 5
    assert all(file_filters._CLOCK.search(name) for (name,) in asks if name != "in_search_path")


@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ("", All((UNKNOWN,))),
        ("(a = 'it''s')", All((Comparison("a", "=", "it's"),))),
        ("(a > -5)\n(b IS NULL)", All((Comparison("a", ">", -5), Nullness("b", is_null=True)))),
        ("optional: (a IN (1, NULL))", All((AnyOf((Comparison("a", "=", 1), UNKNOWN)),))),
        ("NOT (a = 1)", All((UNKNOWN,))),
        ("((a = 1) AND (b = 2) OR (c = 3))", All((UNKNOWN,))),
        ("(a != 1)", All((UNKNOWN,))),
        ("(ts > 'infinity'::TIMESTAMP WITH TIME ZONE)", All((UNKNOWN,))),
        ("(a = 1", UNKNOWN),
        ("(a = 'open)", UNKNOWN),
        ("(a = 1))", UNKNOWN),
    ],
)
def test_what_is_not_understood_excludes_nothing(filters, condition):
    assert condition_of(filters) == condition


def test_pages_of_explore_read_few_files(lake):
    asked = parse("since:2026-01-01T00:10:00Z until:2026-01-01T00:11:59Z")
    with Database(lake) as database, database.connection() as connection:
        assert questions.count(connection, asked) == 6
        assert len(connection._narrow["messages"]) == 3
        page = questions.search(connection, asked)
        assert [row.subject for row in page.rows] == ["it's 10"] * 3 + ["it's 11"] * 3
        assert questions.count(connection, parse("subject:nothing")) == 0
        assert questions.count(connection, parse("since:2030-01-01T00:00:00Z -subject:*39*")) == 0
        assert questions.count(connection, parse("")) == 120
        assert "messages" not in connection._narrow


def test_other_readers_of_the_lake_open_few_files(lake):
    since, until = BEGIN + timedelta(minutes=10), BEGIN + timedelta(minutes=12, microseconds=-1)
    assert len(open_lake(lake).files("messages", since=since, until=until)) == 3
    assert len(open_lake(lake).files("messages", since=since.replace(tzinfo=None))) == 30
    assert len(open_lake(lake).files("messages")) == FILES
    dataset, field = open_lake(lake).dataset("messages"), pads.field("ts")
    is_asked = (field >= since) & (field <= until)
    assert dataset.count_rows(filter=is_asked) == 6
    assert len(list(dataset.get_fragments(filter=is_asked))) == 4  # the first has a message without a time, the last no statistics
    assert dataset.count_rows() == 120
    engine = QueryBuilder().register("messages", DeltaTable(lake / "messages"))
    sql = f"SELECT * FROM messages WHERE ts BETWEEN TIMESTAMPTZ '{since}' AND TIMESTAMPTZ '{until}'"
    assert len(pa.table(engine.execute(sql))) == 6
    plan = str(pa.table(engine.execute(f"EXPLAIN ANALYZE {sql}")).to_pylist())
    assert sum(map(int, re.findall(r"files_opened=(\d+)", plan))) == 3


def test_a_table_without_a_time_has_no_since(lake):
    with pytest.raises(UsageError, match="has no time"):
        open_lake(lake).files("ledger", since=datetime.fromtimestamp(time.time(), UTC))
