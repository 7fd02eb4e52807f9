"""What can be told without Spark is told before it starts."""

import os

import pytest
from tests.lake.conftest import record
from tests.lake.test_ingest import TALK, blocks, fresh_lake

from wirelake.capture.identity import identify
from wirelake.explore.query import query
from wirelake.lake import delta, journal, snapshot
from wirelake.lake.catalog import EDITION, GOLD
from wirelake.lake.decode import DecodeOptions
from wirelake.lake.writer import TableWriter


def tree(folder):
    """Everything below a folder, with contents."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture
def lake(tmp_path):
    """A lake that has a.pcapng, and gold tables as of its batch, though empty ones; made without Spark."""
    made, source = fresh_lake(tmp_path / "lake"), record(tmp_path / "a.pcapng", TALK)
    snapshot.begin(made)
    journal.begin(made, 1, [identify(source)])
    task = TableWriter(made, 1, DecodeOptions())
    task.commit([task.write(iter(blocks(source)))])
    journal.done(made)
    for each in GOLD:
        delta.exchange(made, each, [], [], 1, 1)
    journal.write(made, "edition", str(EDITION).encode())
    snapshot.publish(made)
    return made


def test_nothing_new_is_told_without_spark_and_written_down(wirelake, no_spark, lake, tmp_path):
    outcome = wirelake("ingest", lake, tmp_path / "a.pcapng")
    assert outcome.code == 0, outcome.talk
    assert "nothing new" in outcome.talk
    assert "Spark" not in outcome.talk
    assert query(lake, "select kind, outcome, skipped from runs").to_pylist() == [{"kind": "ingest", "outcome": "done", "skipped": 1}]


def test_a_read_only_lake_is_told_before_spark_starts(wirelake, no_spark, tmp_path, monkeypatch):
    (tmp_path / "x.pcapng").write_bytes(b"x")
    journal.initialise(tmp_path / "lake")
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK and "lake" in str(path)))
    before = tree(tmp_path)
    outcome = wirelake("ingest", tmp_path / "lake", tmp_path / "x.pcapng")
    assert (outcome.code, tree(tmp_path)) == (1, before)
    assert "lake cannot be written" in outcome.talk
    assert "Java" not in outcome.talk


def test_a_lake_that_is_being_written_is_told_before_spark_starts(wirelake, no_spark, tmp_path):
    (tmp_path / "x.pcapng").write_bytes(b"x")
    journal.initialise(tmp_path / "lake")
    with journal.locked(tmp_path / "lake"):
        for words in ((tmp_path / "x.pcapng",), ("--follow", tmp_path)):
            outcome = wirelake("ingest", tmp_path / "lake", *words)
            assert outcome.code == 1
            assert f"is being written by process {os.getpid()}" in outcome.talk
            assert "Java" not in outcome.talk
