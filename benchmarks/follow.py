"""Freshness: from a message on the wire to its row in the table, while a recorder writes and a folder is followed.

A process of its own records EMP messages of 100 bytes at a steady rate, on ten connections, in files that rotate. Freshness of a message is
the time of the publication that has its row, less the time it was recorded; the recorder's own flushing is part of it. Following runs in
one Spark session on all cores: first for a moment, to see what a cold start costs, then without gold tables, then with them built every
few seconds. The first seconds of each, in which workers start, are counted apart.

Goals: under 3 seconds for 95 of 100 messages at 20,000 messages a second; nothing lost.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from figures import Figure, save, show, verdict

CONNECTIONS = 10
TICK = 0.01
WARM_SECONDS = 10.0
COLD_SECONDS = 3.0
GOAL = 3.0


def write(folder: Path, rate: int, seconds: float) -> None:
    """Record so many messages a second."""
    from wirelake.capture.record.recorder import Recorder
    from wirelake.protocols.emp.messages import Data, Hello, RequestResponse
    from wirelake.protocols.emp.wire import encode

    message = encode(Data(b'{"text": "' + b"x" * 60 + b'"}', (RequestResponse(True, 1),)))
    with Recorder(folder / "live.pcapng", protocol="emp", max_bytes=16 << 20, flush_seconds=0.1) as recorder:
        talks = [
            recorder.connection(role="client", local=("127.0.0.1", 20_000 + number), remote=("127.0.0.1", 5040))
            for number in range(CONNECTIONS)
        ]
        for talk in talks:
            talk.sent(encode(Hello()))
        started, said = time.monotonic(), 0
        while (now := time.monotonic() - started) < seconds:
            due = int(now * rate) - said
            for number, talk in enumerate(talks):
                mine = due // CONNECTIONS + (number < due % CONNECTIONS)
                if mine:
                    talk.sent(message * mine)
            said += due
            time.sleep(TICK)
        for talk in talks:
            talk.closed("bye")
    print(said + CONNECTIONS)


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


def run(rate: int, seconds: float, gold_every: float) -> tuple[np.ndarray, int, int]:
    """Follow while a process writes; freshness, messages written, portions."""
    from wirelake.lake.jobs.follow import CONF, FollowOptions, follow
    from wirelake.lake.session.start import spark_session

    spark = spark_session(conf=CONF)
    with tempfile.TemporaryDirectory(prefix="wirelake-bench-") as scratch:
        folder, lake = Path(scratch) / "in", Path(scratch) / "lake"
        folder.mkdir()
        published: dict[int, float] = {}
        found = [0]
        stop, caught_up = threading.Event(), threading.Event()
        wanted = [1 << 62]

        def tell(portion: object, now: float) -> None:
            published[portion.batch] = now  # type: ignore[attr-defined]
            found[0] += portion.messages  # type: ignore[attr-defined]
            if found[0] >= wanted[0]:
                caught_up.set()

        options = FollowOptions(every=0.5, gold_every=gold_every, complete_after=3600)
        follower = threading.Thread(target=lambda: follow(spark, lake, folder, options, stop=stop, on_commit=tell))
        follower.start()
        writer = subprocess.run(
            [sys.executable, __file__, "--write", str(folder), "--rate", str(rate), "--seconds", str(seconds)],
            capture_output=True,
            text=True,
            check=True,
        )
        wanted[0] = int(writer.stdout)
        if found[0] < wanted[0]:
            caught_up.wait(120)
        stop.set()
        follower.join()
        return measured(lake, published), wanted[0], len(published)


def _shown(part: np.ndarray) -> list[str]:
    return [*(f"{np.percentile(part, share):.2f}" for share in (50, 95, 99)), f"{part.max():.2f}"]


def main() -> None:
    """Write, or follow and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--gold-every", type=float, default=10.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the goals there, too")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.write:
        write(chosen.write, chosen.rate, chosen.seconds)
        return
    cold, _, _ = run(chosen.rate // 10, COLD_SECONDS, 0.0)
    rows, results = [["the first seconds of all", f"{len(cold):,}", *_shown(cold)]], []
    for name, gold_every in (("without gold", 0.0), ("with gold", chosen.gold_every)):
        fresh, written, micro_batches = run(chosen.rate, chosen.seconds, gold_every)
        warm = fresh[int(chosen.rate * WARM_SECONDS) :]
        for what, part in ((f"{name}, first {WARM_SECONDS:.0f} s", fresh[: int(chosen.rate * WARM_SECONDS)]), (name, warm)):
            if len(part):
                rows.append([what, f"{len(part):,}", *_shown(part)])
        results.append((name, float(np.percentile(warm if len(warm) else fresh, 95)), written, len(fresh), micro_batches))
    show(f"Freshness in seconds at {chosen.rate:,} messages a second", ["", "messages", "p50", "p95", "p99", "most"], rows)
    for name, p95, written, found, micro_batches in results:
        verdict(f"{name}: under {GOAL} s for 95 of 100", p95 < GOAL, f"{p95:.2f} s in {micro_batches} portions")
        verdict(f"{name}: nothing lost", written == found, f"{found:,} of {written:,}")
    if chosen.json:
        table = f"Freshness at {chosen.rate:,} messages a second"
        figures = [Figure(table=table, name=f"{name}, p95", ours=p95, unit="s", most=GOAL) for name, p95, *_ in results]
        figures += [
            Figure(table=f"{table}: lost", name=name, ours=written - found, unit="", most=0) for name, _, written, found, _ in results
        ]
        save(chosen.json, figures, quick=False, seed=0)


if __name__ == "__main__":
    main()
