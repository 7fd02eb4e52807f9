"""Delta tables with `deltalake`: create them, list their files, make every commit.

A table is a folder of Parquet files and a log of those that count. Every Delta commit carries the number of its batch as application
transaction, so that committing a batch twice is idempotent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from wirelake.errors import LakeError
from wirelake.lake.store import durable, open_tables
from wirelake.lake.store.open_tables import OpenTable
from wirelake.lake.tables.filtered import filtered
from wirelake.lake.tables.schema import Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as pads

__all__ = [
    "File",
    "append",
    "batch",
    "batches_in",
    "batches_of",
    "create",
    "dataset",
    "delta_schema",
    "entries",
    "exchange",
    "files",
    "files_by_batch",
    "files_of",
    "folder",
    "is_outdated",
    "locate",
    "merge",
    "migrate",
    "part_name",
    "recreate",
    "relation",
    "revision",
    "size",
    "statistics",
    "sweep",
    "sweep_batch",
    "uncounted",
    "version",
]

_APP: Final = "wirelake"
"""Application id of batch numbers in the log's application transactions."""
_REVISIONS: Final = "wirelake.revisions"
"""Application id of revisions, for tables whose files are replaced.

A batch may be refreshed more than once.
"""
APPENDS: Final = 20
"""How often a batch is tried to be committed while others commit to the same table."""
_BATCH: Final = re.compile(r"^part-(\d{8})-(?:(\d{8})-)?")
"""Names of files of append-only tables begin with their batch, or with the first and last of several."""


class File(msgspec.Struct, frozen=True):
    """One Parquet file of a table, as a commit needs it."""

    path: str
    """Relative to the table's folder."""
    size: int
    rows: int
    stats: str = ""
    """Statistics of its columns, as JSON for the log (`statistics.py`). Files of the log are listed without."""

    def added(self, now: int, *, is_new: bool = True) -> AddAction:
        """Return the action of the log by which it begins to count. Without `is_new`, its rows were there before."""
        return AddAction(self.path, self.size, {}, now, is_new, self.stats or json.dumps({"numRecords": self.rows}))


def folder(lake: Path, table: Table) -> Path:
    """Return the folder of a table."""
    return lake / table.name


@contextmanager
def _blame(lake: Path, table: Table) -> Iterator[None]:
    """Turn errors of Delta Lake into a LakeError of one line that names the table."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise LakeError(f"table {table.name} of {lake}: {' '.join(str(error).split())}") from error


def _open(lake: Path, table: Table, as_of: int | None = None) -> OpenTable | None:
    """Open a table at a version, or at its newest; None if there is no such table yet."""
    with _blame(lake, table):
        return open_tables.open_table(folder(lake, table), as_of)


def delta_schema(table: Table) -> DeltaSchema:
    """Convert the Arrow schema of a table to Delta's."""
    return DeltaSchema.from_arrow(table.schema)


def create(lake: Path, table: Table) -> None:
    """Create an empty table with its schema and comments, unless it exists.

    Raises LakeError if it has other columns.
    """
    opened = _open(lake, table)
    if opened is not None:
        _check_columns(lake, table, opened)
        return
    at = folder(lake, table)
    at.mkdir(parents=True, exist_ok=True)
    # How many lines the entry has: the first one, the protocol, and the columns.
    lines = CommitProperties(custom_metadata={durable.LINES: "3"})
    with _blame(lake, table):
        DeltaTable.create(
            at,
            delta_schema(table),
            name=table.name,
            description=table.doc,
            configuration=_properties(table),
            commit_properties=lines,
        )
    durable.commit_later(at, 0, 0)


def _properties(table: Table) -> dict[str, str | None]:
    """Tell every reader which columns have statistics: it looks for no others."""
    if names := filtered(table):
        return {"delta.dataSkippingStatsColumns": ",".join(names)}
    return {"delta.dataSkippingNumIndexedCols": "0"}


