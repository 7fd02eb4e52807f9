"""Group the rows of Arrow columns by several keys, in NumPy: order, numbers and sums of groups.

Null is a key like any other, and comes first, as in Spark's `groupBy` and `min`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Groups", "Integers", "codes", "group", "micros", "numbers", "ranks"]

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]
"""One number a row."""

_MOST: Final = 1 << 62
"""Combined keys stay below this, so that none overflows."""


def numbers(column: pa.ChunkedArray, null: int = 0) -> Integers:
    """Return an integer or boolean column as int64, with `null` for nulls."""
    result: Integers = column.cast(pa.int64()).fill_null(null).to_numpy()
    return result


def micros(column: pa.ChunkedArray, null: int = 0) -> Integers:
    """Return a column of times as microseconds since 1970."""
    return numbers(column.cast(pa.timestamp("us", "UTC")), null)


def codes(column: pa.ChunkedArray) -> tuple[Integers, pa.Array]:
    """Return a number for every value, and the distinct values by number, in no order; -1 for null."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # a column without chunks stays one
        encoded = encoded.combine_chunks()
    result: Integers = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return result, encoded.dictionary


def ranks(column: pa.ChunkedArray) -> Integers:
    """Return the rank of every value among the distinct ones; -1 for null.

    Text and bytes are compared byte by byte, as Spark compares them.
    """
    numbered, distinct = codes(column)
    order = pc.sort_indices(distinct).to_numpy()
    places = np.empty(len(order) + 1, np.int64)
    places[order] = np.arange(len(order))
    places[-1] = -1  # also the place of number -1
    result: Integers = places[numbered]
    return result


class Groups(NamedTuple):
    """Rows divided into groups. Groups are numbered from 0, in the order of their keys."""

    of_row: Integers
    """The group of each row."""
    first: Integers
    """A row of each group, to read its keys from."""

    def counts(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Integers:
        """Return how many of the chosen rows each group has."""
        return np.bincount(self.of_row[chosen], minlength=len(self.first)).astype(np.int64)

    def distinct_counts(self, values: Integers) -> Integers:
        """Return how many distinct values each group has; values below 0 do not count."""
        chosen = values >= 0
        size = 1 + int(values.max(initial=0))
        pairs = np.sort(self.of_row[chosen] * size + values[chosen])
        is_new = np.ones(len(pairs), np.bool_)
        is_new[1:] = pairs[1:] != pairs[:-1]
        return np.bincount(pairs[is_new] // size, minlength=len(self.first)).astype(np.int64)

    def totals(self, values: Integers) -> Integers:
        """Return the sum of each group, in integers: floats are exact up to 2**53 only."""
        result = np.zeros(len(self.first), np.int64)
        np.add.at(result, self.of_row, values)
        return result


def group(keys: Sequence[Integers]) -> Groups:
    """Group rows by keys, each given as `ranks`."""
    combined, size = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        more = 2 + int(key.max(initial=-1))
        if size * more >= _MOST:
            distinct, combined = np.unique(combined, return_inverse=True)
            size = len(distinct)
        combined = combined * more + key + 1
        size *= more
    _, first, of_row = np.unique(combined, return_index=True, return_inverse=True)
    return Groups(of_row.astype(np.int64, copy=False), first.astype(np.int64, copy=False))
