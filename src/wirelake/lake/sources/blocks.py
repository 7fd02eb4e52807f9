"""The Python Data Source `wirelake.blocks`: capture files in; out come blocks and parcels, a few large rows that carry bytes.

The driver plans (`planning.py`), the executors read. A partition is a list of works, each a file or a split of one: small ones share a
partition until it is large enough to be worth a task.

It refuses to know formats and protocols: `wirelake.capture` reads, and `wirelake.protocols` says what first bytes look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from wirelake import protocols
from wirelake.capture.blocks import read_file
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.capture.blocks.read_split import Partitioned, ReadTask, quarantine, read_split
from wirelake.capture.blocks.transfer import SCHEMA, to_batches
from wirelake.errors import LakeError
from wirelake.lake.decode.scan import is_self_contained
from wirelake.lake.sources import failures
from wirelake.lake.sources.failures import Code, Failure
from wirelake.lake.sources.plan import Plan
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "NOT_ALONE", "PARTITION_BYTES", "BlockReader", "BlockSource", "TaskGroup", "blocks", "share"]

FORMAT: Final = "wirelake.blocks"

PARTITION_BYTES: Final = 64 * 1024 * 1024
"""Small works are read by one task until they come to this much."""

COMPILED_BYTES: Final = 4 * 1024 * 1024
"""From this much on, compiling what finds records and packets is worth its start-up."""

NOT_ALONE: Final = "not all of it can be decoded where it is read"
"""What a task says of a source whose beginning looked as if it could be."""

_PLAIN: Final = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
"""Blocks as Spark hands them on: it takes every column of a data source for nullable."""


class TaskGroup(InputPartition):
    """What one task reads: works, one after the other."""

    def __init__(self, read_tasks: tuple[ReadTask, ...]) -> None:
        super().__init__(None)
        self.read_tasks = read_tasks


def share(read_tasks: Iterable[ReadTask], limit: int = PARTITION_BYTES) -> list[TaskGroup]:
    """Largest first, each into the first share it fits, so that no task waits long for the last one."""
    task_groups: list[tuple[int, list[ReadTask]]] = []
    for read_task in sorted(read_tasks, key=lambda read_task: (-read_task.size, read_task.rank, read_task.split.begin)):
        for index, (size, members) in enumerate(task_groups):
            if size + read_task.size <= limit:
                members.append(read_task)
                task_groups[index] = (size + read_task.size, members)
                break
        else:
            task_groups.append((read_task.size, [read_task]))
    return [TaskGroup(tuple(members)) for _, members in task_groups]


class BlockReader(DataSourceReader):
    """Reads on executors what was planned; with `buckets`, what must be is dealt by connection; else all is decoded there."""

    def __init__(self, read_tasks: Sequence[ReadTask], ports: dict[int, str], buckets: int, failures_at: Path | None = None) -> None:
        self._works = tuple(read_tasks)
        self._ports = ports
        self._buckets = buckets
        self._failures_at = failures_at

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per share of the works."""
        return share(self._works)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of every work of a share, each from its first to its last."""
        if not isinstance(partition, TaskGroup):
            raise TypeError(f"expected a Share, got {type(partition).__name__}")
        if sum(read_task.size for read_task in partition.read_tasks) >= COMPILED_BYTES:
            use_compiled()
        for read_task in partition.read_tasks:
            with failures.noted(self._failures_at, lambda: [read_task.source]):  # noqa: B023 - it is called before the next
                for batch in to_batches(self._items(read_task), self._buckets):
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=_PLAIN)

    def _items(self, read_task: ReadTask) -> Iterator[PacketBatch | Partitioned | Block]:
        if read_task.spoilt:
            return quarantine(read_task)
        if self._buckets:
            return read_split(
                read_task, buckets=self._buckets, ports=self._ports, protocols=protocols.names(), partitioned=protocols.names()
            )
        return self._alone(read_task)

    def _alone(self, read_task: ReadTask) -> Iterator[Block]:
        """Blocks that need nothing of others; a source that only began like that must be dealt after all."""
        known = {"ports": self._ports, "sniff": protocols.sniff, "dialect": protocols.dialect, "protocols": protocols.names()}
        for block in read_file.read(read_task.source, split=read_task.split, **known):  # type: ignore[arg-type]  # the same names
            if not all(map(is_self_contained, block.flows)):
                failures.note(self._failures_at, Failure(Code.NOT_ALONE, [block.source], NOT_ALONE))
                raise LakeError(f"{block.source.path}: {NOT_ALONE}")
            block.spans = [msgspec.structs.replace(read_task.spans[-1], mark=block.all_spans()[-1].mark)]
            yield block


class BlockSource(DataSource):
    """`spark.read.format("wirelake.blocks")`; options `read_tasks` and `ports` as JSON, `buckets`, and a folder `failures`."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """The Arrow schema of shipments as Spark sees it."""
        return from_arrow_schema(_PLAIN)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """A reader for exactly the works in the options."""
        read_tasks = msgspec.json.decode(self.options["read_tasks"], type=list[ReadTask])
        ports = msgspec.json.decode(self.options["ports"], type=dict[int, str])
        return BlockReader(read_tasks, ports, int(self.options["buckets"]), Path(self.options["failures"]))


def blocks(spark: SparkSession, plan: Plan, ports: dict[int, str], failures_at: Path) -> DataFrame:
    """All that a plan says is to be read: what is decoded where it is read, and what was dealt, by bucket and in order.

    Tasks write down in a folder what they cannot read.
    """
    spark.dataSource.register(BlockSource)

    def load(read_tasks: list[ReadTask], buckets: int) -> DataFrame:
        told = {"read_tasks": _json(read_tasks), "ports": _json(ports), "buckets": str(buckets), "failures": str(failures_at)}
        return spark.read.format(FORMAT).options(**told).load()

    frames = [load(plan.direct, 0)] if plan.direct else []
    if plan.partitioned:
        partitioned = load(plan.partitioned, plan.buckets).repartitionById(plan.buckets, sql.col("bucket"))
        frames.append(partitioned.sortWithinPartitions("rank", "place"))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _json(value: object) -> str:
    """What a data source's option can carry."""
    return msgspec.json.encode(value).decode()
