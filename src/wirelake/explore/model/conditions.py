"""Conditions: a filter as SQL over `messages`, with every value as a parameter.

The result lets the same messages through as `explore/reading/matching.py` does in `wirelake read`. The differences are those of a lake: it
has no numbers of messages, and requests without an answer are the messages themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from math import inf
from typing import Final, NamedTuple

from wirelake.filters import WORDS, Column, Comparison, Filter, FilterError, Kind, Network, Node, Not, Some, Term, Text, Value, field_of

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
_SEEN: Final = "/* seen */"
"""The same for the messages of a protocol's own table."""
_BODY: Final = (
    r"coalesce(try(decode(m.body)), regexp_replace(replace(replace(m.body::VARCHAR, '\x22', chr(34)), '\x27', chr(39)),"
    r" '\\x[0-9A-F]{2}', chr(127), 'g'))"
)
"""A body as text. Of one that is not UTF-8, only printable ASCII counts, as in `explore/reading/records.py`."""
_OPERATORS: Final = frozenset(("=", ">", ">=", "<", "<="))


def condition(wanted: Filter) -> Condition:
    """Compile a filter. Raises FilterError for a term that a lake cannot answer."""
    return all_of(map(_node, wanted.terms))


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Join conditions that must all hold."""
    return _joined(" AND ", list(conditions)) or EVERYTHING


def between(wanted: Condition, first: int, last: int) -> Condition:
    """Limit a condition to a time range, in microseconds since 1970; the tables that it looks into, too."""
    span = f"BETWEEN make_timestamptz({first:d}) AND make_timestamptz({last:d})"
    sql = (
        wanted.sql.replace(_ANSWERED, f"AND answered {span}").replace(_REQUESTED, f"AND requested {span}").replace(_SEEN, f"AND ts {span}")
    )
    return Condition(f"m.ts {span} AND {sql}", wanted.values)


def _any_of(conditions: Iterable[Condition]) -> Condition:
    return _joined(" OR ", list(conditions)) or _NOTHING


def _joined(word: str, parts: list[Condition]) -> Condition | None:
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return Condition(f"({word.join(part.sql for part in parts)})", tuple(value for part in parts for value in part.values))


def _node(node: Node) -> Condition:
    if isinstance(node, Term):
        return _term(node)
    if isinstance(node, Not):
        part = _node(node.part)
        # A field without a value is equal to nothing: so an excluded term lets it through.
        return Condition(f"NOT coalesce({part.sql}, false)", part.values)
    parts = map(_node, node.parts)
    return _any_of(parts) if isinstance(node, Some) else all_of(parts)


def _term(term: Term) -> Condition:
    if term.field:
        return _any_of(_field(term, value) for value in term.values)
    # A bare word is searched in several fields.
    return _any_of(_field(Term(name, (), term.column), Text(f"*{value.text}*")) for value in term.values for name in WORDS)


def _field(term: Term, value: Value) -> Condition:
    """A term with one of its values."""
    if (special := _SPECIAL.get(term.field)) is not None:
        return special(term, value)
    about = field_of(term.field)
    if about is not None and about.column is not None:
        return _own(about.column, about.kind, value)
    return _text(_COLUMNS[term.field], term.field, value.text)


def _own(column: Column, kind: Kind, value: Value) -> Condition:
    """A column of a protocol's own table."""
    name = "each" if column.is_list else f'"{column.name}"'
    if isinstance(value, Comparison):
        part = _compared(name, value)
    else:
        shown = f"hex({name})" if column.is_bytes else f"{name}::VARCHAR" if kind is Kind.FLAG else name
        part = _text(shown, "", value.text)
    inside = f'len([each FOR each IN "{column.name}" IF {part.sql}]) > 0' if column.is_list else part.sql
    return Condition(
        f"(m.protocol = '{column.protocol}' AND m.message_id IN (SELECT message_id FROM \"{column.protocol}\""
        f" WHERE message_id IS NOT NULL {_SEEN} AND {inside}))",
        part.values,
    )


def _body(term: Term, value: Value) -> Condition:
    """The body as text, or as JSON."""
    del term
    return _any_of(_text(column, "body", value.text) for column in (_BODY, "m.body_json"))


