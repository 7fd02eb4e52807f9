"""Write new files of gold tables: rebuilt rows, and the rows beside them that stay.

They are committed later.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from wirelake.lake.gold.incremental import key_ranges
from wirelake.lake.sources.tables import frame_of_files
from wirelake.lake.store import delta, durable
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_commit import Change
from wirelake.lake.store.parquet import GoldFile
from wirelake.lake.store.slots import slot
from wirelake.lake.tables.schema import Table

__all__ = ["Rebuilding"]

Stays = Callable[[pa.Table], tuple[pa.Table, list[bytes]]]
"""Rows of a replaced file -> those that stay, and their keys."""

_LOG: Final = logging.getLogger("wirelake.lake")


class Rebuilding:
    """The changes of one refresh, table by table."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self.changes: dict[str, Change] = {}

    def replace(
        self,
        spark: SparkSession,
        table: Table,
        rows: DataFrame,
        *,
        key: Column,
        slots: Collection[int],
        more: int,
        others: Callable[[DataFrame], DataFrame] | None,
    ) -> None:
        """Replace the rows whose `key` falls into these slots.

        `others` selects old rows that stay; None: none do.
        """
        started = time.monotonic()
        plan = key_ranges.plan(delta.entries(self._lake, table), slots, more)
        if plan.removed and others is not None:
            rows = rows.select(*table.schema.names).unionByName(others(frame_of_files(spark, self._lake, table, plan.removed)))
        added = key_ranges.write(rows, self._lake, table, key, plan.key_ranges) if plan.key_ranges else []
        self.changes[table.name] = Change(table.name, plan.removed, added)
        _LOG.info(
            "%s: %d files of %d rows in place of %d, %.1f s",
            *(table.name, len(added), sum(file.rows for file in added), len(plan.removed), time.monotonic() - started),
        )

    def replace_rows(self, table: Table, rows: pa.Table, keys: Sequence[bytes], slots: Collection[int], stays: Stays | None) -> None:
        """Replace the rows whose key falls into these slots by rows that are in memory; `keys` has the key of each.

        `stays` says which rows of a replaced file stay, and their keys; None: none do.
        """
        started = time.monotonic()
        plan = key_ranges.plan(delta.entries(self._lake, table), slots, rows.num_rows)
        folder, batch = delta.folder(self._lake, table), f"batch-{uuid.uuid4().hex}"
        parts, of_part = [rows], list(keys)
        for file in plan.removed if stays is not None else ():
            before = delta.dataset(self._lake, table, [folder / file.path]).to_table()
            kept, named = stays(before) if stays is not None else (before, [])
            parts.append(kept)
            of_part += named
        every, of_slot = pa.concat_tables(parts), np.array([slot(key) for key in of_part], np.int64)
        added = []
        for one in plan.key_ranges:
            written = GoldFile(folder, f"{batch}/{key_ranges.name(one)}", table)
            written.add(every.filter(pa.array((of_slot >= one.first) & (of_slot <= one.last))))
            if (closed := written.close()) is not None:
                added.append(closed)
        durable.sync(folder / file.path for file in added)
        self.changes[table.name] = Change(table.name, plan.removed, added)
        _LOG.info("%s: %d rows, %.1f s", table.name, every.num_rows, time.monotonic() - started)

    def leave(self, table: Table) -> None:
        """Leave the table as it is."""
        self.changes[table.name] = Change(table.name, [], [])

    def entries_afterwards(self, table: Table) -> list[File]:
        """List the files of a table as it will be after the commit."""
        change = self.changes.get(table.name, Change(table.name, [], []))
        gone = {file.path for file in change.removed}
        return [*(file for file in delta.entries(self._lake, table) if file.path not in gone), *change.added]

    def files_afterwards(self, table: Table) -> list[Path]:
        """List the paths of these files."""
        return [delta.folder(self._lake, table) / file.path for file in self.entries_afterwards(table)]

    def afterwards(self, spark: SparkSession, table: Table) -> DataFrame:
        """Read the whole table as it will be after the commit."""
        return frame_of_files(spark, self._lake, table, self.entries_afterwards(table))
