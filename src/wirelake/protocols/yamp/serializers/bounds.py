"""Bounds on the cost of parsing a body, checked before anything is built.

A parser makes an object of up to a hundred bytes for every item, and an item can take one byte. So a body is walked first, front to back
and without recursion. A walk is exact for well-formed bytes; the parser rejects others.

Keys of maps are hashed. Python's hash of text and bytes has a secret, that of numbers and tuples has none: a sender can choose keys that
all fall on one place of a dict, and each then takes as long as all before it together.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final, cast

import msgspec

from wirelake.protocols import kernel
from wirelake.protocols.kernel import Numbers, Octets
from wirelake.protocols.yamp.serializers.structure import DEEP, FINE, KEY, LEVEL, MANY, walk_bson, walk_cbor, walk_msgpack

__all__ = ["DEFAULT_BOUNDS", "Bounds", "TooMuch", "Walk", "check", "check_json", "compile_walks"]


class TooMuch(ValueError):
    """YAMP-44: a body that costs more to parse than its bounds allow."""


class Bounds(msgspec.Struct, frozen=True):
    """Bounds on the cost of parsing one body."""

    max_items: int = 1_000_000
    """Items of a body: numbers, strings, containers; each can take a hundred bytes of memory."""
    max_elements: int = 100_000
    """Elements and attributes of an XML body, which are slow to read; it may have four times as many tags and comments."""
    max_attributes: int = 1000
    """Attributes of one element of XML: its parser in C reads them without a pause."""
    max_depth: int = 256
    """Containers inside each other."""
    max_digits: int = 4300
    """Decimal digits of an integer in CBOR; converting it takes time quadratic in them."""
    max_integer_keys: int = 512
    """Integer keys of one map in MessagePack or CBOR; they can be chosen so that finding a place takes time quadratic in them."""


DEFAULT_BOUNDS: Final = Bounds()

Walk = Callable[[Octets, int, Numbers, tuple[int, int, int]], tuple[int, int, int]]
"""A kernel that walks a body: bytes, where they end, a table of levels, limits; returns items, the rule broken, and where."""


def check(walk: Walk, data: bytes, bounds: Bounds) -> tuple[int, int]:
    """The items of a body, and the offset where it ends; raises TooMuch if it goes beyond the bounds."""
    limits = (bounds.max_items, bounds.max_depth, bounds.max_integer_keys)
    deepest = min(bounds.max_depth, len(data))
    fast = kernel.active(walk) if (ready := kernel.ready.get(walk)) is None else cast(Walk, ready)
    if len(data) < kernel.compiled_from or fast is walk:
        count, fault, at = walk(data, len(data), [0] * (deepest * LEVEL), limits)
    else:
        count, fault, at = fast(kernel.array(data, compiled=True), len(data), kernel.table(deepest, LEVEL, compiled=True), limits)
    if fault == FINE:
        return count, at
    if fault == MANY:
        raise _too_many(bounds)
    if fault == DEEP:
        raise _too_deep(bounds)
    if fault == KEY:
        raise TooMuch(f"the key of a map at byte {at} is no text, bytes, boolean or integer of 64 bits: use one of these")
    raise TooMuch(f"over {bounds.max_integer_keys} integer keys in one map at byte {at} (max_integer_keys): use text")


def compile_walks() -> None:
    """Compile the walks of all formats, or load them from Numba's cache, for all peers of this process.

    This takes a second, so it is for a thread, or for before anything listens. It does nothing without Numba.
    """
    for walk in (walk_msgpack, walk_cbor, walk_bson):
        try:
            fast = kernel.compiled(walk)
        except ImportError:
            return
        fast(kernel.array(b"\0", compiled=True), 1, kernel.table(1, LEVEL, compiled=True), (1, 1, 1))
        kernel.ready[walk] = fast


def _too_many(bounds: Bounds) -> TooMuch:
    return TooMuch(f"over {bounds.max_items} items (max_items)")


def _too_deep(bounds: Bounds) -> TooMuch:
    return TooMuch(f"nested deeper than {bounds.max_depth} (max_depth)")


_PIECE: Final = 64 * 1024
"""Bytes of JSON looked at together: a thread that walks a large body lets others run in between."""
_STEP: Final = bytes(1 if byte in b"[{" else 255 if byte in b"]}" else 0 for byte in range(256))
"""What a byte of JSON adds to the depth, as a signed byte."""
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check_json(data: bytes, bounds: Bounds) -> int:
    """The items of JSON at most: one for each comma and opening bracket; raises TooMuch if it goes beyond the bounds.

    Strings are left out only if they may hold too many of these.
    """
    if len(data) <= bounds.max_depth:
        return len(data)
    opening = data.count(b"[") + data.count(b"{")
    most = opening + data.count(b",")
    if opening <= bounds.max_depth and most <= bounds.max_items:
        return most
    depth = items = 0
    for piece in _outside_strings(data):
        items += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if items > bounds.max_items:
            raise _too_many(bounds)
        levels = list(accumulate(array("b", piece.translate(_STEP, _NO_BRACKETS)), initial=depth))
        if max(levels) > bounds.max_depth:
            raise _too_deep(bounds)
        depth = levels[-1]
    return items


def _outside_strings(data: bytes) -> Iterator[bytes]:
    """JSON without its strings, in pieces: each piece loses its escapes, and then what is between quotes."""
    is_inside, rest = 0, b""
    for at in range(0, len(data), _PIECE):
        piece = rest + data[at : at + _PIECE]
        is_cut = (len(piece) - len(piece.rstrip(b"\\"))) % 2  # between a backslash and what it escapes
        piece, rest = piece[: len(piece) - is_cut], b"\\" * is_cut
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside = (is_inside + len(parts) - 1) % 2