def _time(term: Term, value: Value) -> Condition:
    del term
    assert isinstance(value, Comparison)  # noqa: S101 - the parser gives no other
    if value.low == -inf:
        return Condition("m.ts IS NOT NULL")
    if value.operator == "..":
        return Condition("m.ts BETWEEN make_timestamptz(?) AND make_timestamptz(?)", (int(value.low), int(value.high)))
    return Condition(f"m.ts {_operator(value)} make_timestamptz(?)", (int(value.low),))


def _text(column: str, field: str, value: str) -> Condition:
    """Compare text, with wildcards and without case."""
    if not Text(value).is_pattern:
        # Without a letter there is no case: then statistics help to skip row groups.
        is_plain = field in _VOCABULARY or value.lower() == value.upper()
        return Condition(f"{column} = ?" if is_plain else f"lower({column}) = ?", (value.lower(),))
    if value[0] == value[-1] == "*" and len(value) > 2 and not Text(value[1:-1]).is_pattern:  # faster than a pattern
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


def _id(term: Term, value: Value) -> Condition:
    """An id in hex digits, or its beginning."""
    column = _IDS[term.field]
    if isinstance(value, Text) and value.is_pattern:
        return _text(f"lower(hex({column}))", term.field, value.text)
    if len(value.text) == 2 * _ID_SIZE:
        return Condition(f"{column} = ?", (bytes.fromhex(value.text),))
    return Condition(f"starts_with(lower(hex({column})), ?)", (value.text,))


def _status(term: Term, value: Value) -> Condition:
    """Of the message, of the exchange that it answers, or of the one that nothing answers."""
    message, exchange = (_text(column, term.field, value.text) for column in ("m.status", "status"))
    answers = Condition(
        f"m.message_id IN (SELECT response_message_id FROM exchanges WHERE response_message_id IS NOT NULL {_ANSWERED} AND {exchange.sql})",
        exchange.values,
    )
    waits = Condition(
        "m.message_id IN (SELECT request_message_id FROM exchanges"
        f" WHERE request_message_id IS NOT NULL {_REQUESTED} AND status IN ('unanswered', 'killed') AND {exchange.sql})",
        exchange.values,
    )
    if isinstance(value, Text) and value.is_pattern:
        return _any_of([message, answers, waits])
    # A value is either of messages or of exchanges: the other table is not read.
    status = value.text.lower()
    return message if status in _OF_MESSAGES else waits if status in ("unanswered", "killed") else answers


def _rule(term: Term, value: Value) -> Condition:
    rule, clause = (_text(column, term.field, value.text) for column in ("rule", "clause"))
    return Condition(
        f"m.message_id IN (SELECT message_id FROM violations WHERE message_id IS NOT NULL AND ({rule.sql} OR {clause.sql}))",
        (*rule.values, *clause.values),
    )


def _severity(term: Term, value: Value) -> Condition:
    severity = _text("severity", term.field, value.text)
    return Condition(
        f"m.message_id IN (SELECT message_id FROM violations WHERE message_id IS NOT NULL AND {severity.sql})", severity.values
    )


def _type(term: Term, value: Value) -> Condition:
    """What a record is: here all are messages, and those with a broken rule or without an answer count as such, too."""
    wanted = _text("each", term.field, value.text)
    types = (
        "['message'] || CASE WHEN m.message_id IN (SELECT message_id FROM violations WHERE message_id IS NOT NULL)"
        " THEN ['violation'] ELSE [] END || CASE WHEN m.message_id IN (SELECT request_message_id FROM exchanges"
        " WHERE request_message_id IS NOT NULL AND status = 'unanswered') THEN ['unanswered'] ELSE [] END"
    )
    return Condition(f"len([each FOR each IN {types} IF {wanted.sql}]) > 0", wanted.values)


def _connected(part: Condition) -> Condition:
    return Condition(f"m.connection_id IN (SELECT connection_id FROM ends WHERE {part.sql})", part.values)


