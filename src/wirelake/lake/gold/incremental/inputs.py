"""The inputs of a refresh: of every silver table, only the rows of affected sessions.

New batches are read as they are: all their rows are affected. From older batches with affected sessions, their rows are selected once and
kept in a scratch folder, because many steps read them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.sources.tables import frame_of_files
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.tables import connections, messages, quarantine
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.schema import Table

__all__ = ["Inputs", "rows_of"]

_UNASKED: Final = {messages.TABLE.name: ("body", "body_json"), quarantine.TABLE.name: ("raw",)}
"""Large columns that no gold table needs."""


def rows_of(lake: Path, table: Table, batches: Collection[int]) -> list[File]:
    """List the files of a table with rows of these batches."""
    found = {file.path: file for batch, files in delta.files_by_batch(lake, table).items() if batch in batches for file in files}
    return list(found.values())


class Inputs:
    """DataFrames by name, each created when it is first used."""

    def __init__(self, spark: SparkSession, lake: Path, affected: Affected, scratch: Path) -> None:
        self.spark = spark
        self._lake = lake
        self._affected = affected
        self._scratch = scratch
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        """Return the rows of affected sessions in this table."""
        if name not in self._made:
            self._made[name] = self._silver(table_named(name))
        return self._made[name]

    def keep(self, name: str, rows: DataFrame) -> DataFrame:
        """Store a step that several others need in the scratch folder, and read it from there."""
        at = f"file://{(self._scratch / name).absolute()}"
        rows.write.parquet(at)
        self._made[name] = self.spark.read.schema(rows.schema).parquet(at)
        return self._made[name]

    def affected(self, rows: DataFrame, *, by: str = "session_id", how: str = "left_semi") -> DataFrame:
        """Select the rows of affected sessions or, with `left_anti`, of all others."""
        if self._affected.is_all:
            return rows.limit(0) if how == "left_anti" else rows
        at = self._scratch / f"{by}.parquet"
        if not at.exists():
            chosen = self._affected.index["connection_id"] if by == "connection_id" else self._affected.keys
            pq.write_table(pa.table({by: pc.unique(chosen)}), at)
        ids = self.spark.read.schema(f"{by} binary").parquet(f"file://{at.absolute()}")
        return rows.join(ids, by, how)

    def _silver(self, table: Table) -> DataFrame:
        def frame(batches: Collection[int]) -> DataFrame:
            rows = frame_of_files(self.spark, self._lake, table, rows_of(self._lake, table, batches))
            return rows.drop(*_UNASKED.get(table.name, ()))

        if not self._affected.older or not rows_of(self._lake, table, self._affected.older):
            return frame(self._affected.fresh)
        by = "connection_id" if table is connections.TABLE else "session_id"
        picked = self.keep(table.name, self.affected(frame(self._affected.older), by=by))
        return frame(self._affected.fresh).unionByName(picked)
