"""Stored state: base types and checks for state kept between two micro-batches, as msgpack.

State is read from a folder that others may write to, and holds no code. So every number is checked against its range when it is read,
and a damaged or forged state raises StateError. A state that passes may be wrong, but never leads outside its arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from wirelake.capture.blocks.block import OFFSET_MASK, SOURCE_SHIFT, Source, Span
from wirelake.errors import StateError

__all__ = [
    "LAST",
    "MAX_SOURCES",
    "Address",
    "Count",
    "End",
    "FilePosition",
    "Number",
    "Port",
    "Record",
    "check",
    "check_places",
    "check_spans",
    "decode",
    "encode",
]

Array = np.ndarray[Any, Any]
_Kind = TypeVar("_Kind")

MAX_SOURCES: Final = 1 << 15
"""Sources that a state may name: an offset has 15 bits for their number."""
LAST: Final = (1 << 63) - 1
"""The highest number of 64 bits."""

Number = Annotated[int, msgspec.Meta(ge=-LAST - 1, le=LAST)]
"""A value of an int64 array."""
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
"""Sums of a few of these stay in 64 bits."""
FilePosition = Annotated[int, msgspec.Meta(ge=0, le=LAST)]
"""An offset with the number of its source; see `block.place`."""
Port = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
Address = Annotated[bytes, msgspec.Meta(min_length=4, max_length=16)]
End = tuple[Address, Port]


class Record(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Base of stored structs: an array of exactly these fields, in order."""


_encoder = msgspec.msgpack.Encoder()


def encode(state: Record) -> bytes:
    """Encode a state."""
    return _encoder.encode(state)


def decode(content: bytes, kind: type[_Kind]) -> _Kind:
    """Decode a state of this type; raises StateError if the bytes are none."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError, OverflowError, RecursionError) as error:
        raise StateError(str(error)) from error


def check(is_valid: bool, reason: str) -> None:
    """Raise StateError with a reason unless the state is valid."""
    if not is_valid:
        raise StateError(reason)


def check_spans(sources: Sequence[Source], spans: Sequence[Span]) -> None:
    """Check that spans are in order, and each is in a source that exists."""
    check(len(sources) <= MAX_SOURCES, f"{len(sources)} sources are too many")
    check(all(0 <= source.size <= OFFSET_MASK for source in sources), "a source has a size that no file has")
    before = -1
    for span in spans:
        check(before < span.at and span.at >> SOURCE_SHIFT < len(sources), "spans are not in order")
        check(0 <= span.length <= OFFSET_MASK, "a span has a length that no file has")
        before = span.at


def check_places(sources: Sequence[Source], spans: Sequence[Span], places: Array, sizes: Array) -> None:
    """Check that offsets, each of so many bytes, lie in a span."""
    if not len(places):
        return
    check(bool((places >= 0).all() and (sizes >= 0).all()), "a place is negative")
    check(bool(((places & OFFSET_MASK) <= OFFSET_MASK - np.minimum(sizes, OFFSET_MASK)).all()), "a place is beyond the end of every file")
    check(bool((places >> SOURCE_SHIFT < len(sources)).all()), "a place is in a source that there is not")
    starts = np.array([span.at for span in spans], np.int64)
    number = np.searchsorted(starts, places, side="right") - 1
    check(bool((number >= 0).all()), "a place is in no span")
    check(bool((starts[number] >> SOURCE_SHIFT == places >> SOURCE_SHIFT).all()), "a place is in no span of its source")
