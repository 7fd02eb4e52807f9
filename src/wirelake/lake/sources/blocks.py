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
from wirelake.capture.blocks.packet_batch import Parcel
from wirelake.capture.blocks.read_split import Dealt, Work, ship, spoil
from wirelake.capture.blocks.transfer import SCHEMA, to_batches
from wirelake.errors import LakeError
from wirelake.lake.decode.scan import stands_alone
from wirelake.lake.jobs import failures
from wirelake.lake.jobs.failures import Code, Failure
from wirelake.lake.sources.plan import Plan
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "NOT_ALONE", "PARTITION_BYTES", "BlockReader", "BlockSource", "Share", "blocks", "share"]

FORMAT: Final = "wirelake.blocks"

PARTITION_BYTES: Final = 64 * 1024 * 1024
"""Small works are read by one task until they come to this much."""

COMPILED_BYTES: Final = 4 * 1024 * 1024
"""From this much on, compiling what finds records and packets is worth its start-up."""

NOT_ALONE: Final = "not all of it can be decoded where it is read"
"""What a task says of a source whose beginning looked as if it could be."""

_PLAIN: Final = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
"""Blocks as Spark hands them on: it takes every column of a data source for nullable."""


class Share(InputPartition):
    """What one task reads: works, one after the other."""

    def __init__(self, works: tuple[Work, ...]) -> None:
        super().__init__(None)
        self.works = works


def share(works: Iterable[Work], limit: int = PARTITION_BYTES) -> list[Share]:
    """Largest first, each into the first share it fits, so that no task waits long for the last one."""
    shares: list[tuple[int, list[Work]]] = []
    for work in sorted(works, key=lambda work: (-work.size, work.rank, work.split.begin)):
        for index, (size, members) in enumerate(shares):
            if size + work.size <= limit:
                members.append(work)
                shares[index] = (size + work.size, members)
                break
        else:
            shares.append((work.size, [work]))
    return [Share(tuple(members)) for _, members in shares]


class BlockReader(DataSourceReader):
    """Reads on executors what was planned; with `buckets`, what must be is dealt by connection; else all is decoded there."""

    def __init__(self, works: Sequence[Work], ports: dict[int, str], buckets: int, failures_at: Path | None = None) -> None:
        self._works = tuple(works)
        self._ports = ports
        self._buckets = buckets
        self._failures_at = failures_at

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per share of the works."""
        return share(self._works)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of every work of a share, each from its first to its last."""
        if not isinstance(partition, Share):
            raise TypeError(f"expected a Share, got {type(partition).__name__}")
        if sum(work.size for work in partition.works) >= COMPILED_BYTES:
            use_compiled()
        for work in partition.works:
            with failures.noted(self._failures_at, lambda: [work.source]):  # noqa: B023 - it is called before the next
                for batch in to_batches(self._items(work), self._buckets):
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=_PLAIN)

    def _items(self, work: Work) -> Iterator[Parcel | Dealt | Block]:
        if work.spoilt:
            return spoil(work)
        if self._buckets:
            return ship(work, buckets=self._buckets, ports=self._ports, protocols=protocols.ROOMS, dealt=protocols.ROOMS)
        return self._alone(work)

    def _alone(self, work: Work) -> Iterator[Block]:
        """Blocks that need nothing of others; a source that only began like that must be dealt after all."""
        known = {"ports": self._ports, "sniff": protocols.sniff, "dialect": protocols.dialect, "protocols": protocols.ROOMS}
        for block in read_file.read(work.source, split=work.split, **known):  # type: ignore[arg-type]  # the same names
            if not all(map(stands_alone, block.flows)):
                failures.note(self._failures_at, Failure(Code.NOT_ALONE, [block.source], NOT_ALONE))
                raise LakeError(f"{block.source.path}: {NOT_ALONE}")
            block.spans = [msgspec.structs.replace(work.spans[-1], mark=block.all_spans()[-1].mark)]
            yield block


class BlockSource(DataSource):
    """`spark.read.format("wirelake.blocks")`; options `works` and `ports` as JSON, `buckets`, and a folder `failures`."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """The Arrow schema of shipments as Spark sees it."""
        return from_arrow_schema(_PLAIN)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """A reader for exactly the works in the options."""
        works = msgspec.json.decode(self.options["works"], type=list[Work])
        ports = msgspec.json.decode(self.options["ports"], type=dict[int, str])
        return BlockReader(works, ports, int(self.options["buckets"]), Path(self.options["failures"]))


def blocks(spark: SparkSession, plan: Plan, ports: dict[int, str], failures_at: Path) -> DataFrame:
    """All that a plan says is to be read: what is decoded where it is read, and what was dealt, by bucket and in order.

    Tasks write down in a folder what they cannot read.
    """
    spark.dataSource.register(BlockSource)

    def load(works: list[Work], buckets: int) -> DataFrame:
        told = {"works": _json(works), "ports": _json(ports), "buckets": str(buckets), "failures": str(failures_at)}
        return spark.read.format(FORMAT).options(**told).load()

    frames = [load(plan.direct, 0)] if plan.direct else []
    if plan.dealt:
        dealt = load(plan.dealt, plan.buckets).repartitionById(plan.buckets, sql.col("bucket"))
        frames.append(dealt.sortWithinPartitions("rank", "place"))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _json(value: object) -> str:
    """What a data source's option can carry."""
    return msgspec.json.encode(value).decode()
