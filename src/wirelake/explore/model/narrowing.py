"""Narrowing: let the questions of one connection read only files that may have their rows.

Before a question runs, it is planned over empty tables (`explore/file_filters.py`). A temporary view of the connection then hides the
view of a table, and has fewer files. It is replaced when the next question needs others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow.parquet as pq

from wirelake.explore.file_filters import Scans, scans
from wirelake.explore.query import needed, text_columns, time_limit, with_text_ids
from wirelake.lake.tables.catalog import table as table_named

if TYPE_CHECKING:
    import duckdb

    from wirelake.lake.store.snapshot import Snapshot
    from wirelake.lake.tables.schema import Table

__all__ = ["Narrowing"]

Values = Sequence[object] | dict[str, object]


class Narrowing:
    """Plans the questions about one snapshot. May be used from many threads."""

    def __init__(self, seen: Snapshot, plans: duckdb.DuckDBPyConnection) -> None:
        self.seen = seen
        self._plans = plans
        self._lock = threading.Lock()
        self.sizes = {name: len(seen.files(name)) for name in seen.versions}
        """Table -> number of its files."""

    def reader(self, cursor: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """Return a connection that plans each question before it runs."""
        return cast("duckdb.DuckDBPyConnection", _Reader(cursor, self))

    def narrow(self, cursor: duckdb.DuckDBPyConnection, sql: str, seconds: float) -> None:
        """Narrow the tables of a statement over the views that have ids as text."""
        with self._plans.cursor() as plans, time_limit(plans, seconds):
            found = needed(with_text_ids(plans), sql) or {}
        _Reader(cursor, self, text_columns).narrow(found)

    def plan(self, sql: str, values: Values) -> Scans:
        """Return the conditions of a question's scans; of no table if it cannot be planned."""
        with self._lock, self._plans.cursor() as cursor:
            return scans(cursor, sql, values) or {}


class _Reader:
    """A connection of DuckDB whose `execute` narrows the tables of a question first."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, narrowing: Narrowing, columns: Callable[[Table], str] = lambda _: "*") -> None:
        self._cursor = cursor
        self._narrowing = narrowing
        self._columns = columns
        self._narrow: dict[str, tuple[str, ...]] = {}
        """Table -> the files of its temporary view."""

    def execute(self, sql: str, values: Values = ()) -> duckdb.DuckDBPyConnection:
        self.narrow(self._narrowing.plan(sql, values))
        return self._cursor.execute(sql, values or None)

    def narrow(self, found: Scans) -> None:
        """Let each table that is scanned have only files that may have rows of its condition."""
        for name, condition in found.items():
            if name in self._narrowing.sizes:
                self._read(name, tuple(map(str, self._narrowing.seen.matching(name, condition))))

    def _read(self, name: str, files: tuple[str, ...]) -> None:
        """Let the table have only these files, or all."""
        if files == self._narrow.get(name):
            return
        if name in self._narrow:
            self._cursor.execute(f'DROP VIEW temp."{name}"')
            del self._narrow[name]
        if len(files) == self._narrowing.sizes[name] or not self._has_columns(name, files[:1]):
            return
        shown = files or tuple(map(str, self._narrowing.seen.files(name)[:1]))  # a view needs one, to have columns
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in shown)
        rows = f"read_parquet([{listed}], hive_partitioning = false){'' if files else ' WHERE false'}"
        self._cursor.execute(f'CREATE TEMP VIEW "{name}" AS SELECT {self._columns(table_named(name))} FROM {rows}')
        self._narrow[name] = files

    def _has_columns(self, name: str, first: tuple[str, ...]) -> bool:
        """Whether files have all columns: those of an older wirelake lack some, which the view of the table adds."""
        return all(set(table_named(name).schema.names) <= set(pq.read_schema(path).names) for path in first)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)
