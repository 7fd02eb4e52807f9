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
from pyspark.sql import functions as sql

from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.rules.registry import LINK, SESSION_IS
from wirelake.lake.sources.tables import frame, frame_of_files
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.tables import connections, messages, quarantine
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.index import CONNECTION_INDEX
from wirelake.lake.tables.schema import Table

__all__ = ["Inputs", "linked", "rows_of"]

_LINKS: Final = frozenset(protocol for protocol, what in SESSION_IS.items() if what == LINK)

_UNASKED: Final = {messages.TABLE.name: ("body", "body_json"), quarantine.TABLE.name: ("raw",)}
"""Large columns that no gold table needs."""


def rows_of(lake: Path, table: Table, batches: Collection[int]) -> list[File]:
    """List the files of a table with rows of these batches."""
    found = {file.path: file for batch, files in delta.files_by_batch(lake, table).items() if batch in batches for file in files}
    return list(found.values())


def linked(rows: DataFrame, connection_index: DataFrame, protocols: Collection[str] = _LINKS) -> DataFrame:
    """Give unreadable bytes the session id of the link on their connection, if there was one."""
    carried = connection_index.where(sql.col("protocol").isin(sorted(protocols)) & (sql.col("session_id") != sql.col("connection_id")))
    links = carried.groupBy("connection_id").agg(sql.max("session_id").alias("link"))
    return rows.join(links, "connection_id", "left").withColumn("session_id", sql.coalesce("link", "session_id")).drop("link")


class Inputs:
    """DataFrames by name, each created when it is first used."""

    def __init__(self, spark: SparkSession, lake: Path, affected: Affected, scratch: Path) -> None:
        self.spark = spark
        self._lake = lake
        self._affected = affected
        self._scratch = scratch
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        """Return the rows of affected sessions in this table, or in `connection_index`."""
        if name not in self._made:
            self._made[name] = self._connection_index() if name == "connection_index" else self._silver(table_named(name))
            if name == quarantine.TABLE.name and (links := _LINKS.intersection(self._affected.protocols)):
                self._made[name] = linked(self._made[name], self["connection_index"], sorted(links))
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

    def _connection_index(self) -> DataFrame:
        rows = frame(self.spark, self._lake, CONNECTION_INDEX).where("direction IS NOT NULL")
        batches = [*self._affected.older, *self._affected.fresh]
        chosen = rows.where(rows["batch"].isin(batches))
        return self.affected(chosen) if self._affected.older else chosen
