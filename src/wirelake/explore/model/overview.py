"""Overview: sums of a lake, its peers, its files and the runs that filled it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from wirelake.explore.model.findings import threats
from wirelake.explore.model.rows import Missing, column_names, plain, read
from wirelake.explore.model.windows import bounds

if TYPE_CHECKING:
    import duckdb

__all__ = ["RUN_ROWS", "SOURCE_ROWS", "TOPOLOGY_ROWS", "Edge", "Part", "Source", "Sums", "runs", "source", "sources", "sums", "topology"]

TOPOLOGY_ROWS: Final = 500
"""Pairs of peers at most: those with the most messages."""
SOURCE_ROWS: Final = 1000
"""Files of one page."""
RUN_ROWS: Final = 200
"""Runs of one page, the newest first."""
PART_ROWS: Final = 20_000
"""Rows of a file's ledger at most."""


class Sums(msgspec.Struct):
    """How much there is in a lake."""

    messages: int
    bytes: int
    first: int | None
    last: int | None
    sessions: int
    sources: int
    protocols: dict[str, int]
    exchanges: dict[str, int]
    """Status -> how many."""
    violations: dict[str, int]
    """Severity -> how many."""
    threats: dict[str, int]
    """Kind of threat -> how many."""
    quarantined: int
    quarantined_bytes: int


class Edge(msgspec.Struct):
    """Who talked to whom."""

    protocol: str
    client: str
    server: str
    sessions: int
    messages_to_server: int
    messages_to_client: int
    bytes_to_server: int
    bytes_to_client: int
    errors: int
    first: int | None
    last: int | None


class Source(msgspec.Struct):
    """A file, and what its bytes are."""

    source: str
    id: str
    size: int
    bytes: dict[str, int]
    """Category -> bytes, as in the table `ledger`."""
    messages: int


class Part(msgspec.Struct):
    """A byte range of a file, by category and reason."""

    offset: int
    length: int
    category: str
    reason: str
    bytes: int
    items: int
    batch: int | None


def _counts(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, int]:
    return {str(name): int(number) for name, number in connection.execute(sql).fetchall()}


def sums(connection: duckdb.DuckDBPyConnection) -> Sums:
    """Count everything."""
    protocols = connection.execute("SELECT protocol, count(*), sum(size) FROM messages GROUP BY protocol ORDER BY 2 DESC, 1").fetchall()
    times = bounds(connection)
    sessions, files, lost = (
        connection.execute(sql).fetchone() or (0, 0)
        for sql in (
            "SELECT count(*), 0 FROM sessions",
            "SELECT count(DISTINCT source_id), 0 FROM ledger",
            "SELECT count(*), coalesce(sum(octet_length(raw)), 0) FROM quarantine",
        )
    )
    return Sums(
        messages=sum(row[1] for row in protocols),
        bytes=int(sum(row[2] or 0 for row in protocols)),
        first=None if times is None else times.first,
        last=None if times is None else times.last,
        sessions=int(sessions[0]),
        sources=int(files[0]),
        protocols={row[0]: row[1] for row in protocols},
        exchanges=_counts(connection, "SELECT status, count(*) FROM exchanges GROUP BY status ORDER BY 2 DESC"),
        violations=_counts(connection, "SELECT severity, count(*) FROM violations GROUP BY severity ORDER BY 2 DESC"),
        threats=threats(connection),
        quarantined=int(lost[0]),
        quarantined_bytes=int(lost[1]),
    )


def topology(connection: duckdb.DuckDBPyConnection, *, limit: int = TOPOLOGY_ROWS) -> list[Edge]:
    """Return pairs of peers, those with the most messages first."""
    return read(
        connection,
        Edge,
        "SELECT protocol, client, server, coalesce(sessions, 0), coalesce(messages_to_server, 0), coalesce(messages_to_client, 0),"
        " coalesce(bytes_to_server, 0), coalesce(bytes_to_client, 0), coalesce(errors, 0), epoch_us(first_seen), epoch_us(last_seen)"
        " FROM topology ORDER BY coalesce(messages_to_server, 0) + coalesce(messages_to_client, 0) DESC, protocol, client, server"
        f" LIMIT {limit:d}",
    )


def sources(connection: duckdb.DuckDBPyConnection, *, limit: int = SOURCE_ROWS, offset: int = 0) -> list[Source]:
    """Return the files of a lake with the categories of their bytes, in order of their paths."""
    rows = connection.execute(
        f"""
        WITH parts AS (
            SELECT source_id, category, sum(bytes)::BIGINT AS bytes, sum(items)::BIGINT AS items, any_value(source) AS source,
                max(source_size) AS size
            FROM ledger GROUP BY source_id, category
        )
        SELECT any_value(source), lower(hex(source_id)), max(size), map_from_entries(list((category, bytes) ORDER BY category)),
            coalesce(sum(items) FILTER (category = 'message'), 0)::BIGINT
        FROM parts GROUP BY source_id ORDER BY 1, 2 LIMIT {limit:d} OFFSET {offset:d}
        """
    ).fetchall()
    return [Source(path, source_id, size, dict(parts), items) for path, source_id, size, parts, items in rows]


def source(connection: duckdb.DuckDBPyConnection, source_id: str, *, limit: int = PART_ROWS) -> tuple[Source, list[Part]]:
    """Return one file and the rows of its ledger. Raises Missing."""
    found = [one for one in sources(connection, limit=1_000_000) if one.id == source_id]
    if not found:
        raise Missing(f"the lake has no file with the id {source_id[:80]}")
    parts = read(
        connection,
        Part,
        'SELECT "offset", length, category, reason, bytes, items, batch FROM ledger WHERE source_id = ?'
        f' ORDER BY "offset", category, reason LIMIT {limit:d}',
        (bytes.fromhex(source_id),),
    )
    return found[0], parts


def runs(connection: duckdb.DuckDBPyConnection, *, limit: int = RUN_ROWS) -> list[dict[str, Any]]:
    """Return the log of runs, the newest first: every column of the table `runs`."""
    # DuckDB returns times with a zone only if a library for time zones is there: they become text here.
    rows = connection.execute(
        f"SELECT * REPLACE (strftime(started, '%Y-%m-%dT%H:%M:%SZ') AS started, strftime(ended, '%Y-%m-%dT%H:%M:%SZ') AS ended)"
        f" FROM runs ORDER BY run DESC LIMIT {limit:d}"
    ).fetchall()
    names = column_names(connection)
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
