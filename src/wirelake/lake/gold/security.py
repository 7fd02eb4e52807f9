"""Build `security` from DataFrames: the same judgement as in a lake, behind a shuffle.

All captures of a packet come together in one partition, with what was known of it before. Packets cross into Python here, which costs more
than in the tasks of a lake: they read Parquet themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.errors import UsageError
from wirelake.lake.gold.fold.security import (
    BEFORE_COLUMNS,
    CONNECTION_COLUMNS,
    PACKET_COLUMNS,
    PROTOCOL,
    QUARANTINE_COLUMNS,
    THREATENING,
    VIOLATION_COLUMNS,
    PacketFold,
    ends_of,
    threat_rows,
    unreadable_rows,
)
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables.security import TABLE
from wirelake.protocols.event_mesh.security.trust import Trust

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore

__all__ = ["INPUTS", "TABLE", "build"]

INPUTS: Final = (PROTOCOL, "connections", "quarantine", "violations")

_HELD_ROWS: Final = 50_000
"""Rows of a partition that are judged together, at least: as many as there are of whole packets."""
_ENDS: Final = "connection_id binary, client string, server string, observer_kind string"
_PACKET, _BEFORE, _UNREADABLE, _THREAT = "packet", "before", "unreadable", "threat"
"""Where a row comes from, and the name of the struct that has it."""
_KEY: Final = ("node_id", "packet_id")


def build(
    event_mesh: DataFrame,
    connections: DataFrame,
    quarantine: DataFrame,
    violations: DataFrame,
    *,
    before: DataFrame,
    keys: TrustStore | None = None,
    freshness: bool = True,
) -> DataFrame:
    """All packets of these nodes, checked with these keys.

    Without keys their results come from `before`, the table as it was. Threats of other protocols come from `violations`. With `freshness`
    the times in packets are judged. Raises UsageError for keys that trust first ones: no partition has all packets of a node.
    """
    if keys is not None and keys.own_keys is Trust.FIRST_USE and keys.first_use is None:
        raise UsageError("first use depends on all packets of a node: build `security` in a lake, or give the keys a `first_use`")
    used = connections.where(sql.col("protocol") == PROTOCOL).select(*CONNECTION_COLUMNS)
    ends = used.repartition("connection_id").mapInArrow(_whole(ends_of), _ENDS)
    packets = event_mesh.select(*PACKET_COLUMNS, "payload").join(ends, "connection_id", "left")
    broken = violations.where((sql.col("protocol") != PROTOCOL) & sql.col("rule").isin(sorted(THREATENING)))
    unread = quarantine.where((sql.col("protocol") == PROTOCOL) & sql.col("clause").isNotNull())
    # Rows that are no packets go anywhere.
    spread = {"node_id": sql.col("source").cast("binary"), "packet_id": sql.col("offset")}
    parts = [
        _part(packets, _PACKET, packets.columns),
        _part(before.where(sql.col("protocol") == PROTOCOL), _BEFORE, BEFORE_COLUMNS),
        _part(unread.withColumns(spread), _UNREADABLE, QUARANTINE_COLUMNS),
        _part(broken.withColumns(spread), _THREAT, VIOLATION_COLUMNS),
    ]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    return rows.repartition(*_KEY).sortWithinPartitions(*_KEY).mapInArrow(_Task(keys, freshness), spark_schema(TABLE))


def _part(rows: DataFrame, name: str, columns: Iterable[str]) -> DataFrame:
    return rows.select(*_KEY, sql.struct(*columns).alias(name))


def _whole(function: Callable[[pa.Table], pa.Table]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function of a table, as one of a partition."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if held := list(batches):
            yield from function(pa.Table.from_batches(held)).to_batches()

    return task


class _Task:
    """What runs in a Python worker: judges the packets of one partition, some whole packets at a time."""

    def __init__(self, keys: TrustStore | None, freshness: bool) -> None:
        self._keys = keys
        self._freshness = freshness

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of the table. Captures of a packet follow each other, but may be divided between batches."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(one.num_rows for one in held) < _HELD_ROWS:
                continue
            rows = pa.Table.from_batches(held).combine_chunks()
            end = _last_begin(rows)
            if end:
                yield from self._judged(rows.slice(0, end))
                held = rows.slice(end).to_batches()
        if held:
            yield from self._judged(pa.Table.from_batches(held))

    def _judged(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        packets = _struct(rows, _PACKET)
        known = pc.is_valid(packets["client"])  # an endpoint may be empty, but is never null
        ends = packets.filter(known).select(["connection_id", "client", "server", "observer_kind"])
        ends = ends.take(pa.array(_firsts(ends["connection_id"])))
        fold = PacketFold(ends, self._keys, lambda _: [packets], freshness=self._freshness)
        fold.add(packets)
        fold.add_before(_struct(rows, _BEFORE))
        for found in (fold.rows(), unreadable_rows(_struct(rows, _UNREADABLE)), threat_rows(_struct(rows, _THREAT))):
            yield from found.cast(TABLE.schema).to_batches()


def _firsts(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The first row of each distinct value."""
    codes = column.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.unique(codes, return_index=True)[1].astype(np.int64)


def _last_begin(rows: pa.Table) -> int:
    """Where the last packet begins."""
    is_new = np.zeros(rows.num_rows, bool)
    for name in _KEY:
        codes = rows[name].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        is_new[1:] |= codes[1:] != codes[:-1]
    found = np.flatnonzero(is_new)
    return int(found[-1]) if len(found) else 0


def _struct(rows: pa.Table, name: str) -> pa.Table:
    """The rows of one origin as a table."""
    column = rows.filter(pc.is_valid(rows[name]))[name].combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    return pa.table(array.flatten(), names=[field.name for field in array.type])
