"""Rows of the index tables of files that are there already, for lakes whose index is missing or older."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from wirelake.lake.decode.index_rows import COLUMNS, INPUTS, IndexRows
from wirelake.lake.decode.index_sums import BUFFER_ROWS
from wirelake.lake.store import delta

__all__ = ["index_of_files"]


def index_of_files(lake: Path, file: str) -> dict[str, list[pa.RecordBatch]]:
    """Sum up the rows of all files of this name: index table -> batches.

    A file that compaction wrote has rows of several batches; they count for the first.
    """
    rows = IndexRows(delta.batches_in(file)[0], file)
    for table in INPUTS:
        path = delta.folder(lake, table) / file
        if path.exists():
            with pq.ParquetFile(path) as opened:
                for group in range(opened.num_row_groups):
                    for batch in opened.iter_batches(BUFFER_ROWS, row_groups=[group], columns=list(COLUMNS[table.name])):
                        rows.add({table.name: [batch]})
    return rows.rows()
