"""Shared by data sources without a lake: paths, filters, planning, decoding of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter

from wirelake import protocols
from wirelake.capture.blocks.block import Flow
from wirelake.capture.blocks.read_file import read
from wirelake.capture.blocks.read_split import ReadTask, read_tasks
from wirelake.capture.files.identity import identify
from wirelake.capture.packets.filter import EVERYTHING, PacketFilter
from wirelake.errors import UsageError
from wirelake.lake.decode.batches import Overflow
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.pipeline import decode
from wirelake.lake.sources import plan as sources_plan
from wirelake.lake.sources.filters import interest
from wirelake.lake.sources.paths import expand
from wirelake.lake.tables.schema import Table

__all__ = ["CaptureReader", "TableRows", "decode_source"]


class CaptureReader(DataSourceReader):
    """Plans on the driver, takes filters, reads on executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._interest = EVERYTHING

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that can be applied while reading, and return the others."""
        self._interest, left = interest(filters)
        return left

    def _paths(self) -> list[str]:
        if "paths" in self.options:  # several paths reach a data source as JSON
            return msgspec.json.decode(self.options["paths"], type=list[str])
        if "path" not in self.options:
            raise UsageError("no path to read: give one, as in load('captures/')")
        return [self.options["path"]]

    def read_tasks(self, *, whole_captures: bool) -> list[ReadTask]:
        """Plan the reading.

        With `whole_captures`, one task reads a whole packet capture, to follow connections through it.
        """
        sources = [identify(path) for path in expand(self._paths())]
        plan = sources_plan.plan(sources, lambda cuts: list(map(sources_plan.guess_here, cuts)), 1)
        if not whole_captures:
            return [*plan.direct, *plan.partitioned]
        captures = {read_task.source.id: read_task.source for read_task in plan.partitioned}
        return [*plan.direct, *(read_task for source in captures.values() for read_task in read_tasks(source, []))]


class TableRows(NamedTuple):
    """Rows of one table from one block of a source."""

    flows: Sequence[Flow]
    """The connections of the block."""
    batches: Iterator[pa.RecordBatch]
    """To be consumed before the next block."""


def decode_source(read_task: ReadTask, table: Table, ports: dict[int, str], wanted: PacketFilter = EVERYTHING) -> Iterator[TableRows]:
    """Read and decode one source, and yield its rows of one table in order."""
    known = {"ports": ports, "sniff": protocols.sniff, "dialect": protocols.dialect, "protocols": protocols.names()}
    blocks = read(read_task.source, split=read_task.split, packet_filter=wanted, **known)  # type: ignore[arg-type]  # the same names
    with Overflow(table.name, table.schema) as overflow:
        for decoded in decode(blocks, Decoder(DecodeOptions(), sink=overflow.put)):
            yield TableRows(decoded.flows, overflow.take(decoded.rows))
