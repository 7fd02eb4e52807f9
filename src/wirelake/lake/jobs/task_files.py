"""The files of one task: rows of all tables, and of the index, under one name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from wirelake.lake.decode.index_rows import IndexRows
from wirelake.lake.session.memory import use_one_allocator
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheets
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.index import INDEX_TABLES

__all__ = ["TaskFiles"]


class TaskFiles:
    """Writes decoded rows, and sums them up for the index."""

    def __init__(self, lake: Path, batch: int) -> None:
        use_one_allocator()
        self._sheets = Sheets(lake, (*SILVER, *INDEX_TABLES), batch)
        self._index = IndexRows(batch, self._sheets.name)

    def add(self, decoded: Mapping[str, Iterable[pa.RecordBatch]]) -> None:
        """Add decoded rows: table name -> batches."""
        self._index.add(decoded)
        self._sheets.add(decoded)

    def close(self) -> dict[str, File]:
        """Write the index rows and close all files; tables without rows have none."""
        self._sheets.add(self._index.rows())
        return self._sheets.close()

    def discard(self) -> None:
        """Delete all files."""
        self._sheets.discard()
