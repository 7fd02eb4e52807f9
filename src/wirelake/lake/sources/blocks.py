"""Read captures as blocks and packet batches, in tasks of Spark.

Each is one large row. The driver plans (`plan.py`), executors read. A partition is a group of read tasks, each a file or a split of one.
Small ones share a partition until it is large enough to be worth a Spark task.

Each reading task decides for every block whether its connections can be decoded in place; see `plan.needs_shuffle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from wirelake import protocols
from wirelake.capture.blocks import read_file
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.capture.blocks.read_split import Partitioned, ReadTask, quarantine, read_split
from wirelake.capture.blocks.transfer import SCHEMA, to_batches
from wirelake.errors import ErrorCode
from wirelake.lake.session.errors import coded
from wirelake.lake.sources import failures
from wirelake.lake.sources.failures import Failure
from wirelake.lake.sources.plan import needs_shuffle
from wirelake.lake.sources.warm_up import COMPILED_BYTES
from wirelake.protocols.kernel import use_compiled

__all__ = ["NULLABLE", "PARTITION_BYTES", "BlockReader", "TaskGroup", "group_tasks"]

PARTITION_BYTES: Final = 64 * 1024 * 1024
"""Small read tasks share a partition up to this size."""

NULLABLE: Final = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
"""The schema as Spark has it: every column of a DataFrame is nullable."""


class TaskGroup(InputPartition):
    """A partition: read tasks for one Spark task, one after the other."""

    def __init__(self, read_tasks: tuple[ReadTask, ...]) -> None:
        super().__init__(None)
        self.read_tasks = read_tasks


def group_tasks(read_tasks: Iterable[ReadTask], limit: int = PARTITION_BYTES) -> list[TaskGroup]:
    """Pack read tasks into partitions: largest first, each into the first that has space.

    So no Spark task is late by much.
    """
    groups: list[tuple[int, list[ReadTask]]] = []
    for read_task in sorted(read_tasks, key=lambda read_task: (-read_task.size, read_task.rank, read_task.split.begin)):
        for index, (size, members) in enumerate(groups):
            if size + read_task.size <= limit:
                members.append(read_task)
                groups[index] = (size + read_task.size, members)
                break
        else:
            groups.append((read_task.size, [read_task]))
    return [TaskGroup(tuple(members)) for _, members in groups]


class BlockReader(DataSourceReader):
    """Reads on executors.

    With `buckets`, all connections are partitioned into so many; without, blocks are decoded in place.
    """

    def __init__(
        self, read_tasks: Sequence[ReadTask], ports: dict[int, str], buckets: int, notes: Path | None = None, *, plain: bool = False
    ) -> None:
        """`notes` is the folder for notes of failures. With `plain`, tasks read without Numba, whatever their size."""
        self._read_tasks = tuple(read_tasks)
        self._ports = ports
        self._buckets = buckets
        self._notes = notes
        self._plain = plain

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per group of read tasks."""
        return group_tasks(self._read_tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of every read task of a partition, each in the order of its source."""
        if not isinstance(partition, TaskGroup):
            raise TypeError(f"internal error: expected a TaskGroup, got {type(partition).__name__}")
        if not self._plain and sum(read_task.size for read_task in partition.read_tasks) >= COMPILED_BYTES:
            use_compiled()
        for read_task in partition.read_tasks:
            with coded(), failures.guard(self._notes, lambda: [read_task.source]):  # noqa: B023 - it is called before the next
                for batch in to_batches(self._items(read_task), self._buckets):
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=NULLABLE)

    def _items(self, read_task: ReadTask) -> Iterator[PacketBatch | Partitioned | Block]:
        if read_task.spoilt:
            return quarantine(read_task)
        if self._buckets:
            return read_split(
                read_task, buckets=self._buckets, ports=self._ports, protocols=protocols.names(), partitioned=protocols.names()
            )
        return self._in_place(read_task)

    def _in_place(self, read_task: ReadTask) -> Iterator[Block]:
        """Yield blocks that this task's own writer decodes.

        The plan saw only the beginning of the source. A later block that needs a shuffle ends the attempt; the driver retries with one.
        """
        known = {"ports": self._ports, "sniff": protocols.sniff, "dialect": protocols.dialect, "protocols": protocols.names()}
        for block in read_file.read(read_task.source, split=read_task.split, **known):  # type: ignore[arg-type]  # the same names
            if needs_shuffle(block.flows):
                reason = "not all of it can be decoded by the task that reads it"
                raise failures.fail(self._notes, Failure(ErrorCode.NEEDS_SHUFFLE, [block.source], reason))
            block.spans = [msgspec.structs.replace(read_task.spans[-1], mark=block.all_spans()[-1].mark)]
            yield block
