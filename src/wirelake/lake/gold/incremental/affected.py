"""What new batches touch: the sessions whose rows must be built anew, and the batches in which these occur.

A session is touched by whatever is new of it or of a connection it speaks on. Where sessions are connections, or links over several,
all that was said on a touched connection belongs together; nodes do not touch each other by sharing one. And a session that said nothing
is touched when others have spoken on for so long that it counts as silent now.

Only the index is asked, without Spark: it is small, and starting a Spark job takes longer than the answer.

It refuses to read messages.
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
"""Into how many slots keys are dealt; see `key_ranges.py`."""


class Affected(msgspec.Struct, frozen=True):
    """What is to be built anew, and from where."""

    sessions: Path | None
    """A Parquet file with the `session_id` of all touched sessions; None: all there are."""
    connections: Path | None
    """A Parquet file with the `connection_id` of all connections they were seen on; None: all there are."""
    slots: frozenset[int]
    """Where the rows of touched sessions may lie."""
    protocols: tuple[str, ...]
    """What they speak."""
    fresh: tuple[int, ...]
    """The new batches: all that is in them is touched."""
    older: tuple[int, ...]
    """Batches of before in which touched sessions occur, among others."""
    newest: dict[str, datetime]
    """Protocol -> when it was last heard, of those that tell silence by that."""


def slot(key: bytes) -> int:
    """Where rows of this key lie: the same as `pmod(crc32(key), 1024)` in Spark."""
    return zlib.crc32(key) % SLOTS


def _asking(scratch: Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB of our own that stays out of Spark's way and spills to where the work is done."""
    import duckdb  # noqa: PLC0415 - only who builds gold pays for it

    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET temp_directory = $1", [str(scratch / "spill")])
    connection.execute("SET memory_limit = '1GB'")
    return connection


def affected(lake: Path, built: int, newest: int, scratch: Path) -> Affected:
    """What batches after `built`, up to `newest`, touch."""
    with _asking(scratch) as connection:
        delta.relation(connection, lake, CONNECTION_INDEX).create_view("all_talks")
        connection.execute(
            "CREATE TABLE talks AS SELECT DISTINCT batch, protocol, session_id, connection_id FROM all_talks WHERE batch <= $1", [newest]
        )
        connection.execute("CREATE TABLE affected (session_id BLOB PRIMARY KEY)")
        connection.execute(
            """
            INSERT INTO affected SELECT DISTINCT session_id FROM talks
            WHERE batch > $1 OR connection_id IN (SELECT connection_id FROM talks WHERE batch > $1)
            """,
            [built],
        )
        heard = _silenced(connection, built, newest)
        _closed(connection)
        connections, sessions = scratch / "connections.parquet", scratch / "sessions.parquet"
        connection.execute("CREATE TABLE near AS SELECT DISTINCT connection_id FROM talks SEMI JOIN affected USING (session_id)")
        connection.table("near").write_parquet(str(connections))
        connection.table("affected").write_parquet(str(sessions))
        batches = _column(
            connection,
            """
            SELECT DISTINCT batch FROM talks WHERE session_id IN (SELECT session_id FROM affected)
            OR connection_id IN (SELECT connection_id FROM near) ORDER BY 1
            """,
        )
        spoken = "SELECT DISTINCT protocol FROM talks SEMI JOIN affected USING (session_id) WHERE protocol IS NOT NULL ORDER BY 1"
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
    """Add sessions that are silent now and were not before; says when each protocol that knows silence was last heard."""
    heard: dict[str, datetime] = {}
    for protocol, seconds in SILENCE.items():
        last = "SELECT max(last_seen) FROM all_talks WHERE protocol = $1 AND direction IS NOT NULL AND batch <= $2"
        now, before = (connection.execute(last, [protocol, batch]).fetchall()[0][0] for batch in (newest, built))
        if now is None:
            continue
        heard[protocol] = now
        if before is not None and before < now:
            connection.execute(
                """
                INSERT OR IGNORE INTO affected
                SELECT session_id FROM all_talks WHERE protocol = $1 AND direction IS NOT NULL AND batch <= $2
                GROUP BY session_id HAVING max(last_seen) + to_microseconds($3) BETWEEN $4 AND $5
                """,
                [protocol, newest, int(seconds * 1e6), before, now],
            )
    return heard


def _closed(connection: duckdb.DuckDBPyConnection) -> None:
    """Add what was said on the same connections as touched sessions, until there is no more; nodes share connections without that."""
    nodes = [protocol for protocol, what in SESSION_IS.items() if what == NODE]
    while connection.execute(
        """
        INSERT OR IGNORE INTO affected
        SELECT DISTINCT session_id FROM talks WHERE connection_id IN (
            SELECT connection_id FROM talks SEMI JOIN affected USING (session_id)
            WHERE protocol IS NULL OR NOT list_contains($1, protocol)
        ) AND session_id NOT IN (SELECT session_id FROM affected)
        """,
        [nodes],
    ).fetchall()[0][0]:
        pass


def _column(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    return [row[0] for row in connection.execute(sql).fetchall()]


def minutes(lake: Path, what: Affected, told: Mapping[str, Sequence[Path]], scratch: Path) -> tuple[Path, frozenset[int]]:
    """The minutes in which something is new, or may be told differently: a Parquet file of `minute_us`, and their slots.

    `told` has, by the column that says when, the files with what was and will be told of touched sessions.
    """
    begins = "SELECT DISTINCT epoch_us({0}) - (epoch_us({0}) % 60000000 + 60000000) % 60000000 AS minute_us FROM"
    with _asking(scratch) as connection:
        delta.relation(connection, lake, MINUTE_INDEX).create_view("tallies")
        connection.read_parquet(str(what.sessions), hive_partitioning=False).create_view("affected")
        parts = [f"{begins.format('minute')} tallies WHERE batch >= {min(what.fresh, default=1 << 62)}"]
        for number, (column, files) in enumerate(told.items()):
            if files:
                connection.read_parquet([str(file) for file in files], hive_partitioning=False).create_view(f"told_{number}")
                parts.append(f"{begins.format(column)} told_{number} SEMI JOIN affected USING (session_id) WHERE {column} IS NOT NULL")
        connection.execute(f"CREATE TABLE minutes AS {' UNION '.join(parts)}")
        at = scratch / "minutes.parquet"
        connection.table("minutes").write_parquet(str(at))
        return at, frozenset(slot(str(minute).encode()) for minute in _column(connection, "SELECT minute_us FROM minutes"))
