"""Power cuts: a lake on a disk of its own loses power at seeded moments, again and again, until its story comes to the end.

The disk is an ext4 in a file. A cut is the ioctl by which ext4 drops all that is not on the disk, in the middle of whatever happens. Then
the disk is mounted again, and the next process goes on. The invariant: *the lake is whole after any death, power cuts included; what a job
said it committed is there; what it did not say is absent or whole*. At the end every table is what a quiet story makes it.

A moment is a file of the lake that Python opens, renames or removes: before each sync there is one. Every second cut is aimed: it comes
when a Delta entry is written and not synced. Jobs run whole, without Spark (`local_spark.py`): ingests, micro-batches with decoder states,
gold tables with checkpoints, compaction, forgetting, other rules.

`python -m tests.lake.power_cuts 20 --first 0` runs twenty schedules; as root.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.lake.conftest import CASES, record
from tests.lake.following import contents, files, story
from tests.lake.hashing import hashes
from tests.lake.local_spark import LocalSpark
from tests.lake.mesh import STORY
from tests.lake.mesh import record as record_mesh
from tests.lake.test_micro_batches import Reader

from wirelake.capture.files.growing import Limits
from wirelake.errors import LakeError
from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.lake.gold.incremental import fold_sessions, index
from wirelake.lake.gold.incremental.refresh import refresh
from wirelake.lake.jobs.forget import forget
from wirelake.lake.jobs.ingest import ingest, refresh_gold
from wirelake.lake.store import delta, gold_commit, journal, run_log, snapshot
from wirelake.lake.store.check_lake import check_lake
from wirelake.lake.store.commit import prepare, recover
from wirelake.lake.store.compaction import tidy
from wirelake.lake.store.durable import LOG
from wirelake.lake.tables import ledger
from wirelake.lake.tables.catalog import GOLD
from wirelake.lake.tables.index import INDEX_TABLES

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: `_IOR('X', 125, __u32)`."""
_NO_LOG_FLUSH = 2
"""Nothing more reaches the disk."""
_CUT = 9
"""Exit code of a process whose disk lost power."""
_SIZE = 64 << 20


class Disk:
    """A disk that can lose power: an ext4 in a file, mounted at a folder."""

    def __init__(self, folder: Path) -> None:
        self.at, self._image = folder / "disk", folder / "disk.img"
        self.at.mkdir()
        with self._image.open("wb") as file:
            file.truncate(_SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True, capture_output=True, text=True)

    def mount(self) -> None:
        """Mount it. The file system itself saves nothing by the clock: only what is synced is on the disk."""
        subprocess.run(["mount", "-o", "loop,commit=600", self._image, self.at], check=True, capture_output=True, text=True)

    def unmount(self) -> None:
        subprocess.run(["umount", self.at], check=True)


def what_is_missing(folder: Path) -> str:
    """What keeps a disk from being made here, and what to do; empty if nothing does."""
    if sys.platform != "linux":
        return "power cuts need ext4 on a loop device: run this test on Linux"
    try:
        disk = Disk(folder)
        disk.mount()
        disk.unmount()
    except OSError as error:
        return f"install e2fsprogs and mount: {error}"
    except subprocess.CalledProcessError as error:
        return f"run this test as root, which may mount loop devices: {error.stderr.strip()}"
    shutil.rmtree(disk.at)
    return ""


@dataclass
class Moments:
    """What could have been interrupted."""

    count: int = 0
    entries: list[int] = field(default_factory=list)
    """The moments before a Delta entry is synced."""

    def choose(self, dice: random.Random, share: float) -> int:
        """One of the first share of them."""
        if self.entries and dice.random() < 0.5:
            return dice.choice(self.entries[: max(1, int(share * len(self.entries)))])
        return dice.randint(1, max(1, int(share * self.count)))


