"""What is durable before anything names it, and what recovery makes of a torn log."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from tests.lake.conftest import CASES, record
from tests.lake.empty_lake import fresh_lake
from tests.lake.local_spark import LocalSpark

from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.lake.gold.incremental import fold_sessions, index
from wirelake.lake.jobs.forget import forget
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta, durable, journal, open_tables, snapshot
from wirelake.lake.store.check_lake import check_lake
from wirelake.lake.store.compaction import tidy
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables import connections, messages
from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.index import MINUTE_INDEX

TABLE = connections.TABLE


class Watch:
    """Says what a record names that was not synced: files, and folders whose list of names is older than what they have."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.unsynced: list[str] = []
        self.records: list[str] = []
        self._synced: dict[Path, object] = {}
        self._renamed: Path | None = None
        """The last record, until its folder is synced."""
        self.is_on = True

    def synced(self, descriptor: int) -> None:
        at = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._synced[at] = self._now(at)
        if self._renamed is not None and at == self._renamed.parent:
            self._renamed = None

    def renamed(self, to: Path) -> None:
        """A record is about to have its name."""
        if to.parent != self.lake / journal.FOLDER or to.suffix != ".json" or not self.is_on:
            return
        self._next_step()
        self._renamed = to
        self.records.append(to.name)
        draft = to.with_name(f"{to.name}.new")
        for path in [draft, *self._named(to.name, msgspec.json.decode(draft.read_bytes()))]:
            self._check(path, f"{to.name} names {path.relative_to(self.lake)}")

    def removed(self, record: Path) -> None:
        """The record of a batch is about to go: it counts from here on."""
        if record.parent == self.lake / journal.FOLDER and record.name in ("pending.json", "gold.json", "run.json"):
            self._next_step()
            self.records.append(f"{record.name} goes")
            for entry in (*self.lake.glob(f"*/{durable.LOG}/*.json"), *self.lake.glob(f"*/*/{durable.LOG}/*.json")):
                self._check(entry, f"{record.name} goes before {entry.relative_to(self.lake)}")

    def _next_step(self) -> None:
        if self._renamed is not None:
            self.unsynced.append(f"the folder of {self._renamed.name}")

    def _check(self, path: Path, why: str) -> None:
        if self._synced.get(path) != self._now(path):
            self.unsynced.append(why)
        while path != self.lake:
            if path.name not in (self._synced.get(path.parent) or ()) and not path.name.endswith(".json.new"):
                self.unsynced.append(f"{why}: {path.name} in its folder")
            path = path.parent

    @staticmethod
    def _now(at: Path) -> object:
        return frozenset(path.name for path in at.iterdir()) if at.is_dir() else (at.stat().st_size, at.stat().st_mtime_ns)

    def _named(self, name: str, said: dict) -> list[Path]:
        """Paths that a record names."""
        found = []
        if name == "pending.json":
            for tables in (said["files"] or {}, said["kept"]):
                found += [self.lake / table / file["path"] for table, files in tables.items() for file in files]
        if name == "gold.json":
            found += [self.lake / change["table"] / file["path"] for change in said["changes"] for file in change["added"]]
        if name == "published.json":
            for table, version in said["versions"].items():
                log = self.lake / table / durable.LOG
                found += [log / durable.entry_name(number) for number in range(version + 1)]
                found += delta.files(self.lake, TABLES[table], version)
        return found


