"""Which files a query needs: its filters, found by planning it over empty tables, and the statistics of the lake.

DuckDB opens every file of a list to read its footer. So a statement is planned first, in a database whose tables have no rows. `EXPLAIN`
names the filters of each scan, after views, joins and constants were resolved. Every scan of a table must find its files, so a file is left
out only if no scan of the table needs it. What is not understood here excludes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from wirelake.lake.store.skipping import UNKNOWN, All, AnyOf, Comparison, Condition, Nullness

if TYPE_CHECKING:
    import duckdb

    from wirelake.lake.tables.schema import Table

__all__ = ["CLOCK_SLACK", "FEW_FILES", "SCANNED", "Scans", "condition_of", "scans", "set_up"]

FEW_FILES: Final = 16
"""A lake whose tables have no more files than this is read without planning: opening them takes less time."""
CLOCK_SLACK: Final = timedelta(days=2)
"""Times in a statement that asks for the clock are widened by this: it is later, and perhaps another day, when the query runs."""
SCANNED: Final = "scanned"
"""Schema of the empty tables that statements are planned over."""
_CLOCK: Final = re.compile(r"now|today|yesterday|tomorrow|epoch|current|local|transaction|variable", re.IGNORECASE)
"""Words of functions and values that may differ from one transaction to the next."""

Scans = dict[str, AnyOf]
"""Table -> the condition of a row that any scan of it needs. Tables that are not read are missing."""

_OPTIMIZERS: Final = "statistics_propagation,empty_result_pullup,late_materialization"
"""They know that the tables are empty, or read a table twice."""
_TOKEN: Final = re.compile(
    r"""
    (?P<text>'(?:[^']|'')*')
  | (?P<word>"(?:[^"]|"")*"|[A-Za-z_][A-Za-z_0-9.]*:?)
  | (?P<number>-?\d+(?:\.\d+)?)
  | (?P<sign>::|>=|<=|!=|<>|[()<>=,])
  | (?P<space>\s+)
    """,
    re.VERBOSE,
)
_SIGNS: Final = ("=", "<", "<=", ">", ">=")
_TIMES: Final = tuple(("word", word) for word in ("TIMESTAMP", "WITH", "TIME", "ZONE"))
"""The type of times, as it follows a literal."""

Group = list[Any]
"""Tokens, each a pair of kind and text; what was in parentheses is a group of its own."""


class NotUnderstood(Exception):
    """A filter in a form that is not known here."""


def set_up(connection: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> None:
    """Create empty tables in a database for planning, and let it plan as if they had rows. Views over them are the caller's."""
    connection.execute(f"CREATE SCHEMA {SCANNED}")
    for table in tables:
        connection.from_arrow(table.schema.empty_table()).create(f"{SCANNED}.{table.name}")
    connection.execute(f"SET disabled_optimizers = '{_OPTIMIZERS}'")


def scans(planning: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object] | dict[str, object] = ()) -> Scans | None:
    """Plan a statement, and return the conditions of its scans; None if it cannot be planned."""
    import duckdb  # noqa: PLC0415 - only queries pay for it

    try:
        ((_, plan),) = planning.execute(f"EXPLAIN (FORMAT JSON) {sql}", values or None).fetchall()
        nodes = json.loads(plan)
    except (duckdb.Error, ValueError):  # the query itself will report it
        return None
    slack = CLOCK_SLACK if _CLOCK.search(sql) else timedelta(0)
    found: dict[str, list[Condition]] = {}
    for table, filters in _scanned(nodes):
        found.setdefault(table, []).append(condition_of(filters, slack))
    return {table: AnyOf(tuple(conditions)) for table, conditions in found.items()}


