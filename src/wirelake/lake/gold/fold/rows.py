"""Rows of `exchanges`, `violations` and `sessions`, from what analyzers tell.

Clause, severity and text of a rule come from `lake/tables/rules.py`; whether an answer is late depends on the lake's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.gold.fold.seen import one_chunk, to_server, unreadable_ranges, values
from wirelake.lake.tables import exchanges as exchanges_table
from wirelake.lake.tables import sessions as sessions_table
from wirelake.lake.tables import violations as violations_table
from wirelake.lake.tables.rules import rules
from wirelake.lake.tables.schema import times
from wirelake.lake.views import View
from wirelake.protocols.analyzer import CONFIRMED, KILLED, NO_TIME, REQUEST, Exchange, Finding, SessionAnalyzer
from wirelake.protocols.faults import VIOLATIONS
from wirelake.protocols.request_pairs import PairColumns

__all__ = [
    "Endpoints",
    "Judged",
    "Observed",
    "Sums",
    "ends",
    "exchange_rows",
    "is_counted",
    "paired_rows",
    "session_row",
    "session_rows",
    "unclaimed_rows",
    "violation_rows",
]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

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
    """Whether the specification forbids it: only then it counts as a violation. A rule that is not known counts."""
    return _rule(protocol, rule)["severity"] in (None, *VIOLATIONS)


def _time(at: int) -> int | None:
    return None if at == NO_TIME else at


def _table(schema: pa.Schema, columns: Mapping[str, Sequence[object]]) -> pa.Table:
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


class Observed(NamedTuple):
    """Who saw a session, and whether it counts in sums."""

    observer: str | None = None
    is_primary: bool = True


def exchange_rows(
    protocol: str, session_ids: Sequence[bytes], exchanges: Sequence[Exchange], late_seconds: float, observed: Mapping[bytes, Observed]
) -> pa.Table:
    """Rows of `exchanges` of one protocol; `session_ids` has the session of each, and `observed` who saw it."""
    sent, answers = [one.sent for one in exchanges], [one.answer for one in exchanges]
    requested, answered = (np.array([NO_TIME if one is None else one.ts for one in parts], np.int64) for parts in (sent, answers))
    outcome = [one.outcome for one in exchanges]
    sessions = pa.array(session_ids, pa.binary()).dictionary_encode()
    seen = [observed[session_id] for session_id in sessions.dictionary.to_pylist()]
    columns = {
        "session_id": sessions,
        "observer": pa.array([one.observer for one in seen], pa.string()).take(sessions.indices).dictionary_encode(),
        "is_primary": pa.array([one.is_primary for one in seen], pa.bool_()).take(sessions.indices),
        "kind": pa.array([one.kind for one in exchanges], pa.string()).dictionary_encode(),
        "correlation_id": pa.array([one.correlation_id for one in exchanges], pa.string()),
        "subject": pa.array([one.subject for one in exchanges], pa.string()).dictionary_encode(),
        "request_message_id": pa.array([None if one is None else one.message_id for one in sent], pa.binary()),
        "response_message_id": pa.array([None if one is None else one.message_id for one in answers], pa.binary()),
        "request_size": pa.array([None if one is None else one.size for one in sent], pa.int64()),
        "response_size": pa.array([None if one is None else one.size for one in answers], pa.int64()),
        "progress": pa.array([one.progress for one in exchanges], pa.int32()),
        "cancelled": pa.array([one.cancelled for one in exchanges], pa.bool_()),
        "attempts": pa.array([one.attempts for one in exchanges], pa.int32()),
        "outcome": pa.array(outcome, pa.string()).dictionary_encode(),
        "requested_by": _sides(np.array([one.by_client for one in exchanges], bool)),
    }
    is_asked = np.array([one is not None for one in sent], bool)
    is_confirmed, is_killed = (np.array([one == how for one in outcome], bool) for how in (CONFIRMED, KILLED))
    return _exchanges(protocol, columns | _timed(requested, answered, is_asked, is_confirmed, is_killed, late_seconds))


def paired_rows(
    protocol: str, session_id: bytes, requests: pa.Table, answers: pa.Table, columns: PairColumns, late_seconds: float, observed: Observed
) -> pa.Table:
    """Rows of `exchanges` of requests and their answers, which are rows of the protocol's table."""
    count = requests.num_rows
    ids = one_chunk(requests[columns.correlation_id])
    subject, outcome = pa.nulls(count, pa.string()), _words(np.zeros(count, np.int8), ["returned"])
    if columns.subject is not None:
        subject = one_chunk(requests[columns.subject]).cast(pa.string())
    if columns.outcome is not None:
        outcome = pa.array([columns.outcomes.get(one) for one in values(answers[columns.outcome])], pa.string()).dictionary_encode()
    found = {
        "session_id": _words(np.zeros(count, np.int8), [session_id], pa.binary()),
        "observer": pa.array([observed.observer] * count, pa.string()).dictionary_encode(),
        "is_primary": pa.array(np.full(count, observed.is_primary)),
        "kind": _words(np.zeros(count, np.int8), [REQUEST]),
        "correlation_id": pa.array([one.hex() for one in ids.to_pylist()]) if pa.types.is_binary(ids.type) else ids.cast(pa.string()),
        "subject": subject.dictionary_encode(),
        "request_message_id": one_chunk(requests["message_id"]),
        "response_message_id": one_chunk(answers["message_id"]),
        "request_size": one_chunk(requests["size"]).cast(pa.int64()),
        "response_size": one_chunk(answers["size"]).cast(pa.int64()),
        "progress": pa.array(np.zeros(count, np.int32)),
        "cancelled": pa.array(np.zeros(count, np.bool_)),
        "attempts": pa.array(np.ones(count, np.int32)),
        "outcome": outcome,
        "requested_by": _sides(to_server(one_chunk(requests["direction"])).to_numpy(zero_copy_only=False)),
    }
    none = np.zeros(count, np.bool_)
    requested, answered = (one_chunk(rows["ts"]).cast(pa.int64()).fill_null(NO_TIME).to_numpy() for rows in (requests, answers))
    return _exchanges(protocol, found | _timed(requested, answered, np.ones(count, np.bool_), none, none, late_seconds))