def _check_columns(lake: Path, table: Table, opened: OpenTable) -> None:
    if not _has_columns(opened, table):
        raise LakeError(f"table {table.name} of {lake} has other columns than this version of wirelake writes: use a new lake folder")


def version(lake: Path, table: Table) -> int | None:
    """Return the version of the table; None if there is no such table."""
    opened = _open(lake, table)
    return None if opened is None else opened.version


def batch(lake: Path, table: Table, as_of: int | None = None) -> int | None:
    """Return the newest batch in the table, or in one of its versions; None if it has none."""
    opened = _open(lake, table, as_of)
    return None if opened is None else opened.number(_APP)


def revision(lake: Path, table: Table) -> int:
    """Return the number of the last `exchange` of the table's files."""
    opened = _open(lake, table)
    return 0 if opened is None else opened.number(_REVISIONS) or 0


def _ready(lake: Path, table: Table) -> OpenTable:
    """Open a table for writing; create it if there is none. Raises LakeError if it has other columns."""
    opened = _open(lake, table)
    if opened is None:
        create(lake, table)
        opened = _open(lake, table)
    if opened is None:
        raise LakeError(f"table {table.name} of {lake} vanished while it was written: was its folder removed?")
    _check_columns(lake, table, opened)
    return opened


def _has_columns(opened: OpenTable, table: Table) -> bool:
    """Whether a table has the columns of the schema of record; comments may differ."""
    return opened.fields() == [(field.name, field.type) for field in delta_schema(table).fields]


def is_outdated(lake: Path, table: Table) -> bool:
    """Whether there is such a table, with other columns than the schema of record."""
    opened = _open(lake, table)
    return opened is not None and not _has_columns(opened, table)


def recreate(lake: Path, table: Table) -> None:
    """Delete a table and create it again, empty.

    Only for index tables, which have no readers but the writer of the lake.
    """
    durable.discard(folder(lake, table))
    create(lake, table)


def migrate(lake: Path, table: Table, kept: Sequence[File], number: int = 0) -> None:
    """Migrate a table to the schema of record, with these files in place of all others.

    Its batch number becomes `number`; 0 marks a table that is to be rebuilt.

    Older versions of the table stay readable.
    """
    opened = _open(lake, table)
    if opened is None:
        raise LakeError(f"table {table.name} of {lake} vanished while it was written: was its folder removed?")
    now = time.time_ns() // 1_000_000
    actions: list[Any] = [file.added(now) for file in kept]
    with _blame(lake, table):
        open_tables.commit(folder(lake, table), opened, actions, delta_schema(table), [Transaction(_APP, number)], "overwrite")


def _commit(
    lake: Path, table: Table, opened: OpenTable, removed: Sequence[File], added: Sequence[File], numbers: list[Transaction]
) -> None:
    """Commit one Delta transaction: these files stop counting, those begin to.

    Without a number the rows are the same as before (compaction). The log says so: streams that read the table go on.
    """
    now, is_new = time.time_ns() // 1_000_000, bool(numbers)
    actions: list[Any] = [RemoveAction(file.path, is_new, now, file.size, {}) for file in removed]
    actions += [file.added(now, is_new=is_new) for file in added]
    with _blame(lake, table):
        open_tables.commit(folder(lake, table), opened, actions, delta_schema(table), numbers)


def append(lake: Path, table: Table, added: Sequence[File], number: int, removed: Sequence[File] = ()) -> bool:
    """Commit files as batch `number`, in place of those in `removed`.

    Idempotent: returns False if that batch is there already.
    """
    for attempt in range(1, APPENDS + 1):
        opened = _ready(lake, table)
        newest = opened.number(_APP)
        if newest is not None and newest >= number:
            return False
        try:
            _commit(lake, table, opened, removed, added, [Transaction(_APP, number)])
        except LakeError as error:
            # Compaction beside this may have merged the files to remove: then removing them must not be tried again.
            if not isinstance(error.__cause__, CommitFailedError) or removed or attempt == APPENDS:
                raise
        else:
            break
    return True


