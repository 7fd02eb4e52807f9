"""The Python Data Source `wirelake.packets`: packets of captures, without a lake.

```
register(spark)
spark.read.format("wirelake.packets").load("captures/").where("destination_port = 5040")
```

A large file is read by several tasks. Filters on `ts` and on ports are applied while reading.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from wirelake.capture.blocks.from_packets import dissected
from wirelake.capture.blocks.read_file import walk_split
from wirelake.capture.containers.records import KIND, LINK, RECORD_PACKET, SIZE, START, TS, WIRE_SIZE
from wirelake.capture.containers.walk import Window
from wirelake.capture.files.source_file import open_source
from wirelake.capture.packets.dissect import (
    ACKNOWLEDGED,
    DESTINATION,
    DESTINATION_PORT,
    FLAGS,
    IS_OURS,
    PAYLOAD,
    PAYLOAD_SIZE,
    REASON,
    REASONS,
    SEQUENCE,
    SOURCE,
    SOURCE_PORT,
    TCP,
    TRANSPORT,
    WIDTH,
)
from wirelake.capture.packets.filter import PacketFilter
from wirelake.lake.sources import options as sources_options
from wirelake.lake.sources.blocks import TaskGroup, group_tasks
from wirelake.lake.sources.capture_reader import CaptureReader
from wirelake.lake.tables.schema import TIME, times
from wirelake.protocols.arrow import binary
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "PACKETS", "PacketSource"]

Array = np.ndarray[Any, Any]

FORMAT: Final = "wirelake.packets"

PACKETS: Final = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("ts", TIME),
        pa.field("link", pa.int32()),
        pa.field("size", pa.int64()),
        pa.field("wire_size", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("source_address", pa.string()),
        pa.field("source_port", pa.int32()),
        pa.field("destination_address", pa.string()),
        pa.field("destination_port", pa.int32()),
        pa.field("sequence", pa.int64()),
        pa.field("acknowledged", pa.int64()),
        pa.field("flags", pa.int32()),
        pa.field("payload", pa.binary()),
    ]
)
"""One row per packet: place in the file, time, kind, both ends, and payload.

The kind is `tcp`, `udp`, or why it is neither.
"""


class _Packets(CaptureReader):
    def partitions(self) -> Sequence[InputPartition]:
        """One partition per group of files and their splits."""
        return group_tasks(self.read_tasks(whole_captures=False))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the packets of every file of a partition."""
        assert isinstance(partition, TaskGroup)  # noqa: S101 - from `partitions`
        use_compiled()
        for read_task in partition.read_tasks:
            with open_source(read_task.source) as file:
                for step in walk_split(read_task.source, file, read_task.split).steps():
                    if isinstance(step, Window):
                        yield _packet_rows(read_task.source.path, step, self._interest)


def _packet_rows(path: str, step: Window, wanted: PacketFilter) -> pa.RecordBatch:
    """The packets of a window as rows."""
    records = step.rows[step.rows[:, KIND] == RECORD_PACKET]
    records = records[wanted.in_time(records[:, TS])]
    packets = dissected(step.data, records)
    ours = packets[:, REASON] == IS_OURS
    if wanted.ports is not None:
        ours &= wanted.on_ports(packets)
        records, packets, ours = records[ours], packets[ours], ours[ours]
    data = np.frombuffer(step.data, np.uint8)
    kinds = np.where(ours, np.where(packets[:, TRANSPORT] == TCP, 0, 1), packets[:, REASON] + 1)
    names = ("tcp", "udp", *REASONS[1:])
    columns: dict[str, pa.Array] = {
        "source": pa.array([path] * len(records), pa.string()),
        "offset": pa.array(step.base + records[:, START]),
        "ts": times(records[:, TS]),
        "link": pa.array(records[:, LINK].astype(np.int32)),
        "size": pa.array(records[:, SIZE]),
        "wire_size": pa.array(records[:, WIRE_SIZE]),
        "kind": pa.DictionaryArray.from_arrays(pa.array(kinds.astype(np.int32)), pa.array(names)).cast(pa.string()),
        "source_address": _addresses(step.data, packets[:, SOURCE], packets[:, WIDTH], ours),
        "source_port": pa.array(packets[:, SOURCE_PORT].astype(np.int32), mask=~ours),
        "destination_address": _addresses(step.data, packets[:, DESTINATION], packets[:, WIDTH], ours),
        "destination_port": pa.array(packets[:, DESTINATION_PORT].astype(np.int32), mask=~ours),
        "payload": binary(data, packets[:, PAYLOAD], packets[:, PAYLOAD_SIZE], ours).cast(pa.binary()),
    }
    is_tcp = ours & (packets[:, TRANSPORT] == TCP)
    for name, column in (("sequence", SEQUENCE), ("acknowledged", ACKNOWLEDGED), ("flags", FLAGS)):
        columns[name] = pa.array(packets[:, column].astype(PACKETS.field(name).type.to_pandas_dtype()), mask=~is_tcp)
    return pa.RecordBatch.from_arrays([columns[name] for name in PACKETS.names], schema=PACKETS)


def _addresses(data: bytes, starts: Array, widths: Array, valid: Array) -> pa.Array:
    """Addresses as text, each distinct one written once."""
    texts: dict[bytes, str] = {}
    texts_of: list[str | None] = []
    for start, width, good in zip(starts.tolist(), widths.tolist(), valid.tolist(), strict=True):
        raw = data[start : start + width] if good else b""
        if raw not in texts:
            texts[raw] = str(ipaddress.ip_address(raw)) if raw else ""
        texts_of.append(texts[raw] or None)
    return pa.array(texts_of, pa.string())


class PacketSource(DataSource):
    """`format("wirelake.packets")`: packets."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """`PACKETS` as Spark has it."""
        return from_arrow_schema(PACKETS)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """A reader for the paths in the options."""
        return _Packets(sources_options.known(self.name(), self.options, ()))
