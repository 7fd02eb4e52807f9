"""Following through Spark: however a folder grows and following is interrupted, the lake has what one ingest would have put there."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from tests.lake.following import PORTS, contents, files, story

from wirelake.errors import LakeError
from wirelake.lake.gold.incremental import refresh
from wirelake.lake.jobs.follow import FollowOptions, follow, pause
from wirelake.lake.jobs.ingest import ingest
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

    from wirelake.lake.jobs import follow as follow_job

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
    from wirelake.lake.jobs import follow as follow_job

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
