"""Migration: rebuild gold tables that another version of wirelake built.

Their columns or rules may differ. Gold tables of another version are marked "no batch"; the next refresh then rebuilds all gold tables.
Results of checking keys are only in `security`, so its rows are kept, in the columns that both versions know. Readers see the old table
until the new one is committed.

Rows of silver tables of an older format are kept, too: they are copied to the columns of this version.
"""

from __future__ import annotations

import logging
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from wirelake.errors import LakeError
from wirelake.lake.store import delta, gold_commit, journal
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import GOLD, SILVER
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.index import INDEX_TABLES
from wirelake.lake.tables.schema import Table

__all__ = ["upgrade", "widen"]

_FORMER: Final = ("_wirelake/talks", "_wirelake/tallies")
"""Folders that index tables had in earlier versions."""
_RENAMED: Final = {"observer_kind": "observed_by"}
"""Column -> its name in format 2."""
_LOG: Final = logging.getLogger("wirelake.lake")


def widen(lake: Path) -> None:
    """Copy the rows of silver tables of an older format to the columns of this version; null where it did not have them.

    It may be interrupted at any point: tables that were copied are not copied again.
    """
    found = journal.format_of(lake)
    if found is None or found == journal.FORMAT:
        return
    if journal.pending(lake) is not None:
        raise LakeError(
            f"{lake} was left with an unfinished batch by an older wirelake (lake format {found}): run `wirelake ingest` of that version "
            "once, then this one"
        )
    _LOG.warning(
        "%s is of lake format %d: its tables get the columns of format %d, and its gold tables are rebuilt", lake, found, journal.FORMAT
    )
    for table in SILVER:
        if delta.is_outdated(lake, table):
            delta.migrate(lake, table, [_copied(lake, table, file) for file in delta.entries(lake, table)], delta.batch(lake, table) or 0)
    journal.migrated(lake)


def _copied(lake: Path, table: Table, file: File) -> File:
    """Write the rows of a file in the columns of this version. Files of one task still have one name."""
    first, last = delta.batches_of(lake, table, file)
    name = blake2b(file.path.encode(), digest_size=16).hexdigest()
    sheet = Sheet(lake, table, first, name=delta.part_name(first, last if last != first else None, name))
    try:
        with pq.ParquetFile(delta.folder(lake, table) / file.path) as opened:
            for batch in opened.iter_batches():
                sheet.add(_fitted(batch, table.schema))
        copied = sheet.close()
    except BaseException:
        sheet.discard()
        raise
    if copied is None:
        raise LakeError(f"internal error: {file.path} of table {table.name} of {lake} has no rows")
    return copied


def upgrade(lake: Path) -> None:
    """Migrate gold and index tables to the columns and rules of this version.

    The caller holds the lake's lock.
    """
    outdated = [table for table in GOLD if delta.is_outdated(lake, table)]
    if outdated:
        gold_commit.drop_pending(lake)  # it names files with the older columns
    else:
        gold_commit.finish(lake)  # only then is it known by which rules the tables are built; it names files of checkpoints
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
    names = [field.name if field.name in batch.schema.names else _RENAMED.get(field.name, field.name) for field in schema]
    columns = [
        batch.column(name)
        if name in batch.schema.names and batch.schema.field(name).type == field.type
        else pa.nulls(batch.num_rows, field.type)
        for name, field in zip(names, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
