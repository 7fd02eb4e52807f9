"""Messages: search them, read one with every field, and find its neighbours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from wirelake import protocols
from wirelake.explore.model.conditions import Condition, all_of, between, condition
from wirelake.explore.model.rows import EXCERPT_BYTES, Missing, column_names, excerpt, identifier, plain
from wirelake.explore.model.windows import EARLIEST, LATEST, Window, has_untimed, windows
from wirelake.explore.query import every_view
from wirelake.filters import Filter

if TYPE_CHECKING:
    import duckdb
from wirelake.lake.tables.severities import GRAVITY

__all__ = ["PAGE_ROWS", "Answer", "Line", "Message", "Page", "Place", "by_ids", "count", "lines", "one", "search"]

PAGE_ROWS: Final = 100
"""Messages of one page, unless the caller asks for fewer or more."""
MOST_TIMES: Final = 1000
"""Messages of a page up to which their times are compared one by one, so that more row groups are skipped."""
EXCHANGE_ROWS: Final = 100
"""Exchanges of one message at most: an acknowledgement may be for many."""


class Place(NamedTuple):
    """Where a message is in the order of time: the end of a page, and the start of the next."""

    ts: int | None
    """Microseconds since 1970; None: it has no time, and comes after all that have."""
    message_id: bytes

    def __str__(self) -> str:
        """The place as text, for an address."""
        return f"{'' if self.ts is None else self.ts}.{self.message_id.hex()}"

    @staticmethod
    def parse(text: str) -> Place:
        """Read a place that was written with `str`. Raises Missing for anything else."""
        ts, _, message_id = text.partition(".")
        if ts and not ts.lstrip("-").isdecimal():
            raise Missing(f"place {text[:80]!r}: write it as it was given")
        return Place(int(ts) if ts else None, identifier(message_id, "message"))


class Line(msgspec.Struct, omit_defaults=True):
    """A message as lists show it. Times are microseconds since 1970, ids hex digits."""

    id: str
    ts: int | None
    session: str | None
    protocol: str
    to_server: bool
    kind: str
    name: str
    subject: str | None
    correlation: str | None
    size: int
    status: str
    sender: str | None
    receiver: str | None
    excerpt: str | None
    rules: list[str] = []
    """Broken rules: `CLAUSE NAME`."""
    severity: str | None = None
    """The gravest of them: `error`, `tolerated`, `warning` or `info`."""
    answer: str | None = None
    """The status of the exchange: of an answer, or `unanswered` of a request."""
    latency_us: int | None = None
    request: str | None = None
    """The message that it answers."""
    attempts: int = 1
    """How often it was sent: more than once after a link was resumed."""
    mark: str | None = None
    """The reader's mark."""
    comments: int = 0
    """How many comments readers wrote about it."""


class Page(msgspec.Struct):
    """Some messages, in order."""

    rows: list[Line]
    after: str | None
    """The place where the next page begins; None: there is none."""
    is_searching: bool = False
    """Whether the search was stopped for now: messages after these, up to `after`, did not pass; others may."""


class Answer(msgspec.Struct):
    """The exchange that a message is part of."""

    kind: str
    status: str
    outcome: str | None
    latency_us: int | None
    request: str | None
    response: str | None
    correlation: str | None


class Broken(msgspec.Struct):
    """A rule that a message breaks."""

    rule: str
    clause: str | None
    severity: str
    origin: str | None
    text: str
    ended_session: bool | None


class Message(msgspec.Struct):
    """One message with everything that the lake has of it."""

    line: Line
    connection: str | None
    fault: str | None
    verified: bool | None
    source: str
    offset: int
    length: int
    body: bytes | None
    body_json: str | None
    own: dict[str, Any]
    """The row of its protocol's table: column -> value."""
    exchanges: list[Answer]
    violations: list[Broken]
    previous: str | None
    """The message before it in its session."""
    next: str | None


