"""A thin layer over `deltalake`: a table is a folder of Parquet files and a log that says which of them count.

Every change is one transaction that carries the number of its batch, so that a batch that is published twice is there once.

It refuses to know what is in the tables, and which batch is next.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from wirelake.errors import LakeError
from wirelake.lake.schema import Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as pads
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "File",
    "append",
    "batch",
    "create",
    "dataset",
    "files",
    "folder",
    "frame",
    "relation",
    "replace",
    "spark_schema",
    "sweep",
    "version",
]

_APP: Final = "wirelake"
"""Whose batch numbers they are, in the log's application transactions."""


class File(msgspec.Struct, frozen=True):
    """One Parquet file that was written for a table: what a transaction needs to know of it."""

    path: str
    """Relative to the table's folder."""
    size: int
    rows: int


def folder(lake: Path, table: Table) -> Path:
    """Where a table lies."""
    return lake / table.name


@contextmanager
def _blame(lake: Path, table: Table) -> Iterator[None]:
    """Turn what Delta Lake complains of into one line that names the table."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise LakeError(f"table {table.name} of {lake}: {' '.join(str(error).split())}") from error


def _open(lake: Path, table: Table) -> DeltaTable | None:
    """The table's newest snapshot; None if there is no such table yet."""
    at = folder(lake, table)
    if not (at / "_delta_log").is_dir():
        return None
    with _blame(lake, table):
        return DeltaTable(at)


def _delta_schema(table: Table) -> DeltaSchema:
    return DeltaSchema.from_arrow(table.schema)


def create(lake: Path, table: Table) -> None:
    """Make an empty table with its schema and comments, unless it exists."""
    if _open(lake, table) is not None:
        return
    at = folder(lake, table)
    at.mkdir(parents=True, exist_ok=True)
    with _blame(lake, table):
        DeltaTable.create(at, _delta_schema(table), name=table.name, description=table.doc)


def version(lake: Path, table: Table) -> int | None:
    """How many transactions the table has seen, less one; None if there is no such table."""
    opened = _open(lake, table)
    return None if opened is None else opened.version()


def batch(lake: Path, table: Table) -> int | None:
    """The number of the newest batch in the table; None if it has none."""
    opened = _open(lake, table)
    return None if opened is None else opened.transaction_version(_APP)


def _commit(lake: Path, table: Table, added: Sequence[File], number: int, mode: str, *, again: bool = False) -> bool:
    opened = _open(lake, table)
    if opened is None:
        create(lake, table)
        opened = _open(lake, table)
    if opened is None:
        raise LakeError(f"table {table.name} of {lake} vanished while it was written")
    there = opened.transaction_version(_APP)
    if there is not None and (there > number or (there == number and not again)):
        return False
    if opened.schema() != _delta_schema(table):
        raise LakeError(f"table {table.name} of {lake} has other columns than this version of wirelake writes: use a new lake folder")
    now = time.time_ns() // 1_000_000
    actions: list[Any] = [AddAction(file.path, file.size, {}, now, True, json.dumps({"numRecords": file.rows})) for file in added]
    with _blame(lake, table):
        opened.create_write_transaction(
            actions,
            mode,
            _delta_schema(table),
            commit_properties=CommitProperties(app_transactions=[Transaction(_APP, number)]),
        )
    return True


def append(lake: Path, table: Table, added: Sequence[File], number: int) -> bool:
    """Publish files as batch `number`; False, and nothing changes, if that batch is there already."""
    return _commit(lake, table, added, number, "append")


def replace(lake: Path, table: Table, added: Sequence[File], number: int, *, again: bool = False) -> bool:
    """Publish files as the whole contents as of batch `number`; False, and nothing changes, if they are that already.

    `again` replaces the contents of that very batch: what it says depends on more than the batch.
    """
    return _commit(lake, table, added, number, "overwrite", again=again)


def files(lake: Path, table: Table) -> list[Path]:
    """The Parquet files that count, in the order of their names."""
    opened = _open(lake, table)
    if opened is None:
        return []
    # The log's own relative paths, not URIs: what quoting a URI needs is nobody's business here.
    paths = pa.table(opened.get_add_actions(flatten=True)).column("path").to_pylist()
    return sorted(folder(lake, table) / path for path in paths)


def sweep(lake: Path, table: Table, keep: Sequence[Path] = ()) -> int:
    """Remove Parquet files that no transaction ever counted or counts any more, but for those in `keep`; says how many."""
    at = folder(lake, table)
    wanted = {*files(lake, table), *keep}
    removed = 0
    for found in [*at.glob("*.parquet"), *at.glob("batch-*/*.parquet")]:
        if found not in wanted:
            found.unlink(missing_ok=True)
            removed += 1
    for found in at.glob("batch-*"):
        if not any(found.glob("*.parquet")):
            shutil.rmtree(found, ignore_errors=True)  # Spark's markers and checksums of files that are gone
    return removed


def spark_schema(table: Table) -> StructType:
    """The schema of record as Spark sees it, comments included; needs no running Spark: Delta's schema text is Spark's."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - only Spark work pays for importing Spark

    return StructType.fromJson(json.loads(_delta_schema(table).to_json()))


def frame(spark: SparkSession, lake: Path, table: Table) -> DataFrame:
    """The table as a Spark DataFrame; empty if it is empty or not there."""
    schema = spark_schema(table)
    paths = [f"file://{path.absolute()}" for path in files(lake, table)]
    if not paths:
        return spark.createDataFrame([], schema)
    # These are names, not patterns: a lake in a folder called `a[b]` is as good as any.
    return spark.read.schema(schema).option("__globPaths__", "false").parquet(*paths)


def dataset(lake: Path, table: Table) -> pads.Dataset:
    """The table as a pyarrow dataset with the schema of record; empty if it is empty or not there."""
    import pyarrow.dataset as pads  # noqa: PLC0415 - most of a second

    paths = [str(path) for path in files(lake, table)]
    if not paths:
        return pads.dataset(table.schema.empty_table())
    return pads.dataset(paths, schema=table.schema, format="parquet")


def relation(connection: duckdb.DuckDBPyConnection, lake: Path, table: Table) -> duckdb.DuckDBPyRelation:
    """The table as a DuckDB relation; empty if it is empty or not there."""
    paths = [str(path) for path in files(lake, table)]
    if not paths:
        return connection.from_arrow(table.schema.empty_table())
    return connection.read_parquet(paths)
