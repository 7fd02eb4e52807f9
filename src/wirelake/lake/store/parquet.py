"""Write decoded batches to Parquet: one file per table and task, in bounded row groups.

No table counts the files until they are committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wirelake.lake.store import durable
from wirelake.lake.store.delta import File, folder, part_name
from wirelake.lake.store.sorting import is_worth_sorting, order, sort_columns
from wirelake.lake.store.statistics import file_statistics
from wirelake.lake.tables.filtered import sorted_by
from wirelake.lake.tables.schema import Table

__all__ = ["ROW_GROUP_BYTES", "GoldFile", "Sheet", "Sheets", "whole"]

ROW_GROUP_BYTES: Final = 12 * 1024 * 1024
"""Bytes of Arrow memory a table may hold before they become a row group.

The memory of a task is this times the tables, and again for sorting. With 16 MiB a worker held 30 MiB more, and took the same CPU.
"""

_COMPRESSION: Final = "snappy"
"""The compression of Parquet files, chosen by measurement.

Of a million small messages, least CPU of five runs on a busy machine, per message for both tables: none 790 ns and 261 MB, snappy 920 ns
and 71 MB, lz4 1,000 ns and 71 MB, zstd (level 1) 1,190 ns and 32 MB.
"""

_SAMPLE: Final = 64 * 1024
"""Bytes of a column that are compressed on trial."""
_WORTH_IT: Final = 0.8
"""A column is compressed if the trial leaves less than this share: encrypted or compressed bodies stay as they are, and cost less."""

_BATCH_ROWS: Final = 65_536
"""Values that the writer encodes at a time. Its own default, 1,024, took a tenth more CPU for rows of messages."""

_BULKY: Final = frozenset({"body", "body_json", "raw", "content", "text"})
"""Columns without statistics: their smallest and largest value may be large and help no query."""


class Sheet:
    """The Parquet file of one table and task. It is created with its first row group."""

    def __init__(self, lake: Path, table: Table, batch: int, last: int | None = None, *, name: str | None = None) -> None:
        """For rows of one batch, or of all from `batch` to `last`. The file name has the numbers."""
        self._table = table
        self.path: Final = folder(lake, table) / (name or part_name(batch, last))
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._schema: pa.Schema | None = None
        self._writer: pq.ParquetWriter | None = None
        self._sorted_by: tuple[str, ...] = ()
        """Columns that each row group is sorted by; decided with the first one."""
        self._footers: list[pq.FileMetaData] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. They are written when enough are buffered."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        if self._schema is None:
            self._schema = _as_written(self._held[0].schema, self._table.schema)
        # One dictionary per column: a second one within a row group would make the writer give up on dictionaries.
        rows = pa.Table.from_batches([_fit(batch, self._schema) for batch in self._held]).unify_dictionaries()
        if self._writer is None:
            by = sorted_by(self._table)
            self._sorted_by = by if by and is_worth_sorting(rows) else ()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            has_ids = bool(self._sorted_by)
            self._writer = _writer(self.path, self._schema, self._footers, self._sorted_by, self._held[0], has_ids=has_ids)
        self._held.clear()
        self._bytes = 0
        self._rows += rows.num_rows
        places = order(rows, self._sorted_by) if self._sorted_by else None
        if places is not None:
            columns = rows.columns
            del rows
            sort_columns(columns, places)
            rows = pa.table(columns, schema=self._schema)
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def close(self, *, is_alone: bool = True) -> File | None:
        """Write the rest, close the file and make it durable, unless the caller does that; None if it has no rows."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        if is_alone:
            durable.sync([self.path])
        return File(self.path.name, self.path.stat().st_size, self._rows, file_statistics(self._footers[0], self._table))

    def discard(self) -> None:
        """Delete the file."""
        self._held.clear()
        if self._writer is not None:
            _abandon(self._writer)
            self.path.unlink(missing_ok=True)


def _abandon(writer: pq.ParquetWriter) -> None:
    """Close a file that is not wanted. A writer that failed has no footer; what made it fail is told by whoever gives up."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


def _as_written(actual: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return the schema of record, with dictionaries where the first batch has them.

    Parquet readers see plain columns.
    """
    fields = []
    for field in wanted:
        kind = actual.field(field.name).type
        keeps = pa.types.is_dictionary(kind) and kind.value_type == field.type
        fields.append(field.with_type(pa.dictionary(pa.int32(), field.type) if keeps else field.type))
    return pa.schema(fields)


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to this schema; free if they have it already."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        values = batch.column(field.name)
        if values.type == field.type:
            columns.append(values)
        elif pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(values.type):
            columns.append(values.cast(field.type.value_type).dictionary_encode())
        else:
            columns.append(values.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_statistics(field: pa.Field, *, has_ids: bool) -> bool:
    """Whether the footer has the smallest and largest value of a column."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    is_plain = field.name not in _BULKY and not pa.types.is_nested(kind)
    return is_plain and (has_ids or not pa.types.is_binary(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The names of a column's parts in a Parquet file."""
    if pa.types.is_dictionary(kind):
        yield path
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(number).name}", kind.field(number).type)
    else:
        yield path


