"""Selections: compare the messages of two filters, of one lake or of two."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from wirelake.explore.diff.latency import CONFIDENCE, LEAST, METHOD, SAMPLE, Shift, shift
from wirelake.explore.diff.operands import Operand
from wirelake.explore.diff.steps import Step, steps
from wirelake.explore.export.selection import broken_in
from wirelake.explore.model.conditions import EVERYTHING, Condition, all_of, condition
from wirelake.explore.model.database import Database
from wirelake.explore.query import QueryLimits

if TYPE_CHECKING:
    import duckdb

__all__ = ["LIMITS", "PARTS", "Change", "Changes", "DiffOptions", "Difference", "Latency", "Part", "Side", "compare"]

LIMITS: Final = QueryLimits(seconds=0, megabytes=512)
"""Limits of a comparison: it may take long, but not much memory."""
MOST_CHANGES: Final = 1_000
"""Changes of one part that are kept: those with the largest difference."""
MOST_GROUPS: Final = 50
"""Subjects whose latencies are compared: those with the most answers."""
TOLERANCE: Final = 5.0
"""Percent of A's median that a latency may shift without being a difference."""
_ROWS: Final = 2_000
"""Groups that are fetched at a time."""


class Part(StrEnum):
    """What is compared."""

    KINDS = "kinds"
    SUBJECTS = "subjects"
    RULES = "rules"
    ANSWERS = "answers"
    LATENCY = "latency"
    COUNTS = "counts"


PARTS: Final = (Part.KINDS, Part.SUBJECTS, Part.RULES, Part.ANSWERS, Part.LATENCY)
"""The parts that decide whether two sides differ, unless the caller has others."""


class DiffOptions(msgspec.Struct, frozen=True):
    """How two sides are compared."""

    parts: tuple[Part, ...] = PARTS
    """The parts that decide whether they differ; all are in the result."""
    confidence: float = CONFIDENCE
    tolerance: float = TOLERANCE
    """Percent of A's median that a latency may shift without being a difference."""


class Side(msgspec.Struct):
    """One side of a comparison."""

    name: str
    messages: int
    sessions: int
    first: int | None
    last: int | None
    """Microseconds since 1970."""
    of: int
    """All messages of the lake."""


class Change(msgspec.Struct):
    """A group whose count differs."""

    key: list[str]
    a: int
    b: int


class Changes(msgspec.Struct):
    """The groups of one part. Each list has at most `MOST_CHANGES`, the largest difference first."""

    columns: list[str]
    new: list[Change]
    vanished: list[Change]
    changed: list[Change]
    """In both, but not as often."""
    new_count: int
    vanished_count: int
    changed_count: int
    same_count: int


class Latency(msgspec.Struct):
    """How the latencies of one group moved."""

    protocol: str
    kind: str
    subject: str | None
    """None: all exchanges of this protocol and kind."""
    shift: Shift
    is_different: bool
    """Whether the interval excludes zero, and the shift is beyond the tolerance."""


class Difference(msgspec.Struct):
    """What differs between two sides."""

    a: Side
    b: Side
    parts: list[Part]
    is_different: bool
    """By the parts that were asked for."""
    kinds: Changes
    subjects: Changes
    rules: Changes
    answers: Changes
    latency: list[Latency]
    latency_method: str
    confidence: float
    steps: list[Step] | None
    """If both sides are one session: their messages side by side."""


_COLUMNS: Final[dict[Part, dict[str, str]]] = {
    Part.KINDS: {"protocol": "m.protocol", "kind": "m.kind", "name": "m.name"},
    Part.SUBJECTS: {"protocol": "m.protocol", "subject": "m.subject"},
    Part.RULES: {"protocol": "v.protocol", "clause": "v.clause", "rule": "v.rule", "severity": "v.severity"},
    Part.ANSWERS: {"protocol": "e.protocol", "kind": "e.kind", "status": "e.status", "outcome": "e.outcome"},
}
"""Part -> the columns that name a group, and their SQL."""


