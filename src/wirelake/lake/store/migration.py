"""Migration: rebuild gold tables that another version of wirelake built.

Their columns or rules may differ. Gold tables of another version are marked "no batch"; the next refresh then rebuilds all gold tables.
Results of checking keys are only in `security`, so its rows are kept, in the columns that both versions know. Readers see the old table
until the new one is committed.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from wirelake.lake.store import delta, gold_commit
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import GOLD
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.index import INDEX_TABLES
from wirelake.lake.tables.schema import Table

__all__ = ["upgrade"]

_FORMER: Final = ("_wirelake/talks", "_wirelake/tallies")
"""Folders that index tables had in earlier versions."""
_LOG: Final = logging.getLogger("wirelake.lake")


def upgrade(lake: Path) -> None:
    """Migrate gold and index tables to the columns and rules of this version.

    The caller holds the lake's lock.
    """
    outdated = [table for table in GOLD if delta.is_outdated(lake, table)]
    if outdated:
        gold_commit.drop_pending(lake)  # it names files with the older columns
    for table in outdated:
        _LOG.info("%s was built by another version of wirelake: rebuilding it", table.name)
        delta.migrate(lake, table, _kept(lake, table))
    has_other_rules = gold_commit.has_other_rules(lake)
    if has_other_rules:
        _LOG.info("gold tables were built by another version of the rules: rebuilding them")
    for name in _FORMER:
        shutil.rmtree(lake / name, ignore_errors=True)
    for table in (*INDEX_TABLES, CHECKPOINTS):
        if has_other_rules or delta.is_outdated(lake, table):
            delta.recreate(lake, table)


def _kept(lake: Path, table: Table) -> list[File]:
    """Write the rows of a table in the columns of this version."""
    sheet = Sheet(lake, table, 0)
    try:
        for path in delta.files(lake, table):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    sheet.add(_fitted(batch, table.schema))
        kept = sheet.close()
    except BaseException:
        sheet.discard()
        raise
    return [kept] if kept else []


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same rows in these columns; new columns, and those of another type, are null."""
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names and batch.schema.field(field.name).type == field.type
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
