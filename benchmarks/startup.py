"""How long short commands take from nothing to the prompt, with warm caches, beside the interpreter that does nothing at all.

Also how long Spark takes, from a new process to a session: with the caches that the first session makes, and with none of them.

Goals: `wirelake decode emp` under 0.4 s; Spark at most 3 s, where Java 25 is at hand.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from figures import Figure, main
from processes import Meter

HELLO = b"0000000c0000000001000000"
GOAL = 0.4
SPARK_GOAL = 3.0
WAIT_SECONDS = 120.0

TABLE = "Start-up of short commands"
SPARK_TABLE = "Start-up of Spark"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "wirelake decode emp --hex": [sys.executable, "-m", "wirelake", "decode", "emp", "--hex"],
    "wirelake --help": [sys.executable, "-m", "wirelake", "--help"],
}
SPARK = "from wirelake.lake import spark_session; spark = spark_session(); print('ready', flush=True); spark.stop()"
OFF = {"WIRELAKE_AOT_CACHE": "off", "WIRELAKE_LAUNCH_CACHE": "off"}


def spark_seconds(**variables: str) -> float:
    """Seconds from nothing to a Spark session; then wait for the end of its JVM, which makes the caches if there are none."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", SPARK], stdout=subprocess.PIPE, env=os.environ | variables) as process:
        meter = Meter(process.pid)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        taken = time.perf_counter() - began
    meter.wait(WAIT_SECONDS)
    meter.close()
    if process.returncode:
        raise SystemExit(f"Spark ended with exit code {process.returncode}")
    return taken


def wait_for_other_sessions() -> None:
    """Wait while the JVM of another benchmark writes the cache: it does so after its session, and no other session makes it meanwhile."""
    from wirelake.cache_folder import cache_folder
    from wirelake.lake.session.aot_cache import MAKING_SECONDS

    def is_made(claim: Path) -> bool:
        is_fresh = time.time() - claim.stat().st_mtime < MAKING_SECONDS  # else its session was killed
        return is_fresh and not claim.with_suffix(".aot").exists()

    folder, until = cache_folder("aot"), time.monotonic() + WAIT_SECONDS
    while folder is not None and time.monotonic() < until and any(map(is_made, folder.glob("*.making"))):
        time.sleep(1)


def spark_figures(times: int) -> list[Figure]:
    """Spark with the caches and without, in turns; the first run is not counted."""
    if find_spec("pyspark") is None:
        return []
    wait_for_other_sessions()
    spark_seconds()
    rounds = [(spark_seconds(), spark_seconds(**OFF)) for _ in range(times)]
    cached, bare = map(statistics.median, zip(*rounds, strict=True))
    return [
        Figure(table=SPARK_TABLE, name="Spark session, with the caches", ours=cached, unit="s", most=SPARK_GOAL),
        Figure(table=SPARK_TABLE, name="Spark session, without", ours=bare, unit="s"),
    ]


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
    short = [Figure(table=TABLE, name=name, ours=taken, unit="s", most=goals.get(name)) for name, taken in found.items()]
    return short + spark_figures(1 if quick else 3)


if __name__ == "__main__":
    main(run, __doc__)
