"""Conditions: a filter as SQL over `messages`, with every value as a parameter.

The result lets the same messages through as `Filter.matches` does in `wirelake read`. The differences are those of a lake: it has no
numbers of messages, and requests without an answer are the messages themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from wirelake.explore.filters import FIELDS, WORDS, Filter, FilterError, Kind, Term, comparison, is_pattern, moment

__all__ = ["EVERYTHING", "Condition", "all_of", "between", "condition"]


class Condition(NamedTuple):
    """A condition of SQL about the message `m`; `values` are its parameters, in order."""

    sql: str
    values: tuple[object, ...] = ()


EVERYTHING: Final = Condition("true")
_NOTHING: Final = Condition("false")

_VOCABULARY: Final = ("protocol", "kind", "status", "severity", "transport", "type")
"""Fields whose values are all in lower case: they are compared as they are, so that DuckDB can skip row groups."""
_IDS: Final = {"session": "m.session_id", "connection": "m.connection_id"}
_ID_SIZE: Final = 16
_COLUMNS: Final = {
    "protocol": "m.protocol",
    "kind": "m.kind",
    "name": "m.name",
    "subject": "m.subject",
    "id": "m.correlation_id",
    "source": "m.source",
}
"""Field of a filter -> column of `messages`."""
_SET: Final = re.compile(r"\[(!?)(\]?[^\]]*)\]")
"""A set of characters in a pattern."""
_OF_MESSAGES: Final = ("ok", "faulty", "error")
"""Values of `status` that only messages have."""
_ANSWERED: Final = "/* answered */"
"""Place of a time range of answers: `answered` of an exchange is the time of the response."""
_REQUESTED: Final = "/* requested */"
"""The same for requests."""
_OPERATORS: Final = frozenset(("=", ">", ">=", "<", "<="))


def condition(wanted: Filter) -> Condition:
    """Compile a filter. Raises FilterError for a term that a lake cannot answer."""
    return all_of(_term(term, wanted.now) for term in wanted.terms)


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Join conditions that must all hold."""
    return _joined(" AND ", list(conditions)) or EVERYTHING


def between(wanted: Condition, first: int, last: int) -> Condition:
    """Limit a condition to a time range, in microseconds since 1970; the tables that it looks into, too."""
    span = f"BETWEEN make_timestamptz({first:d}) AND make_timestamptz({last:d})"
    sql = wanted.sql.replace(_ANSWERED, f"AND answered {span}").replace(_REQUESTED, f"AND requested {span}")
    return Condition(f"m.ts {span} AND {sql}", wanted.values)


def _any_of(conditions: Iterable[Condition]) -> Condition:
    return _joined(" OR ", list(conditions)) or _NOTHING


def _joined(word: str, parts: list[Condition]) -> Condition | None:
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return Condition(f"({word.join(part.sql for part in parts)})", tuple(value for part in parts for value in part.values))


def _term(term: Term, now: float) -> Condition:
    held = _word(term) if not term.field else _time(term, now) if FIELDS[term.field].kind is Kind.TIME else _field(term)
    # A field without a value is equal to nothing: so an excluded term lets it through.
    return Condition(f"NOT coalesce({held.sql}, false)", held.values) if term.is_excluded else held


def _word(term: Term) -> Condition:
    """A bare word is searched in several fields."""
    return _any_of(_fields(Term(name, (f"*{value}*",))) for value in term.values for name in WORDS)


def _time(term: Term, now: float) -> Condition:
    when = [round(moment(term, value, now)) for value in term.values]
    if term.field == "since":
        return Condition("m.ts >= make_timestamptz(?)", (min(when),))
    return Condition("m.ts <= make_timestamptz(?)", (max(when),))


def _field(term: Term) -> Condition:
    return _any_of(_fields(Term(term.field, (value,))) for value in term.values)


def _fields(term: Term) -> Condition:
    """A term with one value."""
    if (special := _SPECIAL.get(term.field)) is not None:
        return special(term)
    return _text(_COLUMNS[term.field], term.field, term.values[0])


def _text(column: str, field: str, value: str) -> Condition:
    """Compare text, with wildcards and without case."""
    if not is_pattern(value):
        # Without a letter there is no case: then statistics help to skip row groups.
        is_plain = field in _VOCABULARY or value.lower() == value.upper()
        return Condition(f"{column} = ?" if is_plain else f"lower({column}) = ?", (value.lower(),))
    if value[0] == value[-1] == "*" and len(value) > 2 and not is_pattern(value[1:-1]):  # faster than a pattern
        return Condition(f"contains(lower({column}), ?)", (value[1:-1].lower(),))
    if "[" in value:
        return Condition(f"regexp_full_match({column}, ?, 'is')", (_expression(value),))
    escaped = re.sub(r"[\\%_]", r"\\\g<0>", value).replace("*", "%").replace("?", "_")
    return Condition(f"{column} ILIKE ? ESCAPE '\\'", (escaped,))


def _expression(pattern: str) -> str:
    """A pattern with sets of characters as a regular expression."""
    parts, at = [], 0
    while at < len(pattern):
        found = _SET.match(pattern, at)
        if found is not None and found[2]:
            inside = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", found[2])
            parts.append(f"[{'^' if found[1] else ''}{inside}]")
            at = found.end()
            continue
        parts.append({"*": ".*", "?": "."}.get(pattern[at]) or re.escape(pattern[at]))
        at += 1
    return "".join(parts)


