"""The contents of a lake as values: everything the report shows, from a dozen queries.

Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wirelake.explore.exchanges import COUNTS, Exchanges, exchanges
from wirelake.explore.findings import Finding, PacketVerdict, Quarantined, RuleText, findings, quarantined, rule_texts, verdicts
from wirelake.explore.query import opened
from wirelake.explore.rows import rows_of
from wirelake.explore.traffic import ACTIVE, PAIRS, RATES, UNRECOGNISED, Pair, Rate, UnrecognisedServer

if TYPE_CHECKING:
    import duckdb
from wirelake.lake.tables.severities import FORBIDDEN

__all__ = ["CATEGORIES", "TOP", "Account", "Ending", "Headline", "KindLine", "LakeSummary", "Session", "Timeline", "headline", "summarise"]

TOP: Final = 20
"""Rows of a table that could be long; what is left out is counted."""
CATEGORIES: Final = ("message", "headers", "container", "other", "quarantine")
"""Categories of the ledger, in the order in which they are shown."""

_S: Final = 1_000_000
_STEPS: Final = (
    *(1_000, 10_000, 100_000),
    *(_S * seconds for seconds in (1, 2, 5, 10, 15, 30)),
    *(60 * _S * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * _S * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * _S * days for days in (1, 7, 28, 364)),
)
"""Bucket sizes of the timeline."""
_MOST_BUCKETS: Final = 96


class Headline(msgspec.Struct, frozen=True):
    """The main counts of a lake."""

    messages: int
    sessions: int
    requests: int
    """Requests, those that were only confirmed included."""
    answered: int
    confirmed: int
    deliveries: int
    acknowledged: int
    errors: int
    """Violations that a session ends on."""
    tolerated: int
    """Violations that peers ignore."""
    warnings: int
    """Findings that are no violations: the specification recommends otherwise."""
    notes: int
    """Findings that are no violations: the specification allows them."""
    active: int
    """Time with traffic: see `traffic.PAUSE_SECONDS`."""
    sources: int
    size: int
    first: int | None
    last: int | None

    @property
    def violations(self) -> int:
        """Broken rules of a specification."""
        return self.errors + self.tolerated


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


class Ending(msgspec.Struct, frozen=True):
    how: str
    count: int


class Session(msgspec.Struct, frozen=True):
    session: str
    """Its id, as hex digits."""
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
    confirmed: int
    deliveries: int
    acknowledged: int
    handshake: str | None
    ended_how: str | None
    ended_by: str | None
    violations: int
    source: str | None
    offset: int | None


class Account(msgspec.Struct, frozen=True):
    """The bytes of one source by category."""

    source: str
    size: int
    accounted: int
    parts: dict[str, int]
    """Category -> bytes."""


class LakeSummary(msgspec.Struct, frozen=True):
    lake: str
    batch: int | None
    stale: list[str]
    """Tables that are older than what they are built from."""
    headline: Headline
    timeline: Timeline | None
    exchanges: list[Exchanges]
    endings: list[Ending]
    sessions: list[Session]
    """The busiest, and those that examples of findings are from."""
    findings: list[Finding]
    verdicts: list[PacketVerdict]
    quarantined: list[Quarantined]
    rules: list[RuleText]
    """The rules of the findings."""
    rates: list[Rate]
    pairs: list[Pair]
    accounts: list[Account]
    """The largest sources."""
    parts: dict[str, int]
    """Category -> bytes of all sources."""
    unbalanced: list[Account]
    """Sources whose ledger does not add up to their size. Always empty, unless wirelake has a bug."""
    rows: dict[str, int]
    """Table -> rows."""
    unrecognised: list[UnrecognisedServer] = []


def headline(lake: Path) -> Headline:
    """Query the main counts only."""
    with opened(lake) as connection:
        return _headline(connection)


def summarise(lake: Path) -> LakeSummary:
    """Query everything the report shows."""
    from wirelake.lake.store import snapshot  # noqa: PLC0415 - brings Delta Lake
    from wirelake.lake.tables import ledger  # noqa: PLC0415
    from wirelake.lake.tables.catalog import GOLD, TABLES  # noqa: PLC0415

    seen = snapshot.current(lake)
    batch = seen.batch(ledger.TABLE.name)
    with opened(lake, seen) as connection:
        first = _headline(connection)
        broken, judged, unread = findings(connection), verdicts(connection), quarantined(connection)
        examples = [place for one in broken for place in one.examples]
        examples += [one.example for one in judged] + [one.example for one in unread]
        named = sorted({place.session for place in examples if place.session})
        return LakeSummary(
            lake=str(lake.absolute()),
            batch=batch,
            stale=[table.name for table in GOLD if seen.batch(table.name) != batch],
            headline=first,
            timeline=_timeline(connection, first),
            exchanges=exchanges(connection),
            endings=rows_of(connection, _ENDINGS, Ending),
            sessions=rows_of(connection, _SESSIONS, Session, [named]),
            findings=broken,
            verdicts=judged,
            quarantined=unread,
            rules=rule_texts(broken, judged, unread),
            rates=rows_of(connection, RATES, Rate),
            pairs=rows_of(connection, PAIRS, Pair),
            unrecognised=rows_of(connection, UNRECOGNISED, UnrecognisedServer),
            accounts=rows_of(connection, f"{_ACCOUNTS} LIMIT {TOP}", Account),
            parts={row[0]: row[1] for row in _fetch(connection, _PARTS)},
            unbalanced=rows_of(connection, _UNBALANCED, Account),
            rows={name: _fetch(connection, f'SELECT count(*) FROM "{name}"')[0][0] for name in TABLES},  # noqa: S608 - our own names
        )


def _fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    return connection.execute(sql).fetchall()


def _headline(connection: duckdb.DuckDBPyConnection) -> Headline:
    return rows_of(connection, _HEADLINE, Headline)[0]


def _timeline(connection: duckdb.DuckDBPyConnection, first: Headline) -> Timeline | None:
    """Messages per kind and bucket, the most frequent kind first."""
    if first.first is None or first.last is None:
        return None
    span = first.last - first.first
    bucket = next((step for step in _STEPS if span // step < _MOST_BUCKETS), _STEPS[-1])
    kinds = rows_of(
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


_ENDINGS: Final = "SELECT coalesce(ended_how, 'unknown') AS how, count(*) AS count FROM sessions GROUP BY how ORDER BY count DESC, how"

_END: Final = """CASE WHEN {0}_address IS NULL THEN '?' WHEN contains({0}_address, ':') THEN '[' || {0}_address || ']' ELSE {0}_address END
    || coalesce(':' || {0}_port, '')"""

_HEADLINE: Final = f"""
    WITH sources AS (SELECT source_id, source_size FROM ledger GROUP BY ALL),
    asked AS (SELECT {COUNTS} FROM exchanges WHERE requested IS NOT NULL),
    broken AS (
        SELECT count(*) FILTER ({FORBIDDEN} AND severity IS DISTINCT FROM 'tolerated') AS errors,
            count(*) FILTER (severity = 'tolerated') AS tolerated,
            count(*) FILTER (severity = 'warning') AS warnings, count(*) FILTER (severity = 'info') AS notes
        FROM violations
    )
    SELECT
        (SELECT count(*) FROM messages) AS messages,
        (SELECT count(*) FROM sessions) AS sessions,
        asked.*, broken.*,
        (SELECT coalesce(sum(active), 0)::BIGINT FROM ({ACTIVE.format(by="1")})) AS active,
        (SELECT count(*) FROM sources) AS sources,
        (SELECT coalesce(sum(source_size), 0)::BIGINT FROM sources) AS size,
        (SELECT epoch_us(min(ts)) FROM messages) AS first,
        (SELECT epoch_us(max(ts)) FROM messages) AS last
    FROM asked, broken
