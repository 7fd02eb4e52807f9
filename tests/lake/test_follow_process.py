"""Following in a process of its own: Ctrl-C ends it well, and `kill -9` costs nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.lake.following import contents, files, story

from wirelake.lake.session.settings import SHORT_SESSION
from wirelake.lake.store import delta, journal
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.tables.catalog import GOLD, table

pytestmark = pytest.mark.timeout(900)  # every process starts Spark

SHORT_JVM = [f"--conf={name}={value}" for name, value in SHORT_SESSION.items()]
PORTS = ["--port", "yamp=5041", "--port", "relink=5042", "--port", "event-mesh=5043"]


class Process:
    """`wirelake ingest --follow` in a process of its own; what it says is kept."""

    def __init__(self, lake: Path, folder: Path, *more: str) -> None:
        command = [sys.executable, "-c", "import sys; from wirelake.cli.main import run; sys.exit(run(sys.argv[1:]))"]
        command += ["ingest", str(lake), "--follow", str(folder), "--every", "0.1", "--master", "local[2]", *SHORT_JVM, *PORTS, *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += iter(self.process.stderr.readline, "")

    def end(self, number: int, seconds: float = 120) -> int:
        """Send a signal to it, or to all its processes if it is SIGKILL, and wait for its end."""
        if number == signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.wait(seconds)

    def wait(self, seconds: float = 180) -> int:
        """Wait for its end; leave nothing of it behind."""
        assert self.process.stderr is not None
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self._reader.join(30)
            self.process.stderr.close()


def until(condition, process: Process, seconds: float = 180) -> None:
    """Wait for something that stays true once it is."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.process.poll() is None, "".join(process.said)
        assert time.monotonic() < end, "".join(process.said)
        time.sleep(0.02)


def micro_batches(lake: Path) -> int:
    return (delta.batch(lake, table("ledger")) or 0) if (lake / "ledger" / "_delta_log").is_dir() else 0


def test_ctrl_c_ends_following_with_all_tables_up_to_date(spark_process, tmp_path):
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    first, second = files(story(5, 1), 2)
    (folder / "a.pcap").write_bytes(first)
    following = Process(lake, folder, "--gold-every", "0")
    until(lambda: micro_batches(lake) >= 1, following)
    (folder / "b.pcap").write_bytes(second)
    before = micro_batches(lake)
    until(lambda: micro_batches(lake) > before, following)
    assert following.end(signal.SIGINT) == 0, "".join(following.said)
    said = "".join(following.said)
    assert "stopping after the current micro-batch" in said
    assert "Traceback" not in said
    assert journal.pending(lake) is None
    assert {delta.batch(lake, each) for each in GOLD} == {micro_batches(lake)}
    assert check_ledger(lake).problems == ()


def record_ends(parts: list[bytes]) -> list[int]:
    """Where each packet of captures that follow each other ends."""
    ends, begin = [], 0
    for part in parts:
        at = 24
        while at < len(part):
            at += 16 + int.from_bytes(part[at + 8 : at + 12], "little")
            ends.append(begin + at)
        begin += len(part)
    return ends


def killed(tmp_path: Path, seed: int, kills: int) -> None:
    """Follow a folder that grows, kill it now and then, and compare with one ingest of what it has become."""
    from wirelake.lake.jobs.ingest import ingest
    from wirelake.lake.session.start import spark_session

    dice, folder, lake = random.Random(seed), tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    parts = files(story(seed, 1), 2)
    whole = b"".join(parts)
    ends = record_ends(parts)
    chosen = sorted(dice.sample(range(len(ends) - 1), 3 * kills))
    steps = [dice.randrange(ends[number], ends[number + 1]) for number in chosen]  # each has one more whole record, and some of the next
    at = [0]

    def grow() -> None:
        """Write on, in the order of the files."""
        stop = steps.pop(0) if steps else len(whole)
        begin = 0
        for number, part in enumerate(parts):
            fresh = part[max(0, at[0] - begin) : max(0, stop - begin)]
            if fresh:
                with (folder / f"{number}.pcap").open("ab") as file:
                    file.write(fresh)
            begin += len(part)
        at[0] = stop

    for _ in range(kills):
        grow()
        before = micro_batches(lake)
        # However long it takes to start, the files are not over.
        following = Process(lake, folder, "--gold-every", str(dice.choice([0, 1])), "--complete-after", "3600")
        try:
            until(lambda: micro_batches(lake) > before, following)  # noqa: B023 - it is done before the next
            for _ in range(dice.randint(0, 2)):
                grow()
                time.sleep(dice.random())
        finally:
            following.end(signal.SIGKILL)
    while at[0] < len(whole):
        grow()
    last = Process(lake, folder, "--once")
    assert last.wait() == 0, "".join(last.said)
    ports = {5040: "emp", 5041: "yamp", 5042: "relink", 5043: "event_mesh"}
    ingest(spark_session(), tmp_path / "other", [folder], ports=ports)
    assert contents(lake) == contents(tmp_path / "other")
    assert check_ledger(lake).problems == ()


@pytest.mark.long
def test_a_follower_that_is_killed_goes_on_as_if_nothing_had_happened(spark, tmp_path):
    killed(tmp_path, 7, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 105))
def test_followers_that_are_killed_often_go_on_as_if_nothing_had_happened(spark, tmp_path, seed):
    killed(tmp_path, seed, 4)
