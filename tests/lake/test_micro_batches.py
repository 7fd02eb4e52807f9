"""Micro-batches without Spark: however files grow and reading is interrupted, silver tables equal those of one ingest."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pyarrow as pa
import pytest
from tests.capture.build import Talk, pcap
from tests.cases import seeds
from tests.lake.following import PORTS, Bomb, contents, files, story

from wirelake import protocols
from wirelake.capture.files.growing import Follower, Limits, Offset, micro_batches
from wirelake.capture.files.identity import beginning, content, identify
from wirelake.capture.record.recorder import Recorder
from wirelake.errors import ErrorCode, LakeError
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.jobs.ingest import remove
from wirelake.lake.jobs.micro_batch import read_micro_batch
from wirelake.lake.jobs.sink import TableWriter
from wirelake.lake.sources import intake
from wirelake.lake.sources import plan as sources_plan
from wirelake.lake.sources.blocks import BlockReader, group_tasks
from wirelake.lake.sources.follow import EveryBucket, FollowReader
from wirelake.lake.store import commit, delta, journal, snapshot
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.store.commit import recover
from wirelake.lake.store.journal import Following
from wirelake.lake.store.progress import positions
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.emp.messages import Data
from wirelake.protocols.emp.wire import encode

BUCKETS = 3


@pytest.fixture(autouse=True)
def _fast(_same_kernels, monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)


def lake_at(path: Path) -> Path:
    journal.initialise(path)
    for each in TABLES.values():
        delta.create(path, each)
    return path


class Transfers:
    """Stands in for Spark: blocks and packet batches are partitioned, sorted, and given to one task for each bucket."""

    def __init__(self, batches) -> None:
        self.rows = [(batch.slice(row, 1)) for batch in batches for row in range(batch.num_rows)]

    def __getitem__(self, name):
        return name

    def repartitionById(self, count, _column):  # noqa: N802 - Spark's name
        assert all(row.column("bucket")[0].as_py() < count for row in self.rows)
        return self

    def sortWithinPartitions(self, *names):  # noqa: N802 - Spark's name
        self.rows.sort(key=lambda row: tuple(row.column(name)[0].as_py() for name in names))
        return self

    def mapInArrow(self, task, _schema):  # noqa: N802 - Spark's name
        buckets: dict[int, list[pa.RecordBatch]] = {}
        for row in self.rows:
            buckets.setdefault(row.column("bucket")[0].as_py(), []).append(row)
        self.results = [row for mine in buckets.values() for batch in task(iter(mine)) for row in batch.to_pylist()]
        return self

    def collect(self):
        return self.results


def ingested(lake: Path, paths: list[Path]) -> dict[str, str]:
    """The silver tables of one ingest, partitioned among tasks as Spark would."""
    plan = sources_plan.plan([identify(path) for path in paths], lambda cuts: list(map(sources_plan.guess_here, cuts)), 1)
    writer = TableWriter(lake_at(lake), 1, DecodeOptions(), None, PORTS)
    journal.begin(lake, 1, [identify(path) for path in paths])
    told = []
    for read_tasks, buckets in ((plan.direct, 0), (plan.partitioned, BUCKETS)):
        reader = BlockReader(read_tasks, PORTS, buckets)
        shipped = Transfers(batch for one in group_tasks(read_tasks) for batch in reader.read(one))
        if not buckets:
            told.append(writer.write(iter(shipped.rows)))
            continue
        shipped.sortWithinPartitions("rank", "place")
        for bucket in range(buckets):
            told.append(writer.write(row for row in shipped.rows if row.column("bucket")[0].as_py() == bucket))
    writer.commit(told)
    journal.done(lake)
    for known in positions(lake).all:
        assert known.spans == tuple((at, size, content(known.source, at, size)) for at, size, _ in known.spans)
        assert sum(size for _, size, _ in known.spans) == known.end
    return contents(lake)


class Reader:
    """Follows files into a lake; a new one goes on from what the lake has."""

    def __init__(self, lake: Path, folder: Path, settle: float = 10**12) -> None:
        self.lake, self.folder, self.settle = lake, folder, settle
        recover(lake)
        self.at = journal.following(lake) or Following(Offset(), BUCKETS)
        self.batch = max(delta.batch(lake, each) or 0 for each in TABLES.values())
        self.follower = Follower((), settle=settle)

    def step(self, limits: Limits | None = None) -> bool:
        paths = sorted(str(path) for path in self.folder.iterdir())
        end = self.follower.latest(self.at.offset, paths, limits or Limits())
        found = read_micro_batch(self._transfers(end), self.lake, self.batch + 1, self.at, end, DecodeOptions(), PORTS)
        if found is None:
            return False
        micro_batch, self.at = found
        self.batch = micro_batch.batch
        return True

    def _transfers(self, end: Offset) -> Transfers:
        reader = BlockReader([], PORTS, BUCKETS)
        batches = [batch for one in group_tasks(micro_batches(self.at.offset, end)) for batch in reader.read(one)]
        if end.settled > self.at.offset.settled:
            settling = FollowReader.__new__(FollowReader)
            settling._buckets = BUCKETS
            batches += settling.read(EveryBucket())
        return Transfers(batches)


def recorded(path: Path, seed: int) -> list[bytes]:
    """The bytes of recordings of rooms that are read by what was said before, which go on from file to file."""
    from tests.lake.test_cuts import conversation

    dice = random.Random(seed)
    ticks = iter(range(10**18, 2 * 10**18, 10**6))
    with Recorder(path / "r.pcapng", max_bytes=20_000, clock=ticks.__next__, new_id=lambda: dice.randbytes(8)) as recorder:
        talks = []
        for number, room in enumerate(("emp", "yamp", "relink") * 2):
            talk = recorder.connection(protocol=room, role="client", local=("127.0.0.1", 1000 + number), remote=("127.0.0.1", 1))
            talks.append((talk, list(conversation(room, dice)[1:])))
        while talks:
            talk, left = dice.choice(talks)
            side = dice.randrange(2)
            chunk, left[side] = left[side][:400], left[side][400:]
            if chunk:
                (talk.received if side else talk.sent)(chunk)
            if not any(left):
                talk.closed("eof")
                talks.remove((talk, left))
    made = sorted(path.iterdir(), key=lambda one: beginning(identify(one)).ts)
    out = [one.read_bytes() for one in made]
    for one in made:
        one.unlink()
    return out


def grow(dice: random.Random, reader: Reader, parts: list[bytes], interrupted=lambda reader: reader) -> Reader:
    """Write files bit by bit while they are read."""
    for number, part in enumerate(parts):
        at = 0
        while at < len(part):
            stop = min(len(part), at + dice.choice([50, 2000, 8000, 30_000]))
            with (reader.folder / f"{number:03d}.pcap").open("ab") as file:
                file.write(part[at:stop])
            at = stop
            if dice.random() < 0.5:
                reader = interrupted(reader)
                reader.step(Limits(dice.choice([0, 1]), dice.choice([0, 0, 5000])))
    reader = Reader(reader.lake, reader.folder, settle=-1)
    while reader.step(Limits(0, dice.choice([0, 100_000]))):
        pass
    return reader


@pytest.mark.parametrize("kind", ["capture", "recording"])
@pytest.mark.parametrize("seed", seeds(3, test=1))
def test_micro_batches_of_any_size_give_what_one_ingest_gives(tmp_path, kind, seed):
    dice, folder = random.Random(seed), tmp_path / "in"
    folder.mkdir()
    parts = files(story(seed), 3) if kind == "capture" else recorded(folder, seed)
    assert len(parts) > 1
    reader = grow(dice, Reader(lake_at(tmp_path / "lake"), folder), parts)
    found = contents(tmp_path / "lake")
    assert reader.at.waiting == []
    assert found == ingested(tmp_path / "other", sorted(folder.iterdir()))
    assert check_ledger(tmp_path / "lake").problems == ()
    assert reader.batch > 2


def test_a_micro_batch_lists_traffic_of_no_known_protocol(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    web = Talk(("10.0.0.1", 20_000), ("10.0.0.2", 80)).open().say(0, b"GET / HTTP/1.0\r\n\r\n").close()
    (folder / "a.pcap").write_bytes(pcap(web.frames()))
    reader = Reader(lake_at(tmp_path / "lake"), folder, settle=-1)
    while reader.step():
        pass
    (row,) = delta.dataset(tmp_path / "lake", TABLES["unrecognised"]).to_table().to_pylist()
    assert (row["server_address"], row["server_port"], row["bytes"]) == ("10.0.0.2", 80, 18)


@pytest.mark.parametrize("seed", seeds(3, test=1))
def test_a_portion_that_is_interrupted_anywhere_is_there_once(tmp_path, monkeypatch, seed):
    """The plug is pulled between any two steps of publishing; whoever comes next goes on from what the lake says."""
    dice, folder = random.Random(seed), tmp_path / "in"
    folder.mkdir()
    real = {"append": delta.append, "remember": journal.remember, "prepare": journal.prepare, "done": journal.done}
    pulled = []

    class Pulled(BaseException):
        pass

    def pull(name):
        def perhaps(*given):
            if dice.random() < 0.3 and len(pulled) < 25:
                pulled.append(name)
                if dice.random() < 0.5:
                    real[name](*given)
                raise Pulled
            return real[name](*given)

        return perhaps

    def interrupted(reader: Reader) -> Reader:
        with monkeypatch.context() as patch:
            patch.setattr(commit, "recover", lambda _: False)  # nobody is left to do that
            patch.setattr("wirelake.lake.jobs.micro_batch.recover", lambda _: False)
            patch.setattr(delta, "append", pull("append"))
            for name in ("remember", "prepare", "done"):
                patch.setattr(journal, name, pull(name))
            try:
                reader.step()
            except Pulled:
                while True:
                    try:
                        return Reader(reader.lake, reader.folder)
                    except Pulled:
                        continue
        return reader

    grow(dice, Reader(lake_at(tmp_path / "lake"), folder), files(story(seed + 10), 2), interrupted)
    assert pulled
    assert contents(tmp_path / "lake") == ingested(tmp_path / "other", sorted(folder.iterdir()))
    assert check_ledger(tmp_path / "lake").problems == ()
    kept = {path.name for path in journal.memories(tmp_path / "lake").iterdir()}
    assert kept == set(journal.following(tmp_path / "lake").memories.values())


@pytest.mark.slow
def test_a_state_that_is_gone_or_code_is_refused(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    parts = files(story(4), 2)
    (folder / "0.pcap").write_bytes(parts[0])
    reader = Reader(lake_at(tmp_path / "lake"), folder)
    assert reader.step()
    stored = list(journal.memories(tmp_path / "lake").iterdir())
    (folder / "1.pcap").write_bytes(parts[1])
    for path in stored:
        path.write_bytes(pickle.dumps((Bomb(tmp_path / "ran"), b"")))
    with pytest.raises(LakeError, match=r"_wirelake/memory/\S+ was written by an older wirelake, as code: it is not read; .*--again`"):
        reader.step()
    assert not (tmp_path / "ran").exists(), "nothing in a lake is run"
    for path in stored:
        path.unlink()
    with pytest.raises(LakeError, match=r"_wirelake/memory/\S+ is damaged: it cannot be read: No such file .*--again`"):
        reader.step()
    assert journal.pending(tmp_path / "lake") is None


def test_the_reading_task_finds_out_that_a_recording_needs_a_shuffle(tmp_path):
    """Planning reads the beginning only."""
    ticks = iter(range(10**18, 2 * 10**18, 10**6))
    with Recorder(tmp_path / "a.pcapng", clock=ticks.__next__) as recorder:
        first = recorder.connection(protocol="emp", role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2))
        for _ in range(sources_plan.LOOK_BYTES // 1000 + 10):
            first.sent(encode(Data(bytes(1000))))
        recorder.connection(protocol="yamp", role="client", local=("127.0.0.1", 3), remote=("127.0.0.1", 4))
    sources = [identify(tmp_path / "a.pcapng")]
    plan = sources_plan.plan(sources, lambda cuts: [], 1)
    assert (len(plan.direct), len(plan.partitioned)) == (1, 0)
    with pytest.raises(LakeError) as caught:
        list(BlockReader(plan.direct, PORTS, 0).read(group_tasks(plan.direct)[0]))
    assert caught.value.code is ErrorCode.NEEDS_SHUFFLE
    plan = sources_plan.plan(sources, lambda cuts: [], 1, shuffle_all=True)
    assert (len(plan.direct), len(plan.partitioned)) == (0, 1)
    assert list(BlockReader(plan.partitioned, PORTS, 1).read(group_tasks(plan.partitioned)[0]))


def test_connections_of_stateful_protocols_need_a_shuffle():
    assert {name for name in protocols.names() if protocols.get(name).is_stateful} == {"relink", "yamp", "wolpertinger"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["capture", "recording"])
def test_a_pause_of_any_length_in_a_record_or_a_message_changes_nothing(tmp_path, kind):
    """Seconds to settle are 0: each look finds every file quiet."""
    folder = tmp_path / "in"
    folder.mkdir()
    (whole,) = files(story(7, 1), 1) if kind == "capture" else [recorded(folder, 7)[0]]
    reader = Reader(lake_at(tmp_path / "lake"), folder, settle=0)
    for stop in range(0, len(whole) + 7001, 7001):
        (folder / "a.pcap").write_bytes(whole[:stop])
        reader.step()
    Reader(reader.lake, folder, settle=-1).step()
    assert contents(tmp_path / "lake") == ingested(tmp_path / "other", [folder / "a.pcap"])
    assert check_ledger(tmp_path / "lake").problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["once", "ingest"])
def test_a_file_that_grows_after_its_last_record_was_cut_is_read_again(tmp_path, ended):
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    path = folder / "a.pcap"
    (whole,) = files(story(7, 1), 1)
    path.write_bytes(whole[:9001])
    if ended == "once":
        Reader(lake_at(lake), folder, settle=-1).step()
    else:
        ingested(lake, [path])
    cut = delta.dataset(lake, TABLES["quarantine"]).to_table().to_pylist()
    assert [row["offset"] + row["length"] for row in cut if row["reason"] == "cut short"] == [9001]
    assert intake.continued(lake, [str(path)]).removal is None  # it has not grown
    path.write_bytes(whole)
    assert intake.new(lake, [str(path)]).read == {}
    plan = intake.continued(lake, [str(path), str(tmp_path / "gone.pcap")])
    assert plan.continued == [str(path)]
    snapshot.begin(lake)
    remove(lake, plan)
    Reader(lake, folder, settle=-1).step()
    assert contents(lake) == ingested(tmp_path / "other", [path])
    assert check_ledger(lake).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_capture_and_a_shorter_copy_of_it_are_read_once(tmp_path, names):
    longer, shorter = (tmp_path / f"{name}.pcap" for name in names)
    (whole,) = files(story(7, 1), 1)
    longer.write_bytes(whole)
    shorter.write_bytes(whole[:9001])
    both = [str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")]
    plan = intake.new(lake_at(tmp_path / "lake"), both)
    assert [one.path for one in plan.fresh] == [str(longer)]
    assert plan.likes == {str(shorter): intake.Like(str(longer), is_part=True)}
    ingested(tmp_path / "lake", [longer])
    assert check_ledger(tmp_path / "lake").problems == ()
    plan = intake.new(tmp_path / "lake", both)
    assert (plan.fresh, plan.changed) == ([], [])
    assert plan.likes == {str(shorter): intake.Like(str(longer), is_part=True), str(longer): intake.Like(str(longer))}
    assert intake.again(tmp_path / "lake", [str(shorter)]).removal is None  # else the rest of the longer one would be gone
    ingested(tmp_path / "other", [shorter])
    plan = intake.new(tmp_path / "other", both)
    assert [one.path for one in plan.fresh] == [str(longer)]
    assert (list(plan.skipped), plan.changed) == ([str(shorter)], [])


@pytest.mark.slow
def test_captures_that_differ_in_one_byte_are_both_read(tmp_path):
    paths = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    (whole,) = files(story(7, 1), 1)
    paths[0].write_bytes(whole)
    paths[1].write_bytes(whole[:9001] + bytes([whole[9001] ^ 1]) + whole[9002:])
    assert len({one.id for one in intake.new(lake_at(tmp_path / "lake"), map(str, paths)).fresh}) == 2
    ingested(tmp_path / "lake", paths[:1])
    plan = intake.new(tmp_path / "lake", map(str, paths))
    assert ([one.path for one in plan.fresh], list(plan.skipped)) == ([str(paths[1])], [str(paths[0])])
    paths[0].write_bytes(paths[1].read_bytes())
    assert intake.new(tmp_path / "lake", [str(paths[0])]).changed == [str(paths[0])]
    assert "other contents" in check_ledger(tmp_path / "lake").problems[0]
