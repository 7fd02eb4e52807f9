"""Kernels that walk the items of MessagePack, CBOR and BSON before anything is built of them.

A walk goes front to back without recursion. It counts items, knows how deep it is, and looks at the keys of maps. A walk is exact for
well-formed bytes; where it meets others it stops, because the parser rejects them there.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.kernel import Numbers, Octets, kernel, u32_le

__all__ = ["DEEP", "FINE", "KEY", "LEVEL", "MANY", "NUMBERS", "walk_bson", "walk_cbor", "walk_msgpack"]

FINE: Final = 0
"""Nothing is wrong as far as a walk can see."""
MANY: Final = 1
"""More items than allowed."""
DEEP: Final = 2
"""Containers too deep inside each other."""
KEY: Final = 3
"""A key of a map that is no text, bytes, boolean or integer of 64 bits."""
NUMBERS: Final = 4
"""More integer keys in one map than allowed."""

LEVEL: Final = 4
"""Columns of the table of open containers: one row for each depth."""
_SIZE: Final = 0
"""Items in the container."""
_SEEN: Final = 1
"""Items of it that were read."""
_KIND: Final = 2
"""What it is: below."""
_INTEGERS: Final = 3
"""Integers among its keys."""

_ARRAY: Final = 0
_MAP: Final = 1
_SET: Final = 2
"""Its items are hashed, as keys are."""

_OTHER: Final = 0
_SAFE: Final = 1
_INTEGER: Final = 2


@kernel
def _number(data: Octets, at: int, width: int) -> int:
    """Bytes as a number, big-endian; at most 2**62, which is beyond every body."""
    value = 0
    for place in range(at, at + width):
        if value >= 1 << 54:
            return 1 << 62
        value = (value << 8) | (0 + data[place])
    return value


@kernel
def walk_msgpack(data: Octets, stop: int, levels: Numbers, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    """Walk one item of MessagePack: the items in it, the rule broken or FINE, and the offset where the walk ended.

    The innermost container is in variables, those around it are in `levels`.
    """
    most, deepest, most_integers = limits
    at, count, depth = 0, 0, 0
    size, seen, kind, integers = 1, 0, _ARRAY, 0
    while at < stop:
        count += 1
        if count > most:
            return count, MANY, at
        first = 0 + data[at]
        here, at = at, at + 1
        key, inner, inner_size = _OTHER, _ARRAY, -1
        if first < 0x80 or first >= 0xE0:
            key = _INTEGER
        elif first >= 0xA0 and first < 0xC0:
            key = _SAFE
            at += first & 31
        elif first < 0x90:
            inner, inner_size = _MAP, 2 * (first & 15)
        elif first < 0xA0:
            inner_size = first & 15
        elif first == 0xC2 or first == 0xC3:
            key = _SAFE
        elif first >= 0xCC and first <= 0xD3:
            key = _INTEGER
            at += 1 << (first & 3)
        elif first == 0xCA or first == 0xCB:
            at += 4 if first == 0xCA else 8
        elif first >= 0xD4 and first <= 0xD8:
            at += 1 + (1 << (first - 0xD4))
        elif first >= 0xC4:  # a size follows
            width = 1 << (first - 0xD9) if first >= 0xD9 else 1 << ((first - 0xC4) % 3)
            if first >= 0xDC:
                width = 2 if first % 2 == 0 else 4
            if stop - at < width:
                break
            length = _number(data, at, width)
            at += width
            if first >= 0xDE:
                inner, inner_size = _MAP, 2 * length
            elif first >= 0xDC:
                inner_size = length
            elif first >= 0xC7 and first <= 0xC9:
                at += length + 1
            else:
                key = _SAFE
                at += length
        if kind == _MAP and seen % 2 == 0 and key != _SAFE:
            if key == _OTHER:
                return count, KEY, here
            integers += 1
            if integers > most_integers:
                return count, NUMBERS, here
        seen += 1
        if inner_size >= 0:
            if depth >= deepest:
                return count, DEEP, here
            row = depth * LEVEL
            levels[row + _SIZE] = size
            levels[row + _SEEN] = seen
            levels[row + _KIND] = kind
            levels[row + _INTEGERS] = integers
            depth += 1
            size, seen, kind, integers = inner_size, 0, inner, 0
        while seen == size and depth > 0:
            depth -= 1
            row = depth * LEVEL
            size, seen, kind, integers = levels[row + _SIZE], levels[row + _SEEN], levels[row + _KIND], levels[row + _INTEGERS]
        if seen == size:
            break
    return count, FINE, at


_TAG_SET: Final = 258


@kernel
def walk_cbor(data: Octets, stop: int, levels: Numbers, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    """Walk one item of CBOR: the items in it with tags and marks of an end, the rule broken or FINE, and where the walk ended.

    As in `walk_msgpack`. The size of a container is -1 if a mark ends it.
    """
    most, deepest, most_integers = limits
    at, count, depth = 0, 0, 0
    size, seen, kind, integers = 1, 0, _ARRAY, 0
    in_pieces, is_set = False, False
    while at < stop:
        count += 1
        if count > most:
            return count, MANY, at
        first = 0 + data[at]
        here, at = at, at + 1
        major, value, width = first >> 5, first & 31, 0
        is_open = value == 31
        if value >= 24 and not is_open:
            if value > 27:
                break
            width = 1 << (value - 24)
            if stop - at < width:
                break
            value = _number(data, at, width)
            at += width
        inner, inner_size = _ARRAY, -2
        if in_pieces:  # text or bytes in pieces, up to a mark
            if first != 0xFF:
                at += value
                continue
            in_pieces = False
        elif first == 0xFF:  # the end of an array or a map
            if size >= 0:
                break
            size = seen
        else:
            key = _OTHER
            if major <= 1:
                key = _INTEGER
            elif major <= 3 or first == 0xF4 or first == 0xF5:
                key = _SAFE
            if key != _SAFE and (kind == _SET or (kind == _MAP and seen % 2 == 0)):
                if key == _OTHER:
                    return count, KEY, here
                integers += 1
                if integers > most_integers:
                    return count, NUMBERS, here
            if major == 6:
                is_set = is_set or value == _TAG_SET
                continue
            seen += 1
            if major == 2 or major == 3:
                if is_open:
                    in_pieces = True
                    continue
                at += value
            elif major == 4:
                inner = _SET if is_set else _ARRAY
                inner_size = -1 if is_open else value
            elif major == 5:
                inner = _MAP
                inner_size = -1 if is_open else 2 * value
            is_set = False
        if inner_size >= -1:
            if depth >= deepest:
                return count, DEEP, here
            row = depth * LEVEL
            levels[row + _SIZE] = size
            levels[row + _SEEN] = seen
            levels[row + _KIND] = kind
            levels[row + _INTEGERS] = integers
            depth += 1
            size, seen, kind, integers = inner_size, 0, inner, 0
        while seen == size and depth > 0:
            depth -= 1
            row = depth * LEVEL
            size, seen, kind, integers = levels[row + _SIZE], levels[row + _SEEN], levels[row + _KIND], levels[row + _INTEGERS]
        if seen == size:
            break
    return count, FINE, at


@kernel
def _zero(data: Octets, at: int, stop: int) -> int:
    """The offset after the next zero."""
    while at < stop and data[at] != 0:
        at += 1
    return at + 1


@kernel
def walk_bson(data: Octets, stop: int, levels: Numbers, limits: tuple[int, int, int]) -> tuple[int, int, int]:  # noqa: ARG001 - as the others
    """Walk one document of BSON, whose keys are all text: its elements, the rule broken or FINE, and where the walk ended."""
    most, deepest, _ = limits
    at, count, depth = 4, 0, 1
    while at < stop and depth > 0:
        kind = 0 + data[at]
        here, at = at, at + 1
        if kind == 0:
            depth -= 1
            continue
        count += 1
        if count > most:
            return count, MANY, here
        at = _zero(data, at, stop)
        if kind == 0x0F:  # code with a scope: two sizes, a text, and a document
            at += 4
            if stop - at < 4:
                break
            at += 4 + u32_le(data, at)
        if kind == 0x03 or kind == 0x04 or kind == 0x0F:
            if depth >= deepest:
                return count, DEEP, here
            depth += 1
            at += 4
        elif kind == 0x02 or kind == 0x0D or kind == 0x0E or kind == 0x05 or kind == 0x0C:
            if stop - at < 4:
                break
            at += 4 + u32_le(data, at)
            if kind == 0x05:
                at += 1
            elif kind == 0x0C:
                at += 12
        elif kind == 0x0B:  # a regular expression: two texts
            at = _zero(data, _zero(data, at, stop), stop)
        elif kind == 0x01 or kind == 0x09 or kind == 0x11 or kind == 0x12:
            at += 8
        elif kind == 0x07:
            at += 12
        elif kind == 0x10:
            at += 4
        elif kind == 0x08:
            at += 1
        elif kind == 0x13:
            at += 16
    return count, FINE, at
