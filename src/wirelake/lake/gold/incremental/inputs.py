"""A slice of the lake: of every silver table, the rows that belong to touched sessions, and no others are read.

New batches are read as they are: all that is in them is touched. Of older batches in which touched sessions occur, their rows are picked
out once and kept in a scratch folder, because many steps ask for them.

It refuses to know what is built from the rows.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

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
"""Bulky columns that nothing is built from."""


def rows_of(lake: Path, table: Table, batches: Collection[int]) -> list[File]:
    """The files of a table that came with these batches."""
    found = {file.path: file for batch, files in delta.files_by_batch(lake, table).items() if batch in batches for file in files}
    return list(found.values())


def linked(rows: DataFrame, talks: DataFrame, protocols: Collection[str] = _LINKS) -> DataFrame:
    """What could not be read is known by its connection; it belongs to the link that the connection carried, if there was one."""
    carried = talks.where(sql.col("protocol").isin(sorted(protocols)) & (sql.col("session_id") != sql.col("connection_id")))
    links = carried.groupBy("connection_id").agg(sql.max("session_id").alias("link"))
    return rows.join(links, "connection_id", "left").withColumn("session_id", sql.coalesce("link", "session_id")).drop("link")


class Inputs:
    """Frames by name, each made when it is first asked for, by `spark`."""

    def __init__(self, spark: SparkSession, lake: Path, affected: Affected, scratch: Path) -> None:
        self.spark = spark
        self._lake = lake
        self._affected = affected
        self._scratch = scratch
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        """What touched sessions have in this table; `talks` is the index."""
        if name not in self._made:
            self._made[name] = self._talks() if name == "talks" else self._silver(table_named(name))
            if name == quarantine.TABLE.name and (links := _LINKS.intersection(self._affected.protocols)):
                self._made[name] = linked(self._made[name], self["talks"], sorted(links))
        return self._made[name]

    def keep(self, name: str, rows: DataFrame) -> DataFrame:
        """A step that several others need: computed once, and from then on read from the scratch folder."""
        at = f"file://{(self._scratch / name).absolute()}"
        rows.write.parquet(at)
        self._made[name] = self.spark.read.schema(rows.schema).parquet(at)
        return self._made[name]

    def affected(self, rows: DataFrame, *, by: str = "session_id", how: str = "left_semi") -> DataFrame:
        """Only rows of touched sessions, or, with `left_anti`, only those of others."""
        at = self._affected.connections if by == "connection_id" else self._affected.sessions
        if at is None:
            return rows.limit(0) if how == "left_anti" else rows
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

    def _talks(self) -> DataFrame:
        rows = frame(self.spark, self._lake, CONNECTION_INDEX).where("direction IS NOT NULL")
        batches = [*self._affected.older, *self._affected.fresh]
        chosen = rows.where(rows["batch"].isin(batches))
        return self.affected(chosen) if self._affected.older else chosen
