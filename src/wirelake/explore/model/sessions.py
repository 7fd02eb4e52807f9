"""Sessions: list them, and read one in order, as a ladder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.model import messages
from wirelake.explore.model.conditions import Condition
from wirelake.explore.model.messages import Line
from wirelake.explore.model.rows import Missing, identifier, read

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "LADDER_ROWS",
    "ORDERS",
    "SESSION_ROWS",
    "Incident",
    "Ladder",
    "Session",
    "by_ids",
    "find",
    "incidents",
    "ladder",
    "search",
]

LADDER_ROWS: Final = 10_000
"""Messages of one window of a ladder."""
SESSION_ROWS: Final = 200
"""Sessions of one page."""
INCIDENT_ROWS: Final = 2_000
"""Events, gaps and broken rules without a message that a window of a ladder has at most."""
LANES: Final = 6
"""Receivers that have a lane of their own; all others share one."""


class Session(msgspec.Struct):
    """A session, as lists show it."""

    id: str
    protocol: str
    transport: str | None
    client: str
    server: str | None
    """None for a node, which sends to many."""
    opened: int | None
    ended: int | None
    duration_us: int | None
    handshake: str | None
    messages: int
    messages_to_server: int
    messages_to_client: int
    bytes: int
    requests: int
    answered: int
    violations: int
    keepalives: int
    silences: int | None
    connections: int
    ended_how: str | None
    ended_by: str | None
    error_code: int | None
    source: str
    observer_kind: str | None
    """`client`, `server` or `wire`."""
    observer: str | None
    """Who saw it."""
    is_primary: bool
    """Whether it counts in sums."""
    link: str | None
    """Equal for all that several observers saw of one link or connection; None if only one did."""
    mark: str | None = None
    """The reader's mark."""
    comments: int = 0
    """How many comments readers wrote about it."""


class Incident(msgspec.Struct, omit_defaults=True):
    """Something in a session that is no message: an event of the connection, missing or unreadable bytes, or a rule broken by silence."""

    type: str
    """`event`, `unreadable` or `violation`."""
    ts: int | None
    to_server: bool | None
    name: str
    """The event, the reason or the rule."""
    text: str
    severity: str | None = None
    clause: str | None = None
    size: int = 0
    source: str | None = None
    offset: int | None = None


class Ladder(msgspec.Struct):
    """A window of a session, in order of time."""

    session: Session
    lanes: list[str]
    """The client, then the receivers of its messages."""
    rows: list[Line]
    incidents: list[Incident]
    first: int
    """How many messages of the session come before the window."""
    total: int
    """Messages of the session."""


ORDERS: Final = {
    "opened": "opened NULLS LAST, session_id",
    "newest": "opened DESC NULLS LAST, session_id",
    "messages": "messages_to_server + messages_to_client DESC, session_id",
    "violations": "violations DESC, opened NULLS LAST, session_id",
    "longest": "duration_us DESC NULLS LAST, session_id",
    "unanswered": "requests - answered DESC, opened NULLS LAST, session_id",
}
"""Name of an order -> SQL."""

_COLUMNS: Final = """
    lower(hex(session_id)), protocol, transport, address(client_address, client_port),
    CASE WHEN server_address IS NULL THEN NULL ELSE address(server_address, server_port) END,
    epoch_us(opened), epoch_us(ended), duration_us, handshake, coalesce(messages_to_server, 0) + coalesce(messages_to_client, 0),
    coalesce(messages_to_server, 0), coalesce(messages_to_client, 0), coalesce(bytes_to_server, 0) + coalesce(bytes_to_client, 0),
    coalesce(requests, 0), coalesce(answered, 0), coalesce(violations, 0), coalesce(keepalives, 0), silences, coalesce(connections, 1),
    ended_how, ended_by, error_code, source, observer_kind, observer, coalesce(is_primary, true), lower(hex(link))
"""


def search(
    connection: duckdb.DuckDBPyConnection,
    *,
    protocol: str | None = None,
    order: str = "opened",
    limit: int = SESSION_ROWS,
    offset: int = 0,
) -> list[Session]:
    """Return sessions in an order of `ORDERS`."""
    where, values = ("protocol = ?", (protocol,)) if protocol else ("true", ())
    chosen = ORDERS.get(order, ORDERS["opened"])
    return read(
        connection, Session, f"SELECT {_COLUMNS} FROM sessions WHERE {where} ORDER BY {chosen} LIMIT {limit:d} OFFSET {offset:d}", values
    )


