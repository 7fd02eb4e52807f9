"""Ingest: once, whole, or not at all."""

import os
import shutil

import pytest
from tests.lake.empty_lake import fresh_lake

from wirelake.capture.blocks.block import Source
from wirelake.capture.blocks.read_file import read
from wirelake.capture.blocks.transfer import to_batches
from wirelake.capture.files.identity import identify
from wirelake.errors import LakeError
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.jobs import sink
from wirelake.lake.jobs.ingest import ingest, refresh_gold
from wirelake.lake.jobs.sink import TableWriter
from wirelake.lake.sources import intake
from wirelake.lake.sources import plan as sources_plan
from wirelake.lake.sources.paths import expand
from wirelake.lake.store import commit, delta, journal, snapshot
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.tables.catalog import GOLD, SILVER, table
from wirelake.lake.tables.index import CONNECTION_INDEX, INDEX_TABLES
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import Keys

TALK = {
    "one": [
        (0.1, "client", "hello"),
        (0.2, "server", "hello"),
        (0.3, "client", "request 1"),
        (0.4, "client", "bye"),
        (1, "closed", "bye"),
    ]
}


def versions(lake):
    """Of all tables but `runs`, which has a row of every run."""
    return {each.name: delta.version(lake, each) for each in (*SILVER, *GOLD)}


def contents(lake, name, source=None):
    rows = delta.dataset(lake, table(name)).to_table().to_pylist()
    return sorted((row for row in rows if source is None or row["source"] == source), key=repr)


def blocks(path):
    return list(to_batches(read(identify(path), ports={5040: "emp"}, sniff=lambda _: None)))


def stray_files(lake):
    return [
        path
        for each in (*SILVER, *INDEX_TABLES)
        for path in delta.folder(lake, each).glob("*.parquet")
        if path not in delta.files(lake, each)
    ]


def test_a_second_ingest_changes_nothing_and_new_files_are_added(spark, recorded, tmp_path):
    lake, folder = tmp_path / "lake", tmp_path / "in [1]"
    folder.mkdir()
    first = recorded(folder / "a.pcapng", TALK)
    told = []
    result = ingest(spark, lake, [folder], progress=told.append)
    assert (result.batch, result.files, result.bytes, result.messages, result.quarantined) == (1, 1, first.stat().st_size, 4, 0)
    assert result.built == tuple(each.name for each in GOLD)
    assert {step.stage for step in told} == {"recover", "plan", "decode", "build"}
    before = versions(lake)

    again = ingest(spark, lake, [folder])
    assert (again.batch, again.files, again.messages, again.built) == (None, 0, 0, ())
    assert again.skipped == (str(first),)
    assert versions(lake) == before

    shutil.copy(first, folder / "copy.pcap")
    recorded(folder / "b.pcapng", TALK, 30_000)
    (folder / "empty.cap").touch()
    (folder / "notes.txt").write_text("not looked at")
    added = ingest(spark, lake, [folder, first, str(tmp_path / "in *" / "b.*")])
    assert (added.batch, added.files, added.messages) == (2, 2, 4)
    assert added.skipped == (str(first), str(folder / "copy.pcap"))
    assert len(contents(lake, "sessions")) == 2
    assert {row["reason"] for row in contents(lake, "ledger", str(folder / "empty.cap"))} == {"empty file"}
    assert stray_files(lake) == []

    known = first.stat().st_size
    with recorded(tmp_path / "more.pcapng", TALK, 40_000).open("rb") as more, first.open("ab") as grown:
        grown.write(more.read())
    rest = ingest(spark, lake, [folder])
    assert (rest.files, rest.messages, rest.bytes) == (1, 4, first.stat().st_size - known)
    assert len(contents(lake, "sessions")) == 3
    assert {row["offset"] for row in contents(lake, "ledger", str(first))} == {0, known}
    assert check_ledger(lake).problems == ()
    assert ingest(spark, lake, [folder]).files == 0

    first.write_bytes(first.read_bytes()[:-1] + b"?")
    before = versions(lake)
    changed = ingest(spark, lake, [first])
    assert (changed.changed, changed.files, changed.batch) == ((str(first),), 0, None)
    assert versions(lake) == before