def _exchanges(protocol: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    every = {**columns, "protocol": _words(np.zeros(len(columns["session_id"]), np.int8), [protocol])}
    return pa.table({name: every[name] for name in exchanges_table.TABLE.schema.names})


def _timed(
    requested: Ints, answered: Ints, is_asked: Flags, is_confirmed: Flags, is_killed: Flags, late_seconds: float
) -> dict[str, pa.Array]:
    """Columns that follow from the times of requests and answers."""
    has_latency = (requested != NO_TIME) & (answered != NO_TIME)
    latency = answered - requested
    is_late = has_latency & (latency > int(late_seconds * 1_000_000))
    is_open = answered == NO_TIME
    status = np.select([is_confirmed, is_open & is_killed, is_open, ~is_asked, is_late], [0, 1, 2, 3, 4], default=5)
    return {
        "requested": times(requested),
        "answered": times(answered),
        "latency_us": pa.array(latency, mask=~has_latency),
        "status": _words(status.astype(np.int8), [CONFIRMED, KILLED, "unanswered", "unasked", "late", "answered"]),
        "late": pa.array(is_late),
    }


def _sides(by_client: Flags) -> pa.DictionaryArray:
    return _words(by_client.astype(np.int8), ["server", "client"])


def _words(codes: npt.NDArray[np.int8], words: Sequence[str | bytes], kind: pa.DataType | None = None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(words, kind or pa.string()))


class Judged(NamedTuple):
    """A finding that counts."""

    session_id: bytes | None
    protocol: str | None
    finding: Finding
    ended_session: bool
    observed: Observed = Observed()


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
        "detail": of("detail"),
        "ended_session": [one.ended_session for one in found],
        **{name: of(name) for name in ("source", "offset", "length")},
        "observer": [one.observed.observer for one in found],
        "is_primary": [one.observed.is_primary for one in found],
    }
    return _table(violations_table.TABLE.schema, columns)


def unclaimed_rows(quarantine: pa.Table) -> pa.Table:
    """Rows of `violations` for bytes that a specification forbids, of no session that has a row. An empty `session_id` means none."""
    broken = quarantine.filter(pc.is_valid(quarantine["clause"]))
    found = zip(unreadable_ranges(broken), *(values(broken[name]) for name in ("session_id", "protocol", "observer")), strict=True)
    return violation_rows(
        [
            Judged(
                session_id or None,
                protocol,
                Finding(one.reason, one.ts, one.to_server, None, one.source, one.offset, one.length, needs_whole=False),
                ended_session=False,
                observed=Observed(observer),
            )
            for one, session_id, protocol, observer in found
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
    observer_kind: str
    observer: str | None


class Sums(NamedTuple):
    """Messages and bytes of a session."""

    messages_to_server: int = 0
    messages_to_client: int = 0
    bytes_to_server: int = 0
    bytes_to_client: int = 0
    keepalives: int = 0
    connections: int = 0


def session_row(
    session_id: bytes,
    protocol: str,
    analyzer: SessionAnalyzer,
    first: Endpoints,
    sums: Sums,
    violations: int,
    newest: int,
    observed: Observed,
    view: View | None,
    uncounted: Sequence[tuple[bytes, str | None]],
) -> dict[str, object]:
    """The row of `sessions` of a session, after its analyzer's `end`."""
    standing = analyzer.standing(newest)
    last, opened = _time(standing.last_seen), _time(standing.opened)
    unsent, unsent_bytes = analyzer.unsent_messages, analyzer.unsent_bytes
    sums = sums._replace(
        messages_to_server=sums.messages_to_server - unsent[0],
        messages_to_client=sums.messages_to_client - unsent[1],
        bytes_to_server=sums.bytes_to_server - unsent_bytes[0],
        bytes_to_client=sums.bytes_to_client - unsent_bytes[1],
    )
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
        "unconfirmed": sum(unsent),
        "requests": analyzer.requests,
        "answered": analyzer.answered,
        "silences": standing.silences,
        "ended_how": standing.ended_how,
        "ended_by": standing.ended_by,
        "error_code": standing.error_code,
        "violations": violations,
        **observed._asdict(),
        "link": None if view is None else view.link,
        "uncounted": [{"connection_id": connection_id, "observer": observer} for connection_id, observer in uncounted] or None,
    }


def session_rows(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows of `sessions`."""
    schema = sessions_table.TABLE.schema
    return _table(schema, {name: [row[name] for row in rows] for name in schema.names})