def find(connection: duckdb.DuckDBPyConnection, session_id: str) -> Session:
    """Return the session of an id, or of the beginning of one. Raises Missing if there is none, or more than one."""
    identifier(session_id if len(session_id) % 2 == 0 else f"{session_id}0", "session")
    sql = f"SELECT {_COLUMNS} FROM every_sessions WHERE starts_with(lower(hex(session_id)), ?) LIMIT 2"
    found = read(connection, Session, sql, (session_id.lower(),))
    if len(found) == 1:
        return found[0]
    if found:
        raise Missing(f"session {session_id[:80]}: more than one id begins like this; write more digits")
    raise Missing(f"the lake has no session {session_id[:80]}; `wirelake query LAKE sessions` lists them")


def by_ids(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> list[Session]:
    """Return the sessions of these ids that the lake has."""
    wanted = [identifier(each, "session") for each in ids]
    return read(connection, Session, f"SELECT {_COLUMNS} FROM every_sessions WHERE session_id IN (SELECT unnest(?::BLOB[]))", (wanted,))


def ladder(connection: duckdb.DuckDBPyConnection, session_id: str, *, first: int = 0, limit: int = LADDER_ROWS) -> Ladder:
    """Return a window of a session: messages from number `first` on, and what happened between them. Raises Missing."""
    session = find(connection, session_id)
    wanted = bytes.fromhex(session.id)
    rows = messages.lines(connection, Condition("m.session_id = ?", (wanted,)), limit=limit, offset=first, every=not session.is_primary)
    total = connection.execute("SELECT count(*) FROM every_messages WHERE session_id = ?", [wanted]).fetchone()
    times = [row.ts for row in rows if row.ts is not None]
    begin = min(times) if times and first else None
    end = max(times) if times and total is not None and first + len(rows) < int(total[0]) else None
    return Ladder(session, _lanes(session, rows), rows, incidents(connection, wanted, begin, end), first, int(total[0]) if total else 0)


def _lanes(session: Session, rows: list[Line]) -> list[str]:
    """The sides of the session. A node has no server: the receivers of its messages have lanes, the most frequent first."""
    if session.server is not None:
        return [session.client, session.server]
    counts: dict[str, int] = {}
    for row in rows:
        if row.receiver:
            counts[row.receiver] = counts.get(row.receiver, 0) + 1
    return [session.client, *sorted(counts, key=lambda name: (-counts[name], name))[:LANES]]


def incidents(connection: duckdb.DuckDBPyConnection, session_id: bytes, begin: int | None, end: int | None) -> list[Incident]:
    """Return events of connections, unreadable bytes and rules broken by no message, in a time range.

    A rule that unreadable bytes break is told with them, not twice.
    """
    sql = f"""
    WITH mine AS (
        SELECT DISTINCT connection_id FROM every_messages WHERE session_id = $id
    ), broken AS (
        FROM every_violations WHERE session_id = $id AND message_id IS NULL
    ), found AS (
        SELECT
            'event' AS type, c.ts, CASE c.by WHEN 'client' THEN true WHEN 'server' THEN false END AS to_server, c.what AS name,
            concat_ws(' ', c.what, CASE WHEN c.by <> '' THEN 'by the ' || c.by END,
                CASE WHEN c.detail NOT IN ('', c.what) THEN '(' || c.detail || ')' END) AS text,
            NULL AS severity, NULL AS clause, 0 AS size, c.source, c."offset"
        FROM connections c JOIN mine USING (connection_id) WHERE c.what <> 'seen'
        UNION ALL
        SELECT 'unreadable', q.ts, q.direction = 'to_server', q.reason, q.text, b.severity, q.clause, q.length, q.source, q."offset"
        FROM every_quarantine q LEFT JOIN broken b USING (source, "offset") WHERE q.session_id = $id
        UNION ALL
        SELECT 'violation', ts, direction = 'to_server', rule, text, severity, clause, length, source, "offset"
        FROM broken ANTI JOIN (FROM every_quarantine WHERE session_id = $id) USING (source, "offset")
    )
    SELECT type, epoch_us(ts), to_server, name, text, severity, clause, size, source, "offset"
    FROM found
    WHERE ($begin IS NULL OR ts >= make_timestamptz($begin)) AND ($end IS NULL OR ts <= make_timestamptz($end))
    ORDER BY ts NULLS LAST, "offset" LIMIT {INCIDENT_ROWS:d}
    """
    found = connection.execute(sql, {"id": session_id, "begin": begin, "end": end}).fetchall()
    return [Incident(*row) for row in found]