"""  # noqa: S608 - our own text

_SESSIONS: Final = f"""
    WITH listed AS (
        SELECT *, row_number() OVER (ORDER BY messages_to_server + messages_to_client DESC, opened, session_id) AS place FROM sessions
        QUALIFY place <= {TOP} OR list_contains($1::VARCHAR[], lower(hex(session_id)))
    ),
    asked AS (
        SELECT session_id, {COUNTS} FROM exchanges
        WHERE requested IS NOT NULL AND session_id IN (SELECT session_id FROM listed) GROUP BY session_id
    )
    SELECT lower(hex(listed.session_id)) AS session, protocol, transport, {_END.format("client")} AS client,
        {_END.format("server")} AS server, epoch_us(opened) AS opened, duration_us AS duration, messages_to_server AS to_server,
        messages_to_client AS to_client, coalesce(asked.requests, 0) AS requests, coalesce(asked.answered, 0) AS answered,
        coalesce(confirmed, 0) AS confirmed, coalesce(deliveries, 0) AS deliveries, coalesce(acknowledged, 0) AS acknowledged,
        handshake, ended_how, ended_by, violations, source, "offset"
    FROM listed LEFT JOIN asked ON listed.session_id = asked.session_id ORDER BY place
"""  # noqa: S608 - our own text
"""The busiest sessions, and those whose ids are given."""

_ACCOUNTS: Final = """
    SELECT any_value(source) AS source, source_size AS size, sum(total)::BIGINT AS accounted,
        map(list(category ORDER BY category), list(total ORDER BY category)) AS parts
    FROM (SELECT source_id, source_size, min(source) AS source, coalesce(category, 'other') AS category, sum(bytes)::BIGINT AS total
          FROM ledger GROUP BY ALL)
    GROUP BY source_id, source_size ORDER BY size DESC, source
"""

_UNBALANCED: Final = f"SELECT * FROM ({_ACCOUNTS}) WHERE accounted != size"  # noqa: S608 - our own text

_PARTS: Final = "SELECT coalesce(category, 'other'), sum(bytes)::BIGINT FROM ledger GROUP BY 1"
