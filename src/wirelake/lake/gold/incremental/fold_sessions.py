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
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from wirelake.lake.gold.fold import work
from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.lake.gold.fold.work import FOLDED, Work, Written
from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.incremental.key_ranges import KEY_RANGE_ROWS
from wirelake.lake.gold.incremental.plan_items import plan_items
from wirelake.lake.session.tasks import run_tasks
from wirelake.lake.store import delta, settings
from wirelake.lake.store.gold_commit import Change
from wirelake.lake.tables import exchanges, violations
from wirelake.lake.tables.checkpoints import CHECKPOINTS

__all__ = ["CHECKPOINT_RULES", "fold_sessions"]

_LOG: Final = logging.getLogger("wirelake.lake")


CHECKPOINT_RULES: Final = CheckpointRules()
"""When long sessions that are open get a checkpoint."""
_SETTLED: Final = (exchanges.TABLE, violations.TABLE, CHECKPOINTS)
"""Tables with files for single sessions."""


def fold_sessions(spark: SparkSession, lake: Path, what: Affected, newest: int, scratch: Path) -> list[Change]:
    """Fold affected sessions, and return which files of each table go and come. Nothing is committed here.

    `newest` is the newest batch.
    """
    started = time.monotonic()
    planned = plan_items(spark, lake, FOLDED, what, scratch, index=what.index, most=KEY_RANGE_ROWS, settled=_SETTLED)
    count = len(planned.tasks)
    given = msgspec.msgpack.encode(Work(planned.plan, settings.of(lake).late_seconds, what.newest, newest, CHECKPOINT_RULES))
    told = run_tasks(spark, partial(_run, given, planned.tasks), count)
    results = [one for result in told for one in msgspec.msgpack.decode(result, type=list[Written])]
    _LOG.info(
        "%s messages of %s sessions folded by %d tasks, %.1f s",
        f"{sum(one.messages for one in results):,}",
        f"{pc.count_distinct(what.index['session_id']).as_py():,}",
        count,
        time.monotonic() - started,
    )
    changes = []
    for table in {table.name: table for table in (*FOLDED, *_SETTLED)}.values():
        gone = {path for one in results for path in one.removed.get(table.name, ())}
        dropped = [file for file in delta.entries(lake, table) if file.path in gone]
        added = sorted((file for one in results for file in one.files.get(table.name, ())), key=lambda file: file.path)
        removed = [*planned.removed.get(table.name, ()), *dropped]
        if table is not CHECKPOINTS or removed or added:  # few lakes have any
            changes.append(Change(table.name, removed, added))
    return changes


def _run(given: bytes, tasks: list[list[int]], number: int) -> bytes:
    """In a task: fold its items, one after the other."""
    todo = msgspec.msgpack.decode(given, type=Work)
    return msgspec.msgpack.encode([work.run(todo, item) for item in tasks[number]])
