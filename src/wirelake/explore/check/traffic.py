"""Traffic: broken rules, security findings and incomplete conversations of a lake, as test cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from wirelake import protocols
from wirelake.explore.check.cases import MOST_PLACES, Case, Suite
from wirelake.explore.formatting import many
from wirelake.protocols.faults import Severity, Threat
from wirelake.rulebook.facts import FaultFacts, facts

if TYPE_CHECKING:
    import duckdb

__all__ = ["Concern", "check_traffic"]


class Concern(StrEnum):
    """What a check may fail on."""

    VIOLATIONS = "violations"
    WARNINGS = "warnings"
    SECURITY = "security"
    INCOMPLETE = "incomplete"


def check_traffic(connection: duckdb.DuckDBPyConnection, concerns: Sequence[Concern]) -> Iterator[Suite]:
    """Check these concerns, in their order; each is a suite. The connection is one of `Database`."""
    checks: dict[Concern, Callable[[duckdb.DuckDBPyConnection], Suite]] = {
        Concern.VIOLATIONS: _violations,
        Concern.WARNINGS: _warnings,
        Concern.SECURITY: _security,
        Concern.INCOMPLETE: _incomplete,
    }
    for concern in concerns:
        yield checks[concern](connection)


_SIDES: Final = "CASE direction WHEN 'to_server' THEN 'client' WHEN 'to_client' THEN 'server' END"
_PLACE: Final = 'lower(hex(session_id)), lower(hex(message_id)), source, "offset"'


def _violations(connection: duckdb.DuckDBPyConnection) -> Suite:
    """A case for each rule of the protocols that are spoken. Other findings are only noted: no specification forbids them."""
    return _rules(connection, Concern.VIOLATIONS, "severity IS DISTINCT FROM 'warning'")


def _warnings(connection: duckdb.DuckDBPyConnection) -> Suite:
    """A case for each rule that a specification recommends."""
    return _rules(connection, Concern.WARNINGS, "severity = 'warning'")


def _rules(connection: duckdb.DuckDBPyConnection, concern: Concern, about: str) -> Suite:
    """A case for each rule; `about` is a condition on `violations`. A finding of severity `info` fails nothing."""
    spoken = {
        name for (name,) in connection.execute("SELECT DISTINCT protocol FROM messages UNION SELECT protocol FROM violations").fetchall()
    }
    cases = {
        (name, fact.name): Case(fact.name, fact.text, fact.clause, name, skipped=_skipped(fact))
        for name in protocols.names()
        if name in spoken
        for fact in facts(name)
        if (fact.severity == Severity.WARNING.label) == (concern is Concern.WARNINGS)
    }
    broken = connection.execute(
        "SELECT protocol, rule, any_value(clause), any_value(text), count(*) FILTER (severity IS DISTINCT FROM 'info'),"
        f" count(*) FILTER (severity = 'info') FROM violations WHERE {about} GROUP BY protocol, rule ORDER BY protocol, rule"
    ).fetchall()
    for protocol, rule, clause, text, number, noted in broken:
        case = cases.setdefault((protocol, rule), Case(rule, text or rule, clause, protocol))
        case.count, case.skipped = number, None
        if noted:
            case.notes.append(f"{many(noted, 'finding')} of severity info: the specification allows them")
    rows = connection.execute(
        f"SELECT protocol, rule, {_SIDES}, {_PLACE} FROM violations WHERE {about} AND severity IS DISTINCT FROM 'info'"
        f' QUALIFY row_number() OVER (PARTITION BY protocol, rule ORDER BY ts NULLS LAST, source, "offset") <= {MOST_PLACES:d}'
        ' ORDER BY protocol, rule, ts NULLS LAST, source, "offset"'
    ).fetchall()
    for protocol, rule, side, *place in rows:
        cases[protocol, rule].places.append(_place(*place, by=side))
    return Suite(concern, list(cases.values()))


def _skipped(fact: FaultFacts) -> str | None:
    """Why a lake has no row for a rule, though it may be broken; None if it has."""
    return None if fact.lake.startswith("`violations`") else fact.lake.replace("`", "")


def _security(connection: duckdb.DuckDBPyConnection) -> Suite:
    """A case for each kind of threat."""
    cases = {str(threat): Case(str(threat), f"no message is a threat of the kind `{threat}`") for threat in Threat}
    for threat, number in connection.execute("SELECT threat, count(*) FROM security WHERE threat IS NOT NULL GROUP BY threat").fetchall():
        cases.setdefault(threat, Case(threat, f"no message is a threat of the kind `{threat}`")).count = number
    rows = connection.execute(
        f"SELECT threat, protocol, clause, rule, sender, {_PLACE} FROM security WHERE threat IS NOT NULL"
        f' QUALIFY row_number() OVER (PARTITION BY threat ORDER BY ts NULLS LAST, source, "offset") <= {MOST_PLACES:d}'
        ' ORDER BY threat, ts NULLS LAST, source, "offset"'
    ).fetchall()
    for threat, protocol, clause, rule, sender, *place in rows:
        what = " ".join(filter(None, [protocol, clause, rule]))
        cases[threat].places.append(f"{what}: {_place(*place, by=sender)}")
    return Suite(Concern.SECURITY, list(cases.values()))


_INCOMPLETE: Final = {
    "unanswered": (
        "every request is answered, and every delivery acknowledged",
        "FROM exchanges e LEFT JOIN messages m ON m.message_id = e.request_message_id WHERE e.status = 'unanswered'",
        """e.protocol || ' ' || e.kind || ' ' || coalesce(e.subject, e.correlation_id, ''), e.requested_by, lower(hex(e.session_id)),
        lower(hex(e.request_message_id)), m.source, m."offset\"""",
        "e.requested NULLS LAST, e.request_message_id, e.correlation_id",
    ),
    "unreadable": (
        "every byte of a connection is decoded",
        "FROM quarantine",
        "concat_ws(' ', protocol, clause, reason || ',', length, 'bytes'), NULL, lower(hex(session_id)), NULL, source, \"offset\"",
        'source, "offset"',
    ),
    "handshake": (
        "every handshake is complete",
        "FROM sessions WHERE handshake = 'incomplete'",
        "protocol || ' ' || address(client_address, client_port), NULL, lower(hex(session_id)), NULL, source, \"offset\"",
        "opened NULLS LAST, session_id",
    ),
}
"""Case -> its text, its rows, what names one, and their order."""


def _incomplete(connection: duckdb.DuckDBPyConnection) -> Suite:
    """Requests without an answer, bytes that are no message, and handshakes that did not end."""
    cases = []
    for name, (text, rows, columns, order) in _INCOMPLETE.items():
        total = connection.execute(f"SELECT count(*) {rows}").fetchone()
        case = Case(name, text, count=0 if total is None else int(total[0]))
        if case.count:
            found = connection.execute(f"SELECT {columns} {rows} ORDER BY {order} LIMIT {MOST_PLACES:d}").fetchall()
            case.places = [f"{what}: {_place(*place, by=side)}" for what, side, *place in found]
        cases.append(case)
    return Suite(Concern.INCOMPLETE, cases)


def _place(session: Any, message: Any, source: Any, offset: Any, *, by: str | None) -> str:
    """`by the client, session 2ca9…, message ff4d…, /data/a.pcapng at byte 396`."""
    parts = [
        f"by {'the ' if by in ('client', 'server') else ''}{by}" if by else "",
        f"session {session}" if session else "",
        f"message {message}" if message else "",
        f"{source} at byte {offset}" if source is not None else "",
    ]
    return ", ".join(filter(None, parts))
