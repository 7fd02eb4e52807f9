"""Choose the files of a table that may have rows of a filter, by the statistics in its log.

A condition is data, whoever made it. A part that statistics cannot judge is `UNKNOWN`, and excludes no file. A file without statistics is
always chosen.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import UsageError
from wirelake.lake.tables.schema import Table

if TYPE_CHECKING:
    import pyarrow.dataset as pads

__all__ = [
    "UNKNOWN",
    "All",
    "AnyOf",
    "Comparison",
    "Condition",
    "Nullness",
    "aware",
    "between",
    "may_match",
    "skipping_dataset",
    "time_column",
]

_TIMES: Final = ("ts", "requested", "opened", "minute", "started", "first_seen")
"""The time of a row: the first of these columns that a table has."""


class Comparison(msgspec.Struct, frozen=True):
    """A column compared with a value: `=`, `<`, `<=`, `>` or `>=`."""

    column: str
    operator: str
    value: object


class Nullness(msgspec.Struct, frozen=True):
    """A column that is null, or is not."""

    column: str
    is_null: bool


class All(msgspec.Struct, frozen=True):
    """Conditions that must all hold; without any, every row fits."""

    parts: tuple[Condition, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """Conditions of which one must hold; without any, no row fits."""

    parts: tuple[Condition, ...]


Condition = Comparison | Nullness | All | AnyOf
UNKNOWN: Final = All(())
"""A condition that excludes nothing."""


def time_column(table: Table) -> str:
    """Return the column that has the time of a row. Raises UsageError if the table has none."""
    for name in _TIMES:
        if name in table.schema.names:
            return name
    raise UsageError(f"table {table.name} has no time: read it without since and until")


def between(table: Table, since: datetime | None, until: datetime | None) -> All:
    """Return the condition that the time of a row lies between two moments, both included; None: no limit."""
    column = time_column(table)
    limits = ((">=", since), ("<=", until))
    return All(tuple(Comparison(column, sign, aware(moment)) for sign, moment in limits if moment is not None))


def aware(moment: datetime) -> datetime:
    """Return a time with its zone; without one it is in UTC, as all times of a lake."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def may_match(known: pa.Table, condition: Condition) -> pa.Array:
    """Say of each file whether it may have rows that fit. `known` has rows of `delta.statistics`."""
    if isinstance(condition, All | AnyOf):
        joined = pa.repeat(isinstance(condition, All), len(known))
        for part in condition.parts:
            fits = may_match(known, part)
            joined = pc.and_(joined, fits) if isinstance(condition, All) else pc.or_(joined, fits)
        return joined
    nulls, rows = _of(known, f"null_count.{condition.column}"), known["num_records"].combine_chunks()
    if isinstance(condition, Nullness):
        return _or_unknown(pc.greater(nulls, 0) if condition.is_null else pc.less(nulls, rows))
    has_values = _or_unknown(pc.less(nulls, rows))  # a null fits no comparison
    low, high = _of(known, f"min.{condition.column}"), _of(known, f"max.{condition.column}")
    fits = pa.repeat(True, len(known))
    try:
        value = pa.scalar(condition.value, high.type if pa.types.is_null(low.type) else low.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return has_values  # a value of another type: not for us to compare
    if condition.operator in ("=", ">", ">="):
        fits = pc.and_(fits, _or_unknown(_compare(">" if condition.operator == ">" else ">=", high, value)))
    if condition.operator in ("=", "<", "<="):
        fits = pc.and_(fits, _or_unknown(_compare("<" if condition.operator == "<" else "<=", low, value)))
    return pc.and_(has_values, fits)


_COMPARE: Final = {">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}


def _compare(sign: str, column: pa.Array, value: pa.Scalar) -> pa.Array:
    return pa.nulls(len(column), pa.bool_()) if pa.types.is_null(column.type) else _COMPARE[sign](column, value)


def _of(known: pa.Table, name: str) -> pa.Array:
    """Return a column of statistics; nulls if there are none of it."""
    if name not in known.schema.names:
        return pa.nulls(len(known), pa.int64() if name.startswith("null_count.") else pa.null())
    column: Any = known[name].combine_chunks()
    return column


def _or_unknown(fits: pa.Array) -> pa.Array:
    """Let a file through whose statistics are missing."""
    return pc.fill_null(fits, True)


def skipping_dataset(folder: Path, table: Table, known: pa.Table) -> pads.Dataset:
    """Open files of a table as a pyarrow dataset that knows the times of each file: a filter of times leaves others closed."""
    import pyarrow.dataset as pads  # noqa: PLC0415 - most of a second
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415

    column = next(name for name in (*_TIMES, "") if name in table.schema.names or not name)
    nulls, low, high = (_of(known, f"{what}.{column}").to_pylist() for what in ("null_count", "min", "max"))
    paths = [str(folder / path) for path in known["path"].to_pylist()]
    layout, files, field = pads.ParquetFileFormat(), LocalFileSystem(), pads.field(column)
    fragments = [
        layout.make_fragment(path, files, (field >= first) & (field <= last))
        if first is not None and last is not None and none == 0
        else layout.make_fragment(path, files)
        for path, first, last, none in zip(paths, low, high, nulls, strict=True)
    ]
    return pads.FileSystemDataset(fragments, table.schema, layout, files)
