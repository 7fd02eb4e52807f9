"""A thin layer over `deltalake`: create tables, list their files, and make every Delta commit.

A table is a folder of Parquet files and a log of those that count. Every Delta commit carries the number of its batch as application
transaction, so that committing a batch twice is idempotent.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from wirelake.errors import LakeError
from wirelake.lake.tables.schema import Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as pads
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "File",
    "append",
    "batch",
    "batches_of",
    "create",
    "dataset",
    "entries",
    "exchange",
    "files",
    "files_by_batch",
    "files_of",
    "folder",
    "frame",
    "frame_of",
    "is_outdated",
    "make_anew",
    "merge",
    "relation",
    "renew",
    "revision",
    "spark_schema",
    "sweep",
    "uncounted",
    "version",
]

_APP: Final = "wirelake"
"""Whose batch numbers they are, in the log's application transactions."""
_REVISIONS: Final = "wirelake.revisions"
"""The same for tables whose files are exchanged: a batch may be looked at more than once, each time as another revision."""
_BATCH: Final = re.compile(r"^part-(\d{8})-(?:(\d{8})-)?")
"""How the files of tables that only grow begin: with the batch they came with."""


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


def _open(lake: Path, table: Table, as_of: int | None = None) -> DeltaTable | None:
    """The table as of one of its versions, or as it is now; None if there is no such table yet."""
    at = folder(lake, table)
    if not (at / "_delta_log").is_dir():
        return None
    with _blame(lake, table):
        return DeltaTable(at, version=as_of)


def _delta_schema(table: Table) -> DeltaSchema:
    return DeltaSchema.from_arrow(table.schema)


def create(lake: Path, table: Table) -> None:
    """Make an empty table with its schema and comments, unless it exists; one with other columns is an error."""
    opened = _open(lake, table)
    if opened is not None:
        _check_columns(lake, table, opened)
        return
    at = folder(lake, table)
    at.mkdir(parents=True, exist_ok=True)
    with _blame(lake, table):
        DeltaTable.create(at, _delta_schema(table), name=table.name, description=table.doc)


def _check_columns(lake: Path, table: Table, opened: DeltaTable) -> None:
    if not _has_columns(opened, table):
        raise LakeError(f"table {table.name} of {lake} has other columns than this version of wirelake writes: use a new lake folder")


def version(lake: Path, table: Table) -> int | None:
    """How many transactions the table has seen, less one; None if there is no such table."""
    opened = _open(lake, table)
    return None if opened is None else opened.version()


def batch(lake: Path, table: Table, as_of: int | None = None) -> int | None:
    """The number of the newest batch in the table, or in one of its versions; None if it has none."""
    opened = _open(lake, table, as_of)
    return None if opened is None else opened.transaction_version(_APP)


def revision(lake: Path, table: Table) -> int:
    """How often the table's files were exchanged."""
    opened = _open(lake, table)
    return 0 if opened is None else opened.transaction_version(_REVISIONS) or 0


def _ready(lake: Path, table: Table) -> DeltaTable:
    """The table, made if there is none, with the columns this code writes."""
    opened = _open(lake, table)
    if opened is None:
        create(lake, table)
        opened = _open(lake, table)
    if opened is None:
        raise LakeError(f"table {table.name} of {lake} vanished while it was written")
    _check_columns(lake, table, opened)
    return opened


def _has_columns(opened: DeltaTable, table: Table) -> bool:
    """Whether a table has the columns that this code writes; what their comments say may differ."""
    return [(field.name, field.type) for field in opened.schema().fields] == [
        (field.name, field.type) for field in _delta_schema(table).fields
    ]


def is_outdated(lake: Path, table: Table) -> bool:
    """Whether there is such a table, with other columns than this code writes."""
    opened = _open(lake, table)
    return opened is not None and not _has_columns(opened, table)


def make_anew(lake: Path, table: Table) -> None:
    """Remove a table that nobody reads but who holds the lake, and make it anew, empty, with the columns that this code writes."""
    shutil.rmtree(folder(lake, table), ignore_errors=True)
    create(lake, table)


def renew(lake: Path, table: Table, kept: Sequence[File]) -> None:
    """Give a table the columns that this code writes, and these files for all it had; it is as of no batch then.

    Its older versions stay what they were, for whoever reads them.
    """
    opened = _open(lake, table)
    if opened is None:
        raise LakeError(f"table {table.name} of {lake} vanished while it was written")
    now = time.time_ns() // 1_000_000
    actions: list[Any] = [AddAction(file.path, file.size, {}, now, True, json.dumps({"numRecords": file.rows})) for file in kept]
    told = CommitProperties(app_transactions=[Transaction(_APP, 0)])
    with _blame(lake, table):
        opened.create_write_transaction(actions, "overwrite", _delta_schema(table), commit_properties=told)


def _commit(lake: Path, table: Table, opened: DeltaTable, removed: Sequence[File], added: Sequence[File], told: list[Transaction]) -> None:
    now = time.time_ns() // 1_000_000
    actions: list[Any] = [RemoveAction(file.path, True, now, file.size, {}) for file in removed]
    actions += [AddAction(file.path, file.size, {}, now, True, json.dumps({"numRecords": file.rows})) for file in added]
    with _blame(lake, table):
        opened.create_write_transaction(actions, "append", _delta_schema(table), commit_properties=CommitProperties(app_transactions=told))