@contextmanager
def cut_at(lake: Path, moment: int | None) -> Iterator[Moments]:
    """Let the disk lose power at a moment, counted from 1. Gives the moments that came."""
    seen = Moments()
    own, disk = str(lake), os.open(lake.parent, os.O_RDONLY)
    is_on = True

    def watch(event: str, values: tuple[object, ...]) -> None:
        if is_on and event in ("open", "os.rename", "os.remove", "os.mkdir") and str(values[0]).startswith(own):
            seen.count += 1
            if event == "open" and values[1] is None and Path(str(values[0])).match(f"{LOG}/*.json"):  # `os.open`, to sync it
                seen.entries.append(seen.count)
            if seen.count == moment:
                fcntl.ioctl(disk, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
                os._exit(_CUT)

    sys.addaudithook(watch)
    try:
        yield seen
    finally:
        is_on = False
        os.close(disk)


class Story:
    """What happens to a lake, step by step. `said` has a line for each step that was said to be done: what readers saw."""

    def __init__(self, inputs: Path, lake: Path, said: Path) -> None:
        self._lake, self._said, self._inputs, self._spark = lake, said, inputs, LocalSpark()

    def run(self) -> None:
        """Go on with the first step that was not said to be done."""
        fold_sessions.CHECKPOINT_RULES = CheckpointRules(messages=1, slack_seconds=0.5, files=3)  # type: ignore[misc]
        lines = self._said.read_text().splitlines() if self._said.exists() else []
        self._look(json.loads(lines[-1]) if lines else {}, is_forgetting=len(lines) == STEPS.index("forget first"))
        for step in STEPS[len(lines) :]:
            kind, _, name = step.partition(" ")
            getattr(self, f"_{kind}")(name)
            problems = [problem for part in check_lake(self._lake) for problem in part.problems]
            assert not problems, f"after {step}: {problems}"
            with self._said.open("a") as file:
                file.write(f"{json.dumps(self._messages())}\n")

    def _messages(self) -> dict[str, int]:
        """Source -> messages that readers see."""
        rows = snapshot.current(self._lake).dataset("messages").to_table(columns=["source"])["source"].to_pylist()
        return dict(Counter(Path(path).stem for path in rows))

    def _look(self, said: dict[str, int], *, is_forgetting: bool) -> None:
        """Look at the lake after a cut, as a reader: no job has recovered it."""
        if not journal.check(self._lake):
            assert not said, "the lake is gone"
            return
        hashes(self._lake)  # every table can be read
        messages = self._messages()
        for name, count in said.items():
            is_there = messages.get(name, 0) >= count or (is_forgetting and name == "first" and name not in messages)
            assert is_there, f"{name} had {count} messages, and has {messages.get(name, 0)}"
        whole = json.loads((self._inputs / "whole.json").read_text()) if (self._inputs / "whole.json").exists() else {}
        for name, count in messages.items():
            assert name not in whole or count == whole[name], f"{name} has {count} of {whole[name]} messages"

    def _ingest(self, name: str) -> None:
        ingest(self._spark, self._lake, [self._inputs / f"{name}.pcapng"])

    @contextmanager
    def _job(self, kind: str) -> Iterator[None]:
        """What every job begins and ends with."""
        with journal.locked(self._lake), run_log.recorded(self._lake, kind):
            prepare(self._lake)
            recover(self._lake)
            gold_commit.finish(self._lake)
            yield
            snapshot.publish(self._lake)

    def _follow(self, part: str) -> None:
        with self._job("follow"):
            reader = Reader(self._lake, self._inputs / "followed", settle=-1 if part == "end" else 10**12)
            size = sum(path.stat().st_size for path in reader.folder.iterdir())
            while reader.step(Limits(0, size // 4)) and part == "end":
                pass

    def _compact(self, _: str) -> None:
        with self._job("follow"):
            refresh(self._spark, self._lake)
            newest = delta.batch(self._lake, ledger.TABLE) or 0
            assert tidy(self._lake, newest, always=True) or len(delta.entries(self._lake, ledger.TABLE)) == 1
            for table in INDEX_TABLES:
                index.merge(self._lake, table)

    def _forget(self, name: str) -> None:
        try:
            forget(self._spark, self._lake, [f"{name}.pcapng"])
        except LakeError as error:
            if "has no source first.pcapng" not in str(error):
                raise
            # Recovery finished it after a cut.
            refresh_gold(self._spark, self._lake)

    def _judge(self, _: str) -> None:
        """As another version of the rules would."""
        gold_commit.mark_stale(self._lake)
        refresh_gold(self._spark, self._lake)


STEPS = (
    "ingest first",
    "follow a",
    "follow b",
    "ingest mesh",
    "follow c",
    "follow end",
    "compact all",
    "ingest second",
    "forget first",
    "judge again",
)


def write_inputs(folder: Path) -> None:
    """Make the captures of the story."""
    some = {name: CASES[name] for name in ("plain", "unanswered", "spoke after bye", "still open")}
    (folder / "followed").mkdir(parents=True)
    record(folder / "first.pcapng", some)
    record(folder / "second.pcapng", some, 30_000)
    record_mesh(folder / "mesh.pcapng", STORY)
    for number, content in enumerate(files(story(1, 1), 2)):
        (folder / "followed" / f"{number}.pcap").write_bytes(content)


class Schedules:
    """Runs schedules of cuts in processes of their own; the first process tells the quiet story."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._inputs = folder, folder / "inputs"
        write_inputs(self._inputs)
        quiet = folder / "quiet"
        quiet.mkdir()
        assert self._process(quiet, None) == 0
        self._moments = Moments(**json.loads((quiet / "moments").read_text()))
        lines = [json.loads(line) for line in (quiet / "said").read_text().splitlines()]
        whole = {name: max(line.get(name, 0) for line in lines) for name in ("first", "second", "mesh")}
        (self._inputs / "whole.json").write_text(json.dumps(whole))

    def run(self, seed: int) -> str:
        """One schedule; says what it did."""
        dice = random.Random(seed)
        folder = self._folder / f"cuts-{seed}"
        folder.mkdir()
        disk = Disk(folder)
        cuts = []
        for left in reversed(range(dice.randint(1, 3) + 1)):
            moment = self._moments.choose(dice, 0.5 if cuts else 1) if left else None
            disk.mount()
            try:
                code = self._process(folder, moment)
            finally:
                disk.unmount()
            if code == 0:
                break
            assert code == _CUT, f"seed {seed}, cuts at {cuts}, then: exit code {code}"
            said = folder / "said"
            step = STEPS[len(said.read_text().splitlines()) if said.exists() else 0]
            cuts.append(f"moment {moment} ({step})")
        assert (folder / "end").read_text() == (self._folder / "quiet" / "end").read_text(), f"seed {seed}, cuts at {cuts}: another lake"
        shutil.rmtree(folder)
        return f"seed {seed}: cuts at {', '.join(cuts) or 'no moment'}"

    def _process(self, folder: Path, moment: int | None) -> int:
        """Tell the story, or the rest of it, to the moment of a cut; returns the exit code."""
        child = os.fork()
        if not child:
            try:
                code = self._child(folder, moment)
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    def _child(self, folder: Path, moment: int | None) -> int:
        (folder / "disk").mkdir(exist_ok=True)
        lake = folder / "disk" / "lake"
        with cut_at(lake, moment) as seen:
            Story(self._inputs, lake, folder / "said").run()
        (folder / "moments").write_text(json.dumps(asdict(seen)))
        (folder / "end").write_text(json.dumps([contents(lake), {table.name: hashes(lake)[table.name] for table in GOLD}], indent=1))
        return 0


def main() -> None:
    """Run schedules from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schedules", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if missing := what_is_missing(Path(folder)):
            print(f"no power cuts: {missing}", file=sys.stderr)
            return
        schedules = Schedules(Path(folder))
        for seed in range(told.first, told.first + told.schedules):
            print(schedules.run(seed), flush=True)


if __name__ == "__main__":
    main()
