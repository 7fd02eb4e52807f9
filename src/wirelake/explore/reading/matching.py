"""Matching: a filter as a test of the values of a record.

`explore/model/conditions.py` lets the same messages of a lake through.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from fnmatch import translate
from ipaddress import ip_address
from typing import Final

from wirelake.filters import All, Comparison, Filter, Kind, Network, Node, Not, Some, Term, Text, Value, field_of, looked_at

__all__ = ["Held", "Values", "matcher"]

Held = str | int | float | bool | None | Collection[str | float]
Values = Mapping[str, Held]
"""The fields of one record, by the names of filters; `ts` is in microseconds since 1970, `latency` in seconds."""

Test = Callable[[str | float], bool]


def matcher(wanted: Filter) -> Callable[[Values], bool]:
    """A function that says whether a record passes. A field that it does not have, or that is None, is equal to nothing."""
    return _node(wanted.terms[0] if len(wanted.terms) == 1 else All(wanted.terms))


def _node(node: Node) -> Callable[[Values], bool]:
    if isinstance(node, Term):
        return _term(node)
    if isinstance(node, Not):
        part = _node(node.part)
        return lambda values: not part(values)
    parts, decides = [_node(part) for part in node.parts], isinstance(node, Some)

    def is_met(values: Values) -> bool:
        for part in parts:  # faster than any() and all(): it runs for each of many messages
            if part(values) is decides:
                return decides
        return not decides

    return is_met


def _term(term: Term) -> Callable[[Values], bool]:
    names = looked_at(term)
    tests = [_value(term, value) for value in term.values]

    def is_met(values: Values) -> bool:
        for name in names:
            held = values.get(name)
            if held is None:
                continue
            for test in tests:
                if test(held) if isinstance(held, (str, int, float)) else any(map(test, held)):
                    return True
        return False

    return is_met


def _value(term: Term, value: Value) -> Test:
    if isinstance(value, Comparison):
        return _number(value)
    if isinstance(value, Network):
        return _network(value)
    about = field_of(term.field)
    if about is None:  # a bare word
        return _text(f"*{value.text}*")
    if about.kind is Kind.ID and not value.is_pattern:
        return lambda found: str(found).startswith(value.text)
    if term.field in ("from", "to"):  # `host:port`, or a host with any port
        exact, of_host = _text(value.text), _text(f"{value.text}:*")
        return lambda found: exact(found) or of_host(found)
    return _text(value.text)


def _text(wanted: str) -> Test:
    """Compare text, with wildcards and without case."""
    if not Text(wanted).is_pattern:
        lower = wanted.lower()
        return lambda found: str(found).lower() == lower
    inside = wanted[1:-1]
    if wanted[0] == wanted[-1] == "*" and inside and not Text(inside).is_pattern:
        lower = inside.lower()
        return lambda found: lower in str(found).lower()
    pattern = re.compile(translate(wanted), re.IGNORECASE)
    return lambda found: pattern.match(str(found)) is not None


def _number(wanted: Comparison) -> Test:
    if wanted.operator == "..":
        return lambda found: not isinstance(found, str) and wanted.low <= found <= wanted.high
    compare = _COMPARE[wanted.operator]
    return lambda found: not isinstance(found, str) and compare(found, wanted.low)


_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _network(wanted: Network) -> Test:
    def is_inside(found: str | float) -> bool:
        host = _host(str(found))
        try:
            return ip_address(host) in wanted.network
        except ValueError:  # a name, or nothing
            return False

    return is_inside


def _host(endpoint: str) -> str:
    """The host of `host:port`, `[host]:port` or a host alone."""
    if endpoint.startswith("["):
        return endpoint[1:].partition("]")[0]
    return endpoint.partition(":")[0] if endpoint.count(":") == 1 else endpoint