def append(lake: Path, table: Table, added: Sequence[File], number: int, removed: Sequence[File] = ()) -> bool:
    """Publish files as batch `number`, in place of those in `removed`; False, and nothing changes, if that batch is there already."""
    opened = _ready(lake, table)
    there = opened.transaction_version(_APP)
    if there is not None and there >= number:
        return False
    _commit(lake, table, opened, removed, added, [Transaction(_APP, number)])
    return True


def merge(lake: Path, table: Table, removed: Sequence[File], added: Sequence[File]) -> None:
    """Let files count in place of others that say the same. Raises CommitFailedError if somebody else was faster."""
    opened = _ready(lake, table)
    _commit(lake, table, opened, removed, added, [])


def exchange(lake: Path, table: Table, removed: Sequence[File], added: Sequence[File], number: int, nth: int) -> bool:
    """Publish files in place of others, as of batch `number` and as the `nth` exchange; False, and nothing changes, if it happened."""
    opened = _ready(lake, table)
    if (opened.transaction_version(_REVISIONS) or 0) >= nth:
        return False
    _commit(lake, table, opened, removed, added, [Transaction(_APP, number), Transaction(_REVISIONS, nth)])
    return True


def entries(lake: Path, table: Table, as_of: int | None = None) -> list[File]:
    """What the log says of the files that count, now or as of a version, in the order of their names."""
    opened = _open(lake, table, as_of)
    if opened is None:
        return []
    # The log's own relative paths, not URIs: what quoting a URI needs is nobody's business here.
    log = pa.table(opened.get_add_actions(flatten=True)).select(["path", "size_bytes", "num_records"])
    return sorted((File(path, size, rows) for path, size, rows in zip(*(each.to_pylist() for each in log.columns), strict=True)), key=_path)


def _path(file: File) -> str:
    return file.path


def files(lake: Path, table: Table, as_of: int | None = None) -> list[Path]:
    """The Parquet files that count, now or as of a version, in the order of their names."""
    return [folder(lake, table) / file.path for file in entries(lake, table, as_of)]


def files_by_batch(lake: Path, table: Table) -> dict[int, list[File]]:
    """The files of a table that only grows, by the batches they came with: one, or several if files were made one."""
    by_batch: dict[int, list[File]] = {}
    for file in entries(lake, table):
        first, last = batches_of(lake, table, file)
        for number in range(first, last + 1):
            by_batch.setdefault(number, []).append(file)
    return by_batch


def files_of(lake: Path, table: Table, number: int) -> list[Path]:
    """The files of a table that only grows which came with a batch."""
    return [folder(lake, table) / file.path for file in files_by_batch(lake, table).get(number, ())]


def batches_of(lake: Path, table: Table, file: File) -> tuple[int, int]:
    """The first and the last batch that a file of a table that only grows has rows of: its name says so."""
    named = _BATCH.match(file.path)
    if named is None:
        raise LakeError(f"table {table.name} of {lake}: {file.path} does not say which batch it came with")
    return int(named[1]), int(named[2] or named[1])


def uncounted(lake: Path, table: Table) -> list[Path]:
    """Parquet files in the table's folder that no transaction ever counted, or none counts any more."""
    at = folder(lake, table)
    counted = set(files(lake, table))
    return [found for found in [*at.glob("*.parquet"), *at.glob("batch-*/*.parquet")] if found not in counted]


def sweep(lake: Path, table: Table, keep: Collection[Path] = ()) -> int:
    """Remove the files that do not count, but for those in `keep`; says how many."""
    at = folder(lake, table)
    removed = 0
    for found in uncounted(lake, table):
        if found not in keep:
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


def frame_of(spark: SparkSession, lake: Path, table: Table, chosen: Sequence[File]) -> DataFrame:
    """Only these files of the table as a Spark DataFrame."""
    return frame(spark, lake, table, [folder(lake, table) / file.path for file in chosen])


def frame(spark: SparkSession, lake: Path, table: Table, some: Sequence[Path] | None = None) -> DataFrame:
    """The table, or some of its files, as a Spark DataFrame; empty if it is empty or not there."""
    schema = spark_schema(table)
    paths = [f"file://{path.absolute()}" for path in (files(lake, table) if some is None else some)]
    if not paths:
        return spark.createDataFrame([], schema)
    # These are names, not patterns: a lake in a folder called `a[b]` is as good as any.
    return spark.read.schema(schema).option("__globPaths__", "false").parquet(*paths)


def dataset(lake: Path, table: Table, some: Sequence[Path] | None = None) -> pads.Dataset:
    """The table, or some of its files, as a pyarrow dataset with the schema of record; empty if it is empty or not there."""
    import pyarrow.dataset as pads  # noqa: PLC0415 - most of a second

    paths = [str(path) for path in (files(lake, table) if some is None else some)]
    if not paths:
        return pads.dataset(table.schema.empty_table())
    return pads.dataset(paths, schema=table.schema, format="parquet")


def relation(
    connection: duckdb.DuckDBPyConnection, lake: Path, table: Table, some: Sequence[Path] | None = None
) -> duckdb.DuckDBPyRelation:
    """The table, or some of its files, as a DuckDB relation; empty if it is empty or not there."""
    paths = [str(path) for path in (files(lake, table) if some is None else some)]
    empty = connection.from_arrow(table.schema.empty_table())
    if not paths:
        return empty
    found = connection.read_parquet(paths, hive_partitioning=False)  # a folder `a=b` above a lake is nobody's column
    if set(table.schema.names) <= set(found.columns):
        return found
    # An older wirelake wrote them: what it did not know is null, until the next ingest builds the table anew.
    return connection.sql("FROM found UNION ALL BY NAME FROM empty")