_KEYS: Final = "SELECT m.message_id, epoch_us(m.ts) FROM messages m WHERE {where} ORDER BY {order} LIMIT {limit:d} OFFSET {offset:d}"
"""The messages of a page. It reads only the columns of the condition and of the order, and most of them only in part."""
_LINES: Final = f"""
WITH page AS MATERIALIZED (
    SELECT
        m.message_id, m.ts, m.session_id, m.connection_id, m.protocol, m.direction, m.kind, m.name, m.subject, m.correlation_id,
        m.size, m.status, m.body[1:{EXCERPT_BYTES}] AS body
    FROM messages m
    WHERE m.message_id IN (SELECT unnest($ids::BLOB[])) AND {{seen}}
), broken AS (
    SELECT message_id, list(concat_ws(' ', clause, rule)) AS rules, arg_min(severity, {GRAVITY}) AS severity
    FROM violations WHERE message_id IN (SELECT message_id FROM page) GROUP BY message_id
), answers AS (
    SELECT response_message_id, min(latency_us) AS latency_us, any_value(status) AS status, min(request_message_id) AS request
    FROM exchanges WHERE response_message_id IN (SELECT message_id FROM page) AND {{answered}} GROUP BY response_message_id
), requests AS (
    SELECT request_message_id, bool_or(status = 'unanswered') AS waits, max(attempts) AS attempts
    FROM exchanges WHERE request_message_id IN (SELECT message_id FROM page) AND {{requested}} GROUP BY request_message_id
)
SELECT
    lower(hex(page.message_id)), epoch_us(page.ts), lower(hex(page.session_id)), page.protocol, page.direction = 'to_server', page.kind,
    page.name, page.subject, page.correlation_id, page.size, page.status,
    CASE WHEN page.direction = 'to_server' THEN ends.client ELSE ends.server END,
    CASE WHEN page.direction = 'to_server' THEN ends.server ELSE ends.client END,
    page.body, coalesce(broken.rules, []), broken.severity,
    coalesce(answers.status, CASE WHEN requests.waits THEN 'unanswered' END), answers.latency_us, lower(hex(answers.request)),
    greatest(coalesce(requests.attempts, 1), 1)
FROM page
LEFT JOIN ends USING (connection_id)
LEFT JOIN broken USING (message_id)
LEFT JOIN answers ON answers.response_message_id = page.message_id
LEFT JOIN requests ON requests.request_message_id = page.message_id
ORDER BY {{page_order}}
"""
_HIGHEST_ID: Final = b"\xff" * 16
_BODY: Final = Line.__struct_fields__.index("excerpt")
_ORDERS: Final = {
    False: ("m.ts NULLS LAST, m.message_id", "page.ts NULLS LAST, page.message_id"),
    True: ("m.ts DESC NULLS LAST, m.message_id DESC", "page.ts DESC NULLS LAST, page.message_id DESC"),
}


def lines(
    connection: duckdb.DuckDBPyConnection,
    where: Condition,
    *,
    limit: int = PAGE_ROWS,
    offset: int = 0,
    newest_first: bool = False,
    every: bool = False,
) -> list[Line]:
    """Return the first messages of a condition, in order of time; with `every`, also those of views that are not primary."""
    keys = _keys(connection, where, limit=limit, offset=offset, newest_first=newest_first, every=every)
    return _lines(connection, keys, newest_first=newest_first, every=every)


Key = tuple[bytes, int | None]
"""The id and the time of a message."""


def _keys(
    connection: duckdb.DuckDBPyConnection, where: Condition, *, limit: int, newest_first: bool, offset: int = 0, every: bool = False
) -> list[Key]:
    sql = (every_view(_KEYS) if every else _KEYS).format(where=where.sql, order=_ORDERS[newest_first][0], limit=limit, offset=offset)
    return connection.execute(sql, list(where.values)).fetchall()


