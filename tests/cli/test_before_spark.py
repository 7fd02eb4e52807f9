"""What can be told without Spark is told before it starts."""

import os

import pytest
from tests.lake.conftest import record
from tests.lake.empty_lake import fresh_lake
from tests.lake.test_ingest import TALK, blocks

from wirelake import protocols
from wirelake.capture.files.identity import identify
from wirelake.explore.query import query
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.jobs.sink import TableWriter
from wirelake.lake.store import decode_settings, delta, journal, snapshot
from wirelake.lake.tables.catalog import GOLD, RULES_VERSION, SILVER


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
    journal.write(made, "edition", str(RULES_VERSION).encode())
    snapshot.publish(made)
    return made


def test_nothing_new_is_told_without_spark_and_written_down(wirelake, no_spark, lake, tmp_path):
    outcome = wirelake("ingest", lake, tmp_path / "a.pcapng")
    assert outcome.code == 0, outcome.talk
    assert "nothing new" in outcome.talk
    assert "Spark" not in outcome.talk
    assert query(lake, "select kind, outcome, skipped from runs").to_pylist() == [{"kind": "ingest", "outcome": "done", "skipped": 1}]


@pytest.mark.slow
@pytest.mark.parametrize("option", [("--port", "emp=6000"), ("--set", "emp.max_message_size=1000"), ("--keys", "log")])
def test_options_that_cannot_take_effect_are_refused_with_the_way_out(wirelake, no_spark, lake, tmp_path, option):
    log = tmp_path / "log"
    log.write_text(f"wolpertinger {'ab' * 32} {'cd' * 16}\n")
    log.chmod(0o600)
    words = [log if word == "log" else word for word in option]
    before = {each.name: delta.version(lake, each) for each in (*SILVER, *GOLD)}
    outcome = wirelake("ingest", lake, tmp_path / "a.pcapng", *words)
    assert outcome.code == 1
    assert "The options have no effect on them: read them again with --again" in outcome.talk
    assert {each.name: delta.version(lake, each) for each in (*SILVER, *GOLD)} == before


@pytest.mark.slow
def test_gold_tables_that_have_all_batches_need_no_spark(wirelake, no_spark, lake):
    outcome = wirelake("gold", lake)
    assert (outcome.code, outcome.out) == (0, b"")
    assert "nothing to do" in outcome.talk


def test_options_that_took_effect_are_not_refused(wirelake, no_spark, lake, tmp_path):
    words = ("ingest", lake, tmp_path / "a.pcapng", "--port", "emp=6000")
    decode_settings.note(lake, 1, decode_settings.fingerprint(DecodeOptions(), protocols.ports() | {6000: "emp"}, None))
    assert wirelake(*words).code == 0
    assert wirelake(*words[:-1], "emp=6001").code == 1


def test_how_batches_were_decoded_is_known_from_the_first_of_them_on(lake, tmp_path):
    source = {"a": identify(tmp_path / "a.pcapng").id}
    assert decode_settings.differently(lake, source, "one") == ["a"]
    assert decode_settings.differently(lake, source, "one", certain=True) == []
    for batch, how, expected in ((1, "one", []), (2, "two", []), (1, "two", ["a"]), (1, "one", [])):
        decode_settings.note(lake, batch, how)
        assert decode_settings.differently(lake, source, "one") == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("forget", "lake", "nothing.pcap"), 1, "has no source nothing.pcap"),
        (("forget", "lake"), 64, "SOURCE"),
        (("forget", "nowhere", "a.pcapng"), 1, "nowhere is not a lake"),
        (("ingest", "lake", "--again"), 64, "--again"),
        (("ingest", "lake", "--again", "--follow", "."), 64, "--again"),
        (("ingest", "lake", "--no-gold", "--follow", "."), 64, "--no-gold needs PATHS"),
        (("ingest", "lake", "a.pcapng", "--no-gold", "--again"), 64, "--no-gold and --again exclude each other"),
        (("gold", "nowhere"), 1, "nowhere is not a lake"),
    ],
)
def test_what_cannot_be_forgotten_or_read_again_is_told(wirelake, no_spark, lake, monkeypatch, words, code, complaint):
    monkeypatch.chdir(lake.parent)
    outcome = wirelake(*words)
    assert (outcome.code, outcome.out) == (code, b"")
    assert complaint in outcome.talk
    assert not (lake.parent / "nowhere").exists()


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
