"""Following through Spark: however a folder grows and following is interrupted, the lake has what one ingest would have put there."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from tests.lake.following import PORTS, contents, files, record_ends, story

from wirelake.capture.files.growing import micro_batches
from wirelake.errors import LakeError
from wirelake.lake.gold.incremental import refresh
from wirelake.lake.jobs import follow as follow_job
from wirelake.lake.jobs.follow import FollowOptions, follow, pause
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.jobs.micro_batch import read_micro_batch
from wirelake.lake.store import delta, journal
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.tables.catalog import table

pytestmark = pytest.mark.timeout(600)

OFTEN = FollowOptions(every=0.05, complete_after=10**9, gold_every=0)
ONCE = FollowOptions(every=0.05, gold_every=0, once=True)


class Following:
    """A folder that is followed in a thread, until the block ends."""

    def __init__(self, spark, lake: Path, folder: Path, options: FollowOptions = OFTEN) -> None:
        self.stop = threading.Event()
        self.micro_batches: list = []
        self.failure: BaseException | None = None
        self.result = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(spark, lake, folder, options))

    def _run(self, spark, lake, folder, options) -> None:
        try:
            self.result = follow(spark, lake, folder, options, ports=PORTS, stop=self.stop, on_commit=self._committed)
        except BaseException as error:
            self.failure = error
        with self._changed:
            self._changed.notify_all()

    def _committed(self, micro_batch, now) -> None:
        with self._changed:
            self.micro_batches.append(micro_batch)
            self._changed.notify_all()

    def has(self, size: int, seconds: float = 120) -> None:
        """Wait until so many bytes have been read."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.failure or sum(one.bytes for one in self.micro_batches) >= size, seconds)
        if self.failure:
            raise self.failure
        assert done, f"only {sum(one.bytes for one in self.micro_batches)} of {size} bytes after {seconds} seconds"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self._thread.join()
        if self.failure:
            raise self.failure


@pytest.fixture
def _without_gold(monkeypatch):
    """Silver is what these tests look at, and gold takes longer than all the rest."""
    monkeypatch.setattr(refresh, "refresh", lambda *_: [])


@pytest.fixture(scope="module")
def expected(spark, tmp_path_factory):
    """A story in three captures, and what one ingest makes of it."""
    folder = tmp_path_factory.mktemp("follow")
    (folder / "in").mkdir()
    parts = files(story(1), 3)
    for number, part in enumerate(parts):
        (folder / "in" / f"{number}.pcap").write_bytes(part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refresh, "refresh", lambda *_: [])
        ingest(spark, folder / "lake", [folder / "in"], ports=PORTS)
    for number in range(len(parts)):
        (folder / "in" / f"{number}.pcap").unlink()
    return folder / "in", parts, contents(folder / "lake")


@pytest.mark.usefixtures("_without_gold")
def test_a_folder_that_grows_while_it_is_followed_gives_what_one_ingest_gives(spark, expected, tmp_path):
    folder, parts, hashes = expected
    dice, lake = random.Random(1), tmp_path / "lake"
    written = 0
    with Following(spark, lake, folder) as following:
        for number, part in enumerate(parts):
            at = 0
            while at < len(part):
                stop = min(len(part), at + dice.choice([200, 20_000, 100_000]))
                with (folder / f"{number}.pcap").open("ab") as file:
                    file.write(part[at:stop])
                written += stop - at
                at = stop
            following.has(written)
    assert following.result.micro_batches > 1
    waits = delta.dataset(lake, table("ledger")).to_table().to_pylist()
    assert any(row["category"] == "waiting" for row in waits)  # connections that are not over
    assert contents(lake) != hashes
    result = follow(spark, lake, folder, ONCE, ports=PORTS)  # goes on where the other stopped, and gives up what waits
    assert (result.micro_batches, result.bytes) == (1, 0)
    assert contents(lake) == hashes
    assert check_ledger(lake).problems == ()
    again = follow(spark, lake, folder, ONCE, ports=PORTS)
    assert again.micro_batches == 0
    assert ingest(spark, lake, [folder], ports=PORTS).files == 0


