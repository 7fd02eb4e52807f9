"""Extend the index tables by the sums of every new batch.

They say which sessions a batch affects.
"""

from __future__ import annotations

import logging
import time
import uuid
from pathlib import Path
from typing import Final

import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from wirelake.lake.gold.incremental import connection_index, minute_index
from wirelake.lake.sources.tables import frame_of_files, spark_schema
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.index import CONNECTION_INDEX, INDEX_TABLES, MINUTE_INDEX
from wirelake.lake.tables.schema import Table

__all__ = ["MOST_SMALL", "SMALL_ROWS", "extend", "merge"]

SMALL_ROWS: Final = 50_000
"""A file with fewer rows than this is small."""
MOST_SMALL: Final = 32
"""Small files beyond this number are merged into one (compaction).

Following adds a few rows every few seconds.
"""

_BUILDERS: Final = {CONNECTION_INDEX.name: connection_index, MINUTE_INDEX.name: minute_index}
_LOG: Final = logging.getLogger("wirelake.lake")


def extend(spark: SparkSession, lake: Path, newest: int) -> None:
    """Add the sums of batches up to `newest` that the index does not have."""
    for table in INDEX_TABLES:
        known = delta.batch(lake, table) or 0
        if known >= newest:
            continue
        started = time.monotonic()
        delta.sweep(lake, table)
        module = _BUILDERS[table.name]
        rows = module.build(*(_since(spark, lake, name, known, newest) for name in module.INPUTS))
        name = f"batch-{newest:08d}-{uuid.uuid4().hex}"
        at = delta.folder(lake, table) / name
        written = rows.to(spark_schema(table)).write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        written.parquet(f"file://{at.absolute()}")
        counts = [(path, pq.read_metadata(path).num_rows) for path in sorted(at.glob("*.parquet"))]
        added = [File(f"{name}/{path.name}", path.stat().st_size, count) for path, count in counts if count]
        delta.append(lake, table, added, newest)
        merge(lake, table)
        _LOG.info(
            "%s: %d rows for batches up to %d, %.1f s", table.name, sum(file.rows for file in added), newest, time.monotonic() - started
        )


def merge(lake: Path, table: Table) -> bool:
    """Merge small files into one, if there are many; returns whether it did. Rows have their batch number."""
    small = [file for file in delta.entries(lake, table) if file.rows < SMALL_ROWS]
    if len(small) <= MOST_SMALL:
        return False
    at = delta.folder(lake, table)
    rows = pads.dataset([str(at / file.path) for file in small], schema=table.schema, format="parquet").to_table()
    path = at / f"batch-{uuid.uuid4().hex}" / "merged.parquet"
    path.parent.mkdir()
    pq.write_table(rows, path)
    one = File(f"{path.parent.name}/{path.name}", path.stat().st_size, rows.num_rows)
    delta.exchange(lake, table, small, [one], delta.batch(lake, table) or 0, 1 + delta.revision(lake, table))
    return True


def _since(spark: SparkSession, lake: Path, name: str, known: int, newest: int) -> DataFrame:
    """Read rows of new batches, with their `batch`."""
    table = table_named(name)
    files = [file for batch, each in delta.files_by_batch(lake, table).items() if known < batch <= newest for file in each]
    rows = frame_of_files(spark, lake, table, files)
    return rows.withColumn("batch", connection_index.batch_of_file() if files else sql.lit(0).cast("long"))
