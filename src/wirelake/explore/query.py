"""SQL over a lake, in DuckDB: every table is a view of the same name.

A query is one statement that reads. It can read the files of the lake, but no other file and no network.

Where several observers saw a link, tables have what the primary view has: so one more observer changes no answer. `every_messages`,
`every_sessions` and their like have the rows of all views.

In the views that SQL sees, an id is text, as every command prints it: hex digits, or a UUID for an Event Mesh node. So an id that was
copied from output works in `WHERE`. In the tables themselves ids are binary.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.errors import QueryError
from wirelake.explore.visit import Visit

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

_INTERRUPT_SECONDS: Final = 0.02
"""Seconds between two interrupts of a query that ends."""
_EXPLAIN: Final = re.compile(r"\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)
"""The prefix of a statement that is explained."""

_VIEWED: Final = ("sessions", "exchanges", "violations", "messages", "quarantine")
"""Tables with rows of several views. `every_NAME` has all rows of one, NAME those of primary views."""
_IS_PRIMARY: Final = "SELECT * FROM memory.main.every_{name} WHERE is_primary IS DISTINCT FROM false"
_OF_PRIMARY: Final = """
    SELECT m.* FROM memory.main.every_{name} m
    ANTI JOIN (SELECT unnest(uncounted) AS one FROM memory.main.every_sessions WHERE NOT is_primary) other
    ON m.connection_id = other.one.connection_id AND m.observer IS NOT DISTINCT FROM other.one.observer
"""
"""The messages of a view that is not primary are those of these connections, by this observer."""

_TEXT: Final = "lake"
"""Catalog of the views that have ids as text. Errors of DuckDB name it."""
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
    limits: QueryLimits = UNLIMITED,
    needed: Mapping[str, Condition] | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection with a view for every table, as of the last commit or a snapshot.

    It reaches no other file and no network. The views have ids as the tables have them; `with_text_ids` has them as text.

    Of what several observers saw, `messages` and its like have the primary view: what sums count. `every_messages` and its like have all.
    `limits.seconds` is for `time_limit`. The view of a table in `needed` has only files that may have rows of this condition.
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
            delta.relation(connection, seen.lake, table, files).create_view(table.name)
            reachable += map(str, seen.files(table.name))
        connection.execute("SET allowed_paths = $1", [reachable])
        has_others = _has_others(connection)
        for name in needed if needed and has_others else ():  # planning knows no views of views: all files are read
            if name in TABLES:
                connection.execute(f'DROP VIEW "{name}"')
                delta.relation(connection, seen.lake, TABLES[name], seen.files(name)).create_view(name)
        _create_views(connection, primary=has_others)
        _create_text_views(connection)
        _confine(connection, limits)
        yield connection


@contextmanager
def planning(limits: QueryLimits = UNLIMITED) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection to plan statements in: the same views, over tables without rows."""
    import duckdb  # noqa: PLC0415 - only queries pay for it

    from wirelake.explore import file_filters  # noqa: PLC0415 - brings Arrow
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings Delta Lake

    with duckdb.connect(config=_OFFLINE) as connection:
        file_filters.set_up(connection, TABLES.values())
        for table in TABLES.values():
            connection.table(f"{file_filters.SCANNED}.{table.name}").create_view(table.name)
        _create_views(connection, primary=False)
        _create_text_views(connection)
        _confine(connection, limits)
        yield connection


def has_many_files(seen: Snapshot) -> bool:
    """Whether a table has so many files that queries are planned first, to open few of them."""
    from wirelake.explore.file_filters import FEW_FILES  # noqa: PLC0415 - brings Arrow

    return any(len(seen.files(name)) > FEW_FILES for name in seen.versions)


def _create_text_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the views that have ids as text, in a catalog of their own."""
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings Delta Lake

    connection.execute(f"ATTACH ':memory:' AS {_TEXT}")
    with_text_ids(connection)
    for table in TABLES.values():
        for name in (table.name, f"every_{table.name}") if table.name in _VIEWED else (table.name,):
            connection.table(f"memory.main.{name}").project(text_columns(table)).create_view(name)
    connection.execute("USE memory")


def with_text_ids(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Let the names of tables in statements of a connection, or of a cursor, stand for the views that have ids as text."""
    connection.execute(f"USE {_TEXT}")
    return connection


def every_view(sql: str) -> str:
    """Return a statement about all views, made of one about primary views."""
    return re.sub(rf"\b(FROM|JOIN) ({'|'.join(_VIEWED)})\b", r"\1 every_\2", sql)


