"""Run work items as Spark tasks: the one way in which work is submitted.

A DataFrame of numbers, one in each partition, goes through `mapInArrow`: that works in local mode, on a cluster and over Spark Connect.
What a task needs travels in the pickled function, and never in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from wirelake.lake.session.errors import coded

__all__ = ["run_tasks"]

_RESULT: Final = pa.schema([pa.field("result", pa.binary())])


class _Task:
    """What runs in a Python worker."""

    def __init__(self, work: Callable[[int], bytes]) -> None:
        self._work = work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with coded():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield pa.RecordBatch.from_arrays([pa.array([self._work(number)], pa.binary())], schema=_RESULT)


def run_tasks(spark: SparkSession, work: Callable[[int], bytes], count: int) -> list[bytes]:
    """Call `work` with every number below `count`, each in a task of its own, and return the results in any order."""
    if not count:
        return []
    rows = spark.range(0, count, 1, count).mapInArrow(_Task(work), "result binary").collect()
    return [bytes(row["result"]) for row in rows]
