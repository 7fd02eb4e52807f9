"""Runs: every run is written down once, whatever becomes of it."""

import logging

import pytest

from wirelake.errors import CaptureError, LakeError
from wirelake.lake.store import delta, journal, run_log, settings
from wirelake.lake.tables.catalog import table


@pytest.fixture
def lake(tmp_path):
    journal.initialise(tmp_path)
    return tmp_path


def rows(lake):
    return sorted(delta.dataset(lake, table("runs")).to_table().to_pylist(), key=lambda row: row["run"])


def fail(lake, inputs, error):
    with run_log.recorded(lake, "ingest") as run:
        run.inputs = inputs
        raise error


def test_a_run_says_what_it_did_and_how_long_it_took(lake, caplog):
    caplog.set_level(logging.INFO, "wirelake.lake")
    with run_log.recorded(lake, "ingest") as run:
        run.inputs = ["a.pcap", "b.pcap"]
        run.files, run.bytes, run.skipped = 1, 100, 1
        with run.stage("decode"):
            run.added(4, {"messages": 10, "emp": 10})
            run.added(5, {"messages": 1})
    (row,) = rows(lake)
    assert (row["run"], row["kind"], row["outcome"], row["batch"]) == (1, "ingest", "done", 5)
    assert row["rows"] == [{"table": "messages", "rows": 11}, {"table": "emp", "rows": 10}]
    assert [stage["stage"] for stage in row["stages"]] == ["decode"]
    assert (row["inputs"], row["files"], row["bytes"], row["skipped"], row["error"]) == (["a.pcap", "b.pcap"], 1, 100, 1, None)
    assert row["started"] <= row["ended"]
    assert {name for name in ("wirelake", "pyspark", "python", "lake_format") if not row[name]} == set()
    assert sum("decode took" in line for line in caplog.messages) == 1


def test_a_run_that_fails_names_the_file_and_the_offset(lake):
    with pytest.raises(CaptureError):
        fail(lake, ["/in/a.pcap", "/in/a.pcap.gz"], CaptureError("/in/a.pcap.gz", 4711, "the packed file ends early"))
    (row,) = rows(lake)
    assert (row["outcome"], row["error"]) == ("failed", "/in/a.pcap.gz: the packed file ends early at byte 4711")
    assert (row["error_source"], row["error_offset"]) == ("/in/a.pcap.gz", 4711)


def test_an_error_of_no_file_names_none(lake):
    with pytest.raises(KeyboardInterrupt):
        fail(lake, ["/in/a.pcap"], KeyboardInterrupt())
    (row,) = rows(lake)
    assert (row["error"], row["error_source"], row["error_offset"]) == ("KeyboardInterrupt", None, None)


def test_of_a_run_that_was_killed_the_next_one_writes_the_row(lake):
    killed = run_log.recorded(lake, "ingest")
    killed.__enter__()
    with run_log.recorded(lake, "ingest"):
        pass
    assert [(row["run"], row["outcome"], row["ended"] is None) for row in rows(lake)] == [(1, "died", True), (2, "done", False)]
    del killed


def test_a_run_that_was_killed_right_after_its_row_is_there_once(lake, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(journal, "remove", lambda *_: None)
        with run_log.recorded(lake, "ingest"):
            pass
    with run_log.recorded(lake, "ingest"):
        pass
    assert [(row["run"], row["outcome"]) for row in rows(lake)] == [(1, "done"), (2, "done")]


def test_when_an_answer_is_late_is_settled_when_the_lake_is_made(lake):
    assert settings.hold(lake, settings.Wanted(10.0)).late_seconds == 10.0
    assert settings.hold(lake).late_seconds == 10.0
    assert settings.hold(lake, settings.Wanted(10.0)).late_seconds == 10.0
    with pytest.raises(LakeError, match="late after 10 s, not 30 s: that was fixed when it was created"):
        settings.hold(lake, settings.Wanted(30.0))


def test_damaged_records_are_named(lake):
    journal.write(lake, "run.json", b"{")
    with pytest.raises(LakeError, match=r"damaged: _wirelake/run\.json"), run_log.recorded(lake, "ingest"):
        pass
    journal.write(lake, "settings.json", b"{")
    with pytest.raises(LakeError, match=r"damaged: _wirelake/settings\.json"):
        settings.of(lake)
