"""Rows of `exchanges`, `violations` and `sessions`, from what analyzers tell.

Clause, severity and text of a rule come from `lake/tables/rules.py`; whether an answer is late depends on the lake's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.gold.fold.seen import unreadable_ranges, values
from wirelake.lake.tables import exchanges as exchanges_table
from wirelake.lake.tables import sessions as sessions_table
from wirelake.lake.tables import violations as violations_table
from wirelake.lake.tables.rules import rules
from wirelake.protocols.analyzer import NO_TIME, Exchange, Finding, SessionAnalyzer

__all__ = [
    "Endpoints",
    "Judged",
    "Sums",
    "ends",
    "exchange_rows",
    "is_counted",
    "session_row",
    "session_rows",
    "unclaimed_rows",
    "violation_rows",
]

_CONFIRMED: Final = "confirmed"
"""Outcome of a call that was delivered, and that nothing answered."""
_SIDES: Final = {True: "to_server", False: "to_client", None: None}


@cache
def _book() -> Mapping[str, Mapping[str, str | bool | None]]:
    return rules()


_UNKNOWN: Final[dict[str, str | bool | None]] = {"clause": None, "severity": None, "origin": None, "text": None, "ends": False}
"""What is known of a rule that is in no book."""


def _rule(protocol: str | None, rule: str) -> Mapping[str, str | bool | None]:
    return _book().get(f"{protocol}/{rule}", _UNKNOWN)


def ends(protocol: str | None, rule: str) -> bool:
    """Whether a session ends on this rule."""
    return bool(_rule(protocol, rule)["ends"])


def is_counted(protocol: str | None, rule: str) -> bool:
    """Whether the rule is the specification's: only then its breaking counts as a violation."""
    return _rule(protocol, rule)["severity"] != "info"


def _time(at: int) -> int | None:
    return None if at == NO_TIME else at


def _table(schema: pa.Schema, columns: Mapping[str, Sequence[object]]) -> pa.Table:
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def exchange_rows(session_ids: Sequence[bytes], protocols: Sequence[str], exchanges: Sequence[Exchange], late_seconds: float) -> pa.Table:
    """Rows of `exchanges`, one for each."""
    late_micros = int(late_seconds * 1_000_000)
    requested = [None if one.sent is None else _time(one.sent.ts) for one in exchanges]
    answered = [None if one.answer is None else _time(one.answer.ts) for one in exchanges]
    latency = [None if sent is None or done is None else done - sent for sent, done in zip(requested, answered, strict=True)]
    late = [took is not None and took > late_micros for took in latency]
    columns = {
        "session_id": session_ids,
        "protocol": protocols,
        "kind": [one.kind for one in exchanges],
        "requested_by": ["client" if one.by_client else "server" for one in exchanges],
        "correlation_id": [one.correlation_id for one in exchanges],
        "subject": [one.subject for one in exchanges],
        "request_message_id": [None if one.sent is None else one.sent.message_id for one in exchanges],
        "response_message_id": [None if one.answer is None else one.answer.message_id for one in exchanges],
        "requested": requested,
        "answered": answered,
        "latency_us": latency,
        "status": [_status(one, done, is_late) for one, done, is_late in zip(exchanges, answered, late, strict=True)],
        "late": late,
        "request_size": [None if one.sent is None else one.sent.size for one in exchanges],
        "response_size": [None if one.answer is None else one.answer.size for one in exchanges],
        "progress": [one.progress for one in exchanges],
        "cancelled": [one.cancelled for one in exchanges],
        "attempts": [one.attempts for one in exchanges],
        "outcome": [one.outcome for one in exchanges],
    }
    return _table(exchanges_table.TABLE.schema, columns)


def _status(exchange: Exchange, answered: int | None, is_late: bool) -> str:
    if exchange.outcome == _CONFIRMED:
        return _CONFIRMED
    if answered is None:
        return "unanswered"
    if exchange.sent is None:
        return "unasked"
    return "late" if is_late else "answered"


class Judged(NamedTuple):
    """A finding that counts."""

    session_id: bytes | None
    protocol: str | None
    finding: Finding
    ended_session: bool


def violation_rows(found: Sequence[Judged]) -> pa.Table:
    """Rows of `violations`."""
    said = [_rule(one.protocol, one.finding.rule) for one in found]
    of: Callable[[str], list[Any]] = lambda name: [getattr(one.finding, name) for one in found]  # noqa: E731 - one line, used six times
    columns = {
        "session_id": [one.session_id for one in found],
        "message_id": of("message_id"),
        "ts": [_time(at) for at in of("ts")],
        "protocol": [one.protocol for one in found],
        "direction": [_SIDES[side] for side in of("to_server")],
        "rule": of("rule"),
        **{name: [one[name] for one in said] for name in ("clause", "severity", "origin", "text")},
        "ended_session": [one.ended_session for one in found],
        **{name: of(name) for name in ("source", "offset", "length")},
    }
    return _table(violations_table.TABLE.schema, columns)


def unclaimed_rows(quarantine: pa.Table) -> pa.Table:
    """Rows of `violations` for bytes that a specification forbids, of no session that has a row. An empty `session_id` means none."""
    broken = quarantine.filter(pc.is_valid(quarantine["clause"]))
    found = zip(unreadable_ranges(broken), values(broken["session_id"]), values(broken["protocol"]), strict=True)
    return violation_rows(
        [
            Judged(
                session_id or None,
                protocol,
                Finding(one.reason, one.ts, one.to_server, None, one.source, one.offset, one.length, needs_whole=False),
                ended_session=False,
            )
            for one, session_id, protocol in found
        ]
    )


class Endpoints(NamedTuple):
    """Where a session was seen first, and between whom. The order is that of the fields."""

    ts: int
    source: str
    offset: int
    transport: str
    client_address: str | None
    client_port: int | None
    server_address: str | None
    server_port: int | None
    known_by: str
    observed_by: str


class Sums(NamedTuple):
    """Messages and bytes of a session."""

    messages_to_server: int = 0
    messages_to_client: int = 0
    bytes_to_server: int = 0
    bytes_to_client: int = 0
    keepalives: int = 0
    connections: int = 0


def session_row(
    session_id: bytes, protocol: str, analyzer: SessionAnalyzer, first: Endpoints, sums: Sums, violations: int, newest: int
) -> dict[str, object]:
    """The row of `sessions` of a session, after its analyzer's `end`."""
    standing = analyzer.standing(newest)
    last, opened = _time(standing.last_seen), _time(standing.opened)
    return {
        "session_id": session_id,
        "protocol": protocol,
        **{name: value for name, value in first._asdict().items() if name != "ts"},
        "opened": opened,
        "ended": last if standing.ended_how != "open" else None,
        "duration_us": None if last is None or opened is None else last - opened,
        "handshake": standing.handshake,
        "client_version": standing.client_version,
        "server_version": standing.server_version,
        **sums._asdict(),
        "requests": analyzer.requests,
        "answered": analyzer.answered,
        "silences": standing.silences,
        "ended_how": standing.ended_how,
        "ended_by": standing.ended_by,
        "error_code": standing.error_code,
        "violations": violations,
    }


def session_rows(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows of `sessions`."""
    schema = sessions_table.TABLE.schema
    return _table(schema, {name: [row[name] for row in rows] for name in schema.names})
