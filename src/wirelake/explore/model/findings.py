"""Findings: broken rules, security findings and bytes that are no message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.model.rows import Missing, read
from wirelake.rulebook.book import Entry, book

if TYPE_CHECKING:
    import duckdb
from wirelake.lake.tables.severities import GRAVITY

__all__ = [
    "FINDING_ROWS",
    "Quarantined",
    "Rule",
    "Threat",
    "Violation",
    "bytes_of",
    "entry",
    "quarantine",
    "rules",
    "security",
    "threats",
    "violations",
]

FINDING_ROWS: Final = 500
"""Rows of one page of findings."""
RAW_BYTES: Final = 4096
"""Bytes of an unreadable range that a page shows."""


class Rule(msgspec.Struct):
    """A rule, and how often it was broken."""

    protocol: str
    rule: str
    clause: str | None
    severity: str
    origin: str | None
    text: str
    count: int
    sessions: int
    ended: int
    """Sessions that ended on it."""
    first: int | None
    last: int | None


class Violation(msgspec.Struct):
    """One broken rule at its place."""

    ts: int | None
    protocol: str
    rule: str
    clause: str | None
    severity: str
    by: str | None
    """The side at fault: `client`, `server`, or None."""
    text: str
    session: str | None
    message: str | None
    source: str
    offset: int
    ended_session: bool | None


class Threat(msgspec.Struct):
    """One security finding."""

    ts: int | None
    protocol: str
    threat: str | None
    rule: str | None
    clause: str | None
    text: str | None
    verdict: str | None
    accepted: bool | None
    sender: str | None
    receiver: str | None
    sighting: int | None
    session: str | None
    message: str | None
    first_message: str | None


class Quarantined(msgspec.Struct):
    """Bytes that are no message."""

    ts: int | None
    protocol: str | None
    layer: str
    reason: str
    clause: str | None
    text: str | None
    session: str | None
    source: str
    offset: int
    length: int
    raw: bytes
    """At most `RAW_BYTES` of them."""


def rules(connection: duckdb.DuckDBPyConnection) -> list[Rule]:
    """Return every rule that was broken, the gravest and most frequent first."""
    return read(
        connection,
        Rule,
        "SELECT protocol, rule, clause, severity, origin, any_value(text), count(*), count(DISTINCT session_id),"
        " count(*) FILTER (ended_session), epoch_us(min(ts)), epoch_us(max(ts)) FROM violations"
        " GROUP BY protocol, rule, clause, severity, origin"
        f" ORDER BY {GRAVITY}, count(*) DESC, protocol, rule",
    )


def entry(protocol: str, clause: str | None) -> Entry | None:
    """Return the entry of the rule book for a clause of a protocol; None if there is none."""
    rules_of = book(protocol)
    return None if rules_of is None or clause is None else rules_of.find(clause)


def violations(
    connection: duckdb.DuckDBPyConnection,
    *,
    rule: str | None = None,
    protocol: str | None = None,
    limit: int = FINDING_ROWS,
    offset: int = 0,
) -> list[Violation]:
    """Return broken rules in order of time: all, or those of one rule (its name or its clause)."""
    sql = f"""
    SELECT epoch_us(ts), protocol, rule, clause, severity, CASE direction WHEN 'to_server' THEN 'client' WHEN 'to_client' THEN 'server' END,
        text, lower(hex(session_id)), lower(hex(message_id)), source, "offset", ended_session
    FROM violations WHERE ($rule IS NULL OR rule = $rule OR clause = $rule) AND ($protocol IS NULL OR protocol = $protocol)
    ORDER BY ts NULLS LAST, source, "offset" LIMIT {limit:d} OFFSET {offset:d}
    """
    return [Violation(*row) for row in connection.execute(sql, {"rule": rule, "protocol": protocol}).fetchall()]


def threats(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Count security findings by their kind, the most frequent first."""
    sql = "SELECT threat, count(*) FROM security WHERE threat IS NOT NULL GROUP BY threat ORDER BY 2 DESC, 1"
    return {str(threat): int(number) for threat, number in connection.execute(sql).fetchall()}


def security(
    connection: duckdb.DuckDBPyConnection, *, threat: str | None = None, limit: int = FINDING_ROWS, offset: int = 0
) -> list[Threat]:
    """Return security findings in order of time: those that break a rule, or are of one kind of threat."""
    sql = f"""
    SELECT epoch_us(ts), protocol, threat, rule, clause, text, verdict, accepted, sender, receiver, sighting, lower(hex(session_id)),
        lower(hex(message_id)), lower(hex(first_message_id))
    FROM security WHERE threat IS NOT NULL AND ($threat IS NULL OR threat = $threat)
    ORDER BY ts NULLS LAST, source, "offset" LIMIT {limit:d} OFFSET {offset:d}
    """
    return [Threat(*row) for row in connection.execute(sql, {"threat": threat}).fetchall()]


_QUARANTINED: Final = f"""
    epoch_us(ts), protocol, layer, reason, clause, text, lower(hex(session_id)), source, "offset", length, raw[1:{RAW_BYTES}]
"""


def quarantine(connection: duckdb.DuckDBPyConnection, *, limit: int = FINDING_ROWS, offset: int = 0) -> list[Quarantined]:
    """Return bytes that are no message, in order of their places."""
    sql = f'SELECT {_QUARANTINED} FROM quarantine ORDER BY source, "offset" LIMIT {limit:d} OFFSET {offset:d}'
    return read(connection, Quarantined, sql)


def bytes_of(connection: duckdb.DuckDBPyConnection, source: str, offset: int) -> Quarantined:
    """Return the unreadable bytes at one place of a file. Raises Missing."""
    found = read(
        connection, Quarantined, f'SELECT {_QUARANTINED} FROM quarantine WHERE source = ? AND "offset" = ? LIMIT 1', (source, offset)
    )
    if not found:
        raise Missing(f"the lake has no quarantined bytes at {source[:200]!r}, offset {offset}")
    return found[0]
