"""How long short commands take from nothing to the prompt, with warm caches, beside the interpreter that does nothing at all.

Goal: `wirelake decode emp` under 0.4 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from figures import show, verdict

HELLO = b"0000000c0000000001000000"
GOAL = 0.4

PROGRAM = str(Path(sys.executable).with_name("wirelake"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "wirelake decode emp --hex": [PROGRAM, "decode", "emp", "--hex"],
    "wirelake --help": [PROGRAM, "--help"],
}


def run(command: list[str]) -> float:
    """Seconds until the command is done; it has to succeed."""
    began = time.perf_counter()
    subprocess.run(command, input=HELLO, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=11)
    chosen = options.parse_args()
    for command in COMMANDS.values():
        run(command)
    # In turns, so that a busy moment of the machine hits all alike.
    rounds = [[run(command) for command in COMMANDS.values()] for _ in range(chosen.times)]
    found = dict(zip(COMMANDS, zip(*rounds, strict=True), strict=True))
    lines = [[name, f"{min(times):.3f}", f"{statistics.median(times):.3f}", f"{max(times):.3f}"] for name, times in found.items()]
    show(f"Start-up of short commands: seconds, {chosen.times} runs", ["command", "best", "median", "worst"], lines)
    median = statistics.median(found["wirelake decode emp --hex"])
    verdict(f"wirelake decode emp < {GOAL} s", median < GOAL, f"{median:.3f} s")


if __name__ == "__main__":
    main()