def _lines(connection: duckdb.DuckDBPyConnection, keys: list[Key], *, newest_first: bool, every: bool = False) -> list[Line]:
    """The lines of these messages, in order of time."""
    times = [ts for _, ts in keys if ts is not None]
    if not keys:
        return []
    values: dict[str, object] = {"ids": [key for key, _ in keys]}
    columns = {"seen": "m.ts", "answered": "answered", "requested": "requested"}
    ranges = dict.fromkeys(columns, "true")
    if len(times) == len(keys):  # lets DuckDB skip row groups that have none of these messages
        ranges = {name: f"{column} BETWEEN make_timestamptz($first) AND make_timestamptz($last)" for name, column in columns.items()}
        values |= {"first": min(times), "last": max(times)}
        if len(times) <= MOST_TIMES:
            ranges["seen"] = f"m.ts IN (SELECT make_timestamptz(unnest($times::BIGINT[]))) AND {ranges['seen']}"
            values["times"] = times
    found = connection.execute(
        (every_view(_LINES) if every else _LINES).format(page_order=_ORDERS[newest_first][1], **ranges), values
    ).fetchall()
    return [_line(row) for row in found]


def _line(row: tuple[Any, ...]) -> Line:
    """A row of `_LINES`; its body becomes an excerpt."""
    line = Line(*row)
    line.excerpt = excerpt(row[_BODY])
    return line


