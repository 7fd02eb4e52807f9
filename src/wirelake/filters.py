"""Filters of messages: one language for every command and page that takes a filter.

`protocol:relink subject:orders.* (status:unanswered or latency:>1s) -kind:keepalive since:10m`. docs/reading.md describes it.

`parse` makes a `Filter`: a tree of terms. Two evaluators take it: `explore/model/conditions.py` makes SQL of it, and
`explore/reading/matching.py` tests the values of a record. What is not of this language is refused, with its column and the right spelling.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import inf
from typing import Final, NamedTuple, NoReturn

from wirelake import protocols
from wirelake.errors import UsageError
from wirelake.protocols.faults import SEVERITIES

__all__ = [
    "EVERYTHING",
    "FIELDS",
    "KINDS",
    "STATUSES",
    "WORDS",
    "All",
    "Column",
    "Comparison",
    "Field",
    "Filter",
    "FilterError",
    "Kind",
    "Network",
    "Node",
    "Not",
    "Some",
    "Term",
    "Text",
    "Value",
    "field_of",
    "looked_at",
    "parse",
]

KINDS: Final = ("handshake", "event", "request", "response", "progress", "cancel", "ack", "keepalive", "control", "error", "close")
"""Values of `kind`, as in the table `messages`."""
STATUSES: Final = ("ok", "faulty", "error", "unconfirmed", "answered", "late", "confirmed", "killed", "unanswered", "unasked")
"""Values of `status`: those of the tables `messages` and `exchanges`."""
TYPES: Final = ("message", "violation", "unanswered", "unreadable", "unrecognised")


class FilterError(UsageError):
    """A filter that cannot be read; `term` is the part that is wrong, `column` its first character, counted from 1."""

    def __init__(self, column: int, term: str, text: str) -> None:
        self.column = column
        self.term = term
        super().__init__(f"filter, column {column}: {text}")


# Fields.


class Kind(Enum):
    """How the values of a field are compared."""

    TEXT = "text"
    ENDPOINT = "endpoint"
    """An address as text, or a network."""
    ID = "id"
    """Hex digits, or the first of them."""
    FLAG = "flag"
    NUMBER = "number"
    SECONDS = "seconds"
    TIME = "time"


ORDERED: Final = (Kind.NUMBER, Kind.SECONDS, Kind.TIME)
"""Kinds that have comparisons."""


class Column(NamedTuple):
    """A column of a protocol's own table."""

    protocol: str
    name: str
    is_list: bool
    """Whether a message has several values: one of them must match."""
    is_bytes: bool
    """Whether values are bytes: they are compared as hex digits."""


class Field(NamedTuple):
    """A field of filters."""

    doc: str
    kind: Kind = Kind.TEXT
    choices: tuple[str, ...] = ()
    """All values that it can have; empty: any."""
    column: Column | None = None


FIELDS: Final[dict[str, Field]] = {
    "protocol": Field("The protocol, such as `relink`."),
    "kind": Field("The kind of a message in every protocol's vocabulary.", choices=KINDS),
    "name": Field("The name of a message in its protocol, such as `hello`."),
    "subject": Field("Event name, method or uri."),
    "body": Field("The payload as text, or as JSON: `body:*milk*`."),
    "id": Field("The id that ties an answer to its request."),
    "status": Field("Of a message (`ok`, `faulty`, `error`), or of a request and its answer.", choices=STATUSES),
    "rule": Field("A broken rule: its name or its clause, such as `RELINK-22`."),
    "severity": Field("How severe a broken rule is.", choices=SEVERITIES),
    "type": Field("What a record is.", choices=TYPES),
    "host": Field("The address of either side, or a network: `host:10.0.0.0/24`.", Kind.ENDPOINT),
    "port": Field("The port of either side.", Kind.NUMBER),
    "from": Field("The sender, as `host:port`; `from:10.0.0.*` takes any port, `from:10.0.0.0/24` a network.", Kind.ENDPOINT),
    "to": Field("The receiver, as `host:port`, or a network.", Kind.ENDPOINT),
    "transport": Field("`tcp`, `tls`, `udp`, …"),
    "session": Field("The id of the session in hex, or its beginning.", Kind.ID),
    "connection": Field("The id of the connection in hex, or its beginning.", Kind.ID),
    "source": Field("The file."),
    "number": Field("The number of the message in the output.", Kind.NUMBER),
    "size": Field("Bytes of the message; units k, M, G.", Kind.NUMBER),
    "latency": Field("Time from request to answer; units us, ms, s, m.", Kind.SECONDS),
    "ts": Field("The time of the message: `ts:<2026-01-31T12:00`, `ts:2026-01-31..2026-02-01`.", Kind.TIME),
    "since": Field("Not before this time, or this age.", Kind.TIME),
    "until": Field("Not after this time, or this age.", Kind.TIME),
}
"""Name -> field. Further ones are `PROTOCOL.COLUMN`, of the protocol's own table: `field_of` has them, too."""

