"""How long short commands take from nothing to the prompt, with warm caches, beside the interpreter that does nothing at all.

Goal: `wirelake decode emp` under 0.4 s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from figures import Figure, main

HELLO = b"0000000c0000000001000000"
GOAL = 0.4

TABLE = "Start-up of short commands"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "wirelake decode emp --hex": [sys.executable, "-m", "wirelake", "decode", "emp", "--hex"],
    "wirelake --help": [sys.executable, "-m", "wirelake", "--help"],
}


def seconds(command: list[str]) -> float:
    """Seconds until the command is done; it has to succeed."""
    began = time.perf_counter()
    subprocess.run(command, input=HELLO, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    for command in COMMANDS.values():
        seconds(command)
    # In turns, so that a busy moment of the machine hits all alike.
    rounds = [[seconds(command) for command in COMMANDS.values()] for _ in range(5 if quick else 11)]
    found = dict(zip(COMMANDS, map(statistics.median, zip(*rounds, strict=True)), strict=True))
    goals = {"wirelake decode emp --hex": GOAL}
    return [Figure(table=TABLE, name=name, ours=taken, unit="s", most=goals.get(name)) for name, taken in found.items()]


if __name__ == "__main__":
    main(run, __doc__)
