"""`query`: SQL over the tables, which reads and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirelake.errors import LakeError
from wirelake.explore.query import query
from wirelake.lake import delta
from wirelake.lake.catalog import TABLES


def test_every_table_is_there_by_its_name(lake: Path) -> None:
    assert sorted(query(lake, "SHOW TABLES").column("name").to_pylist()) == sorted(TABLES)


def test_an_answer_has_types_and_values(lake: Path) -> None:
    answer = query(lake, "SELECT kind, count(*) AS n FROM messages GROUP BY kind ORDER BY kind")
    assert answer.to_pydict() == {"kind": ["error", "request", "response"], "n": [1, 1, 1]}


def test_times_are_utc(lake: Path) -> None:
    assert query(lake, "SELECT strftime(min(ts), '%H:%M %Z') AS t FROM messages").column("t").to_pylist() == ["12:00 UTC"]


def test_empty_tables_have_their_columns(lake: Path) -> None:
    answer = query(lake, "SELECT * FROM connections")
    assert (answer.num_rows, answer.schema.names) == (0, TABLES["connections"].schema.names)


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
def test_what_is_no_lake_is_said_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(LakeError, match="is not a lake: make one with `wirelake ingest`"):
        query(tmp_path / name, "SELECT 1")
