"""Rebuild `exchanges`, `violations` and `sessions`: one Spark job, whose tasks fold affected sessions.

The driver plans the work from the connection index and collects names of files. Rows of messages never enter the JVM.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from wirelake.lake.gold.fold import work
from wirelake.lake.gold.fold.work import FOLDED, Work, WorkItem, Written
from wirelake.lake.gold.incremental import key_ranges
from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.incremental.key_ranges import KEY_RANGE_ROWS, KeyRange
from wirelake.lake.session.start import is_connect
from wirelake.lake.session.tasks import run_tasks
from wirelake.lake.store import delta, settings
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_commit import Change
from wirelake.lake.store.slots import slot

__all__ = ["fold_sessions"]

_LOG: Final = logging.getLogger("wirelake.lake")
_SMALL_ROWS: Final = 20_000
"""Messages that are not worth a second task."""


def fold_sessions(spark: SparkSession, lake: Path, what: Affected, scratch: Path) -> list[Change]:
    """Fold affected sessions, and return which files of each table go and come. Nothing is committed here."""
    started = time.monotonic()
    session_slots = {key: slot(key) for key in pc.unique(what.index["session_id"]).to_pylist()}
    slots = [session_slots[key] for key in what.index["session_id"].to_pylist()]
    files = {table.name: delta.entries(lake, table) for table in FOLDED}
    ranges, removed = _ranges(files, what, slots, _tasks(spark))
    kept = {} if what.is_all else removed
    items = [
        WorkItem(one.first, one.last, {name: [file.path for file in gone if _covers(one, file)] for name, gone in kept.items()})
        for one in ranges
    ]
    if not items:
        return [Change(table.name, [], []) for table in FOLDED]
    plan, keys = scratch / "plan.parquet", scratch / "keys.parquet"
    work.write_plan(what.index, what.links, slots, items, plan)
    pq.write_table(pa.table({"session_id": what.keys}), keys)
    given = Work(str(lake), str(plan), str(keys), items, settings.of(lake).late_seconds, what.newest)
    results = [
        msgspec.msgpack.decode(result, type=Written)
        for result in run_tasks(spark, partial(_run, msgspec.msgpack.encode(given)), len(items))
    ]
    _LOG.info(
        "%s messages of %s sessions folded by %d tasks, %.1f s",
        f"{sum(one.messages for one in results):,}",
        f"{len(session_slots):,}",
        len(items),
        time.monotonic() - started,
    )
    added = {table.name: [one.files[table.name] for one in results if table.name in one.files] for table in FOLDED}
    return [Change(table.name, removed[table.name], sorted(added[table.name], key=lambda file: file.path)) for table in FOLDED]


def _run(given: bytes, number: int) -> bytes:
    """In a task."""
    return msgspec.msgpack.encode(work.run(msgspec.msgpack.decode(given, type=Work), number))


def _tasks(spark: SparkSession) -> int:
    """How many tasks run at once, about."""
    return 2 if is_connect(spark) else max(1, spark.sparkContext.defaultParallelism)


def _covers(one: KeyRange, file: File) -> bool:
    """Whether a file has keys of a range."""
    of_file = key_ranges.range_of(file)
    return of_file.first <= one.last and one.first <= of_file.last


def _ranges(files: dict[str, list[File]], what: Affected, slots: list[int], tasks: int) -> tuple[list[KeyRange], dict[str, list[File]]]:
    """The ranges of slots to write, each by one task, and the files that are replaced.

    All three tables have the same ranges. A file is replaced by one task only: a new range lies within one old range, or covers whole ones.
    """
    messages = np.zeros(key_ranges.SLOTS, np.int64)
    np.add.at(messages, np.asarray(slots, np.int64), what.index["messages"].fill_null(0).to_numpy())
    total = int(messages.sum())
    most = min(KEY_RANGE_ROWS, max(_SMALL_ROWS, total // tasks + 1))
    if what.is_all:  # rows of sessions that are gone must not stay
        return key_ranges.plan([], range(key_ranges.SLOTS), total, most).key_ranges, files
    by_range: dict[KeyRange, int] = {}
    for one in (file for each in files.values() for file in each):
        known = key_ranges.range_of(one)
        by_range[known] = by_range.get(known, 0) + one.rows
    if any(one != other and one.first <= other.last and other.first <= one.last for one in by_range for other in by_range):
        by_range = {KeyRange(0, key_ranges.SLOTS - 1): sum(by_range.values())}  # written before all tables had the same ranges
    planned = key_ranges.plan([File(key_ranges.name(one), 0, rows) for one, rows in by_range.items()], what.slots, total, most)
    replaced = [key_ranges.range_of(file) for file in planned.removed]
    removed = {
        name: [file for file in each if any(one.first <= key_ranges.range_of(file).first <= one.last for one in replaced)]
        for name, each in files.items()
    }
    return planned.key_ranges, removed
