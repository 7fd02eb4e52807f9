"""What a lake holds, as values: everything the report says, asked of the tables in a dozen questions.

It refuses to know HTML and charts. Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from wirelake.explore.pairs import PACES, PAIRS, STRANGERS, Pace, Pair, Stranger
from wirelake.explore.query import opened

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "CATEGORIES",
    "PREVIEW",
    "TOP",
    "Account",
    "Believed",
    "Bin",
    "Ending",
    "Headline",
    "KindLine",
    "Latency",
    "Place",
    "Session",
    "Spoilt",
    "Survey",
    "Timeline",
    "Violation",
    "headline",
    "survey",
]

TOP: Final = 20
"""Rows of a table that could be long; what is left out is counted."""
PREVIEW: Final = 32
"""Bytes shown of an example in quarantine."""
CATEGORIES: Final = ("message", "headers", "container", "other", "quarantine")
"""Where bytes go, in the order in which they are shown."""

_S: Final = 1_000_000
_STEPS: Final = (
    *(1_000, 10_000, 100_000),
    *(_S * seconds for seconds in (1, 2, 5, 10, 15, 30)),
    *(60 * _S * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * _S * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * _S * days for days in (1, 7, 28, 364)),
)
"""Bucket sizes of the timeline: what people count time in."""
_MOST_BUCKETS: Final = 96
_BINS_PER_DECADE: Final = 8

T = TypeVar("T")


class Headline(msgspec.Struct, frozen=True):
    """The first numbers anybody asks for."""

    messages: int
    sessions: int
    exchanges: int
    answered: int
    violations: int
    grave: int
    """Violations that are not tolerated."""
    sources: int
    size: int
    first: int | None
    last: int | None


class KindLine(msgspec.Struct, frozen=True):
    """The messages of one kind over time: (start of the bucket, messages), buckets without any left out."""

    kind: str
    total: int
    peak: int
    points: list[tuple[int, int]]


class Timeline(msgspec.Struct, frozen=True):
    bucket: int
    start: int
    stop: int
    kinds: list[KindLine]


class Bin(msgspec.Struct, frozen=True):
    low: float
    high: float
    count: int


class Latency(msgspec.Struct, frozen=True):
    """How long answers took, in microseconds."""

    answered: int
    late: int
    p50: float
    p95: float
    p99: float
    most: float
    bins: list[Bin] = []


class Ending(msgspec.Struct, frozen=True):
    how: str
    count: int


class Session(msgspec.Struct, frozen=True):
    protocol: str | None
    transport: str | None
    client: str
    server: str
    opened: int | None
    duration: int | None
    to_server: int
    to_client: int
    requests: int
    answered: int
    handshake: str | None
    ended_how: str | None
    ended_by: str | None
    violations: int


class Place(msgspec.Struct, frozen=True):
    """Where the bytes are that a statement is about."""

    source: str
    offset: int
    length: int


class Violation(msgspec.Struct, frozen=True):
    """One broken rule, and how often."""

    rule: str
    clause: str | None
    text: str | None
    severity: str | None
    count: int
    by_client: int
    by_server: int
    ended: int
    example: Place


class Believed(msgspec.Struct, frozen=True):
    """Packets with the same outcome: accepted, not checked, or dropped for one rule."""

    accepted: bool | None
    rule: str | None
    clause: str | None
    text: str | None
    count: int
    nodes: int
    """Who say they are the senders."""
    now: int
    """Packets that were accepted before, and are not any more."""
    example: Place


class Spoilt(msgspec.Struct, frozen=True):
    """One reason why bytes could not be read."""

    layer: str | None
    reason: str
    clause: str | None
    text: str | None
    count: int
    size: int
    example: Place
    preview: bytes


class Account(msgspec.Struct, frozen=True):
    """Where the bytes of one source went."""

    source: str
    size: int
    accounted: int
    parts: dict[str, int]
    """Category -> bytes."""


class Survey(msgspec.Struct, frozen=True):
    lake: str
    batch: int | None
    stale: list[str]
    """Tables that are older than what they are built from."""
    headline: Headline
    timeline: Timeline | None
    latency: Latency | None
    endings: list[Ending]
    sessions: list[Session]
    violations: list[Violation]
    believed: list[Believed]
    spoilt: list[Spoilt]
    paces: list[Pace]
    pairs: list[Pair]
    accounts: list[Account]
    """The largest sources."""
    parts: dict[str, int]
    """Category -> bytes of all sources."""
    unbalanced: list[Account]
    """Sources whose ledger does not add up to their size. There should be none, ever."""
    rows: dict[str, int]
    """Table -> rows."""
    strangers: list[Stranger] = []


def headline(lake: Path) -> Headline:
    """Only the first numbers."""
    with opened(lake) as connection:
        return _headline(connection)


def survey(lake: Path) -> Survey:
    """Ask everything the report says."""
    from wirelake.lake import snapshot  # noqa: PLC0415 - brings Delta Lake
    from wirelake.lake.catalog import GOLD, TABLES  # noqa: PLC0415
    from wirelake.lake.tables import ledger  # noqa: PLC0415

    seen = snapshot.current(lake)
    batch = seen.batch(ledger.TABLE)
    with opened(lake, seen) as connection:
        first = _headline(connection)
        return Survey(
            lake=str(lake.absolute()),
            batch=batch,
            stale=[table.name for table in GOLD if seen.batch(table) != batch],
            headline=first,
            timeline=_timeline(connection, first),
            latency=_latency(connection),
            endings=_rows(connection, _ENDINGS, Ending),
            sessions=_rows(connection, _SESSIONS, Session),
            violations=_rows(connection, _VIOLATIONS, Violation),
            believed=_rows(connection, _BELIEVED, Believed),
            spoilt=_rows(connection, _SPOILT, Spoilt),
            paces=_rows(connection, PACES, Pace),
            pairs=_rows(connection, PAIRS, Pair),
            strangers=_rows(connection, STRANGERS, Stranger),
            accounts=_rows(connection, f"{_ACCOUNTS} LIMIT {TOP}", Account),
            parts={row[0]: row[1] for row in _fetch(connection, _PARTS)},
            unbalanced=_rows(connection, _UNBALANCED, Account),
            rows={name: _fetch(connection, f'SELECT count(*) FROM "{name}"')[0][0] for name in TABLES},  # noqa: S608 - our own names
        )


def _fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    return connection.execute(sql).fetchall()


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, kind: type[T]) -> list[T]:
    """Rows as values; the columns are called as the fields are."""
    answer = connection.execute(sql)
    names = [column[0] for column in answer.description or ()]
    return [msgspec.convert(dict(zip(names, row, strict=True)), kind) for row in answer.fetchall()]


def _headline(connection: duckdb.DuckDBPyConnection) -> Headline:
    return _rows(
        connection,
        """
        WITH sources AS (SELECT source_id, source_size FROM ledger GROUP BY ALL)
        SELECT
            (SELECT count(*) FROM messages) AS messages,
            (SELECT count(*) FROM sessions) AS sessions,
            (SELECT count(*) FROM exchanges WHERE requested IS NOT NULL) AS exchanges,
            (SELECT count(response_message_id) FROM exchanges WHERE requested IS NOT NULL) AS answered,
            (SELECT count(*) FROM violations) AS violations,
            (SELECT count(*) FROM violations WHERE severity IS DISTINCT FROM 'tolerated') AS grave,
            (SELECT count(*) FROM sources) AS sources,
            (SELECT coalesce(sum(source_size), 0)::BIGINT FROM sources) AS size,
            (SELECT epoch_us(min(ts)) FROM messages) AS first,
            (SELECT epoch_us(max(ts)) FROM messages) AS last
        """,
        Headline,
    )[0]


def _timeline(connection: duckdb.DuckDBPyConnection, first: Headline) -> Timeline | None:
    """Messages per kind and bucket, the most frequent kind first."""
    if first.first is None or first.last is None:
        return None
    span = first.last - first.first
    bucket = next((step for step in _STEPS if span // step < _MOST_BUCKETS), _STEPS[-1])
    kinds = _rows(
        connection,
        f"""
        WITH counted AS (
            SELECT coalesce(kind, 'unknown') AS kind, epoch_us(ts) // {bucket} * {bucket} AS since, count(*) AS n
            FROM messages WHERE ts IS NOT NULL GROUP BY ALL
        )
        SELECT kind, sum(n)::BIGINT AS total, max(n) AS peak, list(row(since, n) ORDER BY since) AS points
        FROM counted GROUP BY kind ORDER BY total DESC, kind
        """,  # noqa: S608 - a number of our own
        KindLine,
    )
    return Timeline(bucket, first.first // bucket * bucket, (first.last // bucket + 1) * bucket, kinds)


def _latency(connection: duckdb.DuckDBPyConnection) -> Latency | None:
    """Percentiles, and bins of equal width on a logarithmic axis; what took less than a microsecond is in the first."""
    found = _rows(
        connection,
        """
        SELECT count(*) AS answered, count_if(late) AS late, max(latency_us)::DOUBLE AS most,
            quantile_cont(latency_us, 0.5)::DOUBLE AS p50, quantile_cont(latency_us, 0.95)::DOUBLE AS p95,
            quantile_cont(latency_us, 0.99)::DOUBLE AS p99
        FROM exchanges WHERE latency_us IS NOT NULL HAVING count(*) > 0
        """,
        Latency,
    )
    if not found:
        return None
    bins = _rows(
        connection,
        f"""
        SELECT pow(10, bin / {_BINS_PER_DECADE}) AS low, pow(10, (bin + 1) / {_BINS_PER_DECADE}) AS high, count(*) AS count
        FROM (
            SELECT floor(log10(greatest(latency_us, 1)) * {_BINS_PER_DECADE} + 1e-9) AS bin
            FROM exchanges WHERE latency_us IS NOT NULL
        )
        GROUP BY bin ORDER BY bin
        """,  # noqa: S608 - a number of our own
        Bin,
    )
    return msgspec.structs.replace(found[0], bins=bins)


_ENDINGS: Final = "SELECT coalesce(ended_how, 'unknown') AS how, count(*) AS count FROM sessions GROUP BY how ORDER BY count DESC, how"

_END: Final = """CASE WHEN {0}_address IS NULL THEN '?' WHEN contains({0}_address, ':') THEN '[' || {0}_address || ']' ELSE {0}_address END
    || coalesce(':' || {0}_port, '')"""

_SESSIONS: Final = f"""
    SELECT protocol, transport, {_END.format("client")} AS client, {_END.format("server")} AS server,
        epoch_us(opened) AS opened, duration_us AS duration, messages_to_server AS to_server, messages_to_client AS to_client,
        requests, answered, handshake, ended_how, ended_by, violations
    FROM sessions ORDER BY to_server + to_client DESC, opened, session_id LIMIT {TOP}
