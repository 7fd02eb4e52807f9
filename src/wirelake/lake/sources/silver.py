"""The Python Data Source `wirelake.captured`: a silver table from captures, without a lake.

```
register(spark)
spark.read.format("wirelake.captured").option("table", "emp").load("captures/")
```

As in `messages.py`, one task reads a packet capture, and a connection that continues in another file is read from the first certain message
there. The schema is the table's schema of record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from wirelake.errors import UsageError
from wirelake.lake.sources import options as sources_options
from wirelake.lake.sources.blocks import TaskGroup, group_tasks
from wirelake.lake.sources.capture_reader import CaptureReader, decode_source
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
        """One partition per group of files."""
        return group_tasks(self.read_tasks(whole_captures=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of every file of a partition."""
        assert isinstance(partition, TaskGroup)  # noqa: S101 - from `partitions`
        use_compiled()
        ports = sources_options.ports(self.options)
        for read_task in partition.read_tasks:
            for _, batches in decode_source(read_task, self._table, ports):
                for batch in batches:
                    if batch.num_rows:
                        yield from pa.Table.from_batches([batch]).cast(self._table.schema).to_batches()


class CapturedSource(DataSource):
    """`format("wirelake.captured")`; options `table` (its name) and `ports` (port -> protocol, as JSON)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def _table(self) -> Table:
        named = {table.name: table for table in SILVER}
        if self.options.get("table") not in named:
            raise UsageError(f"no such table: give .option('table', NAME), with one of {', '.join(named)}")
        return named[self.options["table"]]

    def schema(self) -> StructType:
        """The schema of record as Spark has it."""
        return spark_schema(self._table())

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - the table has it
        """A reader for the paths in the options."""
        options = sources_options.known(self.name(), self.options, ("table", "ports"))
        sources_options.ports(options)
        return _Captured(options, self._table())
