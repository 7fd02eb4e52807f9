"""What can be wrong with captures, lakes and disks: told in one line that names it, and the lake is what it was."""

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest
from deltalake import DeltaTable
from tests.cli.conftest import Outcome
from tests.lake.hashing import hashes
from tests.lake.test_ingest import TALK, stray_files

from wirelake.cli.main import run
from wirelake.lake.gold.incremental import fold_sessions
from wirelake.lake.jobs import ingest as ingesting
from wirelake.lake.jobs import sink
from wirelake.lake.store import delta, journal
from wirelake.lake.tables.catalog import table
from wirelake.protocols.emp.messages import Data, Hello
from wirelake.protocols.emp.wire import encode


@pytest.fixture
def wirelake(capfd):
    """The command in this process, with the Spark that runs in it."""

    def call(*words):
        capfd.readouterr()
        code = run([str(word) for word in words])
        out, talk = capfd.readouterr()
        return Outcome(code, out.encode(), talk)

    return call


@pytest.fixture(scope="module")
def one_batch(spark, recorded, tmp_path_factory):
    """A lake with one batch; tests take copies."""
    folder = tmp_path_factory.mktemp("one")
    ingesting.ingest(spark, folder / "lake", [recorded(folder / "old.pcapng", TALK)])
    return folder / "lake"


@pytest.fixture
def lake(one_batch, tmp_path):
    return shutil.copytree(one_batch, tmp_path / "lake")


def last(talk):
    """The line that says what went wrong."""
    return talk.strip().splitlines()[-1]


def unchanged(lake, before):
    return hashes(lake) == before and journal.pending(lake) is None and stray_files(lake) == []


def test_a_folder_without_captures_is_named_and_no_lake_is_made(wirelake, tmp_path):
    (tmp_path / "empty").mkdir()
    outcome = wirelake("ingest", tmp_path / "lake", tmp_path / "empty")
    assert outcome == (66, b"", f"wirelake: {tmp_path}/empty: no captures (.pcap, .pcapng, .cap) in this folder or below\n")
    assert not (tmp_path / "lake").exists()


def _vanish(path):
    path.unlink()


def _shrink(path):
    os.truncate(path, 100)


@pytest.mark.parametrize(
    ("happens", "when", "said"),
    [
        (_vanish, "before planning", "{path}: cannot read: No such file or directory at byte 0"),
        (_vanish, "before reading", "{path}: cannot read: No such file or directory at byte 0"),
        (_shrink, "before reading", "{path}: file is shorter than the {size} bytes it had at byte 100"),
    ],
)
def test_a_file_that_goes_while_it_is_read_is_named_with_the_place(
    spark, wirelake, lake, recorded, tmp_path, monkeypatch, happens, when, said
):
    path, before = recorded(tmp_path / "new.pcapng", TALK, 30_000), hashes(lake)
    size = path.stat().st_size
    module, name = (journal, "begin") if when == "before planning" else (sink, "run")
    real = getattr(module, name)

    def first(*words, **more):
        happens(path)
        return real(*words, **more)

    monkeypatch.setattr(module, name, first)
    outcome = wirelake("ingest", lake, path)
    assert (outcome.code, last(outcome.talk)) == (1, "wirelake: " + said.format(path=path, size=size))
    assert unchanged(lake, before)


def test_a_file_that_grows_while_it_is_read_is_read_as_far_as_it_was(spark, wirelake, lake, recorded, tmp_path, monkeypatch):
    path = recorded(tmp_path / "new.pcapng", TALK, 30_000)
    size, real = path.stat().st_size, sink.run

    def grows(*words):
        with path.open("ab") as file:
            file.write(bytes(1000))
        return real(*words)

    monkeypatch.setattr(sink, "run", grows)
    outcome = wirelake("ingest", lake, path)
    assert (outcome.code, f"4 messages from 1 files ({size:,} bytes)" in outcome.talk) == (0, True)
    ledger_entries = [row for row in delta.dataset(lake, table("ledger")).to_table().to_pylist() if row["source"] == str(path)]
    assert {row["source_size"] for row in ledger_entries} == {sum(row["bytes"] for row in ledger_entries)} == {size}


def test_a_file_that_cannot_be_decoded_at_all_is_kept_whole_in_quarantine(spark, wirelake, lake, tmp_path):
    noise = random.Random(1).randbytes(5000)
    (tmp_path / "noise.pcap").write_bytes(noise)
    outcome = wirelake("ingest", lake, tmp_path / "noise.pcap")
    assert outcome.code == 0
    assert "0 messages from 1 files (5,000 bytes)" in last(outcome.talk)
    assert "rows in quarantine" in last(outcome.talk)
    rows = [row for row in delta.dataset(lake, table("quarantine")).to_table().to_pylist() if row["source"].endswith("noise.pcap")]
    assert b"".join(row["raw"] for row in sorted(rows, key=lambda row: row["offset"])) == noise
    assert wirelake("check", lake, "--ledger").code == 0


def test_a_lake_of_another_format_is_refused_for_reading_and_writing(wirelake, lake, recorded, tmp_path):
    path = recorded(tmp_path / "new.pcapng", TALK, 30_000)
    reads = f"this one reads {journal.FORMAT})"
    for found, said in (
        (99, f"a newer wirelake (lake format 99, {reads}: upgrade wirelake"),
        (1, f"an older wirelake (lake format 1, {reads}, which knew files in another way: ingest its sources into a new folder, or go on"),
    ):
        (lake / "_wirelake" / "format.json").write_text(json.dumps({"version": found}))
        for words in (("ingest", lake, path), ("query", lake, "messages"), ("check", lake, "--ledger")):
            outcome = wirelake(*words)
            assert outcome.code == 1
            assert last(outcome.talk).startswith(f"wirelake: {lake} was made by {said}")


