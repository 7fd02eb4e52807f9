"""Tables of integers in few bytes, for Spark's shuffle.

Every column is stored as differences from its smallest value (frame of reference), in as many bytes as the largest difference needs. A
column of equal values takes no bytes. A packet takes about 40 bytes instead of 128.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from wirelake.protocols.kernel import active, kernel

__all__ = ["pack_integers", "pack_rows", "unpack_integers", "unpack_rows"]

Array = np.ndarray[Any, Any]

_LEAST, _WIDTH = 0, 1
"""Columns of a head: the smallest value of a column, and the bytes of a difference."""
_LONG: Final = 8
"""Bytes of an integer."""
_FAR: Final = 1 << 61
"""Beyond this, a difference might not fit into 63 bits: then values are stored as they are."""


@kernel
def measure(table: Any, heads: Any) -> None:
    """Write the smallest value of each column, and the bytes that differences from it need. Meanwhile these are the largest."""
    for column in range(table.shape[1]):
        heads[column, _LEAST] = table[0, column]
        heads[column, _WIDTH] = table[0, column]
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            value = table[row, column]
            if value < heads[column, _LEAST]:
                heads[column, _LEAST] = value
            if value > heads[column, _WIDTH]:
                heads[column, _WIDTH] = value
    for column in range(table.shape[1]):
        if heads[column, _LEAST] < -_FAR or heads[column, _WIDTH] > _FAR:
            heads[column, _LEAST], heads[column, _WIDTH] = 0, _LONG
        else:
            rest, width = heads[column, _WIDTH] - heads[column, _LEAST], 0
            while rest:
                rest >>= 8
                width += 1
            heads[column, _WIDTH] = width


@kernel
def pack_rows(table: Any, heads: Any, out: Any) -> None:
    """Write the differences of every row, the lowest byte of each first."""
    at = 0
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            rest = table[row, column] - heads[column, _LEAST]
            for _ in range(heads[column, _WIDTH]):
                out[at] = rest & 0xFF
                rest >>= 8
                at += 1


@kernel
def unpack_rows(data: Any, heads: Any, table: Any) -> None:
    """Write the values that `pack_rows` packed."""
    at = 0
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            rest = 0
            for place in range(heads[column, _WIDTH]):
                rest |= int(data[at]) << (8 * place)
                at += 1
            table[row, column] = rest + heads[column, _LEAST]


def pack_integers(table: Array) -> memoryview:
    """Return the number of rows, a head for each column, and the differences of each row."""
    rows, columns = table.shape
    heads = np.zeros((columns, 2), np.int64)
    is_plain = active(pack_rows) is pack_rows
    if rows and is_plain:
        _measure_plain(table, heads)
    elif rows:
        active(measure)(table, heads)
    begin = _LONG * (1 + heads.size)
    out = np.empty(begin + rows * int(heads[:, _WIDTH].sum()), np.uint8)
    out[:begin].view(np.int64)[0] = rows
    out[_LONG:begin].view(np.int64)[:] = heads.reshape(-1)
    if is_plain:
        _pack_plain(table, heads, out[begin:])
    else:
        active(pack_rows)(table, heads, out[begin:])
    return out.data


def unpack_integers(data: Any, columns: int) -> Array:
    """Return the table with so many columns that was packed."""
    octets = np.frombuffer(data, np.uint8)
    begin = _LONG * (1 + 2 * columns)
    numbers = octets[:begin].view(np.int64)
    heads, table = numbers[1:].reshape(columns, 2), np.empty((int(numbers[0]), columns), np.int64)
    if active(unpack_rows) is unpack_rows:
        _unpack_plain(octets[begin:], heads, table)
    else:
        active(unpack_rows)(octets[begin:], heads, table)
    return table


def _measure_plain(table: Array, heads: Array) -> None:
    """As `measure`, without a kernel."""
    for column, (least, most) in enumerate(zip(table.min(axis=0).tolist(), table.max(axis=0).tolist(), strict=True)):
        is_far = least < -_FAR or most > _FAR
        heads[column] = (0, _LONG) if is_far else (least, ((most - least).bit_length() + 7) // 8)


def _pack_plain(table: Array, heads: Array, out: Array) -> None:
    """As `pack_rows`, without a kernel."""
    rest = np.ascontiguousarray(table - heads[:, _LEAST]).view(np.uint8).reshape(*table.shape, _LONG)
    out[:] = rest[:, np.arange(_LONG) < heads[:, _WIDTH, None]].reshape(-1)


def _unpack_plain(data: Array, heads: Array, table: Array) -> None:
    """As `unpack_rows`, without a kernel."""
    rest = np.zeros((*table.shape, _LONG), np.uint8)
    rest[:, np.arange(_LONG) < heads[:, _WIDTH, None]] = data.reshape(len(table), int(heads[:, _WIDTH].sum()))
    table[:] = rest.view(np.int64)[:, :, 0] + heads[:, _LEAST]
