"""Find the sessions that new batches affect, and the batches in which these sessions occur.

A session is affected by anything new of it, or of a connection it uses. Where sessions are connections, or links over several, all
messages on an affected connection belong together; nodes do not affect each other by sharing one. A session without new messages is
affected when later messages of others make it count as silent.

It only reads the index, with DuckDB: the index is small, and starting a Spark job takes longer than the answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wirelake.lake.gold.rules.registry import NODE, SESSION_IS, SILENCE
from wirelake.lake.store import delta
from wirelake.lake.tables.index import CONNECTION_INDEX, MINUTE_INDEX

if TYPE_CHECKING:
    import duckdb

__all__ = ["SLOTS", "Affected", "affected", "minutes", "slot"]

SLOTS: Final = 1024
"""Number of hash slots of keys; see `key_ranges.py`."""


class Affected(msgspec.Struct, frozen=True):
    """What a refresh must rebuild, and the batches to read for it."""

    sessions: Path | None
    """Parquet file with the `session_id` of all affected sessions; None: all sessions."""
    connections: Path | None
    """Parquet file with the `connection_id` of all their connections; None: all connections."""
    slots: frozenset[int]
    """Hash slots of the affected sessions."""
    protocols: tuple[str, ...]
    """Their protocols."""
    fresh: tuple[int, ...]
    """New batches: all their rows are affected."""
    older: tuple[int, ...]
    """Older batches with rows of affected sessions, among others."""
    newest: dict[str, datetime]
    """Protocol -> time of its last message, for protocols that detect silence by it."""


def slot(key: bytes) -> int:
    """Return the hash slot of a key: the same as `pmod(crc32(key), 1024)` in Spark."""
    return zlib.crc32(key) % SLOTS


def _asking(scratch: Path) -> duckdb.DuckDBPyConnection:
    """Open DuckDB with a memory limit that leaves memory for Spark; it spills to the scratch folder."""
    import duckdb  # noqa: PLC0415 - only a refresh needs it

    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET temp_directory = $1", [str(scratch / "spill")])
    connection.execute("SET memory_limit = '1GB'")
    return connection


def affected(lake: Path, built: int, newest: int, scratch: Path) -> Affected:
    """Return what batches after `built`, up to `newest`, affect."""
    with _asking(scratch) as connection:
        delta.relation(connection, lake, CONNECTION_INDEX).create_view("connection_index")
        connection.execute(
            "CREATE TABLE occurrences AS "
            "SELECT DISTINCT batch, protocol, session_id, connection_id FROM connection_index WHERE batch <= $1",
            [newest],
        )
        connection.execute("CREATE TABLE affected (session_id BLOB PRIMARY KEY)")
        connection.execute(
            """
            INSERT INTO affected SELECT DISTINCT session_id FROM occurrences
            WHERE batch > $1 OR connection_id IN (SELECT connection_id FROM occurrences WHERE batch > $1)
            """,
            [built],
        )
        heard = _silenced(connection, built, newest)
        _closed(connection)
        connections, sessions = scratch / "connections.parquet", scratch / "sessions.parquet"
        connection.execute("CREATE TABLE near AS SELECT DISTINCT connection_id FROM occurrences SEMI JOIN affected USING (session_id)")
        connection.table("near").write_parquet(str(connections))
        connection.table("affected").write_parquet(str(sessions))
        batches = _column(
            connection,
            """
            SELECT DISTINCT batch FROM occurrences WHERE session_id IN (SELECT session_id FROM affected)
            OR connection_id IN (SELECT connection_id FROM near) ORDER BY 1
            """,
        )
        spoken = "SELECT DISTINCT protocol FROM occurrences SEMI JOIN affected USING (session_id) WHERE protocol IS NOT NULL ORDER BY 1"
        return Affected(
            sessions,
            connections,
            frozenset(map(slot, map(bytes, _column(connection, "SELECT session_id FROM affected")))),
            tuple(_column(connection, spoken)),
            tuple(batch for batch in batches if batch > built),
            tuple(batch for batch in batches if batch <= built),
            heard,
        )


def _silenced(connection: duckdb.DuckDBPyConnection, built: int, newest: int) -> dict[str, datetime]:
    """Add sessions that became silent.

    Returns the time of the last message of each protocol that detects silence.
    """
    heard: dict[str, datetime] = {}
    for protocol, seconds in SILENCE.items():
        last = "SELECT max(last_seen) FROM connection_index WHERE protocol = $1 AND direction IS NOT NULL AND batch <= $2"
        now, before = (connection.execute(last, [protocol, batch]).fetchall()[0][0] for batch in (newest, built))
        if now is None:
            continue
        heard[protocol] = now
        if before is not None and before < now:
            connection.execute(
                """
                INSERT OR IGNORE INTO affected
                SELECT session_id FROM connection_index WHERE protocol = $1 AND direction IS NOT NULL AND batch <= $2
                GROUP BY session_id HAVING max(last_seen) + to_microseconds($3) BETWEEN $4 AND $5
                """,
                [protocol, newest, int(seconds * 1e6), before, now],
            )
    return heard


def _closed(connection: duckdb.DuckDBPyConnection) -> None:
    """Add sessions that share a connection with affected ones, until there are no more.

    Nodes are not connected that way.
    """
    nodes = [protocol for protocol, what in SESSION_IS.items() if what == NODE]
    while connection.execute(
        """
        INSERT OR IGNORE INTO affected
        SELECT DISTINCT session_id FROM occurrences WHERE connection_id IN (
            SELECT connection_id FROM occurrences SEMI JOIN affected USING (session_id)
            WHERE protocol IS NULL OR NOT list_contains($1, protocol)
        ) AND session_id NOT IN (SELECT session_id FROM affected)
        """,
        [nodes],
    ).fetchall()[0][0]:
        pass


def _column(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    return [row[0] for row in connection.execute(sql).fetchall()]


def minutes(lake: Path, what: Affected, changed_files: Mapping[str, Sequence[Path]], scratch: Path) -> tuple[Path, frozenset[int]]:
    """Return the minutes with new or changed rows: a Parquet file of `minute_us`, and their slots.

    `changed_files` has, by time column, the old and new files of gold tables with rows of affected sessions.
    """
    begins = "SELECT DISTINCT epoch_us({0}) - (epoch_us({0}) % 60000000 + 60000000) % 60000000 AS minute_us FROM"
    with _asking(scratch) as connection:
        delta.relation(connection, lake, MINUTE_INDEX).create_view("minute_index")
        connection.read_parquet(str(what.sessions), hive_partitioning=False).create_view("affected")
        parts = [f"{begins.format('minute')} minute_index WHERE batch >= {min(what.fresh, default=1 << 62)}"]
        for number, (column, files) in enumerate(changed_files.items()):
            if files:
                connection.read_parquet([str(file) for file in files], hive_partitioning=False).create_view(f"changed_{number}")
                parts.append(f"{begins.format(column)} changed_{number} SEMI JOIN affected USING (session_id) WHERE {column} IS NOT NULL")
        connection.execute(f"CREATE TABLE minutes AS {' UNION '.join(parts)}")
        at = scratch / "minutes.parquet"
        connection.table("minutes").write_parquet(str(at))
        return at, frozenset(slot(str(minute).encode()) for minute in _column(connection, "SELECT minute_us FROM minutes"))
