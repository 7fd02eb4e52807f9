"""What several observers saw of one link or connection, side by side: what only one of them has, and the time between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    import duckdb

    from wirelake.explore.model.sessions import Session

__all__ = ["FAR_US", "Comparison", "compared"]

FAR_US: Final = 86_400_000_000
"""Clocks that differ by more than a day are told as such."""
_PLACES: Final = {"client": 0, "wire": 1, "server": 2}
"""Kinds of observers, from the client to the server."""

_PAIRED: Final = """
WITH seen AS (
    SELECT m.observer = $observer AS is_other, m.direction = 'to_server' AS to_server, epoch_us(m.ts) AS ts,
        row_number() OVER content AS nth, count(*) OVER (content ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS alike,
        hash(m.kind, m.name, m.subject, m.correlation_id, m.size, m.body) AS content
    FROM every_messages m
    WHERE (m.session_id[1:8] = unhex($first) AND m.observer = $primary) OR (m.session_id[1:8] = unhex($second) AND m.observer = $observer)
    WINDOW content AS (
        PARTITION BY m.observer, m.direction, hash(m.kind, m.name, m.subject, m.correlation_id, m.size, m.body) ORDER BY m.ts, m.message_id
    )
)
SELECT to_server, count(*) FILTER (a.ts IS NOT NULL AND b.ts IS NOT NULL), count(*) FILTER (b.ts IS NULL), count(*) FILTER (a.ts IS NULL),
    min(b.ts - a.ts) FILTER (a.alike = 1 AND b.alike = 1), median(b.ts - a.ts) FILTER (a.alike = 1 AND b.alike = 1)::BIGINT,
    max(b.ts - a.ts) FILTER (a.alike = 1 AND b.alike = 1)
FROM (FROM seen WHERE NOT is_other) a FULL JOIN (FROM seen WHERE is_other) b USING (to_server, content, nth)
GROUP BY to_server
"""
"""Messages of two views, paired by content in order. Times are compared of contents that each has once."""


class Comparison(msgspec.Struct):
    """What another observer saw, compared with the primary view."""

    session: str
    """Its session."""
    observer: str | None
    observer_kind: str | None
    is_primary: bool
    messages: int
    common: int = 0
    """Messages that both have."""
    missing: int = 0
    """Messages that only the primary view has."""
    more: int = 0
    """Messages that only this view has."""
    offset_us: int | None = None
    """How much this observer's clock is ahead of the primary's, about: half the difference of the smallest delays each way."""
    to_server_us: int | None = None
    """Time that a message to the server takes from one observer to the other: the median, clocks compared."""
    to_client_us: int | None = None
    """The same for messages to the client."""
    problem: str | None = None
    """What is wrong with the clocks, in one line."""


def compared(connection: duckdb.DuckDBPyConnection, session: Session) -> list[Comparison]:
    """Compare the views of the link or connection of a session, the primary first. Empty if only one observer saw it."""
    if session.link is None:
        return []
    rows = connection.execute(
        "SELECT lower(hex(session_id)), observer, observer_kind, is_primary,"
        " coalesce(messages_to_server, 0) + coalesce(messages_to_client, 0) FROM every_sessions"
        " WHERE link = unhex($link) AND protocol = $protocol ORDER BY is_primary DESC, 5 DESC, observer",
        {"link": session.link, "protocol": session.protocol},
    ).fetchall()
    found = [Comparison(*row) for row in rows]
    for one in found[1:]:
        _compare(connection, found[0], one)
    return found


class _Delays(NamedTuple):
    """Microseconds from one observer to the other, of messages of one direction, by two clocks."""

    least: int
    median: int
    most: int


def _compare(connection: duckdb.DuckDBPyConnection, primary: Comparison, other: Comparison) -> None:
    """Fill in what another view has, and when."""
    values = {"first": primary.session[:16], "primary": primary.observer, "second": other.session[:16], "observer": other.observer}
    delays: dict[bool, _Delays] = {}
    for to_server, common, missing, more, *times in connection.execute(_PAIRED, values).fetchall():
        other.common, other.missing, other.more = other.common + common, other.missing + missing, other.more + more
        if None not in times:
            delays[to_server] = _Delays(*times)
    if len(delays) < 2:
        return
    # Of two observers, the nearer to the client sees a request first, and its answer last. The clocks differ by the middle between both.
    place, there = (_PLACES.get(one.observer_kind or "", 1) for one in (primary, other))
    is_nearer = place < there if place != there else delays[True].least >= delays[False].most
    if is_nearer:
        first, last = delays[True].least, delays[False].most
    else:
        first, last = delays[False].least, delays[True].most
    other.offset_us = (first + last) // 2
    if first < last:
        other.problem = (
            f"the clocks contradict each other by {(last - first) / 1000:,.3f} ms: no offset explains them, so no delay is shown"
        )
        return
    sign = 1 if is_nearer else -1
    other.to_server_us = sign * (delays[True].median - other.offset_us)
    other.to_client_us = sign * (other.offset_us - delays[False].median)
    if abs(other.offset_us) > FAR_US:
        days = abs(other.offset_us) / FAR_US
        other.problem = f"the clocks are {days:,.1f} days apart: set them, or read times of one observer only"