WORDS: Final = ("name", "subject", "rule", "protocol", "kind", "id", "body")
"""The fields that a bare word is searched in."""
_BOUNDS: Final = {"since": ">=", "until": "<="}
_ANY: Final = "*"
"""A value that stands for any."""
_FOREIGN: Final = {
    "host": "ip.addr ip.host ipv6.addr addr address ip client server hostname peer",
    "from": "ip.src ipv6.src ip.src_host src source_ip sender",
    "to": "ip.dst ipv6.dst ip.dst_host dst destination receiver target",
    "port": "tcp.port udp.port tcp.srcport tcp.dstport udp.srcport udp.dstport sport dport srcport dstport client_port server_port",
    "ts": "frame.time frame.time_epoch time timestamp date datetime when",
    "size": "frame.len frame.cap_len ip.len tcp.len len length bytes",
    "number": "frame.number no num",
    "body": "frame data payload text content data.text data.data tcp.payload udp.payload json body_json",
    "latency": "latency_us latency_ms rtt duration elapsed tcp.analysis.ack_rtt response_time",
    "id": "correlation_id correlation request_id message_id",
    "session": "session_id",
    "connection": "connection_id tcp.stream udp.stream stream",
    "rule": "rules clause clauses violation violations fault error",
    "subject": "method uri url event topic",
    "protocol": "proto ip.proto _ws.col.protocol",
    "source": "file filename path",
    "type": "record",
}
"""Field -> what other programs, tables and formats call it."""
_KNOWN_AS: Final = {name: ours for ours, names in _FOREIGN.items() for name in names.split()}


@lru_cache(maxsize=1024)
def field_of(name: str) -> Field | None:
    """The field of a name in lower case; None if there is none."""
    if (known := FIELDS.get(name)) is not None:
        return known
    return _column(*_protocol_column(name)) if "." in name else None


def _protocol_column(name: str) -> tuple[str, str]:
    protocol, _, column = name.partition(".")
    return protocol.replace("-", "_"), column


def _column(protocol: str, name: str) -> Field | None:
    """The field of a column of a protocol's own table."""
    if protocol not in protocols.names():
        return None
    schema = protocols.get(protocol).columns().SCHEMA
    if name not in schema.names:
        return None
    import pyarrow as pa  # noqa: PLC0415 - only for columns, which need it anyway

    held = schema.field(name)
    is_list = pa.types.is_list(held.type)
    kind = held.type.value_type if is_list else held.type
    is_bytes = pa.types.is_binary(kind)
    compared = Kind.FLAG if pa.types.is_boolean(kind) else Kind.TEXT if is_bytes or pa.types.is_string(kind) else Kind.NUMBER
    if pa.types.is_nested(kind):
        return None  # a structure has no single value
    return Field((held.metadata or {}).get(b"comment", b"").decode(), compared, (), Column(protocol, name, is_list, is_bytes))