def test_a_crash_between_two_tables_is_finished_by_the_next_ingest(spark, lake, tmp_path, monkeypatch):
    """The clean lake of all cases is the yardstick: what a crash and a second run leave must be the same."""
    source = lake.parent / "cases.pcapng"
    crashed = fresh_lake(tmp_path / "lake")
    task = TableWriter(crashed, 1, DecodeOptions())
    journal.begin(crashed, 1, [identify(source)])
    message = task.write(iter(blocks(source)))
    done = []

    with monkeypatch.context() as patch:
        patch.setattr(commit, "delta", _Crashing(done))
        with pytest.raises(LakeError, match="the plug was pulled"):
            task.commit([message])
    task.abort([message])
    assert done == ["messages", "emp"]
    assert delta.files(crashed, table("messages"))
    assert delta.files(crashed, table("ledger")) == []

    result = ingest(spark, crashed, [source])
    assert (result.resumed, result.files, result.skipped) == (True, 0, (str(source),))
    assert result.built == tuple(each.name for each in GOLD)
    assert journal.pending(crashed) is None
    for each in SILVER:
        left = [row | {"mark": b""} for row in contents(lake, each.name, str(source))] if each.name == "ledger" else None
        assert contents(crashed, each.name) == (left or contents(lake, each.name, str(source))), each.name
    sessions = {row["session_id"] for row in contents(crashed, "sessions")}
    for each in (each for each in GOLD if "session_id" in each.schema.names):
        yardstick = [row for row in contents(lake, each.name) if row["session_id"] in sessions]
        assert contents(crashed, each.name) == yardstick, each.name


class _Crashing:
    """Delta for two tables; then the power is gone."""

    def __init__(self, done):
        self._done = done

    def append(self, folder, each, *args):
        if len(self._done) == 2:
            raise LakeError("the plug was pulled")
        self._done.append(each.name)
        return delta.append(folder, each, *args)


def test_a_batch_that_was_not_prepared_leaves_nothing(recorded, tmp_path):
    lake, source = fresh_lake(tmp_path / "lake"), recorded(tmp_path / "a.pcapng", TALK)
    before = versions(lake)
    journal.begin(lake, 1, [identify(source)])
    TableWriter(lake, 1, DecodeOptions()).write(iter(blocks(source)))
    assert stray_files(lake)
    assert commit.recover(lake) is False
    assert stray_files(lake) == []
    assert versions(lake) == before
    assert journal.pending(lake) is None


def test_books_that_do_not_balance_are_not_published(recorded, tmp_path, monkeypatch):
    class Forgetful(Decoder):
        def finish(self):
            decoded = super().finish()
            decoded["ledger"] = [batch.slice(1) for batch in decoded["ledger"]]
            return decoded

    lake, source = fresh_lake(tmp_path / "lake"), recorded(tmp_path / "a.pcapng", TALK)
    before = versions(lake)
    monkeypatch.setattr(sink, "Decoder", Forgetful)
    task = TableWriter(lake, 1, DecodeOptions())
    journal.begin(lake, 1, [identify(source)])
    message = task.write(iter(blocks(source)))
    with pytest.raises(LakeError, match=rf"a\.pcapng: the ledger accounts for \d+ of {source.stat().st_size} bytes at byte 0; nothing"):
        task.commit([message])
    task.abort([message])
    assert versions(lake) == before
    assert stray_files(lake) == []


def test_a_task_that_fails_leaves_no_file(recorded, tmp_path):
    lake, source = fresh_lake(tmp_path / "lake"), recorded(tmp_path / "a.pcapng", TALK)

    def torn():
        yield from blocks(source)
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        TableWriter(lake, 1, DecodeOptions()).write(torn())
    assert stray_files(lake) == []


