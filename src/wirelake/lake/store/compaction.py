"""Compaction: merge small files of a silver table while others read and write.

Following commits a few small files every second or so, and each slows down readers. Only batches that gold tables were built from are
compacted, because newer ones are still read by batch. Replaced files stay for a while, so that readers can finish.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError

from wirelake.lake.store import delta, snapshot
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.schema import Table

__all__ = ["MANY", "SMALL_BYTES", "tidy"]

MANY: Final = 64
"""Up to this many small files, a table is not compacted."""
SMALL_BYTES: Final = 16 * 1024 * 1024
LARGE_BYTES: Final = 64 * 1024 * 1024
"""Size of a merged file, at most."""


def tidy(lake: Path, newest: int, *, always: bool = False) -> int:
    """Merge small files of batches up to `newest` in tables that have many, or with `always` two.

    Returns the number of such tables.
    """
    return sum(_tidied(lake, table, newest, always=always) for table in SILVER)


def _tidied(lake: Path, table: Table, newest: int, *, always: bool) -> bool:
    small = [file for file in delta.entries(lake, table) if file.size < SMALL_BYTES and delta.batches_of(lake, table, file)[1] <= newest]
    if len(small) < 2 or (len(small) <= MANY and not always):
        return False
    for group in _groups(small):
        sheet = Sheet(lake, table, *_span(lake, table, group))
        for file in group:
            for batch in _batches(delta.folder(lake, table) / file.path):
                sheet.add(batch)
        merged = sheet.close()
        try:
            delta.merge(lake, table, group, [] if merged is None else [merged])
        except CommitFailedError:  # another commit came first: next time
            sheet.discard()
            return False
    snapshot.publish(lake, [table])
    snapshot.sweep(lake, table)
    return True


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file. Columns that it has as dictionaries stay so: a merged file would be larger, and slower to read."""
    with pq.ParquetFile(path) as plain:
        group = plain.metadata.row_group(0) if plain.metadata.num_row_groups else None
        columns = [group.column(number) for number in range(group.num_columns)] if group is not None else []
        words = [one.path_in_schema for one in columns if one.has_dictionary_page and "." not in one.path_in_schema]
    with pq.ParquetFile(path, read_dictionary=words) as file:
        yield from file.iter_batches()


def _groups(files: list[File]) -> Iterator[list[File]]:
    """Group neighbouring files up to the size of a large one."""
    group: list[File] = []
    for file in files:
        if group and sum(one.size for one in group) + file.size > LARGE_BYTES:
            yield group
            group = []
        group.append(file)
    if len(group) > 1:
        yield group


def _span(lake: Path, table: Table, files: list[File]) -> tuple[int, int]:
    spans = [delta.batches_of(lake, table, file) for file in files]
    return min(first for first, _ in spans), max(last for _, last in spans)