def _address(host: str, field: str, value: Value) -> Condition:
    """Compare a column of `ends` with an address; or with a network, as digits of one width, which sort like addresses."""
    if not isinstance(value, Network):
        return _text(host, field, value.text)
    bounds = tuple(_digits(value.network[at]) for at in (0, -1))
    if value.network.version == 4:
        digits = f"array_to_string([lpad(part, 3, '0') FOR part IN string_split({host}, '.')], '.')"
        return Condition(f"(NOT contains({host}, ':') AND {digits} BETWEEN ? AND ?)", bounds)
    last, ends = f"string_split(regexp_extract({host}, '[0-9.]+$'), '.')", "[0-9]+[.][0-9.]+$"
    pairs = ", ".join(f"256 * try_cast({last}[{at}] AS INTEGER) + try_cast({last}[{at + 1}] AS INTEGER)" for at in (1, 3))
    # ::ffff:10.0.0.1 is ::ffff:a00:1
    plain = f"CASE WHEN contains({host}, '.') THEN regexp_replace({host}, '{ends}', printf('%x:%x', {pairs})) ELSE {host} END"
    left, right = (f"[part FOR part IN string_split(split_part({plain}, '::', {number}), ':') IF part <> '']" for number in (1, 2))
    filled = f"list_concat({left}, ['0' FOR each IN range(8 - len({left}) - len({right}))], {right})"
    digits = f"array_to_string([lpad(lower(part), 4, '0') FOR part IN {filled}], ':')"
    return Condition(f"(contains({host}, ':') AND {digits} BETWEEN ? AND ?)", bounds)


def _digits(address: IPv4Address | IPv6Address) -> str:
    return address.exploded if isinstance(address, IPv6Address) else ".".join(part.zfill(3) for part in str(address).split("."))


def _host(term: Term, value: Value) -> Condition:
    return _connected(_any_of(_address(column, term.field, value) for column in ("client_host", "server_host")))


def _transport(term: Term, value: Value) -> Condition:
    return _connected(_text("transport", term.field, value.text))


def _end(term: Term, value: Value) -> Condition:
    """The sender or the receiver: `host:port`, a host with any port, or a network."""
    towards = {"from": ("client", "server"), "to": ("server", "client")}[term.field]
    parts = []
    for direction, side in zip(("to_server", "to_client"), towards, strict=True):
        if isinstance(value, Network):
            inside = _connected(_address(f"{side}_host", term.field, value))
        else:
            inside = _connected(_any_of(_text(side, term.field, text) for text in (value.text, f"{value.text}:*")))
        parts.append(Condition(f"(m.direction = '{direction}' AND {inside.sql})", inside.values))
    return _any_of(parts)


def _compared(column: str, wanted: Value) -> Condition:
    assert isinstance(wanted, Comparison)  # noqa: S101 - the parser gives no other
    if wanted.low == -inf:
        return Condition(f"{column} IS NOT NULL")
    if wanted.operator == "..":
        return Condition(f"{column} BETWEEN ? AND ?", (wanted.low, wanted.high))
    return Condition(f"{column} {_operator(wanted)} ?", (wanted.low,))


def _operator(wanted: Comparison) -> str:
    assert wanted.operator in _OPERATORS  # noqa: S101 - the parser gives no other
    return wanted.operator


def _port(term: Term, value: Value) -> Condition:
    del term
    # `Ends` has port 0 where a side has none.
    return _connected(_any_of(_compared(f"coalesce({column}, 0)", value) for column in ("client_port", "server_port")))


def _size(term: Term, value: Value) -> Condition:
    del term
    return _compared("m.size", value)


def _latency(term: Term, value: Value) -> Condition:
    """The shortest latency of what a message answers.

    The shortest is below a number if any is. Otherwise only messages with one latency that fits are looked at: they are few.
    """
    del term
    fits, shortest = _compared("latency_us / 1e6", value), _compared("min(latency_us) / 1e6", value)
    some = f"SELECT response_message_id FROM exchanges WHERE response_message_id IS NOT NULL {_ANSWERED} AND {fits.sql}"
    if isinstance(value, Comparison) and value.operator in ("<", "<="):
        return Condition(f"m.message_id IN ({some})", fits.values)
    return Condition(
        f"m.message_id IN (SELECT response_message_id FROM exchanges WHERE response_message_id IN ({some}) {_ANSWERED}"
        f" GROUP BY response_message_id HAVING {shortest.sql})",
        (*fits.values, *shortest.values),
    )


def _number(term: Term, value: Value) -> Condition:
    del value
    raise FilterError(term.column, str(term), f"`{term}`: messages of a lake have no number; use since: and until:, or session:")


_SPECIAL: Final[dict[str, Callable[[Term, Value], Condition]]] = {
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
    "body": _body,
    "ts": _time,
    "since": _time,
    "until": _time,
}
"""Fields that are more than a column of `messages`."""
