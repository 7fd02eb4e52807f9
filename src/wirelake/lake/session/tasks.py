"""Run work items as Spark tasks: the one way in which work is submitted.

A DataFrame of numbers, one in each partition, goes through `mapInArrow`: that works in local mode, on a cluster and over Spark Connect.
What a task needs travels in the pickled function, and never in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wirelake.lake.session.errors import coded
from wirelake.lake.session.memory import freeze_before_task, give_back_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["at_most", "run_tasks"]

_RESULT: Final = pa.schema([pa.field("result", pa.binary())])
_most: Final[ContextVar[int | None]] = ContextVar("_most", default=None)
"""How many tasks of a job run at once; None: as many as there are."""


class _Task:
    """What runs in a Python worker."""

    def __init__(self, work: Callable[[int], bytes]) -> None:
        self._work = work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_before_task()
        give_back_memory()  # of tasks that decoded
        with coded():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield pa.RecordBatch.from_arrays([pa.array([self._work(number)], pa.binary())], schema=_RESULT)


@contextmanager
def at_most(tasks: int) -> Iterator[None]:
    """Let jobs of this thread run so many tasks at once at most: other jobs find free slots."""
    token = _most.set(tasks)
    try:
        yield
    finally:
        _most.reset(token)


def run_tasks(spark: SparkSession, work: Callable[[int], bytes], count: int) -> list[bytes]:
    """Call `work` with every number below `count`, each in a task of its own, and return the results in any order.

    Inside `at_most`, a task takes several numbers, one after the other.
    """
    if not count:
        return []
    most = _most.get()
    tasks = count if most is None else min(count, most)
    rows = spark.range(0, count, 1, tasks).mapInArrow(_Task(work), "result binary").collect()
    return [bytes(row["result"]) for row in rows]
