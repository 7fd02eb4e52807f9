"""How long commands take from nothing to the prompt, and how long Spark takes to start, with the ahead-of-time cache and without.

Commands run with warm caches, beside the interpreter that does nothing at all. Spark starts as `wirelake ingest` of a small capture starts
it, in a fresh process each time, from the first import to a session that takes work. "Cold" is without the cache of Java 25; the first
session on a machine makes it when it ends.

Goals: `wirelake decode emp` under 0.4 s; Spark in at most 3 s where Java 25 is at hand.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from figures import Figure, main

HELLO = b"0000000c0000000001000000"
GOAL = 0.4
SPARK_GOAL = 3.0
PATIENCE = 120.0
"""Seconds that Java may take to write the cache after the first session has ended."""

TABLE = "Start-up of short commands"
SPARK_TABLE = "Start of Spark"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "wirelake decode emp --hex": [sys.executable, "-m", "wirelake", "decode", "emp", "--hex"],
    "wirelake --help": [sys.executable, "-m", "wirelake", "--help"],
}
SPARK = """
import time
began = time.perf_counter()
from wirelake.lake.session.settings import SHORT_SESSION
from wirelake.lake.session.start import spark_session
spark = spark_session(conf=SHORT_SESSION)
print(time.perf_counter() - began, flush=True)
spark.stop()
"""
"""What a fresh process does; its first line says how long the start took."""


def seconds(command: list[str]) -> float:
    """Seconds until the command is done; it has to succeed."""
    began = time.perf_counter()
    subprocess.run(command, input=HELLO, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def spark_seconds(*, cached: bool) -> float:
    """Seconds until Spark is ready, in a fresh process."""
    from wirelake.lake.session.aot_cache import SWITCH

    world = {**os.environ, SWITCH: "on" if cached else "off"}
    done = subprocess.run([sys.executable, "-c", SPARK], env=world, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[0])


def java_version() -> int:
    """The Java that Spark would use; 0 without Spark or Java."""
    if importlib.util.find_spec("pyspark") is None:
        print("Spark does not take part: pip install 'wirelake[lake]'", file=sys.stderr)
        return 0
    from wirelake.errors import WirelakeError
    from wirelake.lake.session.java import find

    try:
        return find().version
    except WirelakeError as reason:
        print(f"Spark does not take part: {reason}", file=sys.stderr)
        return 0


def make_cache() -> None:
    """Let a first session make the cache, and wait until it is there."""
    from wirelake.cache_folder import cache_folder

    folder = cache_folder("aot")
    spark_seconds(cached=True)
    began = time.monotonic()
    while folder is not None and any(Path(folder).glob("*.new*")) and time.monotonic() - began < PATIENCE:
        time.sleep(0.5)


def spark_figures(quick: bool) -> list[Figure]:
    """The start of Spark; nothing without Java."""
    version = java_version()
    if not version:
        return []
    from wirelake.lake.session.aot_cache import MINIMUM

    times = 2 if quick else 5
    has_cache = version >= MINIMUM
    if has_cache:
        make_cache()
    rounds = [(spark_seconds(cached=False), spark_seconds(cached=True) if has_cache else 0.0) for _ in range(times)]
    cold, warm = (statistics.median(turn) for turn in zip(*rounds, strict=True))
    figures = [Figure(table=SPARK_TABLE, name=f"Java {version}, no cache (cold)", ours=cold, unit="s")]
    if has_cache:
        figures.append(Figure(table=SPARK_TABLE, name=f"Java {version}, cache of an earlier session", ours=warm, unit="s", most=SPARK_GOAL))
    return figures


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    for command in COMMANDS.values():
        seconds(command)
    # In turns, so that a busy moment of the machine hits all alike.
    rounds = [[seconds(command) for command in COMMANDS.values()] for _ in range(5 if quick else 11)]
    found = dict(zip(COMMANDS, map(statistics.median, zip(*rounds, strict=True)), strict=True))
    goals = {"wirelake decode emp --hex": GOAL}
    short = [Figure(table=TABLE, name=name, ours=taken, unit="s", most=goals.get(name)) for name, taken in found.items()]
    return short + spark_figures(quick)


if __name__ == "__main__":
    main(run, __doc__)
