"""Scanned rows to Arrow columns: byte slices, names for codes, integers that fit Spark.

The `columns.py` of every protocol is built from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.protocols.kernel import copy, is_plain, kernel, over_arrays

__all__ = [
    "UNLIMITED",
    "Array",
    "BodySerializers",
    "Columns",
    "binary",
    "decimal_texts",
    "decimals",
    "field",
    "hexes",
    "integers",
    "names",
    "nulls",
    "truths",
    "within",
]

Array = np.ndarray[Any, Any]


class Columns(msgspec.Struct):
    """Messages as columns: the result of a protocol's `columns`."""

    own: dict[str, pa.Array]
    """The columns of the protocol's SCHEMA."""
    shared: dict[str, pa.Array]
    """kind, name, subject, correlation_id, status, fault, body, body_json, verified."""
    sessions: pa.Array | None = None
    """The session of each message, 16 bytes, where it is not the connection; null where it is."""
    taken: int | None = None
    """How many of the first rows these are, if not all fit into the budget; at least one. None: all."""


class BodySerializers(msgspec.Struct, frozen=True):
    """Which serializer the body of each row is in: `names[codes[row]]`; code -1 is not known."""

    codes: Array
    names: tuple[str, ...]

    def where(self, chosen: Array | slice) -> BodySerializers:
        """The same of some of the rows."""
        return BodySerializers(self.codes[chosen], self.names)


UNLIMITED: Final = 1 << 62
"""A budget that nothing exceeds."""


def within(sizes: Array, budget: int) -> int:
    """How many of the first rows fit into half a budget, if each takes so many bytes; at least one."""
    return min(len(sizes), int(np.searchsorted(np.cumsum(sizes), budget // 2, side="right")) + 1)


def field(name: str, kind: pa.DataType, comment: str, *, nullable: bool = True) -> pa.Field:
    """A column with the sentence that documents it."""
    return pa.field(name, kind, nullable=nullable, metadata={"comment": comment})


@kernel
def _gather(data: Any, starts: Any, lengths: Any, out: Any) -> None:
    at = 0
    for row in range(len(starts)):
        start, length = starts[row], lengths[row]
        copy(out, at, data, start, length)
        at += length


def binary(data: Array, starts: Array, lengths: Array, valid: Array | None = None) -> pa.Array:
    """Slices of `data` as one binary column; where `valid` is false there is null."""
    if valid is not None and not valid.all():
        lengths = np.where(valid, lengths, 0)
    size = int(lengths.sum())
    is_small = size <= np.iinfo(np.int32).max
    offsets = np.zeros(len(starts) + 1, np.int32 if is_small else np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(size, np.uint8)
    over_arrays(_gather)(data, starts, lengths, out)
    kind = pa.binary() if is_small else pa.large_binary()
    return pa.Array.from_buffers(kind, len(starts), [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(out)])


_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), "S2")


def hexes(data: Array, starts: Array, width: int, valid: Array) -> pa.Array:
    """Identifiers of `width` bytes as a column of hex digits, as people compare them.

    Where `valid` is false there is null.
    """
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(np.where(valid, 2 * width, 0), out=offsets[1:])
    digits = _HEX[data[starts[valid][:, None] + np.arange(width)]] if valid.any() else np.zeros(0, "S2")
    return pa.Array.from_buffers(pa.string(), len(starts), [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes())])


def _bitmap(valid: Array | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _mask(valid: Array | None) -> Array | None:
    """The rows that are null; None if there are none."""
    return None if valid is None or valid.all() else ~valid


def integers(values: Array, kind: pa.DataType, valid: Array | None = None) -> pa.Array:
    """Numbers as a signed column one size up from the wire's."""
    if valid is not None and not valid.any():
        return nulls(kind, len(valid))
    typed = values.astype(kind.to_pandas_dtype(), order="C", copy=False)
    return pa.array(np.ascontiguousarray(typed), kind, mask=_mask(valid))


def truths(values: Array, valid: Array | None = None) -> pa.Array:
    """Numbers as a boolean column."""
    return pa.array(values != 0, pa.bool_(), mask=_mask(valid))


def decimals(values: Array, valid: Array | None = None) -> pa.Array:
    """64 unsigned bits held in int64, as the decimal(20, 0) that SQL can compare and print."""
    words = np.zeros((len(values), 2), np.int64)
    words[:, 0] = values
    return pa.Array.from_buffers(pa.decimal128(20, 0), len(values), [_bitmap(valid), pa.py_buffer(words)])


@kernel
def _write_digits(values: Any, valid: Any, offsets: Any, out: Any) -> None:
    """Write the decimal digits of 64 unsigned bits each, one after the other; those that are not valid have none."""
    at = 0
    for row in range(len(values)):
        if valid[row]:
            rest, size = values[row], 0
            if rest < 0:  # the highest bit is set: the last digit is taken off by hand
                half = (rest >> 1) & 0x7FFFFFFFFFFFFFFF
                out[at] = 48 + (half % 5) * 2 + (rest & 1)
                rest, size = half // 5, 1
            while rest or not size:
                out[at + size] = 48 + rest % 10
                rest //= 10
                size += 1
            for place in range(size // 2):
                last = at + size - 1 - place
                digit = out[at + place]
                out[at + place] = out[last]
                out[last] = digit
            at += size
        offsets[row + 1] = at


_MOST_DIGITS: Final = 20


def decimal_texts(values: Array, valid: Array) -> pa.Array:
    """64 unsigned bits held in int64, as a column of their decimal digits. Where `valid` is false there is null."""
    if is_plain() or len(values) > np.iinfo(np.int32).max // _MOST_DIGITS:
        return decimals(values, valid).cast(pa.string())
    offsets, out = np.zeros(len(values) + 1, np.int32), np.empty(_MOST_DIGITS * len(values), np.uint8)
    over_arrays(_write_digits)(np.ascontiguousarray(values), valid, offsets, out)
    text = pa.py_buffer(out[: offsets[-1]].copy())
    return pa.Array.from_buffers(pa.string(), len(values), [_bitmap(valid), pa.py_buffer(offsets), text])


_SPARSE: Final = 1024
"""Codes up to here are looked up in a table."""


def names(codes: Array, known: Mapping[int, str] | Sequence[str], valid: Array | None = None) -> pa.DictionaryArray:
    """Codes as a column of their names; a code without a name is null."""
    pairs = dict(enumerate(known)) if isinstance(known, Sequence) else dict(known)
    keys = np.array(sorted(pairs), np.int64)
    if not len(keys):
        return pa.array([None] * len(codes), pa.dictionary(pa.int32(), pa.string()))
    if keys[0] >= 0 and keys[-1] < _SPARSE:
        places = np.full(keys[-1] + 3, -1, np.int32)  # the first is for negative codes, the last for those that are too large
        places[keys + 1] = np.arange(len(keys))
        found = places.take(codes + 1, mode="clip")
        good = found >= 0
    else:
        found = np.clip(np.searchsorted(keys, codes), 0, len(keys) - 1).astype(np.int32)
        good = keys[found] == codes
    if valid is not None:
        good &= valid
    indices = pa.array(found, mask=_mask(good)) if good.any() else nulls(pa.int32(), len(codes))
    return pa.DictionaryArray.from_arrays(indices, pa.array([pairs[int(key)] for key in keys], pa.string()))


def nulls(kind: pa.DataType, count: int) -> pa.Array:
    """A column of nulls."""
    return pa.nulls(count, kind)
