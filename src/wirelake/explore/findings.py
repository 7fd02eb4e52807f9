"""Findings as values: which rule, how often, in which sessions, and who forbids it; and the SQL that gives them.

A finding is a violation, unless its severity is `info`: then only a ruling, a limit or the state of this side objects, and the
specification does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.rows import rows_of

if TYPE_CHECKING:
    import duckdb

__all__ = ["EXAMPLES", "INFO", "Believed", "Finding", "Place", "RuleText", "Spoilt", "believed", "findings", "rule_texts", "spoilt"]

INFO: Final = "info"
EXAMPLES: Final = 3
"""Sessions that are shown for each rule; the others are counted."""
PREVIEW: Final = 32
"""Bytes shown of an example in quarantine."""


class Place(msgspec.Struct, frozen=True):
    """Where the bytes are that a statement is about."""

    source: str
    offset: int
    length: int
    session: str | None = None
    """The session they belong to, as hex digits; None if that is not known."""


class Finding(msgspec.Struct, frozen=True):
    """One rule, and how often it was found broken."""

    protocol: str | None
    rule: str
    clause: str | None
    text: str | None
    severity: str | None
    origin: str | None
    count: int
    sessions: int
    by_client: int
    by_server: int
    ended: int
    """Sessions that ended on it."""
    examples: list[Place]
    """Its first place in each of some sessions, the earliest first."""

    @property
    def is_violation(self) -> bool:
        """Whether the specification forbids it."""
        return self.severity != INFO


class Believed(msgspec.Struct, frozen=True):
    """Packets with the same outcome: accepted, not checked, or dropped for one rule."""

    protocol: str
    accepted: bool | None
    rule: str | None
    clause: str | None
    text: str | None
    count: int
    nodes: int
    """How many nodes say that they are the senders."""
    now: int
    """Packets that were accepted before, and are not any more."""
    example: Place


class Spoilt(msgspec.Struct, frozen=True):
    """One reason why bytes could not be read."""

    protocol: str | None
    layer: str | None
    reason: str
    clause: str | None
    text: str | None
    count: int
    size: int
    example: Place
    preview: bytes


class RuleText(msgspec.Struct, frozen=True):
    """What a rule says, and who says so."""

    protocol: str
    rule: str
    clause: str
    text: str
    origin: str | None
    """`text`, `ruling`, `limit` or `local`; None for a rule that this version does not know."""
    ends: bool | None
    """Whether a live peer ends the session, or drops the message, because of it."""


_PLACE: Final = "{'source': source, 'offset': \"offset\", 'length': length, 'session': lower(hex(session_id))}"
_FIRST: Final = '(ts IS NULL, ts, source, "offset")'
_EXAMPLE: Final = f"arg_min({_PLACE}, {_FIRST})"
"""The first place of a group."""

_FINDINGS: Final = f"""
    WITH by_session AS (
        SELECT protocol, rule, clause, session_id, any_value(text) AS text, any_value(severity) AS severity, any_value(origin) AS origin,
            count(*) AS n, count(*) FILTER (direction = 'to_server') AS by_client, count(*) FILTER (direction = 'to_client') AS by_server,
            count(*) FILTER (ended_session) AS ended, {_EXAMPLE} AS example, min({_FIRST}) AS first
        FROM violations GROUP BY protocol, rule, clause, session_id
    )
    SELECT protocol, rule, clause, any_value(text) AS text, any_value(severity) AS severity, any_value(origin) AS origin,
        sum(n)::BIGINT AS count, count(*) AS sessions, sum(by_client)::BIGINT AS by_client, sum(by_server)::BIGINT AS by_server,
        sum(ended)::BIGINT AS ended, arg_min(example, first, {EXAMPLES}) AS examples
    FROM by_session GROUP BY protocol, rule, clause
    ORDER BY any_value(severity) = '{INFO}', any_value(severity) = 'tolerated', count DESC, protocol, rule
"""  # noqa: S608 - our own text

_BELIEVED: Final = f"""
    SELECT 'event_mesh' AS protocol, accepted, rule, clause, any_value(text) AS text, count(*) AS count,
        count(DISTINCT node_id) AS nodes, count(*) FILTER (was_accepted AND NOT accepted) AS now, {_EXAMPLE} AS example
    FROM security WHERE protocol = 'event_mesh' GROUP BY accepted, rule, clause ORDER BY accepted IS NULL, accepted DESC, count DESC, rule
"""  # noqa: S608 - our own text

_SPOILT: Final = f"""
    SELECT protocol, layer, coalesce(reason, 'unknown') AS reason, clause, any_value(text) AS text, count(*) AS count,
        sum(octet_length(raw))::BIGINT AS size, {_EXAMPLE} AS example, arg_min(raw[1:{PREVIEW}], {_FIRST}) AS preview
    FROM quarantine GROUP BY protocol, layer, reason, clause ORDER BY size DESC, reason
"""  # noqa: S608 - our own text


def findings(connection: duckdb.DuckDBPyConnection) -> list[Finding]:
    """Every rule that was found broken: errors, then what is tolerated, then what is no violation."""
    return rows_of(connection, _FINDINGS, Finding)


def believed(connection: duckdb.DuckDBPyConnection) -> list[Believed]:
    """Which packets can be believed, and why not."""
    return rows_of(connection, _BELIEVED, Believed)


def spoilt(connection: duckdb.DuckDBPyConnection) -> list[Spoilt]:
    """What could not be read, by reason."""
    return rows_of(connection, _SPOILT, Spoilt)


def rule_texts(broken: Iterable[Finding], judged: Iterable[Believed], unread: Iterable[Spoilt]) -> list[RuleText]:
    """Every rule that these are about, once: its words as the lake has them, its origin from the rule book where the lake has none."""
    from wirelake.lake.tables.rules import rules  # noqa: PLC0415 - brings the protocols

    book = rules()
    named: list[tuple[str | None, str | None, str | None, str | None, str | None]]
    named = [(one.protocol, one.rule, one.clause, one.text, one.origin) for one in broken]
    named += [(one.protocol, one.rule, one.clause, one.text, None) for one in judged]
    named += [(one.protocol, one.reason, one.clause, one.text, None) for one in unread]
    found: dict[tuple[str, str], RuleText] = {}
    for protocol, rule, clause, text, origin in named:
        if protocol is None or rule is None or clause is None or (protocol, rule) in found:
            continue
        known = book.get(f"{protocol}/{rule}", {})
        ends, says = known.get("ends"), origin or known.get("origin")
        found[protocol, rule] = RuleText(
            protocol, rule, clause, text or "", str(says) if says else None, ends if isinstance(ends, bool) else None
        )
    return [found[key] for key in sorted(found)]