# The parsed form.


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Text to compare with, in any case."""

    text: str

    @property
    def is_pattern(self) -> bool:
        """Whether it has wildcards."""
        return any(mark in self.text for mark in "*?[")


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on a number, in its smallest unit: bytes, seconds, or microseconds since 1970."""

    text: str
    operator: str
    """`=`, `>`, `>=`, `<`, `<=`, or `..` for a range."""
    low: float
    high: float
    """The end of a range; else the same as `low`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """Addresses with the same beginning."""

    text: str
    network: IPv4Network | IPv6Network


Value = Text | Comparison | Network


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """One condition."""

    field: str
    """The name of a field; empty for a bare word."""
    values: tuple[Value, ...]
    """Alternatives: one of them must hold."""
    column: int = dataclasses.field(default=1, compare=False)
    """Where it begins in the filter, counted from 1."""

    def __str__(self) -> str:
        """The term as it is typed."""
        return f"{self.field}{':' if self.field else ''}{','.join(_quoted(value.text, is_word=not self.field) for value in self.values)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    """What must not hold."""

    part: Node

    def __str__(self) -> str:
        """The condition as it is typed."""
        return f"-{_grouped(self.part)}"


@dataclasses.dataclass(frozen=True, slots=True)
class All:
    """Conditions that must all hold."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        """The conditions as they are typed."""
        return " ".join(f"({part})" if isinstance(part, (Some, All)) else str(part) for part in self.parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Some:
    """Conditions of which one must hold."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        """The conditions as they are typed."""
        return " or ".join(f"({part})" if isinstance(part, Some) else str(part) for part in self.parts)


Node = Term | Not | All | Some


def _grouped(node: Node) -> str:
    return f"({node})" if isinstance(node, (Some, All)) else str(node)


class Filter(NamedTuple):
    """Conditions that must all hold. Make one with `parse`."""

    terms: tuple[Node, ...]
    now: float
    """Seconds since 1970 that ages count back from."""

    def __str__(self) -> str:
        """The filter as it is typed."""
        return str(self.terms[0]) if len(self.terms) == 1 else str(All(self.terms))

    def __bool__(self) -> bool:
        """Whether there is any term."""
        return bool(self.terms)

    def every_term(self) -> Iterator[Term]:
        """The terms of all conditions, at any depth."""
        return _leaves(self.terms)

    def fields(self) -> frozenset[str]:
        """The fields of records that the filter looks at."""
        return frozenset(name for term in self.every_term() for name in looked_at(term))

    def span(self) -> tuple[int | None, int | None]:
        """The time range that every message is in, by the terms `since`, `until` and `ts`: microseconds since 1970, both ends included."""
        lows, highs = [], []
        for term in self.terms:
            if isinstance(term, Term) and looked_at(term) == ("ts",):
                lows.append(min(value.low if value.operator not in ("<", "<=") else -inf for value in _comparisons(term)))
                highs.append(max(value.high if value.operator not in (">", ">=") else inf for value in _comparisons(term)))
        low, high = max(lows, default=-inf), min(highs, default=inf)
        return None if low == -inf else round(low), None if high == inf else round(high)


EVERYTHING: Final = Filter((), 0.0)
"""The filter without a term."""


def _comparisons(term: Term) -> Iterator[Comparison]:
    return (value for value in term.values if isinstance(value, Comparison))


def _leaves(nodes: Iterable[Node]) -> Iterator[Term]:
    for node in nodes:
        if isinstance(node, Term):
            yield node
        else:
            yield from _leaves((node.part,) if isinstance(node, Not) else node.parts)


def looked_at(term: Term) -> tuple[str, ...]:
    """The fields of records that a term looks at."""
    return WORDS if not term.field else ("ts",) if term.field in _BOUNDS else (term.field,)


# Text to tokens.

_KEYWORDS: Final = ("and", "or", "not")
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_PART: Final = re.compile(r'(?:[^,"]|"[^"]*")+')


class _Token(NamedTuple):
    kind: str
    """`(`, `)`, `and`, `or`, `not`, `term`, or `end`."""
    text: str
    column: int


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif char in "()":
            at += 1
            yield _Token(char, char, at)
        elif char == "-" and text[at + 1 : at + 2].strip():
            at += 1
            yield _Token("not", char, at)
        else:
            end = _end(text, at)
            word = text[at:end]
            yield _Token(word.lower() if word.lower() in _KEYWORDS else "term", word, at + 1)
            at = end


def _end(text: str, start: int) -> int:
    """Where a term ends: quotes and its own parentheses keep it together."""
    at, opened = start, 0
    while at < len(text):
        char = text[at]
        if char == '"':
            close = text.find('"', at + 1)
            if close < 0:
                raise FilterError(at + 1, text[start:], f"the quote at `{text[at:]}` is not closed: write a second one, or leave it out")
            at = close
        elif char.isspace() or (char == ")" and not opened) or (char == "(" and text[start:at].lower() in (*_KEYWORDS, "!")):
            break
        opened += {"(": 1, ")": -1}.get(char, 0)
        at += 1
    if opened:
        raise FilterError(
            start + 1, text[start:at], f'`{text[start:at]}`: `(` is not closed: keep text together with quotes, as in "a (b)"'
        )
    return at


def _unquoted(text: str) -> str:
    return _QUOTED.sub(lambda found: found[1].replace('""', '"'), text)


def _quoted(text: str, *, is_word: bool = False) -> str:
    """Text as one value or one word, with quotes if it needs them."""
    is_plain = bool(text) and not re.search(r"[\s,()\"']|&&|\|\|", text)
    if is_word:
        is_plain = is_plain and bool(re.fullmatch(r"[^-:=<>!&|~][^:=<>!&|~]*", text)) and text.lower() not in (*_KEYWORDS, *_ALONE)
    return text if is_plain else '"' + text.replace('"', '""') + '"'


# Tokens to the parsed form.


def parse(text: str, *, now: float | None = None) -> Filter:
    """Read a filter. `now` is the time, in seconds since 1970, that ages such as `since:10m` count back from.

    Raises FilterError, which says what is wrong, at which column, and what to write.
    """
    parser = _Parser(text, time.time() if now is None else now)
    return Filter(parser.whole(), parser.now)


MAX_DEPTH: Final = 50
"""Parentheses and negations inside of each other."""


class _Parser:
    """Reads one filter: `or` between alternatives, each of which is conditions one after the other."""

    def __init__(self, text: str, now: float) -> None:
        self._text = text
        self.now = now
        self._tokens = [*_tokens(text), _Token("end", "", len(text) + 1)]
        self._at = 0
        self._depth = 0

    def whole(self) -> tuple[Node, ...]:
        if self._next.kind == "end":
            return ()
        node = self._choice()
        if self._next.kind == ")":
            raise self._wrong(self._next, "`)` closes nothing: remove it, or open a parenthesis before")
        return node.parts if isinstance(node, All) else (node,)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _choice(self) -> Node:
        parts = [self._conditions()]
        while self._next.kind == "or":
            self._take()
            parts.append(self._conditions())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _conditions(self) -> Node:
        parts = [self._condition()]
        while self._next.kind not in ("or", ")", "end"):
            if self._next.kind == "and":
                self._take()
            part = self._condition()
            parts.append(part)
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _condition(self) -> Node:
        token = self._take()
        if token.kind in ("not", "("):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise self._wrong(token, f"more than {MAX_DEPTH} parentheses and `not` are inside of each other: write it flatter")
            node = Not(self._condition()) if token.kind == "not" else self._group(token)
            self._depth -= 1
            return node
        if token.kind == "term":
            return self._term(token)
        before = self._tokens[self._at - 2] if self._at > 1 else None
        if token.kind == ")" and before is not None and before.kind == "(":
            raise self._wrong(before, "`()` is empty: write a condition between the parentheses, such as (kind:request or kind:event)")
        if before is None or (before.kind == "(" and token.kind != "end"):
            raise self._wrong(token, f"nothing is before `{token.text}`: write a condition there, such as kind:request" + _as_text(token))
        raise self._wrong(before, f"nothing comes after `{before.text}`: write a condition there, such as kind:request" + _as_text(before))

    def _group(self, opening: _Token) -> Node:
        node = self._choice()
        if self._take().kind != ")":
            raise self._wrong(opening, "`(` is not closed: write `)` where it ends")
        return node

    @staticmethod
    def _wrong(token: _Token, text: str) -> FilterError:
        return FilterError(token.column, token.text, text)

    def _term(self, token: _Token) -> Term:
        _refuse_foreign(self._text, token)
        name, colon, rest = token.text.partition(":")
        if not colon or '"' in name:
            word = _unquoted(token.text)
            if word in ("", "-"):
                raise self._wrong(token, f"`{token.text}` is no term: write field:value, such as kind:request, or a word to search for")
            return Term("", (Text(word),), token.column)
        about = field_of(name.lower())
        if about is None:
            raise self._wrong(token, _unknown(token.text, name.lower(), rest))
        parts = _PART.findall(rest)
        if not parts or len(rest) <= rest.count(","):
            following = self._next.text if self._next.kind == "term" else "value"
            raise self._wrong(token, f"`{token.text}` has no value: write {name}:{following}, without a space")
        name = name.lower() if about.column is None else f"{about.column.protocol}.{about.column.name}"
        return Term(name, tuple(self._value(token, name, about, part) for part in parts), token.column)

    def _value(self, token: _Token, name: str, about: Field, typed: str) -> Value:
        """Read one value; raises FilterError if the field never has it."""
        value = _unquoted(typed)
        if typed[0] == typed[-1] == "'" and len(typed) > 1:
            raise self._wrong(token, f"`{token.text}`: quotes are double: write {name}:{_quoted(typed[1:-1])}")
        if about.kind is Kind.TIME:
            return _time(token, name, value, self.now)
        if about.kind in ORDERED:
            return _number(token, name, about.kind, value)
        text, choices = Text(value.lower() if about.kind is Kind.ID else value), about.choices
        if about.kind is Kind.ENDPOINT and not text.is_pattern and (network := _network(token, value)):
            return network
        if about.kind is Kind.FLAG:
            text, choices = Text({"1": "true", "0": "false"}.get(value, value)), ("true", "false")
        if name == "protocol":
            text, choices = Text(value.replace("-", "_")), protocols.names()
        if choices and not text.is_pattern and text.text.lower() not in choices:
            near = get_close_matches(text.text.lower(), choices, 1)
            hint = f"write {name}:{near[0]}, or one of " if near else "choose one of "
            raise self._wrong(token, f"`{token.text}`: {name} is never {value!r}; {hint}{', '.join(choices)}")
        if about.kind is Kind.ID and not re.fullmatch(r"[0-9a-f*?\[\]!-]+", text.text):
            raise self._wrong(token, f"`{token.text}`: an id is hex digits, such as {name}:2ca960c5: its beginning is enough")
        return text


def _as_text(token: _Token) -> str:
    return f'; to search for the word, write "{token.text}"' if token.text.isalpha() else ""


def _network(token: _Token, value: str) -> Network | None:
    """A network, if a value is written as one."""
    if not re.match(r"\[?[0-9a-fA-F]*[.:][0-9a-fA-F.:\]]*/", value):
        return None
    try:
        return Network(value, ip_network(value, strict=False))
    except ValueError:
        raise FilterError(
            token.column, token.text, f"`{token.text}`: {value} is no network: write the address and its bits, such as 10.0.0.0/24"
        ) from None


# Numbers and times.

_NUMBER: Final = re.compile(r"(>=|<=|>|<|)(-?\d+(?:\.\d+)?)([a-zA-Z]*)")
_RANGE: Final = re.compile(r"(-?\d+(?:\.\d+)?)([a-zA-Z]*)\.\.(-?\d+(?:\.\d+)?)([a-zA-Z]*)")
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")
_SIZES: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def _number(token: _Token, name: str, kind: Kind, value: str) -> Comparison:
    """Read a condition on a number; whole numbers stay exact."""
    if value == _ANY:
        return Comparison(value, ">=", -inf, -inf)
    units = _SIZES if kind is Kind.NUMBER else _SECONDS
    between, single = _RANGE.fullmatch(value), _NUMBER.fullmatch(value)
    parts = between.groups() if between else (single[2], single[3]) if single else ()
    if not parts or any(unit.lower() not in units for unit in parts[1::2]):
        shown = ", ".join(unit.upper() if unit in "mg" and kind is Kind.NUMBER else unit for unit in units if unit)
        found = re.fullmatch(r"=+(.+)|(>=?|<=?)=*", value)
        more = f"; write {name}:{found[1]}" if found and found[1] else f"; no space after {value}" if found else ""
        raise FilterError(
            token.column,
            token.text,
            f"`{token.text}`: write a number, >number, >=number, <number, <=number or a..b; units are {shown}{more}",
        )
    low, *high = (_scaled(number, units[unit.lower()]) for number, unit in zip(parts[::2], parts[1::2], strict=True))
    if high:
        return Comparison(value, "..", low, high[0])
    assert single is not None  # noqa: S101 - one of both matched
    return Comparison(value, single[1] or "=", low, low)


def _scaled(number: str, unit: float) -> float:
    return float(number) * unit if "." in number or isinstance(unit, float) else int(number) * unit


def _time(token: _Token, name: str, value: str, now: float) -> Comparison:
    """Read a condition on the time: of `since` and `until` a time or an age, of `ts` a comparison of times."""
    if name in _BOUNDS:
        when = _micros(value, now)
        if when is None:
            _refuse_time(token, f"write an age such as {name}:10m (s, m, h, d, w), or a time such as {name}:2026-01-31T12:00:00Z")
        return Comparison(value, _BOUNDS[name], when, when)
    if value == _ANY:
        return Comparison(value, ">=", -inf, -inf)
    first, dots, last = value.partition("..")
    sign = re.match(r">=|<=|>|<|", value)
    operator = sign[0] if sign is not None else ""
    low = _micros(first if dots else value[len(operator) :], None)
    high = _micros(last, None) if dots else low
    if low is None or high is None:
        _refuse_time(
            token, "write a time with a comparison, such as ts:<2026-01-31T12:00:00Z, or ts:2026-01-31..2026-02-01; an age is since:10m"
        )
    return Comparison(value, ".." if dots else operator or "=", low, high)


def _refuse_time(token: _Token, what: str) -> NoReturn:
    raise FilterError(token.column, token.text, f"`{token.text}`: {what}")


def _micros(value: str, now: float | None) -> int | None:
    """Microseconds since 1970 of a time, or of an age before now; None if it is neither."""
    age = _AGE.fullmatch(value)
    if age is not None:
        return None if now is None else round((now - float(age[1]) * _SECONDS[age[2]]) * 1e6)
    try:
        when = datetime.fromisoformat(value)
        return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1e6)
    except (ValueError, OverflowError):
        return None


# What other languages write.

_SYMBOLS: Final = {"&&": "and", "||": "or", "&": "and", "|": "or", "!": "not", ";": "and"}
_SIGNS: Final = {"==": "", "===": "", "=": "", "!=": "", "!==": "", "<>": "", "=~": "", "~": "", ">=": ">=", "<=": "<=", ">": ">", "<": "<"}
_VERBS: Final = {
    "eq": "",
    "ne": "",
    "like": "",
    "ilike": "",
    "in": "",
    "is": "",
    "contains": "",
    "matches": "",
    "between": "",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
}
_ALONE: Final = ("select", "where", "like", "ilike", "between")
"""Words of SQL that are refused in capitals, wherever they are."""
_NEGATIVE: Final = ("!=", "!==", "<>", "ne")
_WITHIN: Final = ("contains", "matches", "=~", "~")
_OPERAND: Final = r"""'[^']*'|"[^"]*"|\{[^}]*\}|\((?:'[^']*'|[^()'])*\)|[^\s()]*?(?=\s|\)|\(|&&|\|\||$)"""
_SIGNED: Final = re.compile(rf"([A-Za-z_][\w.\[\]-]*)\s*(===|==|=~|=|!==|!=|<>|>=|<=|>|<|~)\s*({_OPERAND})", re.IGNORECASE)
_WORDED: Final = re.compile(
    rf"([A-Za-z_][\w.-]*)\s+(not\s+)?(?:(between)\s+([^\s()]+\s+and\s+[^\s()]+)|(in)\s*(\([^)]*\)|\{{[^}}]*\}})|(is)\s+((?:not\s+)?null)\b"
    rf"|(eq|ne|gt|ge|lt|le|i?like|contains|matches)\s+({_OPERAND}))",
    re.IGNORECASE,
)


def _refuse_foreign(text: str, token: _Token) -> None:
    """Raise FilterError for the syntax of Wireshark and SQL, with the spelling that works."""
    typed = token.text
    if typed.startswith('"'):
        return
    if typed in _SYMBOLS:
        whose = "Wireshark's spelling" if typed in ("&&", "||", "!") else "not of this language"
        raise FilterError(token.column, typed, f'`{typed}` is {whose}: write {_SYMBOLS[typed]}; to search for it, write "{typed}"')
    found = _SIGNED.match(text, token.column - 1)
    if found is not None:
        _refuse_comparison(token, found[0], found[1], found[2], found[3])
    found = _WORDED.match(text, token.column - 1)
    if found is not None and (found[1].lower() in _KNOWN_AS or field_of(found[1].lower()) is not None):
        verb, operand = (part for part in found.groups()[2:] if part is not None)
        _refuse_comparison(token, found[0], found[1], f"{'not ' if found[2] else ''}{verb.lower()}", operand)
    if typed.lower() in _ALONE and typed.isupper():
        what = f"`{typed}` is SQL: write field:value, such as kind:request, or ask `wirelake query`"
        raise FilterError(token.column, typed, f'{what}; to search for the word, write "{typed.lower()}"')
    blank = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), typed)
    joined = re.search(r"&&|\|\|", blank)
    if joined is not None:
        word, at = _SYMBOLS[joined[0]], joined.start()
        raise FilterError(
            token.column + at, joined[0], f"`{joined[0]}` is Wireshark's spelling: write {word}, with spaces around it; text needs quotes"
        )
    if typed.startswith("!"):
        raise FilterError(token.column, typed, f"`{typed}` is Wireshark's spelling: write {_negated(typed)}")
    if typed.startswith("'"):
        whole = re.match(r"'([^']*)'?", text[token.column - 1 :])
        assert whole is not None  # noqa: S101 - it begins with the quote
        raise FilterError(token.column, typed, f"`{whole[0]}`: quotes are double: write {_quoted(whole[1] or 'text')}")


