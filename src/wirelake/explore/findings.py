"""Findings, verified packets and quarantined bytes, grouped: values and SQL.

A finding is a violation, unless its severity is `info`: then only a ruling, a limit or the state of this side forbids
it, and the specification does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.rows import rows_of

if TYPE_CHECKING:
    import duckdb
from wirelake.lake.tables.severities import GRAVITY

__all__ = [
    "EXAMPLES",
    "Finding",
    "PacketVerdict",
    "Place",
    "Quarantined",
    "RuleText",
    "findings",
    "quarantined",
    "rule_texts",
    "verdicts",
]

EXAMPLES: Final = 3
"""Sessions that are shown for each rule; the others are counted."""
PREVIEW: Final = 32
"""Bytes shown of an example in quarantine."""


class Place(msgspec.Struct, frozen=True):
    """The place of some bytes."""

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
        return self.severity not in ("warning", "info")


class PacketVerdict(msgspec.Struct, frozen=True):
    """Packets with the same outcome: accepted, not checked, or dropped for one rule."""

    protocol: str
    accepted: bool | None
    rule: str | None
    clause: str | None
    text: str | None
    count: int
    nodes: int
    """Number of nodes that are named as senders."""
    now: int
    """Packets that were accepted with earlier keys, and are not any more."""
    example: Place


class Quarantined(msgspec.Struct, frozen=True):
    """Bytes in quarantine for one reason."""

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
    """The text and origin of a rule."""

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
    ORDER BY any_value({GRAVITY}), count DESC, protocol, rule
"""  # noqa: S608 - our own text

_VERDICTS: Final = f"""
    SELECT 'event_mesh' AS protocol, accepted, rule, clause, any_value(text) AS text, count(*) AS count,
        count(DISTINCT node_id) AS nodes, count(*) FILTER (was_accepted AND NOT accepted) AS now, {_EXAMPLE} AS example
    FROM security WHERE protocol = 'event_mesh' GROUP BY accepted, rule, clause ORDER BY accepted IS NULL, accepted DESC, count DESC, rule
"""  # noqa: S608 - our own text

_QUARANTINE: Final = f"""
    SELECT protocol, layer, coalesce(reason, 'unknown') AS reason, clause, any_value(text) AS text, count(*) AS count,
        sum(octet_length(raw))::BIGINT AS size, {_EXAMPLE} AS example, arg_min(raw[1:{PREVIEW}], {_FIRST}) AS preview
    FROM quarantine GROUP BY protocol, layer, reason, clause ORDER BY size DESC, reason
"""  # noqa: S608 - our own text


def findings(connection: duckdb.DuckDBPyConnection) -> list[Finding]:
    """Query findings by rule: errors, then tolerated violations, then findings that are no violations."""
    return rows_of(connection, _FINDINGS, Finding)


def verdicts(connection: duckdb.DuckDBPyConnection) -> list[PacketVerdict]:
    """Query packets by verification result and reason."""
    return rows_of(connection, _VERDICTS, PacketVerdict)


def quarantined(connection: duckdb.DuckDBPyConnection) -> list[Quarantined]:
    """Query bytes in quarantine by reason."""
    return rows_of(connection, _QUARANTINE, Quarantined)


def rule_texts(broken: Iterable[Finding], judged: Iterable[PacketVerdict], unread: Iterable[Quarantined]) -> list[RuleText]:
    """List every rule of these once.

    Its text is that of the lake, its origin from the registry where the lake has none.
    """
    from wirelake.lake.tables.rules import rules  # noqa: PLC0415 - brings the protocols

    registry_rules = rules()
    named: list[tuple[str | None, str | None, str | None, str | None, str | None]]
    named = [(one.protocol, one.rule, one.clause, one.text, one.origin) for one in broken]
    named += [(one.protocol, one.rule, one.clause, one.text, None) for one in judged]
    named += [(one.protocol, one.reason, one.clause, one.text, None) for one in unread]
    texts: dict[tuple[str, str], RuleText] = {}
    for protocol, rule, clause, text, origin in named:
        if protocol is None or rule is None or clause is None or (protocol, rule) in texts:
            continue
        entry = registry_rules.get(f"{protocol}/{rule}", {})
        ends, says = entry.get("ends"), origin or entry.get("origin")
        texts[protocol, rule] = RuleText(
            protocol, rule, clause, text or "", str(says) if says else None, ends if isinstance(ends, bool) else None
        )
    return [texts[key] for key in sorted(texts)]
