"""Captures as DataFrames, without a lake: `format("wirelake")` gives messages, `format("wirelake.packets")` gives packets.

```
register(spark)
spark.read.format("wirelake").option("protocol", "emp").load("captures/")
spark.read.format("wirelake.packets").load("captures/").where("destination_port = 5040")
```

Messages: a recording may be read by several tasks, a packet capture by one, because a data source cannot bring connections together from
several; a connection that goes on in another file is read from the first certain message there. An ingest has neither limit. Filters on
`ts` and on ports are applied while reading: packets on other ports are not followed, and what is too late is not looked at.

It refuses to keep anything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from wirelake import protocols
from wirelake.capture.blocks.block import Flow
from wirelake.capture.blocks.from_packets import dissected
from wirelake.capture.blocks.read_file import read, walk_split
from wirelake.capture.blocks.read_split import ReadTask, read_tasks
from wirelake.capture.containers.records import KIND, LINK, NO_TIME, RECORD_PACKET, SIZE, START, TS, WIRE_SIZE
from wirelake.capture.containers.walk import Window
from wirelake.capture.files.identity import identify
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
from wirelake.capture.packets.filter import EVERYTHING, PacketFilter
from wirelake.errors import UsageError
from wirelake.lake.decode.batches import Overflow
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.sources import options as sources_options
from wirelake.lake.sources import plan as sources_plan
from wirelake.lake.sources.blocks import TaskGroup, share
from wirelake.lake.sources.filters import interest
from wirelake.lake.sources.paths import expand
from wirelake.lake.tables import connections, messages
from wirelake.lake.tables.schema import TIME, times
from wirelake.protocols.arrow import binary
from wirelake.protocols.kernel import use_compiled

__all__ = ["MESSAGES", "PACKETS", "CaptureReader", "MessageSource", "PacketSource"]

Array = np.ndarray[Any, Any]

_ENDS: Final = ("transport", "client_address", "client_port", "server_address", "server_port")
MESSAGES: Final = pa.schema([*messages.TABLE.schema, *(connections.TABLE.schema.field(name) for name in _ENDS)]).remove_metadata()
"""The table `messages`, and the two ends of the connection."""

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
"""One row per packet: where it is, when it was seen, what it is (`tcp`, `udp`, or why it is neither), its ends, and what it carries."""


class CaptureReader(DataSourceReader):
    """Plans on the driver, takes filters, reads on executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._interest = EVERYTHING

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what can be applied while reading."""
        self._interest, left = interest(filters)
        return left

    def _paths(self) -> list[str]:
        if "paths" in self.options:  # several paths reach a data source as JSON
            return msgspec.json.decode(self.options["paths"], type=list[str])
        if "path" not in self.options:
            raise UsageError("say what to read: load('captures/')")
        return [self.options["path"]]

    def read_tasks(self, *, whole_captures: bool) -> list[ReadTask]:
        """What there is to read; a capture is in one piece if connections are to be followed through it."""
        sources = [identify(path) for path in expand(self._paths())]
        plan = sources_plan.plan(sources, lambda cuts: list(map(sources_plan.guess_here, cuts)), 1)
        if not whole_captures:
            return [*plan.direct, *plan.partitioned]
        captures = {read_task.source.id: read_task.source for read_task in plan.partitioned}
        return [*plan.direct, *(read_task for source in captures.values() for read_task in read_tasks(source, []))]


class _Messages(CaptureReader):
    def partitions(self) -> Sequence[InputPartition]:
        """One partition per share of the files."""
        return share(self.read_tasks(whole_captures=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Messages of every file of a share."""
        assert isinstance(partition, TaskGroup)  # noqa: S101 - what `partitions` gave
        use_compiled()
        chosen = protocols.name_of(self.options["protocol"]) if "protocol" in self.options else None
        ports = sources_options.ports(self.options)
        for read_task in partition.read_tasks:
            ends: dict[bytes, tuple[Any, ...]] = {}
            known = {"ports": ports, "sniff": protocols.sniff, "dialect": protocols.dialect, "protocols": protocols.names()}
            with Overflow(messages.TABLE.name, messages.TABLE.schema) as overflow:
                decoder = Decoder(DecodeOptions(), sink=overflow.put)
                for block in read(read_task.source, split=read_task.split, packet_filter=self._interest, **known):  # type: ignore[arg-type]  # the same names
                    yield from self._rows(block.flows, ends, overflow.take(decoder.feed(block)), chosen)
                yield from self._rows([], ends, overflow.take(decoder.finish()), chosen)

    def _rows(
        self, flows: list[Flow], ends: dict[bytes, tuple[Any, ...]], found: Iterable[pa.RecordBatch], chosen: str | None
    ) -> Iterator[pa.RecordBatch]:
        for flow in flows:
            told = (flow.transport, flow.client.address, flow.client.port, flow.server.address, flow.server.port)
            ends.setdefault(flow.session_id, told)
        for batch in found:
            rows = pa.Table.from_batches([batch])
            rows = rows.filter(pc.equal(rows["protocol"].cast(pa.string()), chosen)) if chosen else rows
            rows = rows.filter(pa.array(self._interest.in_time(rows["ts"].cast(pa.int64()).fill_null(NO_TIME).to_numpy())))
            if len(rows):
                columns = list(zip(*(ends[name] for name in rows["connection_id"].cast(pa.binary()).to_pylist()), strict=True))
                for name, values in zip(_ENDS, columns, strict=True):
                    rows = rows.append_column(name, pa.array(values, MESSAGES.field(name).type))
                yield from rows.cast(MESSAGES).to_batches()


class _Packets(CaptureReader):
    def partitions(self) -> Sequence[InputPartition]:
        """One partition per share of the files and their splits."""
        return share(self.read_tasks(whole_captures=False))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Packets of every file of a share."""
        assert isinstance(partition, TaskGroup)  # noqa: S101 - what `partitions` gave
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
    given: dict[str, pa.Array] = {
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
        given[name] = pa.array(packets[:, column].astype(PACKETS.field(name).type.to_pandas_dtype()), mask=~is_tcp)
    return pa.RecordBatch.from_arrays([given[name] for name in PACKETS.names], schema=PACKETS)


def _addresses(data: bytes, starts: Array, widths: Array, valid: Array) -> pa.Array:
    """Addresses as text, each distinct one written once."""
    texts: dict[bytes, str] = {}
    found: list[str | None] = []
    for start, width, good in zip(starts.tolist(), widths.tolist(), valid.tolist(), strict=True):
        raw = data[start : start + width] if good else b""
        if raw not in texts:
            texts[raw] = str(ipaddress.ip_address(raw)) if raw else ""
        found.append(texts[raw] or None)
    return pa.array(found, pa.string())


class MessageSource(DataSource):
    """`format("wirelake")`: messages; options `protocol` (one; else all) and `ports` (port -> protocol, as JSON)."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return "wirelake"

    def schema(self) -> StructType:
        """`MESSAGES` as Spark sees it."""
        return from_arrow_schema(MESSAGES)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """A reader for the paths in the options."""
        options = sources_options.known(self.name(), self.options, ("protocol", "ports"))
        sources_options.ports(options)
        if "protocol" in options:
            protocols.name_of(options["protocol"])
        return _Messages(options)


class PacketSource(DataSource):
    """`format("wirelake.packets")`: packets."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return "wirelake.packets"

    def schema(self) -> StructType:
        """`PACKETS` as Spark sees it."""
        return from_arrow_schema(PACKETS)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """A reader for the paths in the options."""
        return _Packets(sources_options.known(self.name(), self.options, ()))
