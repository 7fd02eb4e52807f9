"""Timeline: how many messages, errors and broken rules there are over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.filters import Filter
from wirelake.explore.model.conditions import Condition, all_of, condition

if TYPE_CHECKING:
    import duckdb

__all__ = ["BUCKETS", "Histogram", "histogram", "span"]

BUCKETS: Final = 120
"""Bars of a histogram at most."""
_WIDTHS: Final = tuple(
    round(unit * factor)
    for unit, factors in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000_000, (1, 2, 5, 10, 15, 30)),
        (60_000_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000_000, (1, 2, 3, 6, 12)),
        (86_400_000_000, (1, 2, 7, 30, 90, 365)),
    )
    for factor in factors
)
"""Widths of a bar in microseconds, as people count time."""


class Histogram(msgspec.Struct):
    """Messages over time. Bar `i` begins at `start + i * width`."""

    start: int
    """Microseconds since 1970."""
    width: int
    """Microseconds of one bar."""
    series: dict[str, list[int]]
    """Protocol -> messages in each bar."""
    errors: list[int]
    """Messages that report an error, or break a rule by themselves, in each bar."""
    violations: list[int]
    """Broken rules in each bar, without those of severity `info`; whatever the filter is."""

    @property
    def total(self) -> int:
        """All messages of the histogram."""
        return sum(map(sum, self.series.values()))


def span(connection: duckdb.DuckDBPyConnection, wanted: Filter | None = None) -> tuple[int, int] | None:
    """Return the times of the first and the last message that a filter lets through; None if there is none."""
    where = condition(wanted) if wanted else Condition("true")
    row = connection.execute(
        f"SELECT epoch_us(min(m.ts)), epoch_us(max(m.ts)) FROM messages m WHERE {where.sql}", list(where.values)
    ).fetchone()
    return None if row is None or row[0] is None else (int(row[0]), int(row[1]))


def histogram(
    connection: duckdb.DuckDBPyConnection, wanted: Filter, *, begin: int | None = None, end: int | None = None, buckets: int = BUCKETS
) -> Histogram:
    """Count the messages that a filter lets through, from `begin` to `end`; by default from the first to the last."""
    if begin is None or end is None:
        whole = span(connection, wanted)
        begin, end = whole if whole is not None else (0, 0)
    width = next((width for width in _WIDTHS if (end - begin) / width < buckets), _WIDTHS[-1])
    while (end - begin) // width >= buckets:
        width *= 2
    start = begin - begin % width
    size = (end - start) // width + 1
    chosen = all_of([condition(wanted), Condition("m.ts BETWEEN make_timestamptz(?) AND make_timestamptz(?)", (begin, end))])
    sql = f"""
    SELECT protocol, (epoch_us(m.ts) - ?) // ? AS bar, count(*), count(*) FILTER (m.status <> 'ok')
    FROM messages m WHERE {chosen.sql} GROUP BY ALL
    """
    series: dict[str, list[int]] = {}
    errors, violations = [0] * size, [0] * size
    for protocol, bar, messages, wrong in connection.execute(sql, [start, width, *chosen.values]).fetchall():
        series.setdefault(protocol, [0] * size)[bar] = messages
        errors[bar] += wrong
    broken = connection.execute(
        "SELECT (epoch_us(ts) - ?) // ? AS bar, count(*) FROM violations"
        " WHERE severity <> 'info' AND ts BETWEEN make_timestamptz(?) AND make_timestamptz(?) GROUP BY ALL",
        [start, width, begin, end],
    )
    for bar, found in broken.fetchall():
        violations[bar] += found
    return Histogram(start, width, dict(sorted(series.items())), errors, violations)
