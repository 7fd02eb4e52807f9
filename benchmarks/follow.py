"""Freshness: from a message on the wire to its row in the table, while a recorder writes and a folder is followed.

A process of its own records EMP messages of 100 bytes at a steady rate, on ten connections, in files that rotate: requests and their
answers. Freshness of a message is the time of the publication that has its row, less the time it was recorded; the recorder's own
flushing is part of it. Following runs in one Spark session on all cores: first for a moment, to see what a cold start costs, then without
gold tables, then with them built every few seconds, and once more with requests that all have the same identifier: each of them breaks a
rule and is never answered. The first seconds of each, in which workers start, are counted apart.

Goals at 20,000 messages a second, for 95 of 100: under 3 seconds, with gold tables 2; nothing lost. `--quick` leaves all out: it takes
minutes of Spark.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from figures import Figure, main, show
from processes import Cost, Meter

CONNECTIONS = 10
TICK = 0.01
RATE = 20_000
SECONDS = 30.0
GOLD_EVERY = 10.0
WARM_SECONDS = 10.0
COLD_SECONDS = 3.0
CATCH_UP_SECONDS = 120
GOAL, GOLD_GOAL = 3.0, 2.0


class Run(NamedTuple):
    """What one run of following gave."""

    ages: np.ndarray
    """The freshness of every message, in seconds, in the order of time."""
    written: int
    micro_batches: int
    cost: Cost
    """CPU while messages were recorded."""


def write(folder: Path, rate: int, seconds: float, *, breaking: bool = False) -> None:
    """Record so many messages a second: requests and answers, or requests that break a rule."""
    from ingest import frames
    from wirelake.capture.record.recorder import Recorder
    from wirelake.protocols.emp.messages import Data, Hello, RequestResponse
    from wirelake.protocols.emp.wire import encode

    same = encode(Data(b'{"text": "' + b"x" * 60 + b'"}', (RequestResponse(True, 1),)))
    with Recorder(folder / "live.pcapng", protocol="emp", max_bytes=16 << 20, flush_seconds=0.1) as recorder:
        talks = [
            recorder.connection(role="client", local=("127.0.0.1", 20_000 + number), remote=("127.0.0.1", 5040))
            for number in range(CONNECTIONS)
        ]
        for talk in talks:
            talk.sent(encode(Hello()))
            talk.received(encode(Hello()))
        started, count = time.monotonic(), 0
        while (now := time.monotonic() - started) < seconds:
            pairs = (int(now * rate) - count) // (2 * CONNECTIONS)
            for talk in talks if pairs else ():
                if breaking:
                    talk.sent(same * (2 * pairs))
                else:
                    first = 1 + count // (2 * CONNECTIONS)
                    talk.sent(frames(first, pairs, True, False).tobytes())
                    talk.received(frames(first, pairs, False, False).tobytes())
            count += 2 * CONNECTIONS * pairs
            time.sleep(TICK)
        for talk in talks:
            talk.closed("bye")
    print(count + 2 * CONNECTIONS)


def measured(lake: Path, published: dict[int, float]) -> np.ndarray:
    """The freshness of every message, in seconds, in the order of time."""
    import pyarrow as pa

    from wirelake.lake.store import delta
    from wirelake.lake.tables.catalog import table

    spans = delta.dataset(lake, table("ledger")).to_table(columns=["source", "offset", "batch"]).group_by(["source", "offset", "batch"])
    rows = delta.dataset(lake, table("messages")).to_table(columns=["ts", "source", "offset"])
    batches: dict[str, list[tuple[int, int]]] = {}
    for row in spans.aggregate([]).to_pylist():
        batches.setdefault(row["source"], []).append((row["offset"], row["batch"]))
    names = np.array(rows["source"].to_pylist())
    times = rows["ts"].cast(pa.int64()).to_numpy() / 1e6
    offsets = rows["offset"].to_numpy()
    fresh = np.zeros(len(rows))
    for source, found in batches.items():
        mine = names == source
        starts, numbers = np.array(sorted(found)).T
        at = numbers[np.searchsorted(starts, offsets[mine], side="right") - 1]
        fresh[mine] = np.array([published[number] for number in at.tolist()]) - times[mine]
    return fresh[np.argsort(times, kind="stable")]


def followed(rate: int, seconds: float, gold_every: float, *, breaking: bool = False) -> Run:
    """Follow a folder while a process records into it."""
    from wirelake.lake.jobs.follow import CONF, FollowOptions, follow
    from wirelake.lake.session.start import spark_session

    spark = spark_session(conf=CONF)
    meter = Meter(os.getpid())
    with tempfile.TemporaryDirectory(prefix="wirelake-bench-") as scratch:
        folder, lake = Path(scratch) / "in", Path(scratch) / "lake"
        folder.mkdir()
        published: dict[int, float] = {}
        count, wanted = 0, 1 << 62
        stop, caught_up = threading.Event(), threading.Event()

        def on_commit(micro_batch: Any, now: float) -> None:
            nonlocal count
            published[micro_batch.batch] = now
            count += micro_batch.messages
            if count >= wanted:
                caught_up.set()

        options = FollowOptions(every=0.5, gold_every=gold_every, complete_after=3600)
        follower = threading.Thread(target=lambda: follow(spark, lake, folder, options, stop=stop, on_commit=on_commit))
        before = meter.cost()
        follower.start()
        command = [sys.executable, __file__, "--write", str(folder), "--rate", str(rate), "--seconds", str(seconds)]
        wanted = int(
            subprocess.run([*command, *(["--breaking"] if breaking else [])], stdout=subprocess.PIPE, text=True, check=True).stdout
        )
        cost = meter.cost() - before
        if count < wanted:
            caught_up.wait(CATCH_UP_SECONDS)
        stop.set()
        follower.join()
        meter.close()
        return Run(measured(lake, published), wanted, len(published), cost)


def _shown(part: np.ndarray) -> list[str]:
    return [*(f"{np.percentile(part, share):.2f}" for share in (50, 95, 99)), f"{part.max():.2f}"]


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    if quick:
        print("freshness is left out: it takes minutes of Spark; run without --quick", file=sys.stderr)
        return []
    cold = followed(RATE // 10, COLD_SECONDS, 0.0)
    rows, figures = [["the first seconds of all", f"{len(cold.ages):,}", *_shown(cold.ages), ""]], []
    first = int(RATE * WARM_SECONDS)
    table = f"Freshness at {RATE:,} messages a second"
    for name, gold_every, breaking, goal in (
        ("without gold tables", 0.0, False, GOAL),
        ("with gold tables", GOLD_EVERY, False, GOLD_GOAL),
        ("with gold tables, every message breaks a rule", GOLD_EVERY, True, GOLD_GOAL),
    ):
        found = followed(RATE, SECONDS, gold_every, breaking=breaking)
        each = 1e6 * (found.cost.jvm + found.cost.python) / max(1, found.written)
        warm = found.ages[first:]
        rows.append([f"{name}, first {WARM_SECONDS:.0f} s", f"{len(found.ages[:first]):,}", *_shown(found.ages[:first]), ""])
        rows.append([name, f"{len(warm):,}", *_shown(warm), f"{each:.1f}"])
        figures += [
            Figure(table=table, name=f"{name}, p95", ours=float(np.percentile(warm, 95)), unit="s", most=goal),
            Figure(table=f"{table}: lost", name=name, ours=found.written - len(found.ages), unit="", most=0),
        ]
    show(table.replace("Freshness", "Freshness in seconds"), ["", "messages", "p50", "p95", "p99", "most", "CPU µs/message"], rows)
    return sorted(figures, key=lambda figure: figure.table)


def be_writer() -> None:
    """The process that records."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path, required=True)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--breaking", action="store_true")
    chosen = parser.parse_args()
    write(chosen.write, chosen.rate, chosen.seconds, breaking=chosen.breaking)


if __name__ == "__main__":
    if "--write" in sys.argv:
        be_writer()
    else:
        main(run, __doc__)
