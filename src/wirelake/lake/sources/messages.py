"""The Python Data Source `wirelake`: messages of captures as a DataFrame, without a lake.

```
register(spark)
spark.read.format("wirelake").option("protocol", "emp").load("captures/")
```

Several tasks may read a recording. One task reads a packet capture, because a data source has no shuffle to bring connections together.
A connection that continues in another file is read from the first certain message there. An ingest has neither limit.

Filters on `ts` and on ports are applied while reading: packets on other ports are not followed, later ones are not dissected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from wirelake import protocols
from wirelake.capture.blocks.block import Flow
from wirelake.capture.containers.records import NO_TIME
from wirelake.lake.sources import options as sources_options
from wirelake.lake.sources.blocks import TaskGroup, group_tasks
from wirelake.lake.sources.capture_reader import CaptureReader, decode_source
from wirelake.lake.tables import connections, messages
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "MESSAGES", "MessageSource"]

FORMAT: Final = "wirelake"

_ENDS: Final = ("transport", "client_address", "client_port", "server_address", "server_port")
MESSAGES: Final = pa.schema([*messages.TABLE.schema, *(connections.TABLE.schema.field(name) for name in _ENDS)]).remove_metadata()
"""The table `messages`, and the two ends of the connection."""


class _Messages(CaptureReader):
    def partitions(self) -> Sequence[InputPartition]:
        """One partition per group of files."""
        return group_tasks(self.read_tasks(whole_captures=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of every file of a partition."""
        assert isinstance(partition, TaskGroup)  # noqa: S101 - from `partitions`
        use_compiled()
        protocol = protocols.name_of(self.options["protocol"]) if "protocol" in self.options else None
        ports = sources_options.ports(self.options)
        for read_task in partition.read_tasks:
            ends: dict[bytes, tuple[Any, ...]] = {}
            for flows, batches in decode_source(read_task, messages.TABLE, ports, self._interest):
                yield from self._rows(flows, ends, batches, protocol)

    def _rows(
        self, flows: Sequence[Flow], ends: dict[bytes, tuple[Any, ...]], batches: Iterable[pa.RecordBatch], protocol: str | None
    ) -> Iterator[pa.RecordBatch]:
        for flow in flows:
            both = (flow.transport, flow.client.address, flow.client.port, flow.server.address, flow.server.port)
            ends.setdefault(flow.session_id, both)
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            rows = rows.filter(pc.equal(rows["protocol"].cast(pa.string()), protocol)) if protocol else rows
            rows = rows.filter(pa.array(self._interest.in_time(rows["ts"].cast(pa.int64()).fill_null(NO_TIME).to_numpy())))
            if len(rows):
                columns = list(zip(*(ends[name] for name in rows["connection_id"].cast(pa.binary()).to_pylist()), strict=True))
                for name, values in zip(_ENDS, columns, strict=True):
                    rows = rows.append_column(name, pa.array(values, MESSAGES.field(name).type))
                yield from rows.cast(MESSAGES).to_batches()


class MessageSource(DataSource):
    """The data source `format("wirelake")`: messages of captures, without a lake.

    Options are `protocol` (one; else all) and `ports` (port -> protocol, as JSON).
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """`MESSAGES` as Spark has it."""
        return from_arrow_schema(MESSAGES)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """A reader for the paths in the options."""
        options = sources_options.known(self.name(), self.options, ("protocol", "ports"))
        sources_options.ports(options)
        if "protocol" in options:
            protocols.name_of(options["protocol"])
        return _Messages(options)