"""  # noqa: S608 - numbers of our own
"""The busiest sessions."""

_EXAMPLE: Final = "arg_min({'source': source, 'offset': \"offset\", 'length': length}, (ts IS NULL, ts, source, \"offset\"))"
"""The first place of a group."""

_VIOLATIONS: Final = f"""
    SELECT rule, clause, any_value(text) AS text, any_value(severity) AS severity, count(*) AS count,
        count(*) FILTER (direction = 'to_server') AS by_client, count(*) FILTER (direction = 'to_client') AS by_server,
        count_if(ended_session) AS ended, {_EXAMPLE} AS example
    FROM violations GROUP BY protocol, rule, clause ORDER BY any_value(severity) = 'tolerated', count DESC, rule
"""  # noqa: S608 - our own text

_BELIEVED: Final = f"""
    SELECT accepted, rule, clause, any_value(text) AS text, count(*) AS count, count(DISTINCT node_id) AS nodes,
        count(*) FILTER (was_accepted AND NOT accepted) AS now, {_EXAMPLE} AS example
    FROM security WHERE protocol = 'event_mesh' GROUP BY accepted, rule, clause ORDER BY accepted IS NULL, accepted DESC, count DESC, rule
"""  # noqa: S608 - our own text

_SPOILT: Final = f"""
    SELECT layer, coalesce(reason, 'unknown') AS reason, clause, any_value(text) AS text, count(*) AS count,
        sum(octet_length(raw))::BIGINT AS size, {_EXAMPLE} AS example,
        arg_min(raw[1:{PREVIEW}], (ts IS NULL, ts, source, "offset")) AS preview
    FROM quarantine GROUP BY layer, reason, clause ORDER BY size DESC, reason
"""  # noqa: S608 - our own text

_ACCOUNTS: Final = """
    SELECT any_value(source) AS source, source_size AS size, sum(total)::BIGINT AS accounted,
        map(list(category ORDER BY category), list(total ORDER BY category)) AS parts
    FROM (SELECT source_id, source_size, min(source) AS source, coalesce(category, 'other') AS category, sum(bytes)::BIGINT AS total
          FROM ledger GROUP BY ALL)
    GROUP BY source_id, source_size ORDER BY size DESC, source
"""

_UNBALANCED: Final = f"SELECT * FROM ({_ACCOUNTS}) WHERE accounted != size"  # noqa: S608 - our own text

_PARTS: Final = "SELECT coalesce(category, 'other'), sum(bytes)::BIGINT FROM ledger GROUP BY 1"
