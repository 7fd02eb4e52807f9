"""Exchanges: requests with their answers, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from wirelake.explore.model.conditions import condition
from wirelake.explore.model.rows import EXCERPT_BYTES, excerpt
from wirelake.filters import Filter

if TYPE_CHECKING:
    import duckdb

__all__ = ["COLUMNS", "EXCHANGE_ROWS", "ORDERS", "Exchange", "ExchangeFacts", "counts", "search"]

EXCHANGE_ROWS: Final = 200
"""Exchanges of one page."""
ORDERS: Final = {
    "oldest": "coalesce(e.requested, e.answered) NULLS LAST, e.request_message_id, e.response_message_id",
    "newest": "coalesce(e.requested, e.answered) DESC NULLS LAST, e.request_message_id, e.response_message_id",
    "slowest": "e.latency_us DESC NULLS LAST, e.request_message_id, e.response_message_id",
}
"""Name of an order -> SQL."""


COLUMNS: Final = (
    "e.protocol, e.kind, e.status, e.outcome, e.requested_by, e.correlation_id, e.subject, epoch_us(e.requested), epoch_us(e.answered)"
)
"""SQL for the fields of `ExchangeFacts`."""


class ExchangeFacts(msgspec.Struct):
    """What every view of an exchange begins with."""

    protocol: str
    kind: str
    status: str
    outcome: str | None
    requested_by: str | None
    correlation: str | None
    subject: str | None
    requested: int | None
    answered: int | None


class Exchange(ExchangeFacts):
    """A request and its answer, or a message on a channel and its acknowledgement."""

    latency_us: int | None
    attempts: int | None
    progress: int | None
    cancelled: bool | None
    request_size: int | None
    response_size: int | None
    session: str | None
    request: str | None
    response: str | None
    request_excerpt: Any
    """The beginning of the body, as text."""
    response_excerpt: Any


def counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Count exchanges by their status."""
    rows = connection.execute("SELECT status, count(*) FROM exchanges GROUP BY status ORDER BY 2 DESC").fetchall()
    return {str(status): int(number) for status, number in rows}


def search(
    connection: duckdb.DuckDBPyConnection,
    wanted: Filter | None = None,
    *,
    status: str | None = None,
    order: str = "oldest",
    limit: int = EXCHANGE_ROWS,
    offset: int = 0,
    with_bodies: bool = True,
) -> list[Exchange]:
    """Return exchanges of which the request or the answer passes a filter, in an order of `ORDERS`.

    Without bodies there are no excerpts, and the table of messages is not read.
    """
    where, values = ["true"], list[object]()
    if status:
        where.append("e.status = ?")
        values.append(status)
    if wanted:
        chosen = condition(wanted)
        passing = f"SELECT m.message_id FROM messages m WHERE {chosen.sql}"
        where.append(f"(e.request_message_id IN ({passing}) OR e.response_message_id IN ({passing}))")
        values += [*chosen.values, *chosen.values]
    elif order == "slowest" and (least := _least(connection, " AND ".join(where), values, limit + offset)) is not None:
        where.append("e.latency_us >= ?")
        values.append(least)
    sql = f"""
    WITH page AS MATERIALIZED (
        SELECT e.* FROM exchanges e WHERE {" AND ".join(where)} ORDER BY {ORDERS.get(order, ORDERS["oldest"])}
        LIMIT {limit:d} OFFSET {offset:d}
    ), bodies AS MATERIALIZED (
        SELECT message_id, body[1:{EXCERPT_BYTES}] AS body FROM messages WHERE message_id IN (
            SELECT request_message_id FROM page UNION SELECT response_message_id FROM page
        ) AND {"true" if with_bodies else "false"}
    )
    SELECT {COLUMNS}, e.latency_us, e.attempts, e.progress, e.cancelled, e.request_size, e.response_size, lower(hex(e.session_id)),
        lower(hex(e.request_message_id)), lower(hex(e.response_message_id)), asked.body, said.body
    FROM page e
    LEFT JOIN bodies asked ON asked.message_id = e.request_message_id
    LEFT JOIN bodies said ON said.message_id = e.response_message_id
    ORDER BY {ORDERS.get(order, ORDERS["oldest"])}
    """
    found = [Exchange(*row) for row in connection.execute(sql, values).fetchall()]
    for one in found:
        one.request_excerpt, one.response_excerpt = excerpt(one.request_excerpt), excerpt(one.response_excerpt)
    return found


def _least(connection: duckdb.DuckDBPyConnection, where: str, values: list[object], count: int) -> int | None:
    """The latency of the last of the slowest exchanges, so that all other columns are read of few. None if there are not so many."""
    sql = f"SELECT e.latency_us FROM exchanges e WHERE {where} ORDER BY e.latency_us DESC NULLS LAST LIMIT 1 OFFSET {max(0, count - 1):d}"
    row = connection.execute(sql, values).fetchone()
    return None if row is None else row[0]