def _negated(typed: str) -> str:
    """The right spelling of a term after `!`."""
    rest = typed.lstrip("!")
    return f"-{rest}" if rest and "!" not in rest and _parses(rest) else "not before what must not hold, such as not kind:request"


def _refuse_comparison(token: _Token, whole: str, name: str, sign: str, operand: str) -> NoReturn:
    """Refuse a comparison as other languages write it."""
    right = _translated(name.lower(), sign, operand)
    if "." in name or sign in ("==", "eq", "ne", "contains", "matches", "gt", "ge", "lt", "le", "~", "=~"):
        whose = "Wireshark's spelling"
    elif sign in ("=", "<>", "!=") or sign.rsplit(maxsplit=1)[-1] in _VERBS:
        whose = "SQL's spelling"
    else:
        whose = "not of this language: a field ends with a colon"
    what = whole.strip()
    if right is None:
        ours = _known_as(name.lower())
        unknown = f", and there is no field {name!r}" if ours is None else ""
        raise (
            FilterError(
                token.column,
                what,
                f"`{what}` is {whose}{unknown}: write {ours or 'field'}:value, with field one of {', '.join(FIELDS)};"
                f" to search for text, write {_quoted(what, is_word=True)}",
            )
            if ours is None
            else FilterError(token.column, what, f"`{what}` is {whose}: write {ours}:value")
        )
    raise FilterError(token.column, what, f"`{what}` is {whose}: write {right}")


