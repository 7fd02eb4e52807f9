"""SQL over a lake, in DuckDB: every table is a view of the same name.

A query is one statement that reads. It can read the files of the lake, but no other file and no network.

Where several observers saw a link, tables have what the primary view has: so one more observer changes no answer. `every_messages`,
`every_sessions` and their like have the rows of all views.

In these views an id is text, as every command prints it: hex digits, or a UUID for an Event Mesh node. So an id that was copied from
output works in `WHERE`. In the tables themselves ids are binary.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.errors import QueryError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from wirelake.explore.file_filters import Scans
    from wirelake.lake.store.skipping import Condition
    from wirelake.lake.store.snapshot import Snapshot
    from wirelake.lake.tables.schema import Table

__all__ = [
    "BATCH_ROWS",
    "UNLIMITED",
    "QueryLimits",
    "every_view",
    "has_many_files",
    "opened",
    "planning",
    "query",
    "stream",
    "time_limit",
]

BATCH_ROWS: Final = 256
"""Rows of one record batch of `stream`: few, because one body may have megabytes."""


class QueryLimits(msgspec.Struct, frozen=True):
    """Limits of queries; 0: no limit."""

    seconds: float = 0
    """Seconds that one query may take."""
    megabytes: int = 0
    """Megabytes of memory for all queries of a database together. Nothing is written to disk instead."""
    threads: int = 0
    """Threads that one query may use."""


UNLIMITED: Final = QueryLimits()
"""As much as the machine has."""

_EXPLAIN: Final = re.compile(r"\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)
"""The prefix of a statement that is explained."""

_VIEWED: Final = ("sessions", "exchanges", "violations", "messages", "quarantine")
"""Tables with rows of several views. `every_NAME` has all rows of one, NAME those of primary views."""
_IS_PRIMARY: Final = "SELECT * FROM every_{name} WHERE is_primary IS DISTINCT FROM false"
_OF_PRIMARY: Final = """
    SELECT m.* FROM every_{name} m ANTI JOIN (SELECT unnest(uncounted) AS one FROM every_sessions WHERE NOT is_primary) other
    ON m.connection_id = {id} AND m.observer IS NOT DISTINCT FROM other.one.observer
"""
"""The messages of a view that is not primary are those of these connections, by this observer."""

_UIDS: Final = ("uid", "request_uid")
"""Binary columns that are ids, though their names do not end in `_id`."""

_OFFLINE: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


@contextmanager
def opened(
    lake: str | PathLike[str],
    seen: Snapshot | None = None,
    *,
    text_ids: bool = False,
    limits: QueryLimits = UNLIMITED,
    needed: Mapping[str, Condition] | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection with a view for every table, as of the last commit or a snapshot.

    It reaches no other file and no network.

    With `text_ids` the views have ids as text; otherwise as the tables have them. Of what several observers saw, `messages` and its like
    have the primary view: what sums count. `every_messages` and its like have all. `limits.seconds` is for `time_limit`. The view of a
    table in `needed` has only files that may have rows of this condition.
    """
    import duckdb  # noqa: PLC0415 - only queries pay for it

    from wirelake.lake.store import delta, snapshot  # noqa: PLC0415 - brings Delta Lake
    from wirelake.lake.tables import sessions  # noqa: PLC0415
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415

    seen = seen or snapshot.current(lake)
    with duckdb.connect(config=_OFFLINE) as connection:
        reachable: list[str] = []
        for table in TABLES.values():
            # Sessions say which messages are of other views.
            condition = (needed or {}).get(table.name) if table.name != sessions.TABLE.name else None
            files = seen.files(table.name) if condition is None else seen.matching(table.name, condition)
            _create_view(table, delta.relation(connection, seen.lake, table, files), text_ids=text_ids)
            reachable += map(str, seen.files(table.name))
        connection.execute("SET allowed_paths = $1", [reachable])
        has_others = _has_others(connection)
        for name in needed if needed and has_others else ():  # planning knows no views of views: all files are read
            if name in TABLES:
                connection.execute(f'DROP VIEW "{name}"')
                _create_view(TABLES[name], delta.relation(connection, seen.lake, TABLES[name], seen.files(name)), text_ids=text_ids)
        _create_views(connection, primary=has_others, text_ids=text_ids)
        _confine(connection, limits)
        yield connection


