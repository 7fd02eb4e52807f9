"""Complete the index tables, which say which sessions a batch affects.

Tasks that decode write the index rows of their batch. Lakes of earlier versions, and those from which sources were removed, lack rows of
some batches: they are computed here from the files of these batches.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from wirelake.lake.decode.index_rows import INPUTS
from wirelake.lake.session.errors import coded, translated
from wirelake.lake.session.memory import freeze_before_task
from wirelake.lake.store import delta, durable
from wirelake.lake.store.delta import File
from wirelake.lake.store.index_files import index_of_files
from wirelake.lake.store.parquet import Sheets
from wirelake.lake.tables.index import INDEX_TABLES
from wirelake.lake.tables.schema import Table

__all__ = ["MOST_SMALL", "SMALL_ROWS", "extend", "merge"]

SMALL_ROWS: Final = 50_000
"""A file with fewer rows than this is small."""
MOST_SMALL: Final = 32
"""Small files beyond this number are merged into one (compaction).

Following adds a few rows every few seconds.
"""

_TASK_BYTES: Final = 64 * 1024 * 1024
"""Bytes of files that one task reads to compute missing rows."""
_LOG: Final = logging.getLogger("wirelake.lake")


def extend(spark: SparkSession, lake: Path, newest: int) -> None:
    """Add the rows of batches up to `newest` that the index does not have; merge its small files."""
    known = {delta.batch(lake, table) or 0 for table in INDEX_TABLES}
    if len(known) > 1:  # one of them was of an earlier version
        for table in INDEX_TABLES:
            delta.recreate(lake, table)
        known = {0}
    if max(known) < newest:
        _fill(spark, lake, max(known), newest)
    for table in INDEX_TABLES:
        _sweep(lake, table)
        merge(lake, table)


def _fill(spark: SparkSession, lake: Path, known: int, newest: int) -> None:
    """Compute the rows of batches after `known` in Spark tasks, each for some files."""
    started = time.monotonic()
    sizes: dict[str, int] = {}
    for table in INPUTS:
        for file in delta.entries(lake, table):
            first, last = delta.batches_of(lake, table, file)
            if known < last and first <= newest:
                sizes[file.path] = sizes.get(file.path, 0) + file.size
    groups = _groups(sizes)
    files: dict[str, list[File]] = {table.name: [] for table in INDEX_TABLES}
    if groups:

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            freeze_before_task()
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    with coded():
                        written = _write(lake, known + 1, newest, groups[number])
                    yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(written)], pa.binary())], names=["result"])

        with translated(lake):
            collected = spark.range(0, len(groups), 1, len(groups)).mapInArrow(task, "result binary").collect()
        for row in collected:
            for name, file in msgspec.msgpack.decode(row["result"], type=dict[str, File]).items():
                files[name].append(file)
    for table in INDEX_TABLES:
        delta.append(lake, table, files[table.name], newest)
    _LOG.info("index: %d files of batches %d to %d, %.1f s", len(sizes), known + 1, newest, time.monotonic() - started)


def _write(lake: Path, first: int, last: int, names: list[str]) -> dict[str, File]:
    """In a task: write the index rows of these files."""
    sheets = Sheets(lake, INDEX_TABLES, first, last)
    try:
        for name in names:
            sheets.add(index_of_files(lake, name))
        return sheets.close()
    except BaseException:
        sheets.discard()
        raise


def _groups(sizes: dict[str, int]) -> list[list[str]]:
    """Group files for tasks, up to `_TASK_BYTES` each."""
    groups: list[list[str]] = []
    size = 0
    for name in sorted(sizes):
        if not groups or size + sizes[name] > _TASK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += sizes[name]
    return groups


def _sweep(lake: Path, table: Table) -> None:
    """Delete files that do not count, except those of a batch that is being written."""
    newest = delta.batch(lake, table) or 0
    coming = [path for path in delta.uncounted(lake, table) if path.name.startswith("part-") and delta.batches_in(path.name)[1] > newest]
    delta.sweep(lake, table, coming)


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
    durable.sync([path])
    one = File(f"{path.parent.name}/{path.name}", path.stat().st_size, rows.num_rows)
    try:
        delta.merge(lake, table, small, [one])
    except CommitFailedError:  # another commit came first: next time
        shutil.rmtree(path.parent)
        return False
    return True