def test_publishing_twice_is_publishing_once(recorded, tmp_path):
    lake, source = fresh_lake(tmp_path / "lake"), recorded(tmp_path / "a.pcapng", TALK)
    journal.begin(lake, 1, [identify(source)])
    task = TableWriter(lake, 1, DecodeOptions())
    task.commit([task.write(iter(blocks(source)))])
    before = versions(lake)
    commit.publish(lake, journal.pending(lake))
    assert versions(lake) == before
    assert delta.batch(lake, table("ledger")) == 1


def test_a_file_that_vanishes_is_named_and_nothing_is_published(spark, tmp_path, monkeypatch):
    lake, gone = tmp_path / "lake", tmp_path / "gone.pcapng"
    gone.write_bytes(b"soon gone")
    monkeypatch.setattr(intake, "identify", lambda path: Source(str(tmp_path / "vanished"), b"12345678", 100))
    with pytest.raises(LakeError, match=r"vanished: cannot read: No such file or directory"):
        ingest(spark, lake, [gone])
    assert delta.files(lake, table("ledger")) == []
    assert journal.pending(lake) is None
    assert stray_files(lake) == []


def test_a_path_that_is_not_there_is_an_error_before_anything_is_made(tmp_path):
    with pytest.raises(LakeError, match=r"nowhere\.pcap: no such file, folder or pattern"):
        ingest(None, tmp_path / "lake", [tmp_path / "nowhere.pcap"])
    assert not (tmp_path / "lake").exists()