@contextmanager
def planning(*, text_ids: bool = False, limits: QueryLimits = UNLIMITED) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection to plan statements in: the same views, over tables without rows."""
    import duckdb  # noqa: PLC0415 - only queries pay for it

    from wirelake.explore import file_filters  # noqa: PLC0415 - brings Arrow
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings Delta Lake

    with duckdb.connect(config=_OFFLINE) as connection:
        file_filters.set_up(connection, TABLES.values())
        for table in TABLES.values():
            _create_view(table, connection.table(f"{file_filters.SCANNED}.{table.name}"), text_ids=text_ids)
        _create_views(connection, primary=False, text_ids=text_ids)
        _confine(connection, limits)
        yield connection


def has_many_files(seen: Snapshot) -> bool:
    """Whether a table has so many files that queries are planned first, to open few of them."""
    from wirelake.explore.file_filters import FEW_FILES  # noqa: PLC0415 - brings Arrow

    return any(len(seen.files(name)) > FEW_FILES for name in seen.versions)


def _create_view(table: Table, rows: duckdb.DuckDBPyRelation, *, text_ids: bool) -> None:
    """Create the view of a table."""
    if text_ids and (ids := ", ".join(_text_ids(table))):
        rows = rows.project(f"* REPLACE ({ids})")
    rows.create_view(table.name)


def every_view(sql: str) -> str:
    """Return a statement about all views, made of one about primary views."""
    return re.sub(rf"\b(FROM|JOIN) ({'|'.join(_VIEWED)})\b", r"\1 every_\2", sql)


def _has_others(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the lake has views that sums do not count: several observers saw the same."""
    return connection.execute("SELECT 1 FROM sessions WHERE NOT is_primary LIMIT 1").fetchone() is not None


def _create_views(connection: duckdb.DuckDBPyConnection, *, primary: bool, text_ids: bool) -> None:
    """Create the views `every_NAME`; with `primary`, let the others have primary views only."""
    named = "lower(hex(other.one.connection_id))" if text_ids else "other.one.connection_id"
    for name in _VIEWED:
        if primary:
            connection.execute(f"ALTER VIEW {name} RENAME TO every_{name}")
        else:
            connection.execute(f"CREATE VIEW every_{name} AS FROM {name}")
    for name in _VIEWED if primary else ():
        kept = _OF_PRIMARY if name in ("messages", "quarantine") else _IS_PRIMARY
        connection.execute(f"CREATE VIEW {name} AS {kept.format(name=name, id=named)}")