def merge(lake: Path, table: Table, removed: Sequence[File], added: Sequence[File]) -> None:
    """Commit files in place of others with the same rows (compaction).

    Raises CommitFailedError if another commit came first.
    """
    opened = _ready(lake, table)
    try:
        _commit(lake, table, opened, removed, added, [])
    except LakeError as error:
        if isinstance(error.__cause__, CommitFailedError):
            raise error.__cause__ from None
        raise


def exchange(lake: Path, table: Table, removed: Sequence[File], added: Sequence[File], number: int, nth: int) -> bool:
    """Commit files in place of others, as of batch `number` and as the `nth` exchange.

    Idempotent: returns False if it is done already.
    """
    opened = _ready(lake, table)
    if (opened.number(_REVISIONS) or 0) >= nth:
        return False
    _commit(lake, table, opened, removed, added, [Transaction(_APP, number), Transaction(_REVISIONS, nth)])
    return True


def entries(lake: Path, table: Table, as_of: int | None = None) -> list[File]:
    """List the files that count, now or as of a version, sorted by name."""
    opened = _open(lake, table, as_of)
    if opened is None:
        return []
    # The log has relative paths; the URIs that deltalake offers would need unquoting.
    log = opened.files().select(["path", "size_bytes", "num_records"])
    return sorted((File(path, size, rows) for path, size, rows in zip(*(each.to_pylist() for each in log.columns), strict=True)), key=_path)


def statistics(lake: Path, table: Table, as_of: int | None = None) -> pa.Table:
    """Return the statistics of the files that count, sorted by name.

    Columns are `path`, `num_records`, `min.NAME`, `max.NAME` and `null_count.NAME`. What the log does not have of a file is null.
    """
    opened = _open(lake, table, as_of)
    if opened is None:
        return pa.table({"path": pa.array([], pa.string()), "num_records": pa.array([], pa.int64())})
    log = opened.files()
    return log.set_column(log.schema.get_field_index("path"), "path", log["path"].cast(pa.string())).sort_by("path")


def size(lake: Path, table: Table) -> int:
    """Return the bytes of the files that count now."""
    return sum(file.size for file in entries(lake, table))


def _path(file: File) -> str:
    return file.path


def files(lake: Path, table: Table, as_of: int | None = None) -> list[Path]:
    """List the paths of the Parquet files that count, now or as of a version, sorted by name."""
    return [folder(lake, table) / file.path for file in entries(lake, table, as_of)]


def files_by_batch(lake: Path, table: Table) -> dict[int, list[File]]:
    """Batch -> files of an append-only table. A compacted file belongs to several batches."""
    by_batch: dict[int, list[File]] = {}
    for file in entries(lake, table):
        first, last = batches_of(lake, table, file)
        for number in range(first, last + 1):
            by_batch.setdefault(number, []).append(file)
    return by_batch


def files_of(lake: Path, table: Table, number: int) -> list[Path]:
    """List the files of an append-only table that have rows of a batch."""
    return [folder(lake, table) / file.path for file in files_by_batch(lake, table).get(number, ())]


def batches_of(lake: Path, table: Table, file: File) -> tuple[int, int]:
    """Return the first and last batch of a file of an append-only table, from its name."""
    try:
        return batches_in(file.path)
    except LakeError as error:
        raise LakeError(f"internal error: table {table.name} of {lake}: {error}") from error


def batches_in(name: str) -> tuple[int, int]:
    """Return the first and last batch that the name of a file has. Raises LakeError if it has none."""
    named = _BATCH.match(name)
    if named is None:
        raise LakeError(f"the name of {name} has no batch number")
    return int(named[1]), int(named[2] or named[1])


