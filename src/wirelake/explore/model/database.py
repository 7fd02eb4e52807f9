"""Database: a lake's newest snapshot in DuckDB, for many readers at a time.

Readers see one whole commit. When the lake has a newer one, the next reader opens it; those that still read the older one finish with it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from wirelake.explore.file_filters import SCANNED
from wirelake.explore.model.narrowing import Narrowing
from wirelake.explore.model.windows import spans_sql
from wirelake.explore.query import QueryLimits, answer, has_many_files, opened, planning, time_limit, with_text_ids
from wirelake.lake.store import snapshot

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from wirelake.lake.store.snapshot import Snapshot

__all__ = ["DEFAULT_LIMITS", "Database"]

DEFAULT_LIMITS: Final = QueryLimits(seconds=20, megabytes=512)
"""Limits of a question, unless the caller has others."""
_PLANNING_SHARE: Final = 8
"""Questions are planned in this part of the memory: no table has rows there, but constants are computed."""

_ENDS: Final = """
CREATE TABLE {name} AS
SELECT
    connection_id,
    any_value(transport) AS transport,
    any_value(client_address) AS client_host,
    any_value(client_port) AS client_port,
    any_value(server_address) AS server_host,
    any_value(server_port) AS server_port,
    any_value(observer_kind) AS observer_kind,
    address(any_value(client_address), any_value(client_port)) AS client,
    address(any_value(server_address), any_value(server_port)) AS server
FROM connections
GROUP BY connection_id
"""
"""Both sides of every connection, as `wirelake.explore.reading.records.Ends` has them."""
_ADDRESS: Final = """
CREATE MACRO address(host, port) AS
    CASE WHEN contains(coalesce(host, ''), ':') THEN '[' || host || ']' ELSE coalesce(host, '') END
    || CASE WHEN coalesce(port, 0) > 0 THEN ':' || port ELSE '' END
"""
"""`host:port`, as `wirelake.explore.reading.records.address` writes it."""


class _Opened:
    """One snapshot, opened; closed when it is replaced and nobody reads it any more."""

    def __init__(self, seen: Snapshot, limits: QueryLimits) -> None:
        self.seen = seen
        self.readers = 0
        self.is_replaced = False
        self._stack = ExitStack()
        memory = -(-limits.megabytes // _PLANNING_SHARE) if has_many_files(seen) else 0
        self.connection = self._stack.enter_context(opened(seen.lake, seen, limits=replace(limits, megabytes=limits.megabytes - memory)))
        self.connection.execute(_ADDRESS)
        self.connection.execute(_ENDS.format(name="ends"))
        self.narrowing: Narrowing | None = None
        # Planning knows no views of views: where several observers saw the same, questions read all files.
        if has_many_files(seen) and not self._has_others():
            plans = self._stack.enter_context(planning(replace(limits, megabytes=memory)))
            plans.execute(_ADDRESS)
            plans.execute(_ENDS.format(name=f"{SCANNED}.ends"))
            plans.execute(f"CREATE VIEW ends AS FROM {SCANNED}.ends")
            self.narrowing = Narrowing(seen, plans)
        sql, files = spans_sql(seen.files("messages"))
        self.connection.execute(sql, [files] if files else None)

    def _has_others(self) -> bool:
        """Whether there are views that are not primary."""
        return self.connection.execute("SELECT 1 FROM every_sessions WHERE NOT is_primary LIMIT 1").fetchone() is not None

    def close_if_idle(self) -> None:
        """Close it if it was replaced and nobody reads it."""
        if self.is_replaced and not self.readers:
            self._stack.close()


class Database:
    """Opens a lake for questions. Use it as a context manager; `connection` may be called from many threads."""

    def __init__(self, lake: str | PathLike[str], limits: QueryLimits = DEFAULT_LIMITS) -> None:
        self._lake = lake
        self.limits = limits
        self._lock = threading.Lock()
        self._current: _Opened | None = None

    def __enter__(self) -> Self:
        with self._lock:
            self._renew()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            current, self._current = self._current, None
            if current is not None:
                current.is_replaced = True
                current.close_if_idle()

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a connection to the newest snapshot. Questions in the block end after `limits.seconds` with QueryError."""
        with self.reading() as (connection, _):
            yield connection

    @contextmanager
    def reading(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
        """Give such a connection, and the number of its snapshot."""
        with self._cursor() as (current, cursor):
            yield cursor if current.narrowing is None else current.narrowing.reader(cursor), current.seen.number

    @contextmanager
    def stream(self, sql: str, *, limit: int = 0) -> Iterator[pa.RecordBatchReader]:
        """Answer one statement of SQL, as `wirelake.explore.query.stream` does, within the limits of this database."""
        with self._cursor() as (current, cursor):
            if current.narrowing is not None:
                current.narrowing.narrow(cursor, sql, self.limits.seconds)
            yield answer(with_text_ids(cursor), sql, limit)

    @contextmanager
    def _cursor(self) -> Iterator[tuple[_Opened, duckdb.DuckDBPyConnection]]:
        with self._lock:
            current = self._renew()
            current.readers += 1
        try:
            with current.connection.cursor() as cursor, time_limit(cursor, self.limits.seconds):
                yield current, cursor
        finally:
            with self._lock:
                current.readers -= 1
                current.close_if_idle()

    def snapshot(self) -> Snapshot:
        """Return the snapshot that the next reader sees."""
        with self._lock:
            return self._renew().seen

    def _renew(self) -> _Opened:
        """Open the newest snapshot, unless it is open. The caller holds the lock."""
        newest, current = snapshot.current(self._lake), self._current
        if current is not None and current.seen == newest:
            return current
        self._current = _Opened(newest, self.limits)
        if current is not None:
            current.is_replaced = True
            current.close_if_idle()
        return self._current
