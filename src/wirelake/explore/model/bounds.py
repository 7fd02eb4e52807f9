"""Bounds: copy an answer, with all that is nested in it, up to a size. What is left out is noted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from wirelake.explore.model.rows import plain

__all__ = ["DEFAULT_BOUNDS", "Bounds", "Copy", "scalars"]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The largest answer."""

    characters: int = 400_000
    """Characters of a whole answer, as JSON, about."""
    value_characters: int = 10_000
    """Characters of one text; bytes have two each."""
    items: int = 1_000
    """Items of one list, or fields of one object."""
    notes: int = 20
    """Places that are named where something was left out."""


DEFAULT_BOUNDS: Final = Bounds()


def scalars(batches: pa.RecordBatchReader) -> Iterator[list[pa.Scalar]]:
    """Give the rows of an answer, whose values are not converted yet."""
    for batch in batches:
        for index in range(batch.num_rows):
            yield [column[index] for column in batch.columns]


class Copy:
    """Copies values of Arrow and of Python to what JSON has, until the bounds are reached."""

    def __init__(self, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.notes: list[str] = []
        """What was left out, and where."""
        self._bounds = bounds
        self._left = bounds.characters

    def of(self, value: Any, place: str = "") -> Any:
        """Copy a value; `place` is its path in the answer."""
        if isinstance(value, pa.Scalar):
            return self._scalar(value, place)
        if isinstance(value, str):
            return self._text(len(value), "characters", lambda most: value[:most], place)
        if isinstance(value, bytes):
            return self._bytes(memoryview(value), place)
        if isinstance(value, dict):
            return dict(self._taken(value.items(), len(value), "fields", place, self._field))
        if isinstance(value, list | tuple):
            return list(self._taken(enumerate(value), len(value), "items", place, self._item))
        value = plain(value)
        self._left -= len(str(value)) + 2
        return value

    def _scalar(self, value: pa.Scalar, place: str) -> Any:
        if not value.is_valid:
            return self.of(None, place)
        if isinstance(value, pa.StructScalar):
            fields = ((name, value[index]) for index, name in enumerate(value.type.names))
            return dict(self._taken(fields, value.type.num_fields, "fields", place, self._field))
        if isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):  # a map is a list of its entries, too
            return list(self._taken(enumerate(value.values), len(value.values), "items", place, self._item))
        if isinstance(value, pa.StringScalar | pa.LargeStringScalar):
            octets = value.as_buffer()
            if octets.size <= self._bounds.value_characters:
                return self.of(value.as_py(), place)
            # The rest is not even decoded.
            return self._text(octets.size, "bytes", lambda most: bytes(octets[: 4 * most]).decode(errors="ignore")[:most], place)
        if isinstance(value, pa.BinaryScalar | pa.LargeBinaryScalar):
            return self._bytes(memoryview(value.as_buffer()), place)
        return self.of(value.as_py(), place)

    def _text(self, size: int, unit: str, beginning: Callable[[int], str], place: str) -> str:
        most = max(0, min(size, self._bounds.value_characters, self._left))
        if most < size:
            self._note(place, most, size, unit)
        self._left -= most + 4
        return beginning(most)

    def _bytes(self, octets: memoryview, place: str) -> str:
        most = max(0, min(2 * len(octets), self._bounds.value_characters, self._left)) // 2
        if most < len(octets):
            self._note(place, most, len(octets), "bytes")
        self._left -= 2 * most + 4
        return octets[:most].hex()

    def _field(self, name: Any, value: Any, place: str) -> tuple[str, Any]:
        name = self.of(str(name), place)
        return name, self.of(value, f"{place}.{name}" if place else name)

    def _item(self, index: Any, value: Any, place: str) -> Any:
        return self.of(value, f"{place}[{index}]")

    def _taken(self, parts: Any, size: int, unit: str, place: str, copy: Callable[[Any, Any, str], Any]) -> Iterator[Any]:
        self._left -= 2
        for count, (name, value) in enumerate(parts):
            if count >= self._bounds.items or self._left <= 0:
                self._note(place, count, size, unit)
                return
            yield copy(name, value, place)

    def _note(self, place: str, count: int, size: int, unit: str) -> None:
        if len(self.notes) < self._bounds.notes:
            self.notes.append(f"{place or 'the answer'} has {size:,} {unit}, {count:,} of them are here")
