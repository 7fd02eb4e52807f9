"""Rows: messages as JSON lines, CSV or Parquet, with every field of their protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from wirelake.explore.export.selection import own_columns, protocols_in, tables
from wirelake.explore.model.conditions import Condition
from wirelake.explore.model.rows import plain
from wirelake.explore.reading.formats import csv_line

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["write_csv", "write_jsonl", "write_parquet"]

ROWS_AT_ONCE: Final = 500
"""Rows that are made Python objects at a time."""
_ENDS: Final = ("from", "to", "transport", "rules", "clauses", "latency_us")
"""Columns beside those of `messages`, named as in `wirelake read`."""


def write_jsonl(connection: duckdb.DuckDBPyConnection, where: Condition, out: BinaryIO) -> int:
    """Write one JSON object a message; `fields` has those of its protocol. Fields without a value are left out. Returns the count."""
    spoken, count = protocols_in(connection, where), 0
    encode = msgspec.json.Encoder().encode
    for table in tables(connection, where, spoken):
        for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
            lines = []
            for row in batch.to_pylist():
                own = row.get(row["protocol"])
                shown = {name: plain(value) for name, value in row.items() if value is not None and name not in spoken}
                shown["fields"] = {name: plain(value) for name, value in (own or {}).items() if value is not None}
                lines.append(encode(shown))
            out.write(b"\n".join([*lines, b""]))
            count += len(lines)
    return count


def write_csv(connection: duckdb.DuckDBPyConnection, where: Condition, out: BinaryIO) -> int:
    """Write one line a message (RFC 4180); a field of a protocol is the column `protocol.field`. Returns the count."""
    spoken, count = protocols_in(connection, where), 0
    names = _message_columns()
    own = [(protocol, name) for protocol in spoken for name in own_columns(protocol)]
    _put(out, [*names, *(f"{protocol}.{name}" for protocol, name in own)])
    for table in tables(connection, where, spoken):
        for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
            for row in batch.to_pylist():
                cells = [plain(row[name]) for name in names]
                cells += [plain((row[protocol] or {}).get(name)) for protocol, name in own]
                _put(out, cells)
            count += batch.num_rows
    return count


def _put(out: BinaryIO, cells: list[Any]) -> None:
    out.write(f"{csv_line(cells)}\r\n".encode("utf-8", "backslashreplace"))


def _message_columns() -> list[str]:
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings all schemas

    return [*TABLES["messages"].schema.names, *_ENDS]


def write_parquet(connection: duckdb.DuckDBPyConnection, where: Condition, out: BinaryIO) -> int:
    """Write columns with the types of the lake; each protocol has a struct, which is null in messages of others. Returns the count."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only here

    spoken, count = protocols_in(connection, where), 0
    schema = _schema(spoken)
    with pq.ParquetWriter(_Open(out), schema, compression="zstd") as writer:
        for table in tables(connection, where, spoken):
            writer.write_table(table.select(schema.names).cast(schema))
            count += table.num_rows
    return count


def _schema(spoken: list[str]) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415 - only here

    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings all schemas

    kinds = {"rules": pa.list_(pa.string()), "clauses": pa.list_(pa.string()), "latency_us": pa.int64()}
    ends = [pa.field(name, kinds.get(name, pa.string())) for name in _ENDS]
    own = [pa.field(name, pa.struct([TABLES[name].schema.field(column) for column in own_columns(name)])) for name in spoken]
    return pa.schema([*TABLES["messages"].schema, *ends, *own])


class _Open:
    """A file for Arrow that is not closed with its writer: it may be standard output, which cannot tell its place."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._at = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write bytes."""
        self._out.write(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how much was written."""
        return self._at

    def flush(self) -> None:
        """Hand on what was written."""
        self._out.flush()

    def close(self) -> None:
        """End, and leave the file open."""
        self.closed = True
