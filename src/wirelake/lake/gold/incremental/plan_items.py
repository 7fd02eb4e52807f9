"""Divide affected sessions into work items, each for one task (`gold/fold/items.py`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from wirelake.lake.gold.fold.items import Item, Plan, write_plan
from wirelake.lake.gold.incremental import key_ranges
from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.incremental.key_ranges import KeyRange
from wirelake.lake.session.start import is_connect
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_names import session_of
from wirelake.lake.store.slots import SLOTS, slot
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.schema import Table

__all__ = ["ItemPlan", "balanced", "covers", "plan_items"]

_SMALL_ROWS: Final = 20_000
"""Messages that are not worth a second task."""
_SMALL_FILES_ROWS: Final = 1_000_000
"""Rows in replaced files that one task copies, if it has few messages to read."""


class ItemPlan:
    """Work items, and the files of each table that they replace."""

    def __init__(self, plan: Plan, removed: dict[str, list[File]], tasks: list[list[int]]) -> None:
        self.plan: Final = plan
        self.removed: Final = removed
        self.tasks: Final = tasks
        """The items of each task, by number."""


def plan_items(
    spark: SparkSession,
    lake: Path,
    tables: Sequence[Table],
    what: Affected,
    scratch: Path,
    *,
    index: pa.Table,
    most: int,
    settled: Sequence[Table] = (),
    like: ItemPlan | None = None,
) -> ItemPlan:
    """Plan how tasks write these tables. All have the same ranges of slots.

    `index` has the rows of the connection index that tasks need; about `most` messages go to one item. Rows of other sessions are kept,
    unless every session is affected: then a session without rows in the index is gone. Tables in `settled` have files with settled rows:
    tasks say which of them are removed, unless every session is affected: then all are. With `like`, which is only for that case, items
    and tasks have the ranges that they have there.
    """
    of_session = {key: slot(key) for key in pc.unique(index["session_id"]).to_pylist()}
    of_row = [of_session[key] for key in index["session_id"].to_pylist()]
    files = {table.name: [file for file in delta.entries(lake, table) if session_of(file.path) is None] for table in tables}
    apart = {table.name: [file for file in delta.entries(lake, table) if session_of(file.path) is not None] for table in settled}
    messages = _unread(lake, index, apart.get(CHECKPOINTS.name, ()) if not what.is_all else ())
    # Few messages are folded together. Ranges that are cut for parallel tasks only would cost each refresh a fold of its own.
    share = most if messages <= _SMALL_ROWS else min(most, max(_SMALL_ROWS, messages // _tasks(spark) + 1))
    if like is not None:
        ranges = [KeyRange(item.first, item.last) for item in like.plan.items]
        removed = files
    elif what.is_all:
        weights = index["messages"].fill_null(0).to_numpy().astype(np.float64)
        ranges = balanced(np.bincount(np.asarray(of_row, np.int64), weights, SLOTS).astype(np.float64), share)
        removed = files
    else:
        ranges, removed = _ranges(files, what.slots, messages, share)
    keys_of = set(what.keys.to_pylist())
    hit = {name: [file for file in each if what.is_all or session_of(file.path) in keys_of] for name, each in apart.items()}
    items = [
        Item(
            one.first,
            one.last,
            {name: [file.path for file in gone if covers(one, file)] for name, gone in removed.items()},
            {} if what.is_all else {name: [file.path for file in each if covers(one, file)] for name, each in hit.items()},
        )
        for one in ranges
    ]
    if what.is_all:
        for name, each in hit.items():
            removed.setdefault(name, []).extend(each)
    at, keys = scratch / f"{tables[0].name}-plan.parquet", scratch / f"{tables[0].name}-keys.parquet"
    if items:
        write_plan(index, what.views, of_row, items, at)
    if not what.is_all:
        pq.write_table(pa.table({"session_id": what.keys}), keys)
    is_small = messages <= _SMALL_ROWS and sum(file.rows for each in removed.values() for file in each) <= _SMALL_FILES_ROWS
    tasks = [list(range(len(items)))] if is_small and items else [[number] for number in range(len(items))]
    if like is not None:
        tasks = like.tasks
    separate = [(connection_id, observer, other) for (connection_id, observer), other in what.views.apart.items()]
    return ItemPlan(Plan(str(lake), str(at), None if what.is_all else str(keys), items, separate), removed, tasks)


def balanced(messages: npt.NDArray[np.float64], most: int) -> list[KeyRange]:
    """Ranges that cover all slots, of about equal numbers of messages, and about `most` at most. `messages` has those of each slot."""
    until = np.cumsum(messages)
    parts = max(1, ceil(until[-1] / most))
    wanted = until[-1] * np.arange(1, parts) / parts
    at = np.searchsorted(until, wanted)
    before = np.where(at > 0, until[at - 1], 0)
    edges = sorted({0, SLOTS, *(at + (until[at] - wanted <= wanted - before)).tolist()})
    return [KeyRange(first, end - 1) for first, end in pairwise(edges)]


def _unread(lake: Path, index: pa.Table, checkpoints: Collection[File]) -> int:
    """How many messages tasks read, about: those that are not in a checkpoint."""
    total = int(pc.sum(index["messages"]).as_py() or 0)
    if not checkpoints:
        return total
    paths = [delta.folder(lake, CHECKPOINTS) / file.path for file in checkpoints]
    known = delta.dataset(lake, CHECKPOINTS, paths).to_table(columns=["session_id", "messages"])
    known = known.filter(pc.is_in(known["session_id"], value_set=pc.unique(index["session_id"])))
    return max(0, total - int(pc.sum(known["messages"]).as_py() or 0))


def _tasks(spark: SparkSession) -> int:
    """How many tasks run at once, about."""
    return 2 if is_connect(spark) else max(1, spark.sparkContext.defaultParallelism)


def covers(one: KeyRange | Item, file: File) -> bool:
    """Whether a file has keys of a range."""
    of_file = key_ranges.range_of(file)
    return of_file.first <= one.last and one.first <= of_file.last


def _ranges(files: dict[str, list[File]], slots: Collection[int], messages: int, most: int) -> tuple[list[KeyRange], dict[str, list[File]]]:
    """The ranges of slots to write, each by one task, and the files that are replaced.

    A file is replaced by one task only: a new range lies within one old range, or covers whole ones.
    """
    by_range: dict[KeyRange, int] = {}
    for one in (file for each in files.values() for file in each):
        known = key_ranges.range_of(one)
        by_range[known] = by_range.get(known, 0) + one.rows
    if any(one != other and one.first <= other.last and other.first <= one.last for one in by_range for other in by_range):
        by_range = {KeyRange(0, SLOTS - 1): sum(by_range.values())}  # written before all tables had the same ranges
    planned = key_ranges.plan([File(key_ranges.name(one), 0, rows) for one, rows in by_range.items()], slots, messages, most)
    replaced = [key_ranges.range_of(file) for file in planned.removed]
    removed = {
        name: [file for file in each if any(one.first <= key_ranges.range_of(file).first <= one.last for one in replaced)]
        for name, each in files.items()
    }
    return planned.key_ranges, removed
