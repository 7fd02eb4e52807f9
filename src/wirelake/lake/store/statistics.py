"""Statistics of a Parquet file for the Delta log: rows, smallest and largest values, nulls.

A reader skips a file whose smallest and largest values exclude its filter. They come from the footer that the writer has in memory, so
nothing is read again. A value that Delta's JSON cannot hold exactly is widened: times to milliseconds, text to a prefix. If it cannot be
widened, it is left out. A file without statistics is valid, and is never skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from wirelake.lake.tables.filtered import filtered

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from wirelake.lake.tables.schema import Table

__all__ = ["PREFIX", "file_statistics", "highest_prefix"]

PREFIX: Final = 64
"""Characters of text that statistics have; Delta's own default is 32, and paths of captures are longer."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = 0x10FFFF
"""The last character of Unicode."""
_BEFORE_SURROGATES, _AFTER_SURROGATES = 0xD7FF, 0xE000
"""Between these lie surrogates, which are no characters."""


def file_statistics(footer: pq.FileMetaData, table: Table) -> str:
    """Return the statistics of a file of a table, as JSON for the log."""
    lowest: dict[str, object] = {}
    highest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for name, place in _places(footer, filtered(table)):
        chunks = [group.column(place).statistics for group in groups]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        valued = [chunk for chunk in chunks if chunk.num_values]
        if not valued or not all(chunk.has_min_max for chunk in valued):
            continue  # all are null, or a value is too long for the footer
        kind = table.schema.field(name).type
        low = _lowest(min(chunk.min_raw for chunk in valued), kind)
        high = _highest(max(chunk.max_raw for chunk in valued), kind)
        if low is not None:
            lowest[name] = low
        if high is not None:
            highest[name] = high
    known = {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return msgspec.json.encode(known).decode()


def _places(footer: pq.FileMetaData, names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Give the number that each of these columns has in the file. Parts of nested columns have numbers, too."""
    schema = footer.schema
    of_path = {schema.column(place).path: place for place in range(footer.num_columns)}
    return ((name, of_path[name]) for name in names if name in of_path)


def _lowest(value: Any, kind: pa.DataType) -> object | None:
    if pa.types.is_timestamp(kind):
        return _moment(value // 1000)
    if pa.types.is_string(kind):
        text = _text(value)
        return None if text is None else text[:PREFIX]
    return int(value) if pa.types.is_integer(kind) else None  # no float: NaN has no order


def _highest(value: Any, kind: pa.DataType) -> object | None:
    if pa.types.is_timestamp(kind):
        return _moment(-(-value // 1000))
    if pa.types.is_string(kind):
        text = _text(value)
        return None if text is None else highest_prefix(text)
    return int(value) if pa.types.is_integer(kind) else None


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def highest_prefix(text: str) -> str | None:
    """Return a text of at most `PREFIX` characters that is not less than this one; None if there is none."""
    if len(text) <= PREFIX:
        return text
    for end in range(PREFIX, 0, -1):
        last = ord(text[end - 1])
        if last < _LAST:
            return text[: end - 1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)
    return None


def _moment(milliseconds: int) -> str | None:
    """Write a time as Delta does; None if it has no such form."""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
    except (OverflowError, ValueError):
        return None
