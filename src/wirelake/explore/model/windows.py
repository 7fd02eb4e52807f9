"""Windows: time ranges in which a search looks one after the other, so that it can stop early.

The first range has few messages, each further one twice as many. Their borders are those of row groups, from the statistics of the
files: so a range reads only its own row groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

__all__ = ["EARLIEST", "FIRST_ROWS", "LATEST", "Span", "Window", "bounds", "has_untimed", "spans_sql", "windows"]

FIRST_ROWS: Final = 400_000
"""Messages of the first window, about."""
MOST_FILES: Final = 5_000
"""Files whose statistics are read. With more, a search looks at everything at once."""
EARLIEST: Final = -(1 << 60)
LATEST: Final = 1 << 60
"""The ends of time that DuckDB still has, or nearly: microseconds since 1970."""


class Span(NamedTuple):
    """Times of the messages of one row group, in microseconds since 1970."""

    first: int
    last: int
    rows: int


class Window(NamedTuple):
    """A time range, both ends included."""

    first: int
    last: int


def spans_sql(files: Sequence[object]) -> tuple[str, list[str]]:
    """Return SQL, and its parameter, for the table `spans` of these files of messages: a row for each row group."""
    some = [str(file) for file in files] if len(files) <= MOST_FILES else []
    columns = (
        "epoch_us(stats_min_value::TIMESTAMPTZ) AS first, epoch_us(stats_max_value::TIMESTAMPTZ) AS last,"
        " row_group_num_rows AS rows, stats_null_count AS untimed"
    )
    if not some:
        return "CREATE TABLE spans (first BIGINT, last BIGINT, rows BIGINT, untimed BIGINT)", []
    return f"CREATE TABLE spans AS SELECT {columns} FROM parquet_metadata($1) WHERE path_in_schema = 'ts'", some


def _spans(connection: duckdb.DuckDBPyConnection) -> list[Span] | None:
    """The row groups with times; None if statistics are missing."""
    rows = connection.execute("SELECT first, last, rows, untimed FROM spans").fetchall()
    if not rows or any(untimed is None or (first is None and untimed < count) for first, _, count, untimed in rows):
        return None
    return [Span(first, last, count) for first, last, count, _ in rows if first is not None]


def bounds(connection: duckdb.DuckDBPyConnection) -> Window | None:
    """Return the times of the first and the last message of the lake; None if none has a time."""
    spans = _spans(connection)
    if spans is None:
        row = connection.execute("SELECT epoch_us(min(ts)), epoch_us(max(ts)) FROM messages").fetchone()
        return None if row is None or row[0] is None else Window(int(row[0]), int(row[1]))
    return Window(min(span.first for span in spans), max(span.last for span in spans)) if spans else None


def has_untimed(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether there may be messages without a time."""
    row = connection.execute("SELECT count(*) = 0 OR bool_or(coalesce(untimed, 1) > 0) FROM spans").fetchone()
    return row is None or bool(row[0])


def windows(connection: duckdb.DuckDBPyConnection, *, after: int | None = None, newest_first: bool = False) -> Iterator[Window]:
    """Give time ranges that cover all messages with a time, in order; only those at or behind `after`."""
    spans = _spans(connection)
    cuts = _cuts(spans or [], after, newest_first=newest_first)
    if newest_first:
        high = LATEST if after is None else after
        for cut in cuts:
            yield Window(cut + 1, high)
            high = cut
        yield Window(EARLIEST, high)
    else:
        low = EARLIEST if after is None else after
        for cut in cuts:
            yield Window(low, cut - 1)
            low = cut
        yield Window(low, LATEST)


def _cuts(spans: list[Span], after: int | None, *, newest_first: bool) -> list[int]:
    """The borders between windows: each is the start of a row group, or with the newest first the end of one."""
    if newest_first:
        left = sorted((span for span in spans if after is None or span.first <= after), key=lambda span: -span.last)
        borders = [span.last for span in left]
    else:
        left = sorted((span for span in spans if after is None or span.last >= after), key=lambda span: span.first)
        borders = [span.first for span in left]
    cuts: list[int] = []
    rows, most = 0, FIRST_ROWS
    for span, border in zip(left, borders, strict=True):
        # A window has more than the time `after` itself: so a search that is cut off after each window comes to an end.
        is_behind = after is None or (border < after - 1 if newest_first else border > after + 1)
        if rows >= most and is_behind and (not cuts or border != cuts[-1]):
            cuts.append(border)
            rows, most = 0, 2 * most
        rows += span.rows
    return cuts
