"""A session that runs tasks in this process, one after the other: jobs run whole, without a JVM.

It has what jobs ask of a session for recordings that are decoded where they are read, and for gold tables of few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

Task = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class _Frame:
    def __init__(self, partitions: list[list[pa.RecordBatch]]) -> None:
        self._partitions = partitions

    def mapInArrow(self, task: Task, _schema: str) -> _Frame:  # noqa: N802 - Spark's name
        return _Frame([list(task(iter(batches))) for batches in self._partitions])

    def collect(self) -> list[dict[str, Any]]:
        return [row for batches in self._partitions for batch in batches for row in batch.to_pylist()]


class _Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


class LocalSpark:
    """Stands in for a session."""

    def __init__(self) -> None:
        self.conf = _Conf()
        tracker = SimpleNamespace(getActiveStageIds=tuple, getStageInfo=lambda stage: None)
        self.sparkContext = SimpleNamespace(
            master="local[2]",
            defaultParallelism=2,
            addJobTag=lambda tag: None,
            removeJobTag=lambda tag: None,
            cancelJobsWithTag=lambda tag: None,
            statusTracker=lambda: tracker,
        )

    def createDataFrame(self, _rows: object, _schema: object) -> None:  # noqa: N802 - Spark's name
        pass

    def range(self, start: int, end: int, _step: int, partitions: int) -> _Frame:
        numbers = list(range(start, end))
        parts = [numbers[len(numbers) * at // partitions : len(numbers) * (at + 1) // partitions] for at in range(partitions)]
        return _Frame([[pa.RecordBatch.from_pydict({"id": pa.array(part, pa.int64())})] for part in parts])
