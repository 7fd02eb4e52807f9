"""The Python Data Source `wirelake.captured`: any table that is written where captures are decoded, straight from captures, without a lake.

```
register(spark)
spark.read.format("wirelake.captured").option("table", "emp").load("captures/")
```

What `frames.py` says of messages holds here, too: a packet capture is read by one task, and a connection that goes on in another file is
read from the first certain message there. The schema is the table's schema of record.

It refuses to keep anything, and to build what is built from tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.errors import UsageError
from wirelake.lake.decode.batches import Overflow
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.sources import options as sources_options
from wirelake.lake.sources.blocks import TaskGroup, share
from wirelake.lake.sources.messages import CaptureReader
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.schema import Table
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "CapturedSource"]

FORMAT: Final = "wirelake.captured"


class _Captured(CaptureReader):
    def __init__(self, options: dict[str, str], table: Table) -> None:
        super().__init__(options)
        self._table = table

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per share of the files."""
        return share(self.read_tasks(whole_captures=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of every file of a share."""
        assert isinstance(partition, TaskGroup)  # noqa: S101 - what `partitions` gave
        use_compiled()
        ports = sources_options.ports(self.options)
        for read_task in partition.read_tasks:
            known = {"ports": ports, "sniff": protocols.sniff, "dialect": protocols.dialect, "protocols": protocols.names()}
            with Overflow(self._table.name, self._table.schema) as overflow:
                decoder = Decoder(DecodeOptions(), sink=overflow.put)
                for block in read(read_task.source, split=read_task.split, **known):  # type: ignore[arg-type]  # the same names
                    yield from self._rows(overflow.take(decoder.feed(block)))
                yield from self._rows(overflow.take(decoder.finish()))

    def _rows(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            if batch.num_rows:
                yield from pa.Table.from_batches([batch]).cast(self._table.schema).to_batches()


class CapturedSource(DataSource):
    """`format("wirelake.captured")`; options `table` (its name) and `ports` (port -> protocol, as JSON)."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def _table(self) -> Table:
        named = {table.name: table for table in SILVER}
        if self.options.get("table") not in named:
            raise UsageError(f"say which table: .option('table', NAME) with one of {', '.join(named)}")
        return named[self.options["table"]]

    def schema(self) -> StructType:
        """The schema of record as Spark sees it."""
        return spark_schema(self._table())

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - the table says it
        """A reader for the paths in the options."""
        options = sources_options.known(self.name(), self.options, ("table", "ports"))
        sources_options.ports(options)
        return _Captured(options, self._table())