def _scanned(nodes: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Give the table and the filters of every scan of a plan."""
    for node in nodes:
        details = node.get("extra_info", {})
        if isinstance(table := details.get("Table"), str):
            filters = details.get("Filters", "")
            yield table.rpartition(".")[2].strip('"'), filters if isinstance(filters, str) else "\n".join(filters)
        yield from _scanned(node.get("children", []))


def condition_of(filters: str, slack: timedelta = timedelta(0)) -> Condition:
    """Read the filters of a scan, a line each: they must all hold. Times are widened by `slack`."""
    try:
        lines = _divided(_grouped(filters), ("space", "\n"))
    except NotUnderstood:
        return UNKNOWN
    return _Reader(slack).all_of(lines)


def _grouped(text: str) -> Group:
    """Divide text into tokens, and put those in parentheses into groups. A line or a quote in a value begins no condition."""
    stack: list[Group] = [[]]
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise NotUnderstood
        at = found.end()
        if found[0] == "(":
            stack.append([])
        elif found[0] == ")":
            if len(stack) == 1:
                raise NotUnderstood
            inner = stack.pop()
            stack[-1].append(inner)
        elif found.lastgroup != "space" or "\n" in found[0]:
            stack[-1].append((found.lastgroup, "\n" if found.lastgroup == "space" else found[0]))
    if len(stack) != 1:
        raise NotUnderstood
    return stack[0]


def _divided(group: Group, border: tuple[str, str]) -> list[Group]:
    """Divide a group where this token is."""
    parts: list[Group] = [[]]
    for token in group:
        if token == border:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class _Reader:
    """Reads groups of tokens as conditions. A form that is not known excludes nothing."""

    def __init__(self, slack: timedelta) -> None:
        self._slack = slack

    def all_of(self, groups: Sequence[Group]) -> All:
        return All(tuple(map(self.condition, groups)))

    def condition(self, group: Group) -> Condition:
        if group and group[0] == ("word", "optional:"):
            group = group[1:]
        if len(group) == 1 and isinstance(group[0], list):
            return self.condition(group[0])
        parts, choices = _divided(group, ("word", "AND")), _divided(group, ("word", "OR"))
        if len(parts) > 1:
            return self.all_of(parts) if len(choices) == 1 else UNKNOWN
        return AnyOf(tuple(map(self.condition, choices))) if len(choices) > 1 else self._leaf(group)

    def _leaf(self, group: Group) -> Condition:
        """Read `column sign value`, `column IN (…)` or `column IS [NOT] NULL`."""
        match group:
            case [("word", name), ("word", "IS"), ("word", "NULL")]:
                return Nullness(_name(name), is_null=True)
            case [("word", name), ("word", "IS"), ("word", "NOT"), ("word", "NULL")]:
                return Nullness(_name(name), is_null=False)
            case [("word", name), ("word", "IN"), [*values]]:
                return AnyOf(tuple(self._compared(_name(name), "=", value) for value in _divided(values, ("sign", ","))))
            case [("word", name), ("sign", sign), *value] if sign in _SIGNS:
                return self._compared(_name(name), sign, value)
        return UNKNOWN

    def _compared(self, name: str, sign: str, literal: Group) -> Condition:
        match literal:
            case [("number", text)] if text.lstrip("-").isdecimal():
                return Comparison(name, sign, int(text))
            case [("text", text)]:
                return Comparison(name, sign, text[1:-1].replace("''", "'"))
            case [("text", text), ("sign", "::"), *kind] if tuple(kind) == _TIMES:
                return self._moment(name, sign, text[1:-1])
        return UNKNOWN

    def _moment(self, name: str, sign: str, text: str) -> Condition:
        try:
            moment = datetime.fromisoformat(text).astimezone(UTC)
            early, late = moment - self._slack, moment + self._slack
        except (ValueError, OverflowError):  # infinity, or a year that Python does not have
            return UNKNOWN
        if sign == "=":
            return All((Comparison(name, ">=", early), Comparison(name, "<=", late)))
        return Comparison(name, sign, early if sign in (">", ">=") else late)


def _name(word: str) -> str:
    """Return the name of a column without quotes."""
    return word[1:-1].replace('""', '"') if word.startswith('"') else word