def _translated(name: str, sign: str, operand: str) -> str | None:
    """The same comparison in this language; None if it cannot be told."""
    ours = _known_as(name)
    if ours is None:
        return None
    about = field_of(ours)
    assert about is not None  # noqa: S101 - it is one of ours
    negative, verb = sign in _NEGATIVE or sign.startswith("not "), sign.removeprefix("not ")
    values = [one.strip().strip("'\"") for one in re.split(r"[,\s]+(?=\S)", operand[1:-1])] if operand[:1] in "({" and operand else []
    values = values or [operand.strip().strip("'\"")]
    if verb == "between":
        first, _, last = operand.replace("'", "").split()
        values = [f"{first}..{last}"]
    if verb in ("like", "ilike"):
        values = [value.replace("%", "*").replace("_", "?") for value in values]
    if verb in _WITHIN:
        values = [f"*{value.strip('.*')}*" for value in values]
    if verb == "is":
        negative, values = operand.lower() == "null", [_ANY]
    order = {**_SIGNS, **_VERBS}[verb]
    unit = next((unit for unit in ("us", "ms") if name.endswith(f"_{unit}") and about.kind is Kind.SECONDS), "")
    if order and about.kind not in ORDERED:
        return None
    right = f"{'-' if negative else ''}{ours}:{','.join(_quoted(f'{order}{value}{unit}') for value in values)}"
    return right if _parses(right) else None