def test_folders_are_searched_and_every_file_is_taken_once(tmp_path):
    for name in ("b/x.PCAP", "a.pcapng", "b/c/y.cap", "b/z.txt", "b/q.pcap.gz", "b/r.pcapng.zst", "b/s.txt.gz", "b/t.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = expand([tmp_path, tmp_path / "a.pcapng", tmp_path / "b" / "z.txt", str(tmp_path / "**" / "*.cap")])
    names = [path.removeprefix(f"{tmp_path}/") for path in found]
    assert names == ["a.pcapng", "b/c/y.cap", "b/q.pcap.gz", "b/r.pcapng.zst", "b/x.PCAP", "b/z.txt"]


def test_captures_elsewhere_are_found_by_folder_and_pattern():
    import fsspec

    for name in ("one.pcap", "deep/two.pcapng.gz", "notes.txt"):
        with fsspec.open(f"memory://found/{name}", "wb") as file:
            file.write(b"x")
    both = ["memory:///found/deep/two.pcapng.gz", "memory:///found/one.pcap"]
    assert sorted(expand(["memory://found"])) == both
    assert expand(["memory://found/*.txt"]) == ["memory:///found/notes.txt"]
    with pytest.raises(LakeError, match="no such file"):
        expand(["memory://found/nothing*"])


def test_a_second_writer_is_refused_and_told_who_is_first(tmp_path):
    lake = fresh_lake(tmp_path / "lake")
    with journal.locked(lake), pytest.raises(LakeError, match=rf"is being written by process {os.getpid()}"):
        ingest(None, lake, [])
    with journal.locked(lake):
        pass


def test_a_lake_of_a_newer_wirelake_is_refused(tmp_path):
    lake = fresh_lake(tmp_path / "lake")
    (lake / "_wirelake" / "format.json").write_text('{"version": 99}')
    with pytest.raises(LakeError, match="made by a newer wirelake"):
        ingest(None, lake, [])


def test_a_damaged_lake_says_what_is_damaged(tmp_path):
    lake = fresh_lake(tmp_path / "lake")
    (lake / "_wirelake" / "pending.json").write_text("{")
    with pytest.raises(LakeError, match=r"damaged: _wirelake/pending\.json"):
        journal.pending(lake)
    (lake / "_wirelake" / "format.json").write_text("?")
    with pytest.raises(LakeError, match=r"damaged: _wirelake/format\.json"):
        journal.check(lake)


def test_a_lake_cannot_be_a_file(tmp_path):
    (tmp_path / "lake").touch()
    with pytest.raises(LakeError, match="is a file: a lake is a folder"):
        journal.initialise(tmp_path / "lake")


def test_gold_tables_that_were_left_alone_are_built_by_the_next_ingest(spark, recorded, tmp_path):
    first, second = recorded(tmp_path / "a.pcapng", TALK), recorded(tmp_path / "b.pcapng", TALK, 30_000)
    left = ingest(spark, tmp_path / "lake", [first], gold=False)
    assert (left.messages, left.built, contents(tmp_path / "lake", "sessions")) == (4, (), [])
    assert ingest(spark, tmp_path / "lake", [second]).built
    assert len(contents(tmp_path / "lake", "sessions")) == 2


def test_gold_tables_catch_up_when_asked_to(spark, recorded, tmp_path):
    first, second, lake = recorded(tmp_path / "a.pcapng", TALK), recorded(tmp_path / "b.pcapng", TALK, 30_000), tmp_path / "lake"
    for path in (first, second):
        ingest(spark, lake, [path], gold=False)
    assert contents(lake, "sessions") == []
    assert refresh_gold(spark, lake).built == tuple(each.name for each in GOLD)
    assert len(contents(lake, "sessions")) == 2
    assert [row["kind"] for row in delta.dataset(lake, table("runs")).to_table().to_pylist()].count("gold") == 1
    assert snapshot.current(lake).batch("sessions") == 2
    before = versions(lake)
    assert refresh_gold(lambda: pytest.fail("Spark was started"), lake).built == ()
    assert versions(lake) == before
    with pytest.raises(LakeError, match="is not a lake"):
        refresh_gold(spark, tmp_path)


def test_keys_are_in_no_plan(spark, recorded, tmp_path):
    """Recordings that need a shuffle, and those that do not."""
    secret = b"a secret of 16 b"
    sources = [identify(recorded(tmp_path / "a.pcapng", TALK)), identify(recorded(tmp_path / "b.pcapng", TALK, 30_000))]
    plans = [sources_plan.plan([source], lambda cuts: [], 1, shuffle_all=bool(place)) for place, source in enumerate(sources)]
    plan = sources_plan.Plan(plans[0].direct, plans[1].partitioned, 2)
    assert plan.direct
    assert plan.partitioned
    writer = TableWriter(tmp_path / "lake", 1, DecodeOptions(), ports={5040: "emp"}, keyring=Keyring([Keys(secret * 2, secret)]))
    frame = sink.results(spark, plan, {5040: "emp"}, tmp_path / "notes", writer)
    shown = frame._jdf.queryExecution().toString()
    assert "MapInArrow" in shown
    assert not [form for form in (secret.decode(), secret.hex(), repr(secret), "Keyring", str(tmp_path)) if form in shown]


def test_only_the_files_of_returned_results_count(recorded, tmp_path):
    """A task that Spark runs twice writes other files the second time."""
    lake, source = fresh_lake(tmp_path / "lake"), recorded(tmp_path / "a.pcapng", TALK)
    task = TableWriter(lake, 1, DecodeOptions())
    journal.begin(lake, 1, [identify(source)])
    lost, returned = (task.write(iter(blocks(source))) for _ in range(2))
    assert not {file.path for file in lost.files.values()} & {file.path for file in returned.files.values()}
    task.commit([returned])
    journal.done(lake)
    assert len(contents(lake, "messages")) == 4
    assert {path.name for path in delta.files(lake, CONNECTION_INDEX)} == {returned.files["messages"].path}
    for each in SILVER:
        snapshot.sweep(lake, each, patience=0)
    for each in INDEX_TABLES:
        delta.sweep(lake, each)
    assert stray_files(lake) == []
    assert len(contents(lake, "messages")) == 4
