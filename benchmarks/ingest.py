"""Recording to committed message tables, against Spark copying the same `messages` table from Parquet to Parquet; and memory by input size.

The ingest writes `messages`, `emp` and the other silver tables; the copy writes `messages` only. Both are jobs of the same Spark
session, on all cores, with the same compression, and take turns; the first turn warms up. CPU is that of the virtual machine and all
Python processes. Bodies are 72 random letters, no two alike; with `--json` they are JSON, which the ingest parses and the copy does not.

Goals: the ingest at least as fast as the copy; memory of a task that does not depend on the size of its input.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import show, verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 8
RUN = 16
"""Frames in one record: what a busy peer reads in one go."""
SIZE = 100
ROUNDS = 3
GROWTH = 4
ALLOWED = 1.25
"""Memory for an input four times as large may be so many times as much: allocators are not exact."""
SAMPLE_SECONDS = 0.02
CACHE = Path(tempfile.gettempdir()) / "wirelake-bench"


# Recordings.


def frames(first: int, count: int, request: bool, json_bodies: bool) -> np.ndarray:
    """Requests or responses of 100 bytes with rising identifiers, as one array of bytes."""
    from wirelake.protocols.emp.messages import Data, RequestResponse
    from wirelake.protocols.emp.wire import encode

    made = np.tile(np.frombuffer(encode(Data(b'{"text": "' + b" " * 60 + b'"}', (RequestResponse(request, 1),))), np.uint8), (count, 1))
    assert made.shape[1] == SIZE
    made[:, 20:28] = np.arange(first, first + count, dtype=">u8").view(np.uint8).reshape(-1, 8)
    letters = np.random.default_rng(first + request).integers(97, 123, (count, 72), np.uint8)
    if json_bodies:
        made[:, 38:98] = letters[:, :60]
    else:
        made[:, 28:] = letters
    return made.reshape(-1)


def record(path: Path, count: int, json_bodies: bool = False) -> Path:
    """A recording of so many messages on one connection, half of them requests; kept for the next time."""
    from wirelake.capture.record.recorder import Recorder
    from wirelake.protocols.emp.messages import Bye, Hello
    from wirelake.protocols.emp.wire import encode

    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    ticks = iter(range(1_700_000_000 * 10**9, 1 << 62, 10**6))
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with Recorder(draft, protocol="emp", clock=lambda: next(ticks)) as recorder:
        connection = recorder.connection(role="client", local=("127.0.0.1", 5000), remote=("127.0.0.1", 5040))
        connection.sent(encode(Hello()))
        connection.received(encode(Hello()))
        half = count // 2
        asked, answered = (frames(1, half, request, json_bodies) for request in (True, False))
        for at in range(0, half * SIZE, RUN * SIZE):
            connection.sent(asked[at : at + RUN * SIZE].tobytes())
            connection.received(answered[at : at + RUN * SIZE].tobytes())
        connection.sent(encode(Bye()))
        connection.closed("bye")
    return draft.rename(path)


# What processes cost.


def descendants(root: int) -> Iterator[int]:
    """All processes below one, from /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := fields(int(entry.name))):
            parents.setdefault(int(stat[1]), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            yield child
            waiting.append(child)


def fields(process: int) -> list[str]:
    """What stands after the name in /proc/PID/stat: state, parent, …; nothing if the process is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


_workers: dict[tuple[int, str], int] = {}
"""Python workers, by process id and start, and the ticks they had used when they were last seen. Spark ends them when they are idle, and
their parent does not inherit their times."""


def cpu() -> float:
    """Seconds of CPU used so far by this process and all below it, those that are gone included."""
    if not any(thread.name == "cpu" for thread in threading.enumerate()):
        threading.Thread(target=_keep_looking, name="cpu", daemon=True).start()
    return _look() / os.sysconf("SC_CLK_TCK")


def _keep_looking() -> None:
    while True:
        time.sleep(1)  # looking costs, too, and a worker that is ended has been idle for a minute
        _look()


def _look() -> int:
    """Ticks used so far, and what each worker had used is kept."""
    ticks, seen = 0, set()
    for process in [os.getpid(), *descendants(os.getpid())]:
        if stat_fields := fields(process):
            used = sum(map(int, stat_fields[11:15]))  # user and system, its own and of children that were waited for
            ticks += used
            if is_worker(process, int(stat_fields[1])):
                one = (process, stat_fields[19])
                seen.add(one)
                _workers[one] = max(used, _workers.get(one, 0))
    return ticks + sum(used for one, used in list(_workers.items()) if one not in seen)


def is_worker(process: int, parent: int) -> bool:
    """Whether a process was forked by a daemon of PySpark."""
    try:
        return all(b"pyspark.daemon" in Path(f"/proc/{one}/cmdline").read_bytes() for one in (process, parent))
    except OSError:
        return False


def peak(process: int) -> int:
    """The most memory a Python process ever held, in bytes; 0 for any other."""
    try:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":\t" in line)
    except OSError:
        return 0
    return int(status["VmHWM"].split()[0]) * 1024 if status["Name"].startswith("python") and "VmHWM" in status else 0


class Watch:
    """Looks at Python workers while a job runs, and keeps the highest peak."""

    def __init__(self) -> None:
        self.highest = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.highest = max([self.highest, *map(peak, descendants(os.getpid()))])

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


# The two jobs.


def ingest(spark: SparkSession, lake: Path, paths: list[Path]) -> int:
    """An ingest without gold tables; says how many messages there are."""
    from wirelake.lake import ingest as ingest_into

    messages: int = ingest_into(spark, lake, paths, gold=False).messages
    return messages


def copy(spark: SparkSession, lake: Path, out: Path) -> None:
    """The table `messages`, read and written by Spark alone."""
    from wirelake.lake.sources.tables import frame
    from wirelake.lake.tables.catalog import TABLES

    frame(spark, lake, TABLES["messages"]).write.parquet(out.as_uri(), compression=codec(lake))


def codec(lake: Path) -> str:
    """How the ingest compressed its files, so that the copy does the same."""
    import pyarrow.parquet as pq

    from wirelake.lake.store import delta
    from wirelake.lake.tables.catalog import TABLES

    group = pq.read_metadata(delta.files(lake, TABLES["messages"])[0]).row_group(0)
    return str(group.column(0).compression).lower()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """(seconds, seconds of CPU)."""
    began, used = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - began, cpu() - used


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def match(paths: list[Path], master: str) -> tuple[dict[str, list[tuple[float, float]]], int, str]:
    """Both jobs in turns; times of every round, messages, and how large the outputs were."""
    from wirelake.lake.session.start import spark_session

    spark = spark_session(master)
    found: dict[str, list[tuple[float, float]]] = {"ingest": [], "copy": []}
    counts = set()
    for turn in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            lake, out = Path(scratch) / "lake", Path(scratch) / "copy"
            found["ingest"].append(timed(lambda: counts.add(ingest(spark, lake, paths))))  # noqa: B023 - run at once
            found["copy"].append(timed(lambda: copy(spark, lake, out)))  # noqa: B023
            written = {"silver tables": lake, "of these messages": lake / "messages", "copy": out}
            sizes = f"{codec(lake)}: " + ", ".join(f"{name} {size_of(folder) / 1e6:.0f} MB" for name, folder in written.items())
        last = {name: f"{runs[-1][0]:.1f} s wall {runs[-1][1]:.1f} s CPU" for name, runs in found.items()}
        print(f"turn {turn + 1} of {ROUNDS}: {last}", file=sys.stderr)
    spark.stop()
    assert len(counts) == 1, counts
    return found, counts.pop(), sizes


def memory(path: Path) -> None:
    """In a process of its own, because a peak never goes down: the ingest of one file, and what its workers needed."""
    from wirelake.lake.session.start import spark_session

    spark = spark_session("local[1]")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch, Watch() as watch:
        count = ingest(spark, Path(scratch) / "lake", [path])
    spark.stop()
    print(json.dumps({"peak": watch.highest, "messages": count}))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--master", default="local[*]")
    options.add_argument("--json", action="store_true", help="bodies that are JSON")
    options.add_argument("--fresh", action="store_true", help="record again")
    options.add_argument("--no-memory", action="store_true", help="only the times")
    options.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.memory_of:
        memory(chosen.memory_of)
        return
    if chosen.fresh:
        shutil.rmtree(CACHE, ignore_errors=True)
    each = chosen.messages // FILES
    print(f"recording {chosen.messages:,} messages in {CACHE}, unless they are there", file=sys.stderr)
    kind = "json" if chosen.json else "text"
    paths = [record(CACHE / f"{kind}-{each}-{number}.pcapng", each, chosen.json) for number in range(FILES)]
    found, count, sizes = match(paths, chosen.master)
    best = {name: (min(wall for wall, _ in runs[1:]), min(busy for _, busy in runs[1:])) for name, runs in found.items()}
    names = {"ingest": "recording to committed silver tables", "copy": "Spark copies messages, Parquet to Parquet"}
    lines = []
    for name, (wall, busy) in best.items():
        cold, _ = found[name][0]
        shown = [f"{cold:.1f}", f"{wall:.1f}", f"{1e9 * wall / count:,.0f}", f"{busy:.1f}", f"{1e9 * busy / count:,.0f}"]
        lines.append([names[name], *shown, f"{best['copy'][0] / wall:.2f} x", f"{best['copy'][1] / busy:.2f} x"])
    columns = ["job", "first, s", "best, s", "ns/message", "CPU, s", "CPU ns/message", "speed", "by CPU"]
    read = sum(path.stat().st_size for path in paths)
    show(f"{count:,} messages of {SIZE} bytes, bodies of {kind}, in {FILES} recordings of {read / 1e6:.0f} MB; {sizes}", columns, lines)
    verdict("ingest at least as fast as the copy", best["ingest"][0] <= best["copy"][0], f"{best['copy'][0] / best['ingest'][0]:.2f} x")
    if not chosen.no_memory:
        compare_memory(chosen.messages)


def compare_memory(count: int) -> None:
    """One file, and one four times as large, each by one task."""
    lines, peaks = [], []
    for size in (count // GROWTH, count):
        path = record(CACHE / f"one-{size}.pcapng", size)
        command = [sys.executable, str(Path(__file__).resolve()), "--memory-of", str(path)]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
        peaks.append(result["peak"])
        growth = f"{peaks[-1] / peaks[0]:.2f} x"
        lines.append([f"{result['messages']:,} messages", f"{path.stat().st_size / 1e6:.0f}", f"{result['peak'] / 1e6:.0f}", growth])
    show("Memory of the Python worker of one task, one recording", ["input", "file, MB", "peak RSS, MB", "growth"], lines)
    verdict("memory independent of the size of the input", peaks[1] <= ALLOWED * peaks[0], f"{peaks[1] / peaks[0]:.2f} x for {GROWTH} x")


if __name__ == "__main__":
    main()