def _parses(text: str) -> bool:
    try:
        return bool(parse(text))
    except FilterError:
        return False


def _known_as(name: str, value: str = "") -> str | None:
    """Our name of a field, by what others call it, or by a spelling that is nearly right; rather one that can have the value."""
    if field_of(name) is not None:
        return name
    if name in _KNOWN_AS:
        return _KNOWN_AS[name]
    protocol, column = _protocol_column(name)
    if column and protocol in protocols.names():
        near = get_close_matches(column, protocols.get(protocol).columns().SCHEMA.names, 1)
        return f"{protocol}.{near[0]}" if near and field_of(f"{protocol}.{near[0]}") is not None else None
    near = get_close_matches(name, FIELDS, 3)
    return next((one for one in near if _parses(f"{one}:{value}")), near[0] if near else None)


def _unknown(typed: str, name: str, rest: str) -> str:
    """What to write instead of a term with a field that does not exist."""
    is_text = f"to search for text, write {_quoted(typed, is_word=True)}"
    try:
        ip_address(typed.strip("[]"))
        return f"`{typed}` has no field: write host:{typed}, from:{typed} or to:{typed}; {is_text}"
    except ValueError:
        pass
    endpoint = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\d.]+):(\d+)", typed)
    if endpoint is not None:
        host = endpoint[1].strip("[]")
        return f"`{typed}` has no field: write from:{typed} or to:{typed}, or host:{host} port:{endpoint[2]}; {is_text}"
    ours = _known_as(name, rest)
    if ours is not None:
        right = f"{ours}:{rest}"
        return f"`{typed}`: there is no field {name!r}: write {right if rest and _parses(right) else f'{ours}:value'}; {is_text}"
    protocol, column = _protocol_column(name)
    if column and protocol in protocols.names():
        known = [one for one in protocols.get(protocol).columns().SCHEMA.names if field_of(f"{protocol}.{one}") is not None]
        return f"`{typed}`: {protocol} has no such column with plain values: choose one of {', '.join(known)}; {is_text}"
    return f"`{typed}`: there is no field {name!r}: choose one of {', '.join(FIELDS)}, or PROTOCOL.COLUMN such as emp.request_id; {is_text}"