def _id(term: Term) -> Condition:
    column, value = _IDS[term.field], term.values[0]
    try:
        wanted = bytes.fromhex(value) if not is_pattern(value) else b""
    except ValueError:
        return _NOTHING
    if len(wanted) == _ID_SIZE:
        return Condition(f"{column} = ?", (wanted,))
    return _text(f"lower(hex({column}))", term.field, value)


def _status(term: Term) -> Condition:
    """Of the message, of the exchange that it answers, or of the one that nothing answers."""
    value = term.values[0]
    message, exchange = _text("m.status", "status", value), _text("status", "status", value)
    answers = Condition(
        f"m.message_id IN (SELECT response_message_id FROM exchanges WHERE response_message_id IS NOT NULL {_ANSWERED} AND {exchange.sql})",
        exchange.values,
    )
    waits = Condition(
        "m.message_id IN (SELECT request_message_id FROM exchanges"
        f" WHERE request_message_id IS NOT NULL {_REQUESTED} AND status IN ('unanswered', 'killed') AND {exchange.sql})",
        exchange.values,
    )
    if is_pattern(value):
        return _any_of([message, answers, waits])
    # A value is either of messages or of exchanges: the other table is not read.
    return message if value.lower() in _OF_MESSAGES else waits if value.lower() in ("unanswered", "killed") else answers


def _rule(term: Term) -> Condition:
    rule, clause = _text("rule", "rule", term.values[0]), _text("clause", "rule", term.values[0])
    return Condition(
        f"m.message_id IN (SELECT message_id FROM violations WHERE message_id IS NOT NULL AND ({rule.sql} OR {clause.sql}))",
        (*rule.values, *clause.values),
    )


def _severity(term: Term) -> Condition:
    severity = _text("severity", "severity", term.values[0])
    return Condition(
        f"m.message_id IN (SELECT message_id FROM violations WHERE message_id IS NOT NULL AND {severity.sql})", severity.values
    )


def _type(term: Term) -> Condition:
    """What a record is: here all are messages, and those with a broken rule or without an answer count as such, too."""
    wanted = _text("each", "type", term.values[0])
    types = (
        "['message'] || CASE WHEN m.message_id IN (SELECT message_id FROM violations WHERE message_id IS NOT NULL)"
        " THEN ['violation'] ELSE [] END || CASE WHEN m.message_id IN (SELECT request_message_id FROM exchanges"
        " WHERE request_message_id IS NOT NULL AND status = 'unanswered') THEN ['unanswered'] ELSE [] END"
    )
    return Condition(f"len([each FOR each IN {types} IF {wanted.sql}]) > 0", wanted.values)


def _connected(part: Condition) -> Condition:
    return Condition(f"m.connection_id IN (SELECT connection_id FROM ends WHERE {part.sql})", part.values)


def _host(term: Term) -> Condition:
    return _connected(_any_of(_text(column, "host", term.values[0]) for column in ("client_host", "server_host")))


def _transport(term: Term) -> Condition:
    return _connected(_text("transport", "transport", term.values[0]))


def _end(term: Term) -> Condition:
    """The sender or the receiver: `host:port`, or a host with any port."""
    value = term.values[0]
    towards = {"from": ("client", "server"), "to": ("server", "client")}[term.field]
    parts = []
    for direction, column in zip(("to_server", "to_client"), towards, strict=True):
        inside = _connected(_any_of([_text(column, term.field, value), _text(column, term.field, f"{value}:*")]))
        parts.append(Condition(f"(m.direction = '{direction}' AND {inside.sql})", inside.values))
    return _any_of(parts)


def _compared(column: str, term: Term) -> Condition:
    wanted = comparison(term, term.values[0])
    if wanted.operator == "..":
        return Condition(f"{column} BETWEEN ? AND ?", (wanted.low, wanted.high))
    assert wanted.operator in _OPERATORS  # noqa: S101 - the parser gives no other
    return Condition(f"{column} {wanted.operator} ?", (wanted.low,))


def _port(term: Term) -> Condition:
    # `Ends` has port 0 where a side has none.
    return _connected(_any_of(_compared(f"coalesce({column}, 0)", term) for column in ("client_port", "server_port")))


def _size(term: Term) -> Condition:
    return _compared("m.size", term)


def _latency(term: Term) -> Condition:
    """The shortest latency of what a message answers.

    The shortest is below a number if any is. Otherwise only messages with one latency that fits are looked at: they are few.
    """
    fits, shortest = _compared("latency_us / 1e6", term), _compared("min(latency_us) / 1e6", term)
    some = f"SELECT response_message_id FROM exchanges WHERE response_message_id IS NOT NULL {_ANSWERED} AND {fits.sql}"
    if comparison(term, term.values[0]).operator in ("<", "<="):
        return Condition(f"m.message_id IN ({some})", fits.values)
    return Condition(
        f"m.message_id IN (SELECT response_message_id FROM exchanges WHERE response_message_id IN ({some}) {_ANSWERED}"
        f" GROUP BY response_message_id HAVING {shortest.sql})",
        (*fits.values, *shortest.values),
    )


def _number(term: Term) -> Condition:
    raise FilterError(str(term), f"filter term {str(term)!r}: messages of a lake have no number; use since: and until:, or session:")


_SPECIAL: Final[dict[str, Callable[[Term], Condition]]] = {
    "session": _id,
    "connection": _id,
    "status": _status,
    "rule": _rule,
    "severity": _severity,
    "type": _type,
    "host": _host,
    "port": _port,
    "from": _end,
    "to": _end,
    "transport": _transport,
    "number": _number,
    "size": _size,
    "latency": _latency,
}
"""Fields that are more than a column of `messages`."""
