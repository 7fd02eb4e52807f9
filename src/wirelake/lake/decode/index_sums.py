"""Sums by key, and numbers for keys, as the index needs them: over columns, without Python for each row.

Where all columns are numbers, NumPy sorts and adds. Where keys are texts, Arrow groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["BUFFER_ROWS", "EMPTY", "Columns", "FlowIds", "Ids", "NumberSums", "Sums", "encoded", "first_rows", "integers"]

IntArray = npt.NDArray[np.int64]
Columns = Mapping[str, pa.Array | IntArray]
"""Columns of rows that are added up."""

BUFFER_ROWS: Final = 65_536
"""Rows that are summed up together: a decoder may give them one by one."""


class Ids:
    """Numbers for values: 0 is null, others count from 1."""

    def __init__(self) -> None:
        self._ids: dict[object, int] = {None: 0}

    def __getitem__(self, value: object) -> int:
        """Return the number of a value."""
        return self._ids.setdefault(value, len(self._ids))

    def codes(self, column: pa.ChunkedArray) -> IntArray:
        """Return the number of each value of a column."""
        values = encoded(column)
        ids = np.fromiter((self[value] for value in values.dictionary.to_pylist()), np.int64, len(values.dictionary))
        places: IntArray = values.indices.fill_null(len(ids)).to_numpy(zero_copy_only=False)
        return np.append(ids, 0)[places]

    def values(self, ids: IntArray, kind: pa.DataType) -> pa.Array:
        """Return the values of these numbers."""
        return pa.array(list(self._ids), kind).take(pa.array(ids))


class FlowIds:
    """Numbers for session and connection ids, of which there may be many: 0 is null, others count from 1.

    An id may have several numbers until `settle` gives it one. Nothing is Python for each id.
    """

    def __init__(self) -> None:
        self._values = [pa.array([None], pa.binary())]
        self._settled = self._count = 1

    @property
    def is_untidy(self) -> bool:
        """Whether so many numbers were given since `settle` that they take more memory than ids may need."""
        return self._count > 2 * self._settled + BUFFER_ROWS

    def codes(self, column: pa.ChunkedArray) -> IntArray:
        """Return a number for each value of a column."""
        # Chunks have dictionaries of their own: `settle` compares their ids, once.
        chunks = column.chunks if pa.types.is_dictionary(column.type) else [encoded(column)]
        return np.concatenate([np.zeros(0, np.int64), *(self._codes(values) for values in chunks)])

    def _codes(self, values: pa.DictionaryArray) -> IntArray:
        base, known = self._count, values.dictionary.cast(pa.binary())
        self._values.append(known)
        self._count += len(known)
        places: IntArray = values.indices.cast(pa.int64()).fill_null(-base).to_numpy(zero_copy_only=False)
        return places + base

    def settle(self) -> IntArray:
        """Give each id one number; returns the new number of each old one."""
        values = encoded(pa.chunked_array(self._values[1:], pa.binary()))
        self._values = [self._values[0], values.dictionary]
        self._settled = self._count = 1 + len(values.dictionary)
        places: IntArray = values.indices.to_numpy(zero_copy_only=False)
        return np.concatenate(([0], places + 1))

    def values(self, ids: IntArray) -> pa.Array:
        """Return the values of these numbers."""
        return pa.chunked_array(self._values).combine_chunks().take(pa.array(ids))


def encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    if not len(column):  # it has no chunks to combine
        return pa.array([], column.type if pa.types.is_dictionary(column.type) else pa.dictionary(pa.int32(), column.type))
    if not pa.types.is_dictionary(column.type):  # encoded as one: chunks would each get the whole dictionary, to be compared again
        return column.combine_chunks().dictionary_encode()
    return column.chunk(0) if column.num_chunks == 1 else column.unify_dictionaries().combine_chunks()


class Sums:
    """A table of sums by key; rows are added to it in any number."""

    def __init__(self, keys: Sequence[str], sums: Mapping[str, str]) -> None:
        """`sums` has, by column, what becomes of it: `sum`, `min` or `max`."""
        self._keys, self._sums = list(keys), dict(sums)
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._most = BUFFER_ROWS

    def add(self, columns: Columns) -> None:
        """Add rows."""
        part = pa.table(dict(columns))
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > self._most:
            self.total()
            self._most = max(BUFFER_ROWS, 2 * self._rows)

    def total(self) -> pa.Table | None:
        """Return one row for each key; None if there was no row."""
        if not self._rows:
            return None
        rows = pa.concat_tables(self._parts)
        summed = rows.group_by(self._keys, use_threads=False).aggregate(list(self._sums.items()))
        summed = summed.select([*self._keys, *(f"{name}_{how}" for name, how in self._sums.items())])
        self._parts = [summed.rename_columns([*self._keys, *self._sums])]
        self._rows = summed.num_rows
        return self._parts[0]


EMPTY: Final = {"sum": 0, "min": np.iinfo(np.int64).max, "max": np.iinfo(np.int64).min}
"""In place of null, where numbers are added up so."""


class NumberSums:
    """A table of sums by key, as `Sums`, where all columns are numbers."""

    def __init__(self, keys: Sequence[str], sums: Mapping[str, str]) -> None:
        self._keys, self._sums = list(keys), dict(sums)
        self._parts: list[dict[str, IntArray]] = []
        self._rows = 0
        self._most = BUFFER_ROWS

    @property
    def is_full(self) -> bool:
        """Whether so many rows were added that `total` should sum them up."""
        return self._rows > self._most

    def add(self, columns: Columns) -> None:
        """Add rows. Neighbours with the same key are summed up at once: rows of a session, or of a minute, most often come together."""
        part = {name: integers(values, self._sums.get(name, "sum")) for name, values in columns.items()}
        firsts = _changes([part[name] for name in self._keys])
        if 2 * len(firsts) <= len(part[self._keys[0]]):
            part = self._summed(part, firsts)
        self._parts.append(part)
        self._rows += len(part[self._keys[0]])

    def renumber(self, key: str, new: Callable[[IntArray], IntArray]) -> None:
        """Change the values of a key; different ones may become the same."""
        for part in self._parts:
            part[key] = new(part[key])

    def total(self) -> pa.Table | None:
        """Return one row for each key; None if there was no row."""
        if not self._rows:
            return None
        rows = {name: np.concatenate([part[name] for part in self._parts]) for name in (*self._keys, *self._sums)}
        order = np.lexsort([rows[name] for name in reversed(self._keys)])
        rows = {name: values[order] for name, values in rows.items()}
        firsts = _changes([rows[name] for name in self._keys])
        summed = self._summed(rows, firsts)
        self._parts, self._rows = [summed], len(firsts)
        self._most = max(BUFFER_ROWS, 2 * self._rows)
        masks = {name: values == EMPTY[self._sums[name]] for name, values in summed.items() if self._sums.get(name, "sum") != "sum"}
        return pa.table({name: pa.array(values, mask=masks.get(name)) for name, values in summed.items()})

    def _summed(self, rows: Mapping[str, IntArray], firsts: IntArray) -> dict[str, IntArray]:
        """Sum up rows that have the same keys as those before, but for these first ones."""
        if len(firsts) == len(rows[self._keys[0]]):
            return dict(rows)
        by = {"sum": np.add, "min": np.minimum, "max": np.maximum}
        keys = {name: rows[name][firsts] for name in self._keys}
        return keys | {name: by[how].reduceat(rows[name], firsts) for name, how in self._sums.items()}


def _changes(keys: Sequence[IntArray]) -> IntArray:
    """Return the rows that have another key than the row before."""
    is_first = np.ones(len(keys[0]), np.bool_)
    is_first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.flatnonzero(is_first)


def integers(values: pa.Array | pa.ChunkedArray | IntArray, how: str) -> IntArray:
    """A column as numbers; null becomes the number that changes no sum."""
    if isinstance(values, np.ndarray):
        return values
    numbers = values.cast(pa.int64())
    if numbers.null_count:
        numbers = numbers.fill_null(EMPTY[how])
    made: IntArray = numbers.to_numpy() if isinstance(numbers, pa.ChunkedArray) else numbers.to_numpy(zero_copy_only=False)
    return made


def first_rows(rows: pa.Table, keys: list[str], order: list[str]) -> pa.Table:
    """Return the first row of each key in this order, nulls first."""
    by = pa.table([rows[key] for key in keys], keys)
    for place, name in enumerate(order):
        by = by.append_column(f"is valid {place}", pc.is_valid(rows[name])).append_column(f"value {place}", rows[name])
    rows = rows.take(pc.sort_indices(by, [(name, "ascending") for name in by.column_names]))
    numbered = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    return rows.take(numbered.group_by(keys, use_threads=False).aggregate([("row", "min")])["row_min"])
