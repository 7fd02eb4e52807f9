"""Timeline: how many messages, errors and broken rules there are over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.model.conditions import Condition, all_of, between, condition
from wirelake.explore.model.windows import bounds, has_untimed
from wirelake.filters import Filter

if TYPE_CHECKING:
    import duckdb
from wirelake.lake.tables.severities import FORBIDDEN

__all__ = ["BUCKETS", "Histogram", "histogram"]

BUCKETS: Final = 120
"""Bars of a histogram at most."""
_ZOOMS: Final = 3
"""How often a histogram is drawn again for a smaller range, if its messages are all in there."""
_WIDE: Final = 8
"""The range is small if it is at most such a part of the bars."""
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
    """Broken rules in each bar, those that a specification forbids; whatever the filter is."""
    whole: int = 0
    """All messages of the lake."""
    untimed: int = 0
    """Messages without a time that the filter lets through."""

    @property
    def total(self) -> int:
        """All messages of the histogram."""
        return sum(map(sum, self.series.values()))


def histogram(
    connection: duckdb.DuckDBPyConnection, wanted: Filter, *, begin: int | None = None, end: int | None = None, buckets: int = BUCKETS
) -> Histogram:
    """Count the messages that a filter lets through, from `begin` to `end`.

    By default these are the ends of the lake, or of the filter's own time range; narrower if all messages are in a small part of it.
    """
    untimed = _untimed(connection, wanted) if begin is None and end is None else 0
    low, high = _range(connection, wanted)
    found = _counted(connection, wanted, low if begin is None else begin, high if end is None else end, buckets)
    for _ in range(_ZOOMS if begin is None and end is None else 0):
        filled = [bar for bar, count in enumerate(map(sum, zip(*found.series.values(), strict=True))) if count]
        if not filled or (filled[-1] - filled[0] + 1) * _WIDE > len(found.errors) or found.width <= _WIDTHS[0]:
            break
        low, high = found.start + filled[0] * found.width, found.start + (filled[-1] + 1) * found.width - 1
        found = _counted(connection, wanted, low, high, buckets)
    found.untimed = untimed
    row = connection.execute("SELECT count(*) FROM messages").fetchone()
    found.whole = 0 if row is None else int(row[0])
    return found


def _range(connection: duckdb.DuckDBPyConnection, wanted: Filter) -> tuple[int, int]:
    """The time range of the lake, as far as the filter's terms about time leave it."""
    whole = bounds(connection)
    if whole is None:
        return 0, 0
    first, last = wanted.span()
    low, high = max(whole[0], whole[0] if first is None else first), min(whole[1], whole[1] if last is None else last)
    return (low, high) if low <= high else (low, low)


def _untimed(connection: duckdb.DuckDBPyConnection, wanted: Filter) -> int:
    if not has_untimed(connection):
        return 0
    where = all_of([condition(wanted), Condition("m.ts IS NULL")])
    row = connection.execute(f"SELECT count(*) FROM messages m WHERE {where.sql}", list(where.values)).fetchone()
    return 0 if row is None else int(row[0])


def _counted(connection: duckdb.DuckDBPyConnection, wanted: Filter, begin: int, end: int, buckets: int) -> Histogram:
    width = next((width for width in _WIDTHS if (end - begin) / width < buckets), _WIDTHS[-1])
    while (end - begin) // width >= buckets:
        width *= 2
    start = begin - begin % width
    size = (end - start) // width + 1
    chosen = between(condition(wanted), begin, end)
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
        f" WHERE {FORBIDDEN} AND ts BETWEEN make_timestamptz(?) AND make_timestamptz(?) GROUP BY ALL",
        [start, width, begin, end],
    )
    for bar, found in broken.fetchall():
        violations[bar] += found
    return Histogram(start, width, dict(sorted(series.items())), errors, violations)
