"""The Python Data Source `wirelake.blocks`: capture files in, blocks out, a few large rows that carry bytes.

The driver plans, the executors read. A partition is a list of whole sources: small files share one until it is large enough to be
worth a task, a large file has one of its own. Splitting one large file would happen in `plan`, by giving a `Share` a range.

It refuses to know formats and protocols: `wirelake.capture` reads, and `wirelake.protocols` says what first bytes look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from wirelake import protocols
from wirelake.capture import reader
from wirelake.capture.blocks import SCHEMA, Source, to_batch
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "PARTITION_BYTES", "BlockSource", "Share", "plan"]

FORMAT: Final = "wirelake.blocks"

PARTITION_BYTES: Final = 64 * 1024 * 1024
"""Small sources are read by one task until they come to this much."""

COMPILED_BYTES: Final = 4 * 1024 * 1024
"""From this much on, compiling what finds records and packets is worth its start-up."""

_PLAIN: Final = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
"""Blocks as Spark hands them on: it takes every column of a data source for nullable."""


class Share(InputPartition):
    """What one task reads: whole sources, one after the other."""

    def __init__(self, sources: tuple[Source, ...]) -> None:
        super().__init__(None)
        self.sources = sources


def plan(sources: Iterable[Source], limit: int = PARTITION_BYTES) -> list[Share]:
    """Largest first, each into the first share it fits, so that no task waits long for the last one."""
    shares: list[tuple[int, list[Source]]] = []
    for source in sorted(sources, key=lambda source: (-source.size, source.path)):
        for index, (size, members) in enumerate(shares):
            if size + source.size <= limit:
                members.append(source)
                shares[index] = (size + source.size, members)
                break
        else:
            shares.append((source.size, [source]))
    return [Share(tuple(members)) for _, members in shares]


class BlockReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, sources: Sequence[Source], ports: dict[int, str]) -> None:
        self._sources = tuple(sources)
        self._ports = ports

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per share of the sources."""
        return plan(self._sources)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The blocks of every source of a share, each source from its first block to its last."""
        if not isinstance(partition, Share):
            raise TypeError(f"expected a Share, got {type(partition).__name__}")
        if sum(source.size for source in partition.sources) >= COMPILED_BYTES:
            use_compiled()
        for source in partition.sources:
            for block in reader.read(source, ports=self._ports, sniff=protocols.sniff, protocols=protocols.ROOMS):
                yield pa.RecordBatch.from_arrays(to_batch(block).columns, schema=_PLAIN)


class BlockSource(DataSource):
    """`spark.read.format("wirelake.blocks")`; options `sources` (list of `Source`) and `ports` (port -> protocol), both as JSON."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """The Arrow schema of blocks as Spark sees it."""
        return from_arrow_schema(_PLAIN)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """A reader for exactly the sources in the options."""
        sources = msgspec.json.decode(self.options["sources"], type=list[Source])
        return BlockReader(sources, msgspec.json.decode(self.options["ports"], type=dict[int, str]))
