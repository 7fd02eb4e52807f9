"""Read tables of a lake as Spark DataFrames."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.store.skipping import aware, between, time_column
from wirelake.lake.store.snapshot import Snapshot
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.schema import Table

__all__ = ["frame", "frame_of_files", "snapshot_frame", "spark_schema"]


def spark_schema(table: Table) -> StructType:
    """Convert the Arrow schema of a table to Spark's, comments included.

    Needs no JVM: Delta stores schemas in Spark's JSON.
    """
    return StructType.fromJson(json.loads(delta.delta_schema(table).to_json()))


def frame(spark: SparkSession, lake: Path, table: Table, paths: Sequence[Path] | None = None) -> DataFrame:
    """Read a table, or only these of its files. Empty if the table is empty or missing."""
    schema = spark_schema(table)
    uris = [f"file://{path.absolute()}" for path in (delta.files(lake, table) if paths is None else paths)]
    if not uris:
        return spark.createDataFrame([], schema)
    # Paths are not glob patterns: a lake may lie in a folder called `a[b]`.
    return spark.read.schema(schema).option("__globPaths__", "false").parquet(*uris)


def frame_of_files(spark: SparkSession, lake: Path, table: Table, files: Sequence[File]) -> DataFrame:
    """Read only these files of a table."""
    return frame(spark, lake, table, [delta.folder(lake, table) / file.path for file in files])


def snapshot_frame(
    spark: SparkSession, snapshot: Snapshot, name: str, since: datetime | None = None, until: datetime | None = None
) -> DataFrame:
    """Read the table of this name as of a snapshot. Raises LakeError if there is no such table.

    With `since` or `until`, both included, only rows of that time are read, and no file that has none of them.
    """
    table = table_named(name)
    if since is None and until is None:
        return frame(spark, snapshot.lake, table, snapshot.files(name))
    rows = frame(spark, snapshot.lake, table, snapshot.matching(name, between(table, since, until)))
    column = sql.col(time_column(table))
    if since is not None:
        rows = rows.where(column >= aware(since))
    return rows if until is None else rows.where(column <= aware(until))
