"""Filters of messages, as people type them: `protocol:relink subject:orders.* status:unanswered -kind:keepalive since:10m`.

A filter is terms with spaces between them; all must hold. A term is `field:value`, or a bare word, which is searched in names, subjects and
rules. `-term` excludes. `value` may have the wildcards `*`, `?` and `[…]`, and alternatives with commas: `kind:request,response`. Quotes
keep spaces and commas together: `subject:"new orders"`. Case does not matter. Numbers take `>`, `>=`, `<`, `<=` and `a..b`, with units:
`size:>10k`, `latency:>2.5ms`. Times are an age before now, or ISO 8601 in UTC: `since:10m`, `until:2026-01-31T12:00`.

Pure: a page and a command line share it. `parse` makes a `Filter`, whose `terms` are data, and `Filter.matches` takes the fields of a
record: text, lists of texts, numbers, or None.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from fnmatch import translate
from typing import Final, NamedTuple

import msgspec

from wirelake import protocols
from wirelake.errors import UsageError
from wirelake.protocols.faults import SEVERITIES

__all__ = [
    "FIELDS",
    "KINDS",
    "STATUSES",
    "WORDS",
    "Comparison",
    "Field",
    "Filter",
    "FilterError",
    "Kind",
    "Term",
    "Value",
    "Values",
    "comparison",
    "is_pattern",
    "moment",
    "parse",
]

Value = str | int | float | bool | None | Collection[str] | Collection[int]
Values = Mapping[str, Value]
"""The fields of one record, by the names in `FIELDS`; `ts` is in microseconds since 1970, `latency` in seconds."""

KINDS: Final = ("handshake", "event", "request", "response", "progress", "cancel", "ack", "keepalive", "control", "error", "close")
"""Values of `kind`, as in the table `messages`."""
STATUSES: Final = ("ok", "faulty", "error", "unconfirmed", "answered", "late", "confirmed", "killed", "unanswered", "unasked")
"""Values of `status`: those of the tables `messages` and `exchanges`."""
TYPES: Final = ("message", "violation", "unanswered", "unreadable", "unrecognised")


class FilterError(UsageError):
    """A filter that cannot be read; `term` is the part that is wrong."""

    def __init__(self, term: str, text: str) -> None:
        self.term = term
        super().__init__(text)


class Kind(Enum):
    """How the values of a field are compared."""

    TEXT = "text"
    NUMBER = "number"
    SECONDS = "seconds"
    TIME = "time"


class Field(NamedTuple):
    """A field of filters."""

    doc: str
    kind: Kind = Kind.TEXT
    choices: tuple[str, ...] = ()
    """All values that it can have; empty: any."""


FIELDS: Final[dict[str, Field]] = {
    "protocol": Field("The protocol, such as `relink`."),
    "kind": Field("The kind of a message in every protocol's vocabulary.", choices=KINDS),
    "name": Field("The name of a message in its protocol, such as `hello`."),
    "subject": Field("Event name, method or uri."),
    "id": Field("The id that ties an answer to its request."),
    "status": Field("Of a message (`ok`, `faulty`, `error`), or of a request and its answer.", choices=STATUSES),
    "rule": Field("A broken rule: its name or its clause, such as `RELINK-22`."),
    "severity": Field("How severe a broken rule is.", choices=SEVERITIES),
    "type": Field("What a record is.", choices=TYPES),
    "host": Field("The address of either side."),
    "port": Field("The port of either side.", Kind.NUMBER),
    "from": Field("The sender, as `host:port`; `from:10.0.0.*` takes any port."),
    "to": Field("The receiver, as `host:port`."),
    "transport": Field("`tcp`, `tls`, `udp`, …"),
    "session": Field("The id of the session, in hex."),
    "connection": Field("The id of the connection, in hex."),
    "source": Field("The file."),
    "number": Field("The number of the message in the output.", Kind.NUMBER),
    "size": Field("Bytes of the message; units k, M, G.", Kind.NUMBER),
    "latency": Field("Time from request to answer; units us, ms, s, m.", Kind.SECONDS),
    "since": Field("Not before this time, or this age.", Kind.TIME),
    "until": Field("Not after this time, or this age.", Kind.TIME),
}
"""Name -> field."""

WORDS: Final = ("name", "subject", "rule", "protocol", "kind", "id")
"""The fields that a bare word is searched in."""
_TOKEN: Final = re.compile(r'(?:[^\s"]|"[^"]*("|$))+')
_PART: Final = re.compile(r'(?:[^,"]|"[^"]*")+')
_NUMBER: Final = re.compile(r"(>=|<=|>|<|)(-?\d+(?:\.\d+)?)([a-zA-Z]*)")
_RANGE: Final = re.compile(r"(-?\d+(?:\.\d+)?)([a-zA-Z]*)\.\.(-?\d+(?:\.\d+)?)([a-zA-Z]*)")
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")
_SIZES: Final = {"": 1.0, "k": 1024.0, "m": 1024.0**2, "g": 1024.0**3}
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}

Test = Callable[[Value], bool]


class Term(msgspec.Struct, frozen=True):
    """One condition."""

    field: str
    """A name in `FIELDS`; empty for a bare word."""
    values: tuple[str, ...]
    """Alternatives: one of them must hold."""
    is_excluded: bool = False

    def __str__(self) -> str:
        """The term as it is typed."""
        quoted = (f'"{value}"' if re.search(r"[\s,]", value) else value for value in self.values)
        return f"{'-' if self.is_excluded else ''}{self.field}{':' if self.field else ''}{','.join(quoted)}"


class Filter:
    """Terms that must all hold. Make one with `parse`."""

    __slots__ = ("_tests", "now", "terms")

    def __init__(self, terms: tuple[Term, ...], now: float) -> None:
        self.terms = terms
        self.now = now
        """Seconds since 1970 that ages count back from."""
        self._tests: list[tuple[tuple[str, ...], Test, bool]] = []
        for term in terms:
            names, test = _test(term, now)
            self._tests.append((names, test, term.is_excluded))

    def __str__(self) -> str:
        """The filter as it is typed."""
        return " ".join(map(str, self.terms))

    def __bool__(self) -> bool:
        """Whether there is any term."""
        return bool(self.terms)

    def fields(self) -> frozenset[str]:
        """The fields that the filter looks at."""
        return frozenset(name for names, _, _ in self._tests for name in names)

    def matches(self, values: Values) -> bool:
        """Whether a record passes. A field that it does not have, or that is None, has no value: nothing is equal to it."""
        for names, test, is_excluded in self._tests:
            is_met = False
            for name in names:
                value = values.get(name)
                if value is None:
                    continue
                if test(value) if isinstance(value, (str, int, float)) else any(map(test, value)):
                    is_met = True
                    break
            if is_met is is_excluded:
                return False
        return True


def parse(text: str, *, now: float | None = None) -> Filter:
    """Read a filter. `now` is the time, in seconds since 1970, that ages such as `since:10m` count back from.

    Raises FilterError, which says what is wrong and what to write.
    """
    return Filter(tuple(map(_term, _tokens(text))), time.time() if now is None else now)


def _tokens(text: str) -> Iterator[str]:
    if text.count('"') % 2:
        raise FilterError(text, f"filter {text!r}: a quote is not closed: write a second one, or leave it out")
    return (found[0] for found in _TOKEN.finditer(text))


def _term(token: str) -> Term:
    is_excluded = token.startswith("-")
    body = token.removeprefix("-")
    name, colon, rest = body.partition(":")
    if not body or (colon and not rest):
        raise FilterError(token, f"filter term {token!r}: write it as field:value, for instance kind:request")
    if not colon or '"' in name:
        return Term("", (body.replace('"', ""),), is_excluded)
    name = name.lower()
    if name not in FIELDS:
        raise FilterError(token, f"filter term {token!r}: there is no field {name!r}; choose one of {', '.join(FIELDS)}")
    values = tuple(found[0].replace('"', "") for found in _PART.finditer(rest))
    return Term(name, tuple(_checked(token, name, value) for value in values), is_excluded)


def _checked(token: str, name: str, value: str) -> str:
    """Return a value as it is compared; raises FilterError if the field never has it."""
    choices = FIELDS[name].choices
    if name == "protocol":
        value, choices = value.replace("-", "_"), protocols.names()
    if choices and not is_pattern(value) and value.lower() not in choices:
        raise FilterError(token, f"filter term {token!r}: {name} is never {value!r}; choose one of {', '.join(choices)}")
    return value


def _test(term: Term, now: float) -> tuple[tuple[str, ...], Test]:
    """The fields that a term looks at, and the test of a value of them."""
    if not term.field:
        return WORDS, _any([_text(f"*{value}*") for value in term.values])
    kind = FIELDS[term.field].kind
    if kind is Kind.TIME:
        when = [moment(term, value, now) for value in term.values]
        if term.field == "since":
            return ("ts",), lambda value: isinstance(value, (int, float)) and value >= min(when)
        return ("ts",), lambda value: isinstance(value, (int, float)) and value <= max(when)
    if kind is Kind.TEXT:
        ends = term.field in ("from", "to")
        return (term.field,), _any([_end(value) if ends else _text(value) for value in term.values])
    return (term.field,), _any([_number(comparison(term, value)) for value in term.values])


def _any(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)


def is_pattern(value: str) -> bool:
    """Whether a value has wildcards."""
    return any(mark in value for mark in "*?[")


def _text(value: str) -> Test:
    """Compare text, with wildcards and without case."""
    if not is_pattern(value):
        wanted = value.casefold()
        return lambda found: str(found).casefold() == wanted
    pattern = re.compile(translate(value), re.IGNORECASE)
    return lambda found: pattern.match(str(found)) is not None


def _end(value: str) -> Test:
    """Compare an endpoint: `host:port`, or a host with any port."""
    return _any([_text(value), _text(f"{value}:*")])


class Comparison(NamedTuple):
    """A condition on a number, in its smallest unit: bytes, or seconds."""

    operator: str
    """`=`, `>`, `>=`, `<`, `<=`, or `..` for a range."""
    low: float
    high: float
    """The end of a range; else the same as `low`."""


def comparison(term: Term, value: str) -> Comparison:
    """Read a value of a term about numbers; raises FilterError."""
    units = _SIZES if FIELDS[term.field].kind is Kind.NUMBER else _SECONDS
    between, single = _RANGE.fullmatch(value), _NUMBER.fullmatch(value)
    parts = between.groups() if between else (single[2], single[3]) if single else ()
    if not parts or any(unit.lower() not in units for unit in parts[1::2]):
        shown = ", ".join(unit for unit in units if unit)
        raise FilterError(str(term), f"filter term {str(term)!r}: write a number, >number, <number or a..b; units are {shown}")
    low = float(parts[0]) * units[parts[1].lower()]
    if between:
        return Comparison("..", low, float(between[3]) * units[between[4].lower()])
    assert single is not None  # noqa: S101 - one of both matched
    return Comparison(single[1] or "=", low, low)


def _number(wanted: Comparison) -> Test:
    """Compare a number."""
    if wanted.operator == "..":
        return lambda found: isinstance(found, (int, float)) and wanted.low <= found <= wanted.high
    compare = _COMPARE[wanted.operator]
    return lambda found: isinstance(found, (int, float)) and compare(found, wanted.low)


_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "=": lambda found, wanted: found == wanted,
    ">": lambda found, wanted: found > wanted,
    ">=": lambda found, wanted: found >= wanted,
    "<": lambda found, wanted: found < wanted,
    "<=": lambda found, wanted: found <= wanted,
}


def moment(term: Term, value: str, now: float) -> float:
    """Microseconds since 1970 of an age before now, or of a time."""
    age = _AGE.fullmatch(value)
    if age is not None:
        return (now - float(age[1]) * _SECONDS[age[2]]) * 1e6
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise FilterError(
            str(term), f"filter term {str(term)!r}: write an age such as 10m (s, m, h, d, w), or a time such as 2026-01-31T12:00:00Z"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1e6