def _is_compressible(column: pa.Array) -> bool:
    """Whether compressing the first bytes of a column makes them smaller."""
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)) or not len(column):
        return True
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    start, stop = int(offsets[0]), min(int(offsets[-1]), int(offsets[0]) + _SAMPLE)
    if stop - start < _SAMPLE:
        return True
    sample = column.buffers()[2].slice(start, stop - start)
    return len(pa.compress(sample, _COMPRESSION, asbytes=True)) < _WORTH_IT * (stop - start)


def _writer(
    path: Path,
    schema: pa.Schema,
    footers: list[pq.FileMetaData],
    sorted_by: tuple[str, ...] = (),
    first: pa.RecordBatch | None = None,
    *,
    has_ids: bool = True,
) -> pq.ParquetWriter:
    """Create a file. `footers` gets its footer when it is closed; every row group is sorted by these columns.

    Bulky columns that the first rows show to be incompressible are not compressed. Without `has_ids`, columns of ids have no statistics:
    ids are hashes, and those of many sessions in no order would have the same smallest and largest values everywhere.
    """
    hard = {name for name in _BULKY & set(schema.names) if first is not None and not _is_compressible(first.column(name))}
    leaves = [(field.name, leaf) for field in schema for leaf in _leaves(field.name, field.type)]
    return pq.ParquetWriter(
        path,
        schema,
        metadata_collector=footers,
        sorting_columns=pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in sorted_by], "at_start") or None,
        compression={leaf: "none" if name in hard else _COMPRESSION for name, leaf in leaves},
        # Times, offsets and sizes grow slowly: writing their differences took a quarter off the whole, measured once, and some space.
        column_encoding={field.name: "DELTA_BINARY_PACKED" for field in schema if _is_number(field.type)},
        # Looking for a dictionary where there is none costs more than it saves: only columns that came with one keep it.
        use_dictionary=[field.name for field in schema if pa.types.is_dictionary(field.type)],
        write_statistics=[field.name for field in schema if _has_statistics(field, has_ids=has_ids)],
        # Readers take the schema from the table, and a stored Arrow schema would bring dictionaries back as types.
        store_schema=False,
        write_batch_size=_BATCH_ROWS,
    )


def whole(lake: Path, table: Table, batch: int, rows: Iterable[pa.RecordBatch]) -> list[File]:
    """Write all rows of a table and batch to one file; an empty list if there are none."""
    sheet = Sheet(lake, table, batch)
    for one in rows:
        sheet.add(one)
    closed = sheet.close()
    return [closed] if closed else []


class Sheets:
    """The files of all tables of one task."""

    def __init__(self, lake: Path, tables: Iterable[Table], batch: int, last: int | None = None) -> None:
        self.name: Final = part_name(batch, last)
        """The name that the files have in every table."""
        self._sheets = {table.name: Sheet(lake, table, batch, name=self.name) for table in tables}

    def add(self, decoded: Mapping[str, Iterable[pa.RecordBatch]]) -> None:
        """Add decoded rows: table name -> batches."""
        for name, batches in decoded.items():
            for batch in batches:
                self._sheets[name].add(batch)

    def close(self) -> dict[str, File]:
        """Close all files, and make them durable together; tables without rows have none."""
        closed = {name: file for name, sheet in self._sheets.items() if (file := sheet.close(is_alone=False)) is not None}
        durable.sync(self._sheets[name].path for name in closed)
        return closed

    def discard(self) -> None:
        """Delete all files."""
        for sheet in self._sheets.values():
            sheet.discard()


class GoldFile:
    """The Parquet file of one gold table and range of keys. It is created with its first row group."""

    def __init__(self, folder: Path, name: str, table: Table) -> None:
        self._name = name
        self._table = table
        self._path = folder / name
        self._schema = pa.schema([field.with_type(_dictionary(field)) for field in table.schema])
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows. They are written when enough are buffered."""
        if rows.num_rows:
            self._held.append(pa.table([_encoded(rows[field.name], field) for field in self._schema], schema=self._schema))
            self._bytes += self._held[-1].nbytes
            if self._bytes >= ROW_GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _writer(self._path, self._schema, self._footers)
        rows = pa.concat_tables(self._held).unify_dictionaries()
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows += rows.num_rows
        self._held.clear()
        self._bytes = 0

    def close(self) -> File | None:
        """Write the rest and close the file, which the caller makes durable with others; None if it has no rows."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        return File(self._name, self._path.stat().st_size, self._rows, file_statistics(self._footers[0], self._table))

    def discard(self) -> None:
        """Delete the file."""
        self._held.clear()
        if self._writer is not None:
            _abandon(self._writer)
            self._path.unlink(missing_ok=True)


_DISTINCT: Final = frozenset({"correlation_id", "request_message_id", "response_message_id", "message_id", "first_message_id"})
"""Columns whose values differ from row to row: a dictionary would only cost."""


def _dictionary(field: pa.Field) -> pa.DataType:
    has_words = (pa.types.is_string(field.type) or pa.types.is_binary(field.type)) and field.name not in _DISTINCT
    return pa.dictionary(pa.int32(), field.type) if has_words else field.type


def _encoded(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
        return column.cast(field.type.value_type).dictionary_encode()
    return column.cast(field.type)
