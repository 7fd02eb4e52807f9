"""Kills: an ingest is ended with SIGKILL at seeded moments, again and again, until one comes through; readers watch all the time.

A lake that has one batch gets a second. Whatever happens, a reader sees the first batch whole, or both whole, and never goes back;
at the end every table is what one quiet ingest makes it. Sometimes Spark dies with its driver, sometimes it lives on for a moment.

`python -m tests.lake.kills 20 --first 0` runs twenty schedules.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lake.conftest import CASES, record
from tests.lake.hashing import hashes
from tests.lake.mesh import STORY
from tests.lake.mesh import record as record_mesh
from tests.lake.yamp_sessions import record as record_yamp

ROOT = Path(__file__).parents[2]
STAGES = ("recover", "plan", "decode", "build", "whole")
PATIENCE = 300.0
"""Seconds after which a driver that does not come on is a failure, however busy the machine."""


def kill_session(leader: int) -> None:
    """SIGKILL to a process with a session of its own, and to all it started: Spark's Python has process groups of its own."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)


class Driver:
    """An ingest under way in another process."""

    def __init__(self, lake: Path, paths: list[Path]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lake.driver", str(lake), *map(str, paths)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._limit = threading.Timer(PATIENCE, self.kill)
        self._limit.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._limit.cancel()
        self._process.communicate()

    def wait_for(self, stage: str) -> bool:
        """Whether it came to a stage; False if it ended before."""
        assert self._process.stdout is not None
        return any(line.strip() == stage for line in self._process.stdout)

    def go(self) -> None:
        """Say the word it waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def ends_within(self, seconds: float) -> bool:
        """Whether it ended by itself."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ended_well(self) -> bool:
        """Whether it did what it had to do."""
        return self._process.wait(PATIENCE) == 0

    def kill(self, *, with_spark: bool = True) -> None:
        """SIGKILL, to the driver alone or to all it started."""
        if with_spark:
            kill_session(self._process.pid)
        else:
            self._process.kill()

    def complaint(self) -> str:
        """What it said last when it failed."""
        assert self._process.stderr is not None
        self._process.wait(PATIENCE)
        return self._process.stderr.read()[-2000:]


@dataclass
class Scene:
    """A lake that has some captures, others, and what a reader sees before and after these."""

    second: list[Path]
    lake: Path
    before: dict[str, str]
    after: dict[str, str]
    spans: dict[str, float]
    """Stage -> how long it took when nobody disturbed it."""


def scene(folder: Path, ingest_first: Callable[[Path, list[Path]], object] | None = None) -> Scene:
    """Make the captures, and ingest both sets quietly; the yardstick. How long it takes is only asked of the second."""
    folder.mkdir(parents=True, exist_ok=True)
    some = {name: CASES[name] for name in ("plain", "unanswered", "spoke after bye", "still open")}
    first = [record(folder / "first.pcapng", some)]
    second = [folder / name for name in ("second.pcapng", "yamp.pcapng", "mesh.pcapng")]
    record(second[0], some, 30_000)
    record_yamp(second[1])
    record_mesh(second[2], STORY)
    quiet = folder / "quiet"
    (ingest_first or _run)(quiet, first)
    shutil.copytree(quiet, folder / "lake")
    before = hashes(quiet)
    spans = _run(quiet, second)
    return Scene(second, folder / "lake", before, hashes(quiet), spans)


def _run(lake: Path, paths: list[Path]) -> dict[str, float]:
    """An ingest that nobody disturbs; says how long each stage took."""
    with Driver(lake, paths) as driver:
        assert driver.wait_for("ready"), driver.complaint()
        driver.go()
        times = []
        for stage in STAGES:
            assert driver.wait_for(stage), driver.complaint()
            times.append(time.monotonic())
    return {stage: stop - start for stage, start, stop in zip(STAGES, times, times[1:], strict=False)}


class Reader:
    """Reads the lake again and again; `problems` has what should not have been seen."""

    def __init__(self, lake: Path, before: dict[str, str], after: dict[str, str]) -> None:
        self._lake, self._before, self._after = lake, before, after
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.problems: list[str] = []
        self.reads = 0

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        allowed = [self._before, self._after]
        while not self._over.wait(0.25) and not self.problems:
            try:
                seen = hashes(self._lake)
            except Exception as error:  # whatever a reader stumbles over is what we look for
                self.problems.append(f"a reader failed: {error!r}")
                return
            self.reads += 1
            if seen not in allowed:
                others = self._after if allowed == [self._after] else self._before
                self.problems.append(f"a reader saw half a batch: {[name for name in seen if seen[name] != others[name]]} differ")
            elif seen == self._after:
                allowed = [self._after]


def run(given: Scene, seed: int, folder: Path) -> str:
    """One schedule; says what it did. Raises AssertionError if anything is not as it should be."""
    chance = random.Random(seed)
    lake = folder / f"lake-{seed}"
    shutil.copytree(given.lake, lake)
    said = []
    kills = chance.randint(1, 2)
    with Reader(lake, given.before, given.after) as reader, ExitStack() as drivers:
        for number in range(kills + 1):
            driver = drivers.enter_context(Driver(lake, given.second))  # what lives on of a killed one may do so until the end
            assert driver.wait_for("ready"), driver.complaint()
            driver.go()
            if number < kills:
                stage, later, with_spark = chance.choice(("decode", "decode", "build")), chance.random() * 1.2, chance.random() < 0.5
                if not driver.wait_for(stage):  # what was killed before had done that already
                    assert driver.ended_well(), driver.complaint()
                    break
                if not driver.ends_within(later * given.spans[stage]):
                    driver.kill(with_spark=with_spark)
                    said.append(f"{later:.0%} of {stage}{'' if with_spark else ', Spark lives on'}")
                    continue
            assert driver.wait_for("whole"), driver.complaint()
            break
    assert not reader.problems, f"seed {seed}, {said}: {reader.problems}"
    left = hashes(lake)
    assert left == given.after, f"seed {seed}, {said}: {[name for name in left if left[name] != given.after[name]]} differ"
    shutil.rmtree(lake)
    return f"seed {seed}: killed at {' and at '.join(said) or 'no moment'}; {reader.reads} reads"


def main() -> None:
    """Run schedules from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schedules", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        given = scene(Path(folder, "scene"))
        for seed in range(told.first, told.first + told.schedules):
            print(run(given, seed, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
