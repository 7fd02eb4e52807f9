"""Add up rows of large gold tables by minute, in Spark tasks: `metrics` is made of the sums.

A task takes some files, reads the few columns that metrics need, and counts rows that are equal in them. Latencies are among them, so
that percentiles stay exact. Where requests take about the same time, the sums are far fewer than the rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from wirelake.lake.gold.arrow_metrics import sums_of
from wirelake.lake.gold.metrics import COLUMNS
from wirelake.lake.session.tasks import run_tasks
from wirelake.lake.tables.catalog import gold_table
from wirelake.lake.tables.schema import TIME, Table

__all__ = ["sums_in_tasks"]

_LOG: Final = logging.getLogger("wirelake.lake")
_FILES: Final = 16
"""Files of one task."""


class _Work(msgspec.Struct, frozen=True):
    """All that tasks need to know."""

    table: str
    column: str
    """Has the time."""
    files: list[list[str]]
    """Of each task."""
    edges: tuple[int, int] | None
    """Only rows between these times count; None: all do."""
    scratch: str


def sums_in_tasks(
    spark: SparkSession, files: Sequence[Path], table: Table, column: str, edges: tuple[int, int] | None, scratch: Path
) -> pa.Table:
    """Return sums of these files of `exchanges` or `violations` (`sums_of`), of rows between these times."""
    began = time.monotonic()
    parts = [[str(file) for file in files[start : start + _FILES]] for start in range(0, len(files), _FILES)]
    given = msgspec.msgpack.encode(_Work(table.name, column, parts, edges, str(scratch)))
    written = run_tasks(spark, partial(_run, given), len(parts))
    found = [pq.read_table(path.decode()) for path in written]
    sums = pa.concat_tables(found) if found else sums_of(_empty(table), column)
    _LOG.info("%s: %s sums of %d files, %.1f s", table.name, f"{sums.num_rows:,}", len(files), time.monotonic() - began)
    return sums


def _empty(table: Table) -> pa.Table:
    return table.schema.empty_table().select([name for name in COLUMNS if name in table.schema.names])


def _run(given: bytes, number: int) -> bytes:
    """In a task: write the sums of its files, and return where."""
    work = msgspec.msgpack.decode(given, type=_Work)
    table, column = gold_table(work.table), work.column
    columns = [name for name in COLUMNS if name in table.schema.names]
    chosen = pads.field("is_primary")
    if work.edges is not None:
        first, last = (pa.scalar(edge, pa.int64()).cast(TIME) for edge in work.edges)
        chosen &= (pads.field(column) >= first) & (pads.field(column) < last)
    rows = pads.dataset(work.files[number], schema=table.schema, format="parquet")
    parts = [sums_of(_empty(table), column)]
    parts += [sums_of(pa.Table.from_batches([batch]), column) for batch in rows.to_batches(columns=columns, filter=chosen)]
    at = Path(work.scratch) / f"{work.table}-sums-{number}.parquet"
    pq.write_table(sums_of(pa.concat_tables(parts), column), at)
    return str(at).encode()
