"""What it costs that a committed batch survives a power cut: a small ingest with `fsync`, and with an `fsync` that does nothing.

One session ingests a capture of 2,400 packets again and again, each time as new files, gold tables included. Every second ingest has an
`os.fsync` that returns at once: on the driver and in the workers, which find it in a `sitecustomize` module on their path. The others have
theirs, and write down when each began and ended. Time in which several threads wait counts once. So both are measured in the same run, in
turns. An ingest in a process of its own, or a larger one, has the same syncs in more time.

The disk is that of the temporary directory. Set TMPDIR to measure another: a disk that really waits for its medium takes longer.

Goal: `fsync` takes at most a tenth of the ingest.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from pathlib import Path

from figures import Figure, main
from packet_captures import capture, long_steps

PACKETS = 2_400
TURNS = 12
WARM_UP = 3
"""Ingests before that are not counted: workers start, kernels compile."""
MOST = 0.1
TABLE = "A small ingest that survives a power cut"
PATCH = """
import os, time
_real, _off, _log = os.fsync, {off!r}, {log!r}

def _fsync(descriptor):
    if os.path.exists(_off):
        return
    began = time.perf_counter()
    _real(descriptor)
    with open(_log, "a") as file:
        file.write(f"{{began}} {{time.perf_counter()}}\\n")

os.fsync = _fsync
"""


def patched(folder: Path) -> None:
    """Replace `os.fsync` here, and in Python processes that are started from here."""
    path = folder / "site" / "sitecustomize.py"
    path.parent.mkdir()
    path.write_text(PATCH.format(off=str(folder / "off"), log=str(folder / "log")))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(path.parent), *([before] if before else [])])
    spec = importlib.util.spec_from_file_location("measured_fsync", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def waited(spans: list[tuple[float, float]]) -> float:
    """Seconds in which at least one of these spans lasted."""
    total, end = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return total


def turns(folder: Path, count: int, seed: int) -> dict[bool, list[tuple[float, float, int]]]:
    """Ingest in turns; whether `fsync` does something -> seconds, seconds in it, and its calls, of each ingest."""
    from wirelake.lake import ingest, spark_session

    spark, steps = spark_session("local[2]"), long_steps()
    off, log = folder / "off", folder / "log"
    took: dict[bool, list[tuple[float, float, int]]] = {True: [], False: []}
    for turn in range(WARM_UP + 2 * count):
        path = folder / f"{turn}.pcap"
        capture(path, steps, PACKETS // len(steps), seed + turn, is_long=True)
        is_on = turn % 2 == 0
        off.unlink(missing_ok=True) if is_on else off.touch()
        log.write_text("")
        began = time.perf_counter()
        ingest(spark, folder / "lake", [path])
        seconds = time.perf_counter() - began
        spans = [(float(began), float(ended)) for began, ended in map(str.split, log.read_text().splitlines())]
        if turn >= WARM_UP:
            took[is_on].append((seconds, waited(spans), len(spans)))
    spark.stop()
    return took


def run(quick: bool, seed: int) -> list[Figure]:
    """See the top of this file."""
    with tempfile.TemporaryDirectory(prefix="wirelake-durable-") as scratch:
        folder = Path(scratch)
        before, fsync = os.environ.get("PYTHONPATH"), os.fsync
        try:
            patched(folder)
            took = turns(folder, TURNS // 3 if quick else TURNS, seed)
        finally:
            os.fsync = fsync
            if before is None:
                os.environ.pop("PYTHONPATH", None)
            else:
                os.environ["PYTHONPATH"] = before
    with_sync, without = (statistics.median(seconds for seconds, _, _ in took[is_on]) for is_on in (True, False))
    share = statistics.median(waits / seconds for seconds, waits, _ in took[True])
    calls = statistics.median(calls for _, _, calls in took[True])
    name = f"{PACKETS:,} packets into a lake, all tables"
    return [
        Figure(table=TABLE, name=f"{name}: share of {calls:.0f} calls of fsync", ours=share, unit="x", most=MOST),
        Figure(table=TABLE, name=name, ours=with_sync, unit="s", rival="the same without fsync", theirs=without, most=1 + MOST),
    ]


if __name__ == "__main__":
    main(run, __doc__)
