"""Bounds on the cost of parsing a body, and a count of its items before anything is built.

A parser makes an object of up to a hundred bytes for every item, and an item can take one byte. So a body longer than the limit is
counted first, front to back and without recursion. A count is exact for well-formed bytes; the parser rejects others.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["DEFAULT_BOUNDS", "Bounds", "TooMuch", "check_json", "count_bson", "count_cbor", "count_json", "count_msgpack", "json_depth"]


class TooMuch(ValueError):
    """YAMP-44: a body that costs more to parse than its bounds allow."""


class Bounds(msgspec.Struct, frozen=True):
    """Bounds on the cost of parsing one body."""

    max_items: int = 1_000_000
    """Items of a body: numbers, strings, containers; each can take a hundred bytes of memory."""
    max_elements: int = 100_000
    """Elements of an XML body, which are slow to read."""
    max_depth: int = 256
    """Containers inside each other."""
    max_digits: int = 4300
    """Decimal digits of an integer in CBOR; converting it takes time quadratic in them."""

    def check(self, count: int) -> None:
        """Raise TooMuch if a body has more items than allowed."""
        if count > self.max_items:
            raise TooMuch(f"over {self.max_items} items (max_items)")


DEFAULT_BOUNDS: Final = Bounds()


def check_json(data: bytes, bounds: Bounds) -> None:
    """Raise TooMuch for JSON that is nested too deep, or has too many items."""
    if json_depth(data, bounds.max_depth) > bounds.max_depth:
        raise TooMuch(f"nested deeper than {bounds.max_depth} (max_depth)")
    bounds.check(count_json(data, bounds.max_items))


_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")


def count_json(data: bytes, most: int) -> int:
    """Items of JSON: one for each comma and opening bracket.

    Strings are looked at only if they may hold too many of these.
    """
    if len(data) <= most or _marks(data) <= most:
        return 0
    return _marks(_STRING.sub(b"", data))


def _marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def json_depth(data: bytes, most: int) -> int:
    """How deep JSON is nested, as far as it is more than `most`: with fewer opening brackets it cannot be."""
    if data.count(b"[") + data.count(b"{") <= most:
        return 0
    depth = deepest = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", data)):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


_FIXED: Final = {
    0xCA: 5,
    0xCB: 9,
    0xCC: 2,
    0xCD: 3,
    0xCE: 5,
    0xCF: 9,
    0xD0: 2,
    0xD1: 3,
    0xD2: 5,
    0xD3: 9,
    0xD4: 3,
    0xD5: 4,
    0xD6: 6,
    0xD7: 10,
    0xD8: 18,
    0xDC: 3,
    0xDD: 5,
    0xDE: 3,
    0xDF: 5,
}
"""MessagePack: first byte -> bytes to the next item, which may be inside."""
_SIZED: Final = {
    0xC4: (1, 2),
    0xC5: (2, 3),
    0xC6: (4, 5),
    0xC7: (1, 3),
    0xC8: (2, 4),
    0xC9: (4, 6),
    0xD9: (1, 2),
    0xDA: (2, 3),
    0xDB: (4, 5),
}
"""First byte -> bytes of the size, and bytes besides those the size counts."""


def count_msgpack(data: bytes, most: int) -> int:
    """Items of MessagePack, no further than `most` and one."""
    at = count = 0
    while at < len(data) and count <= most:
        count += 1
        first = data[at]
        if 0xA0 <= first < 0xC0:
            at += 1 + (first & 31)
        elif first in _SIZED:
            width, more = _SIZED[first]
            at += more + int.from_bytes(data[at + 1 : at + 1 + width])
        else:
            at += _FIXED.get(first, 1)
    return count


_LONGER: Final = {24: 1, 25: 2, 26: 4, 27: 8}
"""RFC 8949: additional information -> bytes of the argument."""


def count_cbor(data: bytes, most: int) -> int:
    """Items of CBOR, tags and ends of indefinite containers included, no further than `most` and one."""
    at = count = 0
    while at < len(data) and count <= most:
        count += 1
        kind, argument = data[at] >> 5, data[at] & 31
        width = _LONGER.get(argument, 0)
        at += 1 + width
        if kind in (2, 3) and argument != 31:
            at += int.from_bytes(data[at - width : at]) if width else argument
    return count


_BSON: Final = {0x01: 8, 0x07: 12, 0x08: 1, 0x09: 8, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x03: 4, 0x04: 4}
"""BSON: type -> bytes to the next element, which may be inside.

Types that are not here have a size, or nothing.
"""
_BSON_SIZED: Final = {0x02: 4, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}
"""Type -> bytes besides those the size counts."""


def count_bson(data: bytes, most: int) -> int:
    """Elements of BSON, no further than `most` and one."""
    at, count = 4, 0
    while at < len(data) and count <= most:
        kind = data[at]
        at += 1
        if not kind:
            continue
        count += 1
        at = data.find(0, at) + 1
        if not at:
            break
        if kind in _BSON_SIZED:
            at += _BSON_SIZED[kind] + int.from_bytes(data[at : at + 4], "little")
        elif kind == 0x0B:  # a regular expression: two texts
            at = data.find(0, data.find(0, at) + 1) + 1
            if not at:
                break
        else:
            at += _BSON.get(kind, 0)
    return count
