"""Upgrading: tables that another version of wirelake built, with other columns than this one builds, or by other rules.

What is built from silver tables can be built anew, and will be: one table that is as of no batch makes the next refresh build all of
them. But what keys said is in `security` and nowhere else. So rows are kept with what both versions know, for the builder to ask; readers
see the table as it was until the new one is whole.

It refuses to know what is in the tables, and to build them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from wirelake.lake.store import delta, gold_commit
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import GOLD
from wirelake.lake.tables.index import INDEX_TABLES
from wirelake.lake.tables.schema import Table

__all__ = ["upgrade"]

_LOG: Final = logging.getLogger("wirelake.lake")


def upgrade(lake: Path) -> None:
    """Give tables that are built from others the columns of this version. Only who holds the lake calls this."""
    outdated = [table for table in GOLD if delta.is_outdated(lake, table)]
    if outdated:
        gold_commit.forget(lake)  # it is about files with the older columns
    for table in outdated:
        _LOG.info("%s was built by another version of wirelake: it is built anew", table.name)
        delta.renew(lake, table, _kept(lake, table))
    is_of_another = gold_commit.has_other_rules(lake)
    if is_of_another:
        _LOG.info("gold tables were built by another edition of the rules: they are built anew")
    for table in INDEX_TABLES:
        if is_of_another or delta.is_outdated(lake, table):
            delta.make_anew(lake, table)


def _kept(lake: Path, table: Table) -> list[File]:
    """The rows of a table in the columns of this version."""
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
    """The same rows in these columns; what is new, or was of another type, is null."""
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names and batch.schema.field(field.name).type == field.type
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