def part_name(first: int, last: int | None = None, name: str | None = None) -> str:
    """Return a new name for files with rows of one batch, or of all from `first` to `last`.

    The files that one task writes have the same name in every table.
    """
    batches = f"{first:08d}" if last is None else f"{first:08d}-{last:08d}"
    return f"part-{batches}-{name or uuid.uuid4().hex}.parquet"


def locate(lake: Path, table: Table, number: int, name: str) -> list[Path]:
    """List the files of an append-only table that have the rows of a batch which a task wrote to files of this name.

    That is the file itself. If compaction or removal replaced it, it is every file of its batches.
    """
    counted = entries(lake, table)
    if any(file.path == name for file in counted):
        return [folder(lake, table) / name]
    first, last = batches_in(name)
    first, last = min(first, number), max(last, number)
    spans = ((file, batches_of(lake, table, file)) for file in counted)
    return [folder(lake, table) / file.path for file, (begin, end) in spans if begin <= last and end >= first]


def uncounted(lake: Path, table: Table) -> list[Path]:
    """List Parquet files in the table's folder that do not count: never committed, or replaced."""
    at = folder(lake, table)
    counted = {file.path for file in entries(lake, table)}
    found = _parquet_files(at) + [f"{name}/{file}" for name in _batch_folders(at) for file in _parquet_files(at / name)]
    return [at / path for path in found if path not in counted]


def _parquet_files(at: Path) -> list[str]:
    """Names of Parquet files in a folder. A table may have thousands: no paths are made of them."""
    try:
        return [name for name in os.listdir(at) if name.endswith(".parquet")]  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []


def _batch_folders(at: Path) -> list[str]:
    """Names of the folders with files of one refresh each."""
    try:
        return [name for name in os.listdir(at) if name.startswith("batch-")]  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []


def sweep_batch(lake: Path, table: Table, number: int) -> int:
    """Delete the files of an abandoned batch, of which none counts; returns how many.

    Unlike `sweep` it may run beside compaction.
    """
    gone = [path for path in uncounted(lake, table) if path.name.startswith(f"part-{number:08d}-")]
    durable.settle(lake)
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)


def sweep(lake: Path, table: Table, keep: Collection[Path] = ()) -> int:
    """Delete the files that do not count, except those in `keep`; returns how many."""
    at = folder(lake, table)
    durable.settle(lake)  # else a power cut could bring back entries that count the files
    removed = 0
    for path in uncounted(lake, table):
        if path not in keep:
            path.unlink(missing_ok=True)
            removed += 1
    for name in _batch_folders(at):
        if not _parquet_files(at / name):
            shutil.rmtree(at / name, ignore_errors=True)  # Spark's markers and checksums of files that are gone
    return removed


def dataset(lake: Path, table: Table, some: Sequence[Path] | None = None) -> pads.Dataset:
    """Open a table, or some of its files, as a pyarrow dataset. Empty if the table is empty or missing."""
    import pyarrow.dataset as pads  # noqa: PLC0415 - most of a second

    paths = [str(path) for path in (files(lake, table) if some is None else some)]
    if not paths:
        return pads.dataset(table.schema.empty_table())
    return pads.dataset(paths, schema=table.schema, format="parquet")


def relation(
    connection: duckdb.DuckDBPyConnection, lake: Path, table: Table, some: Sequence[Path] | None = None
) -> duckdb.DuckDBPyRelation:
    """Open a table, or some of its files, as a DuckDB relation. Empty if the table is empty or missing."""
    paths = [str(path) for path in (files(lake, table) if some is None else some)]
    empty = connection.from_arrow(table.schema.empty_table())
    if not paths:
        return empty
    found = connection.read_parquet(paths, hive_partitioning=False)  # a folder `a=b` above a lake is not a column
    if set(table.schema.names) <= set(found.columns):
        return found
    # An older wirelake wrote them: missing columns are null until the next ingest rebuilds the table.
    return connection.sql("FROM found UNION ALL BY NAME FROM empty")