def test_a_lake_with_other_columns_is_refused_before_anything_is_read(spark, wirelake, lake, recorded, tmp_path):
    path = recorded(tmp_path / "new.pcapng", TALK, 30_000)
    shutil.rmtree(lake / "emp")
    DeltaTable.create(lake / "emp", delta.DeltaSchema.from_arrow(table("emp").schema.remove(0)))
    outcome = wirelake("ingest", lake, path)
    said = f"table emp of {lake} has other columns than this version of wirelake writes: use a new lake folder"
    assert (outcome.code, last(outcome.talk)) == (1, f"wirelake: {said}")
    assert delta.batch(lake, table("messages")) == 1


def test_two_ingests_at_once_are_one_and_a_refusal(spark, wirelake, lake, recorded, tmp_path):
    path, before = recorded(tmp_path / "new.pcapng", TALK, 30_000), hashes(lake)
    with journal.locked(lake):
        outcome = wirelake("ingest", lake, path)
        said = f"{lake} is being written by process {os.getpid()}: wait until it is done"
        assert (outcome.code, last(outcome.talk)) == (1, f"wirelake: {said}")
        assert hashes(lake) == before


class Gate:
    """A task comes here and waits; then Ctrl-C is pressed, and what the task does after that is nobody's any more."""

    def __init__(self, folder):
        self._folder = folder
        folder.mkdir()
        self._presser = threading.Thread(target=self._press)
        self._presser.start()

    def wait(self):
        """In a task, wherever that runs."""
        (self._folder / "waits").touch()
        until = time.monotonic() + 60
        while not (self._folder / "go").exists() and time.monotonic() < until:
            time.sleep(0.05)

    def _press(self):
        until = time.monotonic() + 240
        while not (self._folder / "waits").exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    def open(self):
        self._presser.join()
        (self._folder / "go").touch()

    def __getstate__(self):
        return {"_folder": self._folder}


def _while_planning(spark, gate, monkeypatch):
    """Large files are walked by tasks while the ingest is planned."""
    real = ingesting.sources_plan.plan

    def plan(*words, **more):
        spark.sparkContext.parallelize([0], 1).map(lambda _: gate.wait()).collect()
        return real(*words, **more)

    monkeypatch.setattr(ingesting.sources_plan, "plan", plan)


def _while_decoding(spark, gate, monkeypatch):
    class Waiting(sink.TableWriter):
        def write(self, iterator):
            gate.wait()
            return super().write(iterator)

    monkeypatch.setattr(sink, "TableWriter", Waiting)


def _while_building(spark, gate, monkeypatch):
    real = fold_sessions.run_tasks

    def run_tasks(spark, work, count):
        def wait(number):
            gate.wait()
            return work(number)

        return real(spark, wait, count)

    monkeypatch.setattr(fold_sessions, "run_tasks", run_tasks)


MOMENTS = {
    "planning": _while_planning,
    "decoding": _while_decoding,
    "building": _while_building,
}


def is_idle(spark):
    """Whether Spark has nothing to do, soon."""
    tracker, until = spark.sparkContext.statusTracker(), time.monotonic() + 20
    while (jobs := tracker.getActiveJobsIds()) and time.monotonic() < until:
        time.sleep(0.1)
    return not jobs


@pytest.fixture(scope="module")
def quiet(spark, one_batch, recorded, tmp_path_factory):
    """(a second capture, what a lake with both says if nobody disturbs it)."""
    folder = tmp_path_factory.mktemp("quiet")
    path = recorded(folder / "new.pcapng", TALK, 30_000)
    ingesting.ingest(spark, shutil.copytree(one_batch, folder / "lake"), [path])
    return path, hashes(folder / "lake")


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_leaves_the_lake_as_it_was_and_the_session_as_good_as_before(spark, wirelake, lake, quiet, tmp_path, monkeypatch, moment):
    """As in a notebook: the same process and session, again and again."""
    path, after = quiet
    before, gate = hashes(lake), Gate(tmp_path / "gate")
    try:
        with monkeypatch.context() as patched:
            MOMENTS[moment](spark, gate, patched)
            outcome = wirelake("ingest", lake, path)
        assert is_idle(spark), "Spark was told, too"
    finally:
        gate.open()
    assert (outcome.code, last(outcome.talk)) == (130, "interrupted")
    assert journal.pending(lake) is None
    assert hashes(lake) == before
    again = wirelake("ingest", lake, path)
    assert again.code == 0, again.talk
    assert hashes(lake) == after


@pytest.fixture
def small_disk(tmp_path):
    """A disk of six megabytes."""
    at = tmp_path / "disk"
    at.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(at)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"run this test as root, which may mount a small disk: {made.stderr.strip()}")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


def test_a_disk_that_fills_up_is_told_and_what_was_there_stays(spark, wirelake, one_batch, recorded, small_disk, tmp_path):
    lake, chance = shutil.copytree(one_batch, small_disk / "lake"), random.Random(2)
    before = hashes(lake)
    many = [(0.1, "client", f"raw {encode(Hello()).hex()}"), (0.2, "server", "hello")]
    many += [(1 + n / 1000, "client", f"raw {encode(Data(chance.randbytes(60_000))).hex()}") for n in range(200)]
    path = recorded(tmp_path / "much.pcapng", {"much": many}, 30_000)
    outcome = wirelake("ingest", lake, path)
    assert outcome.code == 1
    assert last(outcome.talk).startswith(f"wirelake: {lake}: no space left on a disk: ")
    assert unchanged(lake, before)
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    assert wirelake("ingest", lake, path).code == 0
    assert delta.dataset(lake, table("messages")).count_rows() == 4 + 202