def _has_others(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the lake has views that sums do not count: several observers saw the same."""
    return connection.execute("SELECT 1 FROM sessions WHERE NOT is_primary LIMIT 1").fetchone() is not None


def _create_views(connection: duckdb.DuckDBPyConnection, *, primary: bool) -> None:
    """Create the views `every_NAME`; with `primary`, let the others have primary views only."""
    for name in _VIEWED:
        if primary:
            connection.execute(f"ALTER VIEW {name} RENAME TO every_{name}")
        else:
            connection.execute(f"CREATE VIEW every_{name} AS FROM memory.main.{name}")
    for name in _VIEWED if primary else ():
        kept = _OF_PRIMARY if name in ("messages", "quarantine") else _IS_PRIMARY
        connection.execute(f"CREATE VIEW {name} AS {kept.format(name=name)}")


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


def text_columns(table: Table) -> str:
    """Return SQL for the columns of a table, with ids as text."""
    ids = ", ".join(_text_ids(table))
    return f"* REPLACE ({ids})" if ids else "*"


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
    """End queries of a connection when the time is up, or when the reader of the visit leaves: they raise QueryError. 0 is no limit."""
    import duckdb  # noqa: PLC0415 - only queries pay for it

    is_over = threading.Event()

    def end() -> None:
        """Interrupt until the block is over: an interrupt between two queries has no effect."""
        while not is_over.wait(_INTERRUPT_SECONDS):
            with suppress(duckdb.Error):  # it was closed meanwhile
                connection.interrupt()

    visit = Visit.current()
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        with visit.ending(lambda: threading.Thread(target=end, daemon=True).start()):
            yield
    except duckdb.InterruptException as error:
        if visit.is_over:
            raise QueryError("the reader left") from error
        raise QueryError(f"the query took longer than {seconds:g} s: ask for less, for instance a shorter time range") from error
    except duckdb.OutOfMemoryException as error:
        raise QueryError("the query takes more memory than the limit: ask for less, for instance a shorter time range") from error
    finally:
        is_over.set()
        timer.cancel()


@contextmanager
def stream(
    lake: str | PathLike[str], sql: str, *, limit: int = 0, seen: Snapshot | None = None, limits: QueryLimits = UNLIMITED
) -> Iterator[pa.RecordBatchReader]:
    """Answer one statement of SQL with a reader of record batches, computed while they are read.

    The reader ends with the `with` block. At most `limit` rows are computed; 0: all. The time limit counts until the block ends.
    """
    from wirelake.lake.store import snapshot  # noqa: PLC0415 - brings Delta Lake

    seen = seen or snapshot.current(lake)
    few = _needed(sql, limits) if has_many_files(seen) else None
    with opened(lake, seen, limits=limits, needed=few) as connection, time_limit(connection, limits.seconds):
        yield answer(with_text_ids(connection), sql, limit)


def answer(connection: duckdb.DuckDBPyConnection, sql: str, limit: int = 0) -> pa.RecordBatchReader:
    """Answer one statement that reads with a reader of record batches. Other statements, and wrong ones, raise QueryError."""
    import duckdb  # noqa: PLC0415 - only queries pay for it
    import pyarrow as pa  # noqa: PLC0415

    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings Delta Lake

    try:
        _check(connection, sql)
        rows = connection.sql(sql)
        found = (rows.limit(limit) if limit else rows).to_arrow_reader(BATCH_ROWS)
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except duckdb.CatalogException as error:
        raise QueryError(f"{_one_line(error)} (tables: {', '.join(TABLES)})") from error
    except duckdb.Error as error:
        raise QueryError(_one_line(error)) from error
    return pa.RecordBatchReader.from_batches(found.schema, _batches(found))


def _needed(sql: str, limits: QueryLimits) -> Scans | None:
    """Plan a statement: table -> the rows that it needs. None if it cannot be planned; then running it says why."""
    with planning(limits) as connection, time_limit(connection, limits.seconds):
        return needed(with_text_ids(connection), sql)


def needed(plans: duckdb.DuckDBPyConnection, sql: str) -> Scans | None:
    """Plan a statement over empty tables. None if it cannot be planned."""
    import duckdb  # noqa: PLC0415 - only queries pay for it

    from wirelake.explore import file_filters  # noqa: PLC0415 - brings Arrow

    try:
        _check(plans, sql)
    except (QueryError, duckdb.Error):
        return None
    prefix = _EXPLAIN.match(sql)
    return file_filters.scans(plans, sql[prefix.end() :] if prefix else sql)


def _batches(found: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Give the batches of an answer; an error in a later row is raised like one in the first."""
    import duckdb  # noqa: PLC0415 - as above

    try:
        yield from found
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except (duckdb.Error, OSError) as error:  # Arrow passes DuckDB's errors on as OSError
        raise QueryError(_one_line(error)) from error


def query(lake: str | PathLike[str], sql: str) -> pa.Table:
    """Answer one statement of SQL: SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN.

    The answer is in memory as a whole; see `stream`.
    """
    with stream(lake, sql) as found:
        return found.read_all()


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