def commit_elsewhere(lake):
    """Another program commits, and syncs nothing."""
    other = DeltaTable(delta.folder(lake, TABLE))
    for number in (1, 2):
        numbers = CommitProperties(app_transactions=[Transaction("other", number)])
        other.create_write_transaction([], "append", delta.delta_schema(TABLE), commit_properties=numbers)
        other.update_incremental()


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Watches a lake that does not exist yet."""
    watching, fsync = Watch(tmp_path / "lake"), os.fsync

    def told(descriptor: int) -> None:
        fsync(descriptor)
        watching.synced(descriptor)

    def heard(event: str, values: tuple) -> None:
        if watching.is_on and event == "os.rename":
            watching.renamed(Path(values[1]))
        if watching.is_on and event == "os.remove":
            watching.removed(Path(values[0]))

    monkeypatch.setattr(os, "fsync", told)
    sys.addaudithook(heard)
    yield watching
    watching.is_on = False


@pytest.mark.slow
def test_everything_is_durable_before_a_record_names_it(watch, tmp_path, monkeypatch):
    """With the folders: ext4 would keep most names without, other file systems do not."""
    monkeypatch.setattr(fold_sessions, "CHECKPOINT_RULES", CheckpointRules(messages=1, slack_seconds=0.5, files=3))
    spark, some = LocalSpark(), {name: CASES[name] for name in ("plain", "unanswered", "still open")}
    for number, name in enumerate(("first", "second", "third")):
        ingest(spark, watch.lake, [record(tmp_path / f"{name}.pcapng", some, 20_000 + 1000 * number)])
    forget(spark, watch.lake, ["first.pcapng"])
    assert tidy(watch.lake, 4, always=True)
    assert watch.unsynced == []
    assert {"format.json", "pending.json", "gold.json", "published.json", "run.json"} <= set(watch.records)
    commit_elsewhere(watch.lake)
    snapshot.publish(watch.lake)
    assert watch.unsynced == []
    assert {watch.records.count(name) for name in ("gold.json", "gold.json goes", "pending.json goes", "run.json goes")} == {4}


def test_gold_files_that_a_record_names_stay_although_no_rules_version_is_known_yet(tmp_path, monkeypatch):
    """A cut in the first gold commit of a lake: some tables count, and the version of their rules is not written."""
    lake, write = tmp_path / "lake", journal.write
    monkeypatch.setattr(fold_sessions, "CHECKPOINT_RULES", CheckpointRules(messages=1, slack_seconds=0.5, files=3))

    def cut(root: Path, name: str, content: bytes) -> None:
        if name == "edition":
            raise KeyboardInterrupt
        write(root, name, content)

    path = record(tmp_path / "cases.pcapng", CASES)
    monkeypatch.setattr(journal, "write", cut)
    with pytest.raises(KeyboardInterrupt):
        ingest(LocalSpark(), lake, [path])
    monkeypatch.setattr(journal, "write", write)
    assert journal.read(lake, "gold.json") is not None
    ingest(LocalSpark(), lake, [path])
    assert [problem for part in check_lake(lake) for problem in part.problems] == []


@pytest.fixture
def synced(monkeypatch):
    """Paths that were synced."""
    log, sync = [], durable._sync

    def told(path):
        sync(path)
        log.append(path)

    monkeypatch.setattr(durable, "_sync", told)
    return log


def entry_of(lake, version, table=TABLE):
    return delta.folder(lake, table) / durable.LOG / durable.entry_name(version)


def test_of_two_commits_to_a_table_only_the_second_can_be_torn(lake, synced):
    for number in (4, 5):
        delta.append(lake, TABLE, [File(f"part-{number:08d}-x.parquet", 1, 1)], number)
    assert entry_of(lake, 4) in synced
    assert entry_of(lake, 5) not in synced


def test_files_are_deleted_when_the_commit_that_replaced_them_is_durable(lake, synced):
    (file,) = delta.entries(lake, TABLE)[:1]
    path = delta.folder(lake, TABLE) / file.path
    path.write_bytes(b"PAR1")
    delta.merge(lake, TABLE, [file], [])
    assert entry_of(lake, 4) not in synced
    assert delta.sweep(lake, TABLE) == 1
    assert entry_of(lake, 4) in synced


@pytest.mark.parametrize("was_killed", [True, False])
def test_what_a_killed_process_did_not_sync_is_synced_by_the_next(lake, synced, was_killed):
    (lake / journal.FOLDER / "lock").write_text("123\n" if was_killed else "")
    durable.settle(lake)
    synced.clear()
    with journal.locked(lake):
        assert (entry_of(lake, 3) in synced) is was_killed


def test_an_index_is_merged_to_a_file_that_is_durable(lake, monkeypatch, synced):
    monkeypatch.setattr(index, "MOST_SMALL", 1)
    for number in (1, 2):
        sheet = Sheet(lake, MINUTE_INDEX, number)
        row = dict.fromkeys(MINUTE_INDEX.schema.names) | {"batch": number}
        sheet.add(pa.RecordBatch.from_pylist([row], schema=MINUTE_INDEX.schema))
        delta.append(lake, MINUTE_INDEX, [sheet.close()], number)
    assert index.merge(lake, MINUTE_INDEX)
    (file,) = delta.files(lake, MINUTE_INDEX)
    assert {file, file.parent, file.parent.parent} <= set(synced)
    assert entry_of(lake, 3, MINUTE_INDEX) not in synced


@pytest.fixture
def lake(tmp_path):
    """A lake with three batches of one table, whose files are not there."""
    lake = fresh_lake(tmp_path / "lake")
    for number in (1, 2, 3):
        delta.append(lake, TABLE, [File(f"part-{number:08d}-x.parquet", 1, 1)], number)
    snapshot.publish(lake)
    return lake


def log_of(lake):
    return delta.folder(lake, TABLE) / durable.LOG


def recovered(lake):
    with journal.locked(lake):
        return delta.version(lake, TABLE), len(delta.entries(lake, TABLE)), delta.batch(lake, TABLE)


def test_an_entry_that_is_cut_anywhere_never_counted(lake):
    """Also where a line ends: the first line says how many there are."""
    entry = log_of(lake) / durable.entry_name(4)
    delta.append(lake, TABLE, [File(f"part-00000004-{name}.parquet", 1, 1) for name in "ab"], 4)
    whole = entry.read_bytes()
    ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 3
    for cut in {0, 1, 5, *ends, *(end + 1 for end in ends), len(whole) - 1}:
        entry.write_bytes(whole[:cut])
        assert delta.version(lake, TABLE) == 3, "readers do not wait for recovery"
        assert recovered(lake) == (3, 3, 3), cut
        assert not entry.exists()
    entry.write_bytes(bytes(len(whole)))
    assert recovered(lake) == (3, 3, 3)
    entry.write_bytes(whole)
    assert recovered(lake) == (4, 5, 4)
    assert [problem for part in check_lake(lake, ["snapshot"]) for problem in part.problems] == []


def test_after_recovery_the_batch_is_committed_again(lake):
    (log_of(lake) / durable.entry_name(4)).write_bytes(b"")
    (log_of(lake) / durable.entry_name(5)).write_bytes(b'{"commitInfo":')
    assert recovered(lake) == (3, 3, 3)
    assert delta.append(lake, TABLE, [File("part-00000004-x.parquet", 1, 1)], 4)
    assert (delta.version(lake, TABLE), delta.batch(lake, TABLE)) == (4, 4)


def test_a_table_whose_creation_was_cut_is_created_again(tmp_path):
    lake = tmp_path / "lake"
    journal.initialise(lake)
    delta.create(lake, messages.TABLE)
    entry = delta.folder(lake, messages.TABLE) / durable.LOG / durable.entry_name(0)
    entry.write_bytes(entry.read_bytes()[:100])
    assert delta.version(lake, messages.TABLE) is None
    with journal.locked(lake):
        delta.create(lake, messages.TABLE)
    assert delta.version(lake, messages.TABLE) == 0


def test_a_whole_entry_of_another_program_stays(lake):
    lines = [{"commitInfo": {"operation": "OPTIMIZE", "engineInfo": "Apache-Spark"}}, {"txn": {"appId": "other", "version": 1}}]
    entry = log_of(lake) / durable.entry_name(4)
    entry.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert recovered(lake) == (4, 3, 3)


@pytest.fixture
def checkpointed(lake, monkeypatch):
    """The same with a checkpoint at version 4."""
    monkeypatch.setattr(open_tables, "_CHECKPOINT_EVERY", 4)
    for number in (4, 5):
        delta.append(lake, TABLE, [File(f"part-{number:08d}-x.parquet", 1, 1)], number)
    assert json.loads((log_of(lake) / "_last_checkpoint").read_bytes())["version"] == 4
    return lake


def test_a_checkpoint_is_made_and_entries_before_it_may_go(checkpointed):
    for version in range(4):
        (log_of(checkpointed) / durable.entry_name(version)).unlink()
    assert recovered(checkpointed) == (5, 5, 5)
    assert any(log_of(checkpointed).glob("*.checkpoint.parquet"))


@pytest.mark.parametrize("size", [0, 4, 100])
def test_a_torn_checkpoint_goes_with_its_hint(checkpointed, size):
    (checkpoint,) = log_of(checkpointed).glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:size])
    assert recovered(checkpointed) == (5, 5, 5)
    assert not checkpoint.exists()
    assert not (log_of(checkpointed) / "_last_checkpoint").exists()


@pytest.mark.parametrize("content", [b"", b'{"version":', b'{"version":99,"size":1}'])
def test_a_hint_at_no_checkpoint_goes(checkpointed, content):
    (log_of(checkpointed) / "_last_checkpoint").write_bytes(content)
    assert recovered(checkpointed) == (5, 5, 5)
    assert not (log_of(checkpointed) / "_last_checkpoint").exists()
    assert any(log_of(checkpointed).glob("*.checkpoint.parquet"))


def test_a_table_is_recreated_in_one_step(lake, monkeypatch):
    """A death while its folder is deleted leaves no half of a log."""
    monkeypatch.setattr(durable.shutil, "rmtree", lambda *_, **__: None)
    delta.recreate(lake, TABLE)
    assert recovered(lake) == (0, 0, None)
