"""Sort the rows of a row group by protocol, session and time, before they are written.

Rows of a session then lie together: readers of one session decode few pages, dictionaries and differences are smaller, and the analysis
of sessions need not sort. Only the rows of one row group are sorted, which are in memory anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["LEAST_ROWS", "SMALL_ROWS", "is_worth_sorting", "order", "sort_columns"]

LEAST_ROWS: Final = 16
"""A row group is sorted if a session has at least so many rows in it, on average.

Measured on 2 cores, both tables of a message together: 0.25 µs of CPU for 8 long sessions. For 50,000 sessions of 4 messages it was 0.8 µs,
and the files grew by a tenth, because ids of sessions are in no order of time. Such rows stay in the order in which they were decoded.
"""
SMALL_ROWS: Final = 32_768
"""A row group with at most so many rows is sorted anyway: it costs a few milliseconds."""

Ints = npt.NDArray[np.int64]

_MOST: Final = 1 << 62
"""Keys below this fit into one number."""


def is_worth_sorting(rows: pa.Table) -> bool:
    """Whether the rows are few, or the sessions long."""
    if rows.num_rows <= SMALL_ROWS:
        return True
    sessions = rows["session_id"]
    sizes = len(sessions.chunk(0).dictionary) if pa.types.is_dictionary(sessions.type) else pc.count_distinct(sessions).as_py()
    return bool(rows.num_rows >= LEAST_ROWS * sizes)


def sort_columns(columns: list[pa.ChunkedArray], places: Ints) -> None:
    """Put the values of all columns into this order, in place: a column is released as soon as it was sorted."""
    indices = pa.array(places)
    for number in range(len(columns)):
        columns[number] = _taken(columns[number], indices)


def _taken(column: pa.ChunkedArray, indices: pa.Array) -> pa.ChunkedArray:
    """Return the values at these places; a column with one value is the same in any order."""
    if column.null_count == len(column):
        return column
    if not column.null_count and pa.types.is_dictionary(column.type) and len(column.chunk(0).dictionary) == 1:
        return column
    return column.take(indices)


def order(rows: pa.Table, by: Sequence[str]) -> Ints | None:
    """Return the places of the rows in sorted order; None if they are sorted already."""
    keys: list[Ints] = []
    for name in by:
        ranks = _ranks(rows[name])
        size = int(ranks.max(initial=0)) + 1
        if size == 1:
            continue
        if keys and (int(keys[-1].max()) + 1) * size < _MOST:
            keys[-1] = keys[-1] * size + ranks
        else:
            keys.append(ranks)
    if not keys:
        return None
    if len(keys) == 1:
        return None if bool((keys[0][1:] >= keys[0][:-1]).all()) else np.argsort(keys[0], kind="stable")
    return np.lexsort(keys[::-1])


def _ranks(column: pa.ChunkedArray) -> Ints:
    """Return numbers from 0 that compare as the values do; 0 is null."""
    array: Any = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    if pa.types.is_timestamp(array.type):
        return _since_first(array.cast(pa.int64()))
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    ranks = np.append(pc.rank(array.dictionary, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64), 0)
    if len(ranks) == 2 and not array.null_count:
        return np.zeros(len(array), np.int64)
    ranked: Ints = ranks[array.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return ranked


def _since_first(times: pa.Array) -> Ints:
    """Return the distance of each time from the first, plus one; 0 is null."""
    if times.null_count == len(times):
        return np.zeros(len(times), np.int64)
    first = pc.min(times).as_py() - 1
    since: Ints = times.fill_null(first).to_numpy(zero_copy_only=False) - first
    return since
