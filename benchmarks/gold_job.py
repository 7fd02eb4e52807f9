"""One job of `gold.py`, in a process of its own: run by it, with one version of wirelake or the other.

It uses what both versions have, and prints its figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest import CACHE, FILES
from ingest import record as record_emp
from processes import Meter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP = 20_000
WARM_SECONDS = 10.0

Figures = dict[str, float]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("job", choices=sorted(JOBS))
    options.add_argument("--source", type=Path, help="folder that wirelake has to come from")
    options.add_argument("--recordings", type=Path)
    options.add_argument("--new", type=Path, nargs="*", help="folders of recordings, one for each refresh")
    options.add_argument("--messages", type=int, default=0)
    options.add_argument("--rate", type=int, default=0)
    options.add_argument("--seconds", type=float, default=0)
    options.add_argument("--gold-every", type=float, default=0)
    chosen = options.parse_args()

    import wirelake

    if chosen.source and not Path(wirelake.__file__).is_relative_to(chosen.source):
        raise SystemExit(f"wirelake comes from {wirelake.__file__}, not from {chosen.source}")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        print(json.dumps(JOBS[chosen.job](Path(scratch), chosen)))


# What the jobs share.


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pcapng"))


def keys_of(folder: Path) -> dict[str, Any]:
    """The keys among the demo's recordings, as options of an ingest."""
    from wirelake.cli.key_files import keys_in
    from wirelake.peers.demo import KEYS

    keys, keyring = keys_in(folder / name for name in KEYS)
    return {"keys": keys, "keyring": keyring}


def fill(spark: SparkSession, lake: Path, paths: list[Path], *, gold: bool, **more: Any) -> int:
    """One ingest, with gold tables or without; says how many messages are new."""
    from wirelake.lake import ingest

    option = next(name for name in ("gold", "build") if name in inspect.signature(ingest).parameters)
    messages: int = ingest(spark, lake, paths, **{option: gold}, **more).messages
    return messages


def timed(meter: Meter, work: Callable[[], object]) -> Figures:
    """Run something and measure it."""
    began, before = time.perf_counter(), meter.cost()
    work()
    spent = meter.cost() - before
    return {"seconds": time.perf_counter() - began, "jvm": spent.jvm, "python": spent.python}


def started() -> tuple[SparkSession, Meter]:
    from wirelake.lake import spark_session

    return spark_session(), Meter(os.getpid())


def recordings(count: int) -> list[Path]:
    """EMP, so many messages, on one connection a file."""
    return [record_emp(CACHE / f"text-{count // FILES}-{number}.pcapng", count // FILES) for number in range(FILES)]


# The jobs.


def record(_scratch: Path, chosen: argparse.Namespace) -> Figures:
    """Make the demo's recordings."""
    from wirelake.peers.demo import record

    chosen.recordings.mkdir(parents=True, exist_ok=True)
    asyncio.run(record(chosen.recordings, chosen.messages))
    return {}


def record_one(_scratch: Path, chosen: argparse.Namespace) -> Figures:
    """Make one recording of EMP."""
    record_emp(chosen.recordings, chosen.messages)
    return {}


def again(scratch: Path, chosen: argparse.Namespace) -> Figures:
    """The demo's recordings, twice in one session; the second time counts."""
    spark, meter = started()
    files, keys = captures(chosen.recordings), keys_of(chosen.recordings)
    fill(spark, scratch / "lake-0", files, gold=True, **keys)
    count = 0

    def work() -> None:
        nonlocal count
        count = fill(spark, scratch / "lake-1", files, gold=True, **keys)

    return timed(meter, work) | {"messages": count}


def refresh(scratch: Path, chosen: argparse.Namespace) -> Figures:
    """Some new messages in a lake: what it costs to refresh gold tables, on average, when everything is warm."""
    spark, meter = started()
    lake = scratch / "lake"
    size = fill(spark, lake, captures(chosen.recordings), gold=True)
    every, new = [], 0
    for number, folder in enumerate(chosen.new):
        files = captures(folder)
        new = fill(spark, lake, files, gold=False)
        found = timed(meter, lambda files=files: fill(spark, lake, files, gold=True))  # the files are not read again
        if number >= len(chosen.new) // 2:
            every.append(found)
    return {name: sum(one[name] for one in every) / len(every) for name in every[0]} | {"messages": size, "new": new}


def whole(scratch: Path, chosen: argparse.Namespace) -> Figures:
    """Many messages of EMP into all tables: silver and gold apart, one after the other."""
    spark, meter = started()
    fill(spark, scratch / "warm", recordings(WARM_UP), gold=True)
    files = recordings(chosen.messages)
    silver = timed(meter, lambda: fill(spark, scratch / "lake", files, gold=False))
    gold = timed(meter, lambda: fill(spark, scratch / "lake", files, gold=True))
    both = {name: silver[name] + gold[name] for name in silver}
    return both | {f"gold_{name}": value for name, value in gold.items()} | {"messages": chosen.messages}


def one_session(scratch: Path, chosen: argparse.Namespace) -> Figures:
    """One session of many messages: the seconds of its gold tables, and the memory of one worker meanwhile."""
    spark, meter = started()
    fill(spark, scratch / "warm", recordings(WARM_UP), gold=True)
    files = [record_emp(CACHE / f"one-{chosen.messages}.pcapng", chosen.messages)]
    fill(spark, scratch / "lake", files, gold=False)
    meter.forget_peaks()
    found = timed(meter, lambda: fill(spark, scratch / "lake", files, gold=True))
    jvm, worker = meter.peaks()
    return found | {"jvm_peak": jvm, "worker_peak": worker, "messages": chosen.messages}


def fresh(_scratch: Path, chosen: argparse.Namespace) -> Figures:
    """Follow a folder while a process records into it: how old messages are when their rows are published.

    The session has followed for a moment before: the cold start is a figure of its own.
    """
    import numpy as np

    from follow import COLD_SECONDS, followed

    began = time.perf_counter()
    cold = followed(chosen.rate // 10, COLD_SECONDS, 0.0)
    found = followed(chosen.rate, chosen.seconds, chosen.gold_every)
    warm = found.ages[int(chosen.rate * WARM_SECONDS) :]
    p50, p95 = np.percentile(warm if len(warm) else found.ages, (50, 95))
    figures = {"p50": float(p50), "p95": float(p95), "cold": float(cold.ages.max()), "messages": len(found.ages)}
    lost = found.written - len(found.ages)
    return {"seconds": time.perf_counter() - began, "jvm": found.cost.jvm, "python": found.cost.python} | figures | {"lost": lost}


JOBS: dict[str, Callable[[Path, argparse.Namespace], Figures]] = {
    "record": record,
    "record-one": record_one,
    "again": again,
    "refresh": refresh,
    "whole": whole,
    "one-session": one_session,
    "fresh": fresh,
}


if __name__ == "__main__":
    main()