class _Open(NamedTuple):
    """A side that is open for questions."""

    connection: duckdb.DuckDBPyConnection
    where: Condition

    def rows(self, select: str, where: Condition, rest: str = "") -> Iterator[tuple[Any, ...]]:
        """Rows of `select` under a condition, some at a time."""
        answer = self.connection.execute(f"{select} WHERE {where.sql} {rest}", list(where.values))
        while some := answer.fetchmany(_ROWS):
            yield from some

    def exchanges(self) -> Condition:
        """Exchanges `e` of which the request or the answer is selected."""
        if self.where == EVERYTHING:
            return EVERYTHING
        passing = f"SELECT m.message_id FROM messages m WHERE {self.where.sql}"
        return Condition(f"(e.request_message_id IN ({passing}) OR e.response_message_id IN ({passing}))", self.where.values * 2)

    def groups(self, part: Part) -> Iterator[tuple[Any, ...]]:
        """The groups of a part with their counts, in the order of their names."""
        table, where = {
            Part.KINDS: ("messages m", self.where),
            Part.SUBJECTS: ("messages m", all_of([self.where, Condition("m.subject IS NOT NULL")])),
            Part.RULES: ("violations v", broken_in(self.where)),
            Part.ANSWERS: ("exchanges e", self.exchanges()),
        }[part]
        columns = ", ".join(f"coalesce({sql}, '')" for sql in _COLUMNS[part].values())
        order = ", ".join(str(number + 1) for number in range(len(_COLUMNS[part])))
        return self.rows(f"SELECT {columns}, count(*) FROM {table}", where, f"GROUP BY ALL ORDER BY {order}")


def compare(one: Operand, other: Operand, options: DiffOptions | None = None, *, database: Database | None = None) -> Difference:
    """Compare the messages of two operands. The result is the same every time.

    With `database`, both are of its lake, and it is asked.
    """
    options = options or DiffOptions()
    with ExitStack() as stack:
        sides = []
        for operand in (one, other):
            asked = database or stack.enter_context(Database(operand.lake, LIMITS))
            sides.append(_Open(stack.enter_context(asked.connection()), condition(operand.wanted)))
        return _compared(one, other, sides[0], sides[1], options)


def _compared(one: Operand, other: Operand, first: _Open, second: _Open, options: DiffOptions) -> Difference:
    a, b = _side(one, first), _side(other, second)
    found = {part: _changes(list(names), first.groups(part), second.groups(part)) for part, names in _COLUMNS.items()}
    is_session = a.sessions == b.sessions == 1
    difference = Difference(
        a=a,
        b=b,
        parts=list(options.parts),
        is_different=False,
        kinds=found[Part.KINDS],
        subjects=found[Part.SUBJECTS],
        rules=found[Part.RULES],
        answers=found[Part.ANSWERS],
        latency=_latencies(first, second, options),
        latency_method=METHOD,
        confidence=options.confidence,
        steps=steps(first.connection, first.where, second.connection, second.where) if is_session else None,
    )
    difference.is_different = any(_differs(difference, part) for part in options.parts)
    return difference


def _differs(found: Difference, part: Part) -> bool:
    if part is Part.LATENCY:
        return any(one.is_different for one in found.latency)
    if part is Part.COUNTS:
        every = (found.kinds, found.subjects, found.rules, found.answers)
        return any(one.new_count or one.vanished_count or one.changed_count for one in every)
    changes: Changes = getattr(found, part.value)
    return bool(changes.new_count or changes.vanished_count)


def _side(operand: Operand, side: _Open) -> Side:
    select = "SELECT count(*), count(DISTINCT m.session_id), epoch_us(min(m.ts)), epoch_us(max(m.ts)) FROM messages m"
    (row,) = side.rows(select, side.where)
    ((whole,),) = side.rows("SELECT count(*) FROM messages m", EVERYTHING)
    messages, sessions, first, last = row
    return Side(str(operand), messages, sessions, first, last, whole)


