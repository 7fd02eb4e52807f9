"""How soon `wirelake read` prints its first line and its last one, for the recordings of `wirelake demo`, beside tshark on the same files.

Goals: the first line within 0.5 s; all 105,000 messages with their findings within 6 s. tshark does not know the protocols: it lists
records, of which one may hold many messages.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import show, verdict

FIRST_GOAL, ALL_GOAL = 0.5, 6.0
REQUESTS = 20_000
"""Of `wirelake demo`: about 105,000 messages."""


def recorded(folder: Path, requests: int) -> list[Path]:
    """The recordings of the demo, made once."""
    if not list(folder.glob("*.pcapng")):
        from wirelake.peers.demo import record

        folder.mkdir(parents=True, exist_ok=True)
        logging.disable(logging.CRITICAL)  # peers of the demo break rules on purpose
        asyncio.run(record(folder, requests))
    return sorted(folder.glob("*.pcapng"))


def run(commands: list[list[str]]) -> tuple[float, float, int]:
    """Seconds to the first line and to the end, and lines; commands run one after another."""
    began, first, lines = time.perf_counter(), 0.0, 0
    for command in commands:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            for _ in process.stdout:
                first = first or time.perf_counter() - began
                lines += 1
        assert process.returncode == 0, command
    return first, time.perf_counter() - began, lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--recordings", type=Path, help="a folder of recordings, or one for them; a temporary one otherwise")
    options.add_argument("--requests", type=int, default=REQUESTS)
    options.add_argument("--times", type=int, default=5)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="wirelake-read-") as scratch:
        files = recorded(chosen.recordings or Path(scratch), chosen.requests)
        wirelake = [sys.executable, "-m", "wirelake", "read", *map(str, files)]
        commands = {"wirelake read": [wirelake], "wirelake read -T json": [[*wirelake, "-T", "json"]]}
        if tshark := shutil.which("tshark"):
            commands["tshark -r (records)"] = [[tshark, "-r", str(file)] for file in files]
        for command in commands.values():
            run(command)  # caches
        rounds = [[run(command) for command in commands.values()] for _ in range(chosen.times)]
    found = dict(zip(commands, zip(*rounds, strict=True), strict=True))
    rows = []
    for name, runs in found.items():
        firsts, totals, lines = zip(*runs, strict=True)
        rows.append([name, f"{lines[0]:,}", f"{statistics.median(firsts):.2f}", f"{statistics.median(totals):.2f}", f"{min(totals):.2f}"])
    show(f"Reading the demo's recordings: seconds, {chosen.times} runs", ["command", "lines", "first line", "all", "best"], rows)
    first, total = (statistics.median(run[place] for run in found["wirelake read"]) for place in (0, 1))
    verdict(f"first line <= {FIRST_GOAL} s", first <= FIRST_GOAL, f"{first:.2f} s")
    verdict(f"all messages with findings <= {ALL_GOAL} s", total <= ALL_GOAL, f"{total:.2f} s")


if __name__ == "__main__":
    main()