def _confine(connection: duckdb.DuckDBPyConnection, limits: QueryLimits) -> None:
    """Set what queries may use, and let no query change it."""
    connection.execute("SET TimeZone = 'UTC'")
    if limits.megabytes:
        connection.execute(f"SET memory_limit = '{limits.megabytes:d} MB'")
        connection.execute("SET temp_directory = ''")
    if limits.threads:
        connection.execute(f"SET threads = {limits.threads:d}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _text_ids(table: Table) -> Iterator[str]:
    """Give SQL for the id columns of a table, each as text."""
    for field in table.schema:
        name, kind = f'"{field.name}"', str(field.type)
        if kind == "binary" and field.name == "node_id":
            yield f"hex({name})::UUID AS {name}"  # a UUID equals its text with and without dashes
        elif kind == "binary" and (field.name.endswith("_id") or field.name in _UIDS):
            yield f"lower(hex({name})) AS {name}"
        elif kind.startswith("list<") and kind.endswith(": binary>") and field.name.endswith("_ids"):
            yield f"[lower(hex(each)) FOR each IN {name}] AS {name}"


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """End queries of a connection that run when the time is up: they raise QueryError. 0 is no limit."""
    import duckdb  # noqa: PLC0415 - only queries pay for it

    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise QueryError(f"the query took longer than {seconds:g} s: ask for less, for instance a shorter time range") from error
    except duckdb.OutOfMemoryException as error:
        raise QueryError("the query takes more memory than the limit: ask for less, for instance a shorter time range") from error
    finally:
        timer.cancel()


@contextmanager
def stream(
    lake: str | PathLike[str], sql: str, *, limit: int = 0, seen: Snapshot | None = None, limits: QueryLimits = UNLIMITED
) -> Iterator[pa.RecordBatchReader]:
    """Answer one statement of SQL with a reader of record batches, computed while they are read.

    The reader ends with the `with` block. At most `limit` rows are computed; 0: all. The time limit counts until the block ends.
    """
    import duckdb  # noqa: PLC0415 - only queries pay for it
    import pyarrow as pa  # noqa: PLC0415

    from wirelake.lake.store import snapshot  # noqa: PLC0415 - brings Delta Lake
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415

    seen = seen or snapshot.current(lake)
    needed = _needed(sql, limits) if has_many_files(seen) else None
    with (
        opened(lake, seen, text_ids=True, limits=limits, needed=needed) as connection,
        time_limit(connection, limits.seconds),
    ):
        try:
            _check(connection, sql)
            rows = connection.sql(sql)
            answer = (rows.limit(limit) if limit else rows).to_arrow_reader(BATCH_ROWS)
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            raise
        except duckdb.CatalogException as error:
            raise QueryError(f"{_one_line(error)} (tables: {', '.join(TABLES)})") from error
        except duckdb.Error as error:
            raise QueryError(_one_line(error)) from error
        yield pa.RecordBatchReader.from_batches(answer.schema, _batches(answer))


def _needed(sql: str, limits: QueryLimits) -> Scans | None:
    """Plan a statement: table -> the rows that it needs. None if it cannot be planned; then running it says why."""
    import duckdb  # noqa: PLC0415 - only queries pay for it

    from wirelake.explore import file_filters  # noqa: PLC0415 - brings Arrow

    with planning(text_ids=True, limits=limits) as connection, time_limit(connection, limits.seconds):
        try:
            _check(connection, sql)
        except (QueryError, duckdb.Error):
            return None
        prefix = _EXPLAIN.match(sql)
        return file_filters.scans(connection, sql[prefix.end() :] if prefix else sql)


def _batches(answer: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Give the batches of an answer; an error in a later row is raised like one in the first."""
    import duckdb  # noqa: PLC0415 - as above

    try:
        yield from answer
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except (duckdb.Error, OSError) as error:  # Arrow passes DuckDB's errors on as OSError
        raise QueryError(_one_line(error)) from error


def query(lake: str | PathLike[str], sql: str) -> pa.Table:
    """Answer one statement of SQL: SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN.

    The answer is in memory as a whole; see `stream`.
    """
    with stream(lake, sql) as answer:
        return answer.read_all()


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse all but one reading statement; EXPLAIN ANALYZE runs its statement, so that must read, too."""
    kinds = _kinds(connection, sql)
    if kinds == ["EXPLAIN"] and (prefix := _EXPLAIN.match(sql)):
        kinds = _kinds(connection, sql[prefix.end() :])
    if len(kinds) != 1:
        raise QueryError(f"give one statement of SQL, not {len(kinds) or 'none'}")
    if kinds != ["SELECT"]:
        raise QueryError(f"a lake is only read here: SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN of these, not {kinds[0]}")


def _kinds(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    return [statement.type.name for statement in connection.extract_statements(sql)]


def _one_line(error: Exception) -> str:
    """Give DuckDB's message on one line, without its excerpt of the statement."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())
