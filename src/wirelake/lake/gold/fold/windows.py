"""Read the Parquet files of message tables in order of time, window by window, with bounded memory.

Files are read row group by row group, by the smallest time in each. Rows are handed on when no row group that was not read yet can have
an earlier one. So memory is bounded by the row groups whose times overlap, whatever the size of the files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wirelake.lake.gold.fold.seen import DICTIONARIES
from wirelake.lake.tables.schema import TIME
from wirelake.protocols.analyzer import NO_TIME

__all__ = ["WINDOW_ROWS", "is_any_of", "read_windows"]

WINDOW_ROWS: Final = 65_536
"""A window has at least so many rows, if there are as many."""


class _Group(NamedTuple):
    """A row group that is to be read."""

    first: int
    """Its earliest time; `NO_TIME` if it is not known, or if a row has none."""
    file: int
    number: int


def read_windows(
    paths: Sequence[Path],
    columns: Sequence[str],
    protocol: str | None = None,
    by: str = "session_id",
    chosen: pa.Array | None = None,
    after: int | None = None,
) -> Iterator[pa.Table]:
    """The rows of these files, in windows that follow each other in time.

    `protocol` selects rows of one protocol, `chosen` those whose column `by` has one of these values. Row groups with nothing later than
    `after` are left out.
    """
    wanted = list(dict.fromkeys([*columns, "session_id", "connection_id", "ts", "message_id", *(["protocol"] if protocol else [])]))
    files = [pq.ParquetFile(path, read_dictionary=[name for name in DICTIONARIES if name in wanted]) for path in paths]
    try:
        yield from _windows(files, sorted(_groups(files, after)), wanted, protocol, chosen, by)
    finally:
        for file in files:
            file.close()


def _windows(
    files: Sequence[pq.ParquetFile],
    groups: Sequence[_Group],
    columns: Sequence[str],
    protocol: str | None,
    ids: pa.Array | None,
    by: str,
) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows, enough = 0, WINDOW_ROWS
    for place, group in enumerate(groups):
        read = files[group.file].read_row_group(group.number, columns=list(columns), use_threads=False)
        chosen = _chosen(read, protocol, ids, by)
        if chosen.num_rows:
            held.append(chosen)
            rows += chosen.num_rows
        if rows < enough or place + 1 == len(groups):
            continue
        together = _joined(held)
        is_ready = _times(together) < groups[place + 1].first
        ready = together.filter(pa.array(is_ready))
        if ready.num_rows:
            yield ready
            together = together.filter(pa.array(~is_ready))
        held, rows = ([together], together.num_rows) if together.num_rows else ([], 0)
        enough = max(WINDOW_ROWS, 2 * rows)  # where row groups overlap, look again when as many more were read
    if held:
        yield _joined(held)


def _groups(files: Sequence[pq.ParquetFile], after: int | None) -> Iterator[_Group]:
    for number, file in enumerate(files):
        for group in range(file.metadata.num_row_groups):
            first, last = _span(file.metadata.row_group(group))
            if after is None or last is None or last > after:
                yield _Group(first, number, group)


def _span(group: pq.RowGroupMetaData) -> tuple[int, int | None]:
    """The smallest and largest time in a row group, by its statistics; `NO_TIME` and None if they are not known."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "ts":
            known = column.statistics if column.is_stats_set else None
            if known is None or not known.has_min_max or known.null_count:
                break
            first, last = (pa.scalar(edge, TIME).cast(pa.int64()).as_py() for edge in (known.min, known.max))
            return first, last
    return NO_TIME, None


def _chosen(rows: pa.Table, protocol: str | None, ids: pa.Array | None, by: str) -> pa.Table:
    if protocol is not None:
        rows = rows.filter(is_any_of(rows["protocol"], [protocol])).drop_columns(["protocol"])
    if ids is not None:
        rows = rows.filter(is_any_of(rows[by], ids))
    return rows


def is_any_of(column: pa.ChunkedArray, chosen: pa.Array | Collection[str]) -> pa.Array:
    """Which values of a column are chosen; asks each word of its dictionary once."""
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    chosen = chosen if isinstance(chosen, pa.Array) else pa.array(chosen)
    if not pa.types.is_dictionary(array.type):
        return pc.is_in(array, value_set=chosen)
    is_chosen = pc.is_in(array.dictionary, value_set=chosen)
    return is_chosen.take(array.indices).fill_null(False)


def _joined(held: Sequence[pa.Table]) -> pa.Table:
    return held[0] if len(held) == 1 else pa.concat_tables(held).unify_dictionaries()


def _times(rows: pa.Table) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = rows["ts"].cast(pa.int64()).fill_null(NO_TIME).to_numpy()
    return times
