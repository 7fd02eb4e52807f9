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
from wirelake.lake.gold.fold.work import FOLDED, Work, Written
from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.incremental.key_ranges import KEY_RANGE_ROWS
from wirelake.lake.gold.incremental.plan_items import plan_items
from wirelake.lake.session.tasks import run_tasks
from wirelake.lake.store import settings
from wirelake.lake.store.gold_commit import Change

__all__ = ["fold_sessions"]

_LOG: Final = logging.getLogger("wirelake.lake")


def fold_sessions(spark: SparkSession, lake: Path, what: Affected, scratch: Path) -> list[Change]:
    """Fold affected sessions, and return which files of each table go and come. Nothing is committed here."""
    started = time.monotonic()
    planned = plan_items(spark, lake, FOLDED, what, scratch, index=what.index, most=KEY_RANGE_ROWS)
    count = len(planned.plan.items)
    given = msgspec.msgpack.encode(Work(planned.plan, settings.of(lake).late_seconds, what.newest))
    results = [msgspec.msgpack.decode(result, type=Written) for result in run_tasks(spark, partial(_run, given), count)]
    _LOG.info(
        "%s messages of %s sessions folded by %d tasks, %.1f s",
        f"{sum(one.messages for one in results):,}",
        f"{pc.count_distinct(what.index['session_id']).as_py():,}",
        count,
        time.monotonic() - started,
    )
    added = {table.name: [one.files[table.name] for one in results if table.name in one.files] for table in FOLDED}
    return [Change(table.name, planned.removed[table.name], sorted(added[table.name], key=lambda file: file.path)) for table in FOLDED]


def _run(given: bytes, number: int) -> bytes:
    """In a task."""
    return msgspec.msgpack.encode(work.run(msgspec.msgpack.decode(given, type=Work), number))
