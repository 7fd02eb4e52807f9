"""SQL over a lake: every table is a view of its own name in a DuckDB that lives as long as one question.

It refuses to write: a question is one statement that reads, and the only files within its reach are those of the lake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wirelake.errors import LakeError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from wirelake.lake.snapshot import Snapshot

__all__ = ["opened", "query"]

_EXPLAIN: Final = re.compile(r"\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)
"""What stands before the statement that is explained."""

_OFFLINE: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


@contextmanager
def opened(lake: Path, seen: Snapshot | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with a view for every table, as of the last whole batch or of a snapshot; it reaches no other file and no network."""
    import duckdb  # noqa: PLC0415 - only questions pay for it

    from wirelake.lake import delta, snapshot  # noqa: PLC0415 - brings Delta Lake
    from wirelake.lake.catalog import TABLES  # noqa: PLC0415

    seen = seen or snapshot.current(lake)
    with duckdb.connect(config=_OFFLINE) as connection:
        reachable: list[str] = []
        for table in TABLES.values():
            files = seen.files(table)
            delta.relation(connection, seen.lake, table, files).create_view(table.name)
            reachable += map(str, files)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET allowed_paths = $1", [reachable])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def query(lake: Path, sql: str) -> pa.Table:
    """The answer to one statement of SQL: SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN."""
    import duckdb  # noqa: PLC0415 - only questions pay for it

    from wirelake.lake.catalog import TABLES  # noqa: PLC0415 - brings Delta Lake

    with opened(lake) as connection:
        try:
            _check(connection, sql)
            return connection.sql(sql).to_arrow_table()
        except duckdb.CatalogException as error:
            raise LakeError(f"{_one_line(error)} (tables: {', '.join(TABLES)})") from error
        except duckdb.Error as error:
            raise LakeError(_one_line(error)) from error


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """One statement, and one that reads; EXPLAIN ANALYZE carries out what it explains, so that has to read as well."""
    kinds = _kinds(connection, sql)
    if kinds == ["EXPLAIN"] and (prefix := _EXPLAIN.match(sql)):
        kinds = _kinds(connection, sql[prefix.end() :])
    if len(kinds) != 1:
        raise LakeError(f"give one statement of SQL, not {len(kinds) or 'none'}")
    if kinds != ["SELECT"]:
        raise LakeError(f"a lake is only read here: SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN of these, not {kinds[0]}")


def _kinds(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    return [statement.type.name for statement in connection.extract_statements(sql)]


def _one_line(error: Exception) -> str:
    """What DuckDB says, without its drawing of where."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())