def by_ids(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> list[Line]:
    """Return the messages of these ids that the lake has, in order of time."""
    wanted = [identifier(each, "message") for each in ids]
    return lines(connection, Condition("m.message_id IN (SELECT unnest(?::BLOB[]))", (wanted,)), limit=len(wanted)) if wanted else []


def search(
    connection: duckdb.DuckDBPyConnection,
    wanted: Filter,
    *,
    after: Place | None = None,
    limit: int = PAGE_ROWS,
    newest_first: bool = False,
    seconds: float | None = None,
) -> Page:
    """Return a page of the messages that a filter lets through, in order of time; those without a time are last.

    It looks at one time range after the other. After `seconds` it returns what it has: then `is_searching` is true, and `after` is
    the place where it goes on.
    """
    chosen = condition(wanted)
    begin = time.monotonic()
    keys: list[Key] = []
    if after is None or after.ts is not None:
        behind = chosen if after is None else all_of([chosen, _behind(after, newest_first=newest_first)])
        for window in windows(connection, after=None if after is None else after.ts, newest_first=newest_first):
            if keys and len(keys) > limit:
                break
            keys += _keys(connection, between(behind, *window), limit=limit + 1 - len(keys), newest_first=newest_first)
            if seconds is not None and time.monotonic() - begin >= seconds and len(keys) <= limit and not _is_last(window, newest_first):
                edge = Place(window.first, b"") if newest_first else Place(window.last, _HIGHEST_ID)
                return Page(_lines(connection, keys, newest_first=newest_first), str(edge), is_searching=True)
    if len(keys) <= limit and (after is None or after.ts is not None) and has_untimed(connection):
        untimed = all_of([chosen, Condition("m.ts IS NULL")])
        keys += _keys(connection, untimed, limit=limit + 1 - len(keys), newest_first=newest_first)
    elif after is not None and after.ts is None:
        untimed = all_of([chosen, _behind(after, newest_first=newest_first)])
        keys = _keys(connection, untimed, limit=limit + 1, newest_first=newest_first)
    rows = _lines(connection, keys[:limit], newest_first=newest_first)
    last = Place(keys[limit - 1][1], keys[limit - 1][0]) if len(keys) > limit else None
    return Page(rows, None if last is None else str(last))


def _is_last(window: Window, newest_first: bool) -> bool:
    return window.first <= EARLIEST if newest_first else window.last >= LATEST


def _behind(place: Place, *, newest_first: bool) -> Condition:
    """Messages that come after a place. The first comparison lets DuckDB skip row groups."""
    sign = "<" if newest_first else ">"
    if place.ts is None:
        return Condition(f"m.ts IS NULL AND m.message_id {sign} ?", (place.message_id,))
    return Condition(
        f"m.ts {sign}= make_timestamptz(?) AND (m.ts {sign} make_timestamptz(?) OR m.message_id {sign} ?)",
        (place.ts, place.ts, place.message_id),
    )


def count(connection: duckdb.DuckDBPyConnection, wanted: Filter) -> int:
    """Count the messages that a filter lets through."""
    where = condition(wanted)
    row = connection.execute(f"SELECT count(*) FROM messages m WHERE {where.sql}", list(where.values)).fetchone()
    return 0 if row is None else int(row[0])


def one(connection: duckdb.DuckDBPyConnection, message_id: str) -> Message:
    """Return one message with every field. Raises Missing."""
    wanted = identifier(message_id, "message")
    found = lines(connection, Condition("m.message_id = ?", (wanted,)), limit=1, every=True)
    if not found:
        raise Missing(f"the lake has no message {message_id[:80]}")
    row = connection.execute(
        'SELECT lower(hex(connection_id)), fault, verified, source, "offset", length, body, body_json, session_id'
        " FROM every_messages WHERE message_id = ?",
        [wanted],
    ).fetchone()
    assert row is not None  # noqa: S101 - it was there in the query before, of the same snapshot
    line = found[0]
    connection_id, fault, verified, source, offset, length, body, body_json, session_id = row
    previous, following = _neighbours(connection, line, session_id)
    return Message(
        line=line,
        connection=connection_id,
        fault=fault,
        verified=verified,
        source=source,
        offset=offset,
        length=length,
        body=body,
        body_json=body_json,
        own=_own(connection, line.protocol, wanted),
        exchanges=_exchanges(connection, wanted),
        violations=_violations(connection, wanted),
        previous=previous,
        next=following,
    )


def _own(connection: duckdb.DuckDBPyConnection, protocol: str, message_id: bytes) -> dict[str, Any]:
    """The row of a protocol's own table."""
    if protocol not in protocols.names():
        return {}
    row = connection.execute(f'SELECT * EXCLUDE (message_id) FROM "{protocol}" WHERE message_id = ?', [message_id]).fetchone()
    names = column_names(connection)
    return {} if row is None else {name: plain(value) for name, value in zip(names, row, strict=True)}


def _exchanges(connection: duckdb.DuckDBPyConnection, message_id: bytes) -> list[Answer]:
    """The exchanges that a message is part of. Two queries instead of `OR`: each skips row groups by its column."""
    columns = (
        "kind, status, outcome, latency_us, lower(hex(request_message_id)), lower(hex(response_message_id)), correlation_id, requested"
    )
    rows = connection.execute(
        f"SELECT * EXCLUDE (requested) FROM (SELECT {columns} FROM exchanges WHERE request_message_id = $id"
        f" UNION SELECT {columns} FROM exchanges WHERE response_message_id = $id) ORDER BY requested LIMIT {EXCHANGE_ROWS:d}",
        {"id": message_id},
    ).fetchall()
    return [Answer(*row) for row in rows]


def _violations(connection: duckdb.DuckDBPyConnection, message_id: bytes) -> list[Broken]:
    rows = connection.execute(
        f"SELECT rule, clause, severity, origin, text, ended_session FROM violations WHERE message_id = ? ORDER BY {GRAVITY}, rule",
        [message_id],
    ).fetchall()
    return [Broken(*row) for row in rows]


def _neighbours(connection: duckdb.DuckDBPyConnection, line: Line, session_id: bytes | None) -> tuple[str | None, str | None]:
    """The messages before and after one in its session."""
    if session_id is None:
        return None, None
    found: list[str | None] = []
    for newest_first in (True, False):
        behind = _behind(Place(line.ts, bytes.fromhex(line.id)), newest_first=newest_first)
        where = all_of([Condition("m.session_id = ?", (session_id,)), behind])
        sql = f"SELECT lower(hex(m.message_id)) FROM messages m WHERE {where.sql} ORDER BY {_ORDERS[newest_first][0]} LIMIT 1"
        row = connection.execute(sql, list(where.values)).fetchone()
        found.append(None if row is None else row[0])
    return found[0], found[1]
