"""The cost of one ingest of the demo's recordings: wall time, CPU of each kind of process, and the number of processes.

The ingest runs in a process of its own, as `wirelake ingest` does, with or without gold tables. Processes and their CPU are found by
sampling /proc for descendants.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from figures import show

TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.02


class Cost(NamedTuple):
    """What one ingest took."""

    wall: float
    total: float
    """CPU seconds of the process and all descendants."""
    driver: float
    jvm: float
    python: float
    """CPU seconds of Python workers and their daemons."""
    pythons: int
    """Number of them."""


def ingest(lake: str, paths: list[str], gold: bool) -> None:
    """In a process of its own: ingest as the command line does."""
    from wirelake.lake.jobs.ingest import ingest as ingest_into
    from wirelake.lake.session.settings import SHORT_SESSION
    from wirelake.lake.session.start import spark_session

    name = "gold" if "gold" in inspect.signature(ingest_into).parameters else "build"
    result = ingest_into(lambda: spark_session(None, SHORT_SESSION), lake, paths, **{name: gold})
    print(f"{result.messages} messages, {result.seconds:.2f} s in the job", file=sys.stderr)


def descendants(root: int) -> dict[int, tuple[str, float]]:
    """Process id -> program and CPU seconds, of a process and all its descendants."""
    parents, found = {}, {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:
                continue
            name, _, rest = stat[stat.index("(") + 1 :].rpartition(")")
            fields = rest.split()
            parents[int(entry.name)] = int(fields[1])
            found[int(entry.name)] = (name, (int(fields[11]) + int(fields[12])) / TICKS)
    wanted = {root}
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return {pid: found[pid] for pid in wanted if pid in found}


def measure(lake: Path, paths: list[str], gold: bool) -> Cost:
    """Run one ingest, and return what it took."""
    began = time.perf_counter()
    command = [sys.executable, __file__, "--inner", str(lake), *(["--gold"] if gold else []), *paths]
    process = subprocess.Popen(command)
    seen: dict[int, tuple[str, float]] = {}
    while process.poll() is None:
        seen |= descendants(process.pid)
        time.sleep(SAMPLE_SECONDS)
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(process.returncode)
    driver = seen.pop(process.pid)[1]
    jvm = sum(cpu for name, cpu in seen.values() if name.startswith("java"))
    python = {pid: cpu for pid, (name, cpu) in seen.items() if name.startswith(("python", "pyspark"))}
    total = driver + jvm + sum(python.values())
    return Cost(wall, total, driver, jvm, sum(python.values()), len(python))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--recordings", type=Path, help="Folder with recordings; made by the demo's peers if it does not exist.")
    options.add_argument("--messages", type=int, default=20_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--gold", action="store_true", help="Refresh the gold tables, too.")
    options.add_argument("--inner", help=argparse.SUPPRESS)
    options.add_argument("paths", nargs="*")
    chosen = options.parse_args()
    if chosen.inner:
        ingest(chosen.inner, chosen.paths, chosen.gold)
        return
    with tempfile.TemporaryDirectory() as scratch:
        recordings = chosen.recordings or Path(scratch, "recordings")
        if not recordings.exists():
            from wirelake.peers.demo import record

            recordings.mkdir(parents=True)
            asyncio.run(record(recordings, chosen.messages, lambda *_: None))
        paths = [str(path) for path in sorted(recordings.glob("*.pcapng"))]
        costs = []
        for number in range(chosen.times):
            lake = Path(scratch, f"lake-{number}")
            costs.append(measure(lake, paths, chosen.gold))
            shutil.rmtree(lake)
        size = sum(Path(path).stat().st_size for path in paths)
        lines = [[f"{value:.2f}" for value in cost[:-1]] + [str(cost.pythons)] for cost in costs]
        lines.append([f"{statistics.median(each):.2f}" for each in zip(*costs, strict=True)])
        title = (
            f"Ingest of {len(paths)} files, {size:,} bytes, {'with' if chosen.gold else 'without'} gold tables: seconds; last line: median"
        )
        show(title, ["wall", "CPU", "driver", "JVM", "Python", "Python processes"], lines)


if __name__ == "__main__":
    main()