@pytest.mark.usefixtures("_without_gold")
def test_limits_are_honoured(spark, expected, tmp_path):
    folder, parts, hashes = expected
    for number, part in enumerate(parts):
        (folder / f"{number}.pcap").write_bytes(part)
    lake, committed = tmp_path / "lake", []
    limited = FollowOptions(every=0.0, gold_every=0, once=True, max_bytes=sum(map(len, parts)) // 4, max_files=1)
    follow(spark, lake, folder, limited, ports=PORTS, on_commit=lambda micro_batch, _: committed.append(micro_batch))
    assert len(committed) >= 4
    assert max(one.sources for one in committed) == 1
    assert max(one.bytes for one in committed) <= limited.max_bytes + 70_000
    assert contents(lake) == hashes


def _logged(caplog, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def _until(condition, following: Following, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert following.failure is None, following.failure
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.usefixtures("_without_gold")
def test_a_file_that_is_copied_over_itself_gives_what_one_ingest_gives(spark, expected, tmp_path, caplog, monkeypatch):
    """It is truncated while it is followed, between two runs, and while a micro-batch reads it."""
    folder, parts, hashes = expected
    path, lake = folder / "0.pcap", tmp_path / "lake"
    for left in folder.iterdir():
        left.unlink()
    ends = record_ends(parts[:1])
    most = ends[len(ends) // 2]
    path.write_bytes(parts[0][:most])
    with Following(spark, lake, folder) as following:
        following.has(most)
        path.write_bytes(b"")
        _until(lambda: _logged(caplog, "waits: it is shorter"), following)
        path.write_bytes(parts[0][:5000])
    assert [text.endswith("were read of it, and it has 5,000 now") for text in following.result.unread] == [True]
    assert check_ledger(lake).problems == (f"{path}: has other contents than when it was read",)
    caplog.clear()
    read = []

    def cut_once(transfers, *more):
        if not read and more[2].offset.files and micro_batches(more[2].offset, more[3]):
            read.append(path.write_bytes(parts[0][:9000]))
        return read_micro_batch(transfers, *more)

    monkeypatch.setattr(follow_job, "read_micro_batch", cut_once)
    with Following(spark, lake, folder) as following:
        _until(lambda: _logged(caplog, "waits: it is shorter"), following)
        path.write_bytes(parts[0])
        _until(lambda: len(_logged(caplog, "waits: it is shorter")) == 2, following)
        for at in range(0, len(parts[0]), len(parts[0]) // 9):
            path.write_bytes(parts[0][:at])
            time.sleep(0.05)
        path.write_bytes(parts[0])
        following.has(len(parts[0]) - most)
    assert read
    assert following.result.lost == []
    for number, part in enumerate(parts):
        (folder / f"{number}.pcap").write_bytes(part)
    follow(spark, lake, folder, ONCE, ports=PORTS)
    assert contents(lake) == hashes
    assert check_ledger(lake).problems == ()
    assert _logged(caplog, "another file") == []


@pytest.mark.usefixtures("_without_gold")
def test_a_file_that_is_overwritten_is_said_to_be_another(spark, tmp_path, caplog):
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    first, second = files(story(2, 1), 2)
    with Following(spark, lake, folder) as following:
        (folder / "a.pcap").write_bytes(first)
        following.has(len(first))
        (folder / "a.pcap").write_bytes(second[:20])
        _until(lambda: _logged(caplog, "waits: it is shorter"), following)
        (folder / "a.pcap").write_bytes(second)
        following.has(len(first) + len(second))
    (text,) = _logged(caplog, "another file")
    assert text == f"{folder}/a.pcap: has other bytes than the {len(first)} that were read of it: it is read as another file"
    assert following.result.bytes == len(first) + len(second)


@pytest.mark.usefixtures("_without_gold")
def test_after_a_rotation_rows_carry_the_name_at_the_end_of_the_batch(spark, tmp_path):
    """Also rows of bytes that were read before: messages that go on, and what waited."""
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    whole, now, then = files(story(3, 1), 1)[0], folder / "now.pcap", folder / "then.pcap"
    ends = record_ends([whole])
    half = ends[len(ends) // 2]
    with Following(spark, lake, folder) as following:
        now.write_bytes(whole[:half])
        following.has(half)
        before = {name: delta.dataset(lake, table(name)).to_table().to_pylist() for name in ("messages", "ledger", "quarantine")}
        now.rename(then)
        with then.open("ab") as file:
            file.write(whole[half:])
        following.has(len(whole))
    follow(spark, lake, folder, ONCE, ports=PORTS)
    for name, rows in before.items():
        fresh = [row for row in delta.dataset(lake, table(name)).to_table().to_pylist() if row not in rows]
        assert {row["source"] for row in fresh} == {str(then)}, name
    assert check_ledger(lake).problems == ()


def _reword_in_tasks(monkeypatch) -> None:
    """Change the text of SourceChanged in Python workers: the reader that is sent to them sets it there."""
    from wirelake.errors import SourceChanged
    from wirelake.lake.sources import follow as follow_source

    class Rewording(follow_source.FollowReader):
        def read(self, partition):
            SourceChanged.__str__ = lambda error: f"{error.path}: other words"
            try:
                yield from super().read(partition)
            finally:
                del SourceChanged.__str__  # the worker may be reused

    class Source(follow_source.FollowSource):
        def streamReader(self, schema):  # noqa: N802 - Spark's name
            return Rewording(dict(self.options))

    monkeypatch.setattr(follow_job, "FollowSource", Source)


@pytest.mark.usefixtures("_without_gold")
@pytest.mark.parametrize("wording", [pytest.param("as it is", marks=pytest.mark.long), "another"])
def test_a_file_that_goes_away_is_reported_and_the_rest_is_read(spark, tmp_path, monkeypatch, wording):
    """The stream restarts because of the error's code: its wording is free."""
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    parts = files(story(2, 1), 2)
    for number, part in enumerate(parts):
        (folder / f"{number}.pcap").write_bytes(part)
    if wording == "another":
        _reword_in_tasks(monkeypatch)
    read, gone = follow_job.read_micro_batch, []

    def vanish(*given):
        if not gone:
            gone.append((folder / "0.pcap").unlink())
        return read(*given)

    monkeypatch.setattr(follow_job, "read_micro_batch", vanish)
    result = follow(spark, lake, folder, ONCE, ports=PORTS)
    words = "cannot read" if wording == "as it is" else "other words"
    assert [("0.pcap" in text, words in text, "WL-" in text) for text in result.lost] == [(True, True, False)]
    assert {Path(row["source"]).name for row in delta.dataset(lake, table("ledger")).to_table().to_pylist()} == {"1.pcap"}
    assert check_ledger(lake).problems == ()


@pytest.mark.usefixtures("_without_gold")
def test_what_cannot_be_followed_is_told(spark, tmp_path):
    with pytest.raises(LakeError, match="only a folder"):
        follow(spark, tmp_path / "lake", tmp_path / "nowhere")
    (tmp_path / "in").mkdir()
    assert follow(spark, tmp_path / "lake", tmp_path / "in", ONCE).micro_batches == 0  # nothing there yet is fine
    with journal.locked(tmp_path / "lake"), pytest.raises(LakeError, match="being written by process"):
        follow(spark, tmp_path / "lake", tmp_path / "in", ONCE)


@pytest.mark.parametrize(("taken", "seconds"), [(0.0, 10.0), (3.0, 10.0), (5.0, 15.0), (100.0, 300.0)])
def test_after_a_long_refresh_the_next_one_waits(taken, seconds):
    assert pause(FollowOptions(gold_every=10.0, gold_share=0.25), taken) == seconds


def test_refreshes_may_take_all_the_time():
    assert pause(FollowOptions(gold_every=1.0, gold_share=1.0), 100.0) == 1.0
