"""`query`: SQL over the tables, which reads and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.explore.rows import message

from wirelake.errors import LakeError, QueryError
from wirelake.explore.query import BATCH_ROWS, opened, query, stream
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import TABLES


def test_every_table_is_there_by_its_name(lake: Path) -> None:
    names = query(lake, "SHOW TABLES").column("name").to_pylist()
    assert sorted(name for name in names if not name.startswith("every_")) == sorted(TABLES)
    assert {name.removeprefix("every_") for name in names} == set(TABLES)


def test_an_answer_has_types_and_values(lake: Path) -> None:
    answer = query(lake, "SELECT kind, count(*) AS n FROM messages GROUP BY kind ORDER BY kind")
    assert answer.to_pydict() == {"kind": ["error", "request", "response"], "n": [1, 1, 1]}


def test_times_are_utc(lake: Path) -> None:
    assert query(lake, "SELECT strftime(min(ts), '%H:%M %Z') AS t FROM messages").column("t").to_pylist() == ["12:00 UTC"]


def test_empty_tables_have_their_columns(lake: Path) -> None:
    answer = query(lake, "SELECT * FROM connections")
    assert (answer.num_rows, answer.schema.names) == (0, TABLES["connections"].schema.names)


@pytest.mark.slow
@pytest.mark.parametrize("sql", ["DESCRIBE messages", "SUMMARIZE sessions", "EXPLAIN SELECT 1", "explain analyze select 1", "FROM ledger"])
def test_what_only_reads_is_answered(lake: Path, sql: str) -> None:
    assert query(lake, sql).num_rows > 0


def test_a_wrong_table_is_answered_with_those_there_are(lake: Path) -> None:
    with pytest.raises(LakeError) as caught:
        query(lake, "SELECT * FROM mesages")
    said = str(caught.value)
    assert "mesages does not exist" in said
    assert all(name in said for name in TABLES)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT colour FROM messages", '"colour" not found'),
        ("SELEC 1", "syntax error"),
        ("SELECT 'x'::INT", "Could not convert"),
        ("", "one statement of SQL, not none"),
        ("-- nothing", "one statement of SQL, not none"),
        ("SELECT 1; SELECT 2", "one statement of SQL, not 2"),
    ],
)
def test_a_wrong_question_is_one_line(lake: Path, sql: str, said: str) -> None:
    with pytest.raises(LakeError) as caught:
        query(lake, sql)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "EXPLAIN ANALYZE ", "explain /* */ analyze ", "EXPLAIN (ANALYZE) "])
@pytest.mark.parametrize("place", ["of the lake", "elsewhere"])
def test_nothing_is_written(lake: Path, tmp_path: Path, prefix: str, place: str) -> None:
    target = delta.files(lake, TABLES["messages"])[0] if place == "of the lake" else tmp_path / "out.parquet"
    before = target.read_bytes() if target.exists() else None
    with pytest.raises(LakeError):
        query(lake, f"{prefix}COPY (SELECT 1 AS one) TO '{target}'")
    assert (target.read_bytes() if target.exists() else None) == before


@pytest.mark.parametrize("sql", ["CREATE TABLE x AS SELECT 1", "DROP VIEW messages", "SET threads = 1", "INSTALL httpfs", "PRAGMA version"])
def test_only_reading_is_allowed(lake: Path, sql: str) -> None:
    with pytest.raises(LakeError, match="only read here"):
        query(lake, sql)


@pytest.mark.parametrize("sql", ["SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('{lake}/_wirelake/format.json')"])
def test_no_other_file_is_within_reach(lake: Path, sql: str) -> None:
    with pytest.raises(LakeError, match="Permission Error"):
        query(lake, sql.format(lake=lake))


@pytest.mark.parametrize("name", ["nowhere", "a file"])
def test_a_folder_that_is_no_lake_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(LakeError, match="is not a lake: make one with `wirelake ingest`"):
        query(tmp_path / name, "SELECT 1")


NODE = bytes(range(16))
SESSION = bytes.fromhex("00ff" * 8)


@pytest.fixture(scope="module")
def spelled(fill: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with ids of every kind."""
    rows = {
        "messages": [message(0, session_id=SESSION, body=b"\x00\xff")],
        "security": [{"session_id": SESSION, "node_id": NODE, "auth_key_id": b"\x00\x01"}],
        "relink": [{"session_id": SESSION, "channel_ids": [b"\xaa", b""]}],
        "yamp": [{"session_id": SESSION, "uid": NODE}],
    }
    return fill(tmp_path_factory.mktemp("spelled") / "lake", rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "column", "text"),
    [
        ("messages", "session_id", SESSION.hex()),
        ("security", "auth_key_id", "0001"),
        ("security", "node_id", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("yamp", "uid", NODE.hex()),
    ],
)
def test_an_id_copied_from_an_answer_works_in_where(spelled: Path, table: str, column: str, text: str) -> None:
    assert query(spelled, f"SELECT {column} FROM {table}").column(column).to_pylist() == [text]
    assert query(spelled, f"SELECT 1 FROM {table} WHERE {column} = '{text}'").num_rows == 1


@pytest.mark.slow
def test_a_node_id_is_found_with_and_without_dashes(spelled: Path) -> None:
    assert query(spelled, f"FROM security WHERE node_id IN ('{NODE.hex()}')").num_rows == 1
    assert query(spelled, f"FROM security WHERE node_id = '{NODE.hex().upper()}'").num_rows == 1


def test_ids_in_lists_are_text_and_other_bytes_stay_bytes(spelled: Path) -> None:
    assert query(spelled, "SELECT channel_ids FROM relink WHERE list_contains(channel_ids, 'aa')").to_pylist() == [
        {"channel_ids": ["aa", ""]}
    ]
    assert query(spelled, "SELECT body FROM messages WHERE body = unhex('00ff')").to_pylist() == [{"body": b"\x00\xff"}]
    assert query(spelled, "FROM messages JOIN relink USING (session_id)").num_rows == 1


def test_tables_as_the_report_reads_them_have_ids_as_they_are(spelled: Path) -> None:
    with opened(spelled) as connection:
        assert connection.sql("SELECT session_id FROM messages").fetchall() == [(SESSION,)]


def test_a_stream_of_rows_is_computed_as_it_is_read(lake: Path) -> None:
    """A billion wide rows: nothing holds them, and a reader may stop."""
    with stream(lake, "SELECT i, repeat('x', 10000) AS wide FROM range(1000000000) AS t(i)") as answer:
        first = next(iter(answer))
        assert (answer.schema.names, first.num_rows) == (["i", "wide"], BATCH_ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql", ["SELECT i FROM range(1000000000) AS t(i)", "SHOW TABLES", "DESCRIBE messages", "SUMMARIZE messages", "FROM messages"]
)
def test_a_limit_goes_into_every_kind_of_query(lake: Path, sql: str) -> None:
    with stream(lake, sql, limit=2) as answer:
        assert answer.read_all().num_rows == 2


def test_what_fails_in_a_later_row_is_one_line_as_in_the_first(lake: Path) -> None:
    late = "SELECT CASE WHEN i = 500000 THEN 'x' ELSE '1' END::INT AS n FROM range(1000000) AS t(i)"
    with pytest.raises(QueryError, match="Could not convert string 'x'") as caught, stream(lake, late) as answer:
        for _ in answer:
            pass
    assert "\n" not in str(caught.value)