def _changes(columns: list[str], first: Iterator[tuple[Any, ...]], second: Iterator[tuple[Any, ...]]) -> Changes:
    """Join two lists of groups that are in order, and keep the largest differences."""
    kept: dict[str, list[tuple[int, int, Change]]] = {"new": [], "vanished": [], "changed": []}
    counts, number = {"new": 0, "vanished": 0, "changed": 0, "same": 0}, 0
    one, other = next(first, None), next(second, None)
    while one is not None or other is not None:
        a = b = 0
        key = min(row[:-1] for row in (one, other) if row is not None)
        if one is not None and one[:-1] == key:
            a, one = one[-1], next(first, None)
        if other is not None and other[:-1] == key:
            b, other = other[-1], next(second, None)
        what = "same" if a == b else "new" if not a else "vanished" if not b else "changed"
        counts[what] += 1
        if what != "same":
            number -= 1  # of equal differences, the first by name is kept
            entry = (abs(a - b), number, Change(list(key), a, b))
            if len(kept[what]) < MOST_CHANGES:
                heapq.heappush(kept[what], entry)
            else:
                heapq.heappushpop(kept[what], entry)
    lists = {what: [change for _, _, change in sorted(some, reverse=True)] for what, some in kept.items()}
    return Changes(
        columns, lists["new"], lists["vanished"], lists["changed"], counts["new"], counts["vanished"], counts["changed"], counts["same"]
    )


def _latencies(first: _Open, second: _Open, options: DiffOptions) -> list[Latency]:
    """Compare the latencies of each protocol and kind, and of the subjects with the most answers."""
    there = {row[:3] for row in _timed_groups(second)}
    groups = [row[:3] for row in _timed_groups(first) if row[:3] in there]
    whole, single = [row for row in groups if row[2] is None], [row for row in groups if row[2] is not None]
    chosen = [*whole, *single[:MOST_GROUPS]]
    confidence = 1 - (1 - options.confidence) / max(1, len(chosen))
    found = []
    for protocol, kind, subject in chosen:
        moved = shift(_sample(first, protocol, kind, subject), _sample(second, protocol, kind, subject), confidence)
        is_large = abs(moved.shift) > options.tolerance / 100 * abs(moved.median_a)
        found.append(Latency(protocol, kind, subject, moved, moved.is_certain and is_large))
    return sorted(found, key=lambda one: (one.protocol, one.kind, one.subject is not None))


def _timed_groups(side: _Open) -> Iterator[tuple[Any, ...]]:
    """Groups with enough latencies, those with the most first; one with subject None has all of its protocol and kind."""
    where = all_of([side.exchanges(), Condition("e.latency_us IS NOT NULL")])
    sets = "GROUP BY GROUPING SETS ((e.protocol, e.kind), (e.protocol, e.kind, e.subject))"
    kept = f"HAVING count(*) >= {LEAST:d} AND (grouping(e.subject) = 1 OR e.subject IS NOT NULL)"
    return side.rows("SELECT e.protocol, e.kind, e.subject, count(*) FROM exchanges e", where, f"{sets} {kept} ORDER BY 4 DESC, 1, 2, 3")


def _sample(side: _Open, protocol: str, kind: str, subject: str | None) -> list[int]:
    """At most `SAMPLE` latencies of a group, chosen by a hash."""
    group = [Condition("e.latency_us IS NOT NULL AND e.protocol = ? AND e.kind = ?", (protocol, kind))]
    group += [] if subject is None else [Condition("e.subject = ?", (subject,))]
    order = f"ORDER BY hash(e.request_message_id, e.response_message_id, e.correlation_id), e.latency_us LIMIT {SAMPLE:d}"
    return [row[0] for row in side.rows("SELECT e.latency_us FROM exchanges e", all_of([side.exchanges(), *group]), order)]
