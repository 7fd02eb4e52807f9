"""A whole cold `wirelake ingest` of a packet capture: CPU of all processes, Spark's start included, beside tshark on the same file.

The capture has 283,000 packets of EMP over TCP (`packet_captures.py`). The ingest runs as a person starts it, in a fresh process, without
gold tables; its JVM and all Python processes are counted. A small ingest before fills the caches that a machine has after the first day:
compiled kernels, and the classes of the JVM. tshark writes the same packets with `-T ek`.

Goal: within 20 s of CPU.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure, main
from packet_captures import capture, long_steps
from processes import Meter

PACKETS = 283_000
SHARE = 10
"""The capture of `--quick` is so many times smaller."""
WARM_PACKETS = 2_400
GOAL = 20.0
WAIT_SECONDS = 120.0
TABLE = "A cold ingest of packets, CPU of all processes"


def made(path: Path, packets: int, seed: int) -> int:
    """Write a capture of about so many packets; returns how many."""
    steps = long_steps()
    return capture(path, steps, packets // len(steps), seed, is_long=True)


def ingested(path: Path, lake: Path) -> tuple[float, float]:
    """Seconds until the prompt is back, and CPU seconds of all processes."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "wirelake", "ingest", "--no-gold", str(lake), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    meter = Meter(process.pid)
    process.wait()
    seconds = time.perf_counter() - began
    meter.wait(WAIT_SECONDS)
    cost = meter.cost()
    meter.close()
    if process.returncode:
        raise SystemExit(f"wirelake ingest ended with {process.returncode}: run it by hand on a capture of packet_captures.py")
    return seconds, cost.jvm + cost.python


def by_tshark(path: Path) -> float | None:
    """CPU seconds of tshark; None if it is not installed."""
    if (tshark := shutil.which("tshark")) is None:
        return None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([tshark, "-n", "-r", str(path), "-T", "ek"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def run(quick: bool, seed: int) -> list[Figure]:
    """See the top of this file."""
    with tempfile.TemporaryDirectory(prefix="wirelake-cold-") as scratch:
        folder = Path(scratch)
        made(folder / "small.pcap", WARM_PACKETS, seed)
        ingested(folder / "small.pcap", folder / "warm")
        path = folder / "packets.pcap"
        packets = made(path, PACKETS // SHARE if quick else PACKETS, seed)
        seconds, cpu = ingested(path, folder / "lake")
        theirs = by_tshark(path)
    name = f"wirelake ingest, {packets:,} packets"
    return [
        Figure(table=TABLE, name=name, ours=cpu, unit="s", most=GOAL),
        Figure(table=TABLE, name=name, ours=cpu, unit="s", rival="tshark -T ek", theirs=theirs),
        Figure(table=f"{TABLE.split(',', maxsplit=1)[0]}, wall clock", name=name, ours=seconds, unit="s"),
    ]


if __name__ == "__main__":
    main(run, __doc__)
