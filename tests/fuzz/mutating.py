"""Mutate bytes with a seeded random generator: the same seed makes the same mutant."""

from __future__ import annotations

import random
from collections.abc import Callable

LIMITS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""Numbers at the edges of their sizes."""
TAGS = (0, 12, 20, 21, 22, 23, 24, 25, 26, 31, 32, 99, 0x1234, 0xFFFF)
"""Tags of exported PDUs: the end, a name, addresses, ports, port types, and some that do not exist."""
TAG_OF_NAME = b"\x00\x0c\x00"
"""An exported PDU begins with the tag of a protocol's name."""


def cut_and_splice(dice: random.Random, data: bytearray, other: Callable[[], bytes]) -> bytearray:
    """One to five cuts, removals, flipped bits, splices of `other`, repetitions and odd words."""
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        at = dice.randrange(len(data))
        size = dice.choice([1, 4, 16, dice.randint(1, 300), dice.randint(1, 20_000)])
        match dice.randrange(6):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + size]
            case 2:
                for _ in range(dice.choice([1, 8, 64])):
                    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            case 3:
                source = other()
                start = dice.randrange(len(source) or 1)
                data[at:at] = source[start : start + size]
            case 4:
                data[at:at] = data[at : at + size] * dice.randint(1, 5)
            case _:
                data[at : at + 4] = dice.choice([b"\xff\xff\xff\xff", bytes(4), b"\x80\0\0\0", b"\0\0\0\x80", b"\x0a\x0d\x0d\x0a"])
        data = data or bytearray(1)
    return data


def change_number(dice: random.Random, data: bytearray) -> bytearray:
    """A number of 1 to 8 bytes, perhaps the length of something, becomes one more, one less, twice, or an edge."""
    size = dice.choice([1, 2, 2, 4, 4, 4, 8])
    order = dice.choice(["little", "big"])
    at = dice.randrange(max(1, len(data) - size))
    value = int.from_bytes(data[at : at + size], order)
    value = dice.choice([value + 1, value - 1, value * 2, value // 2, value ^ 0x80, len(data), len(data) - at, dice.choice(LIMITS)])
    data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, order)
    return data


def change_tag(dice: random.Random, data: bytearray) -> bytearray:
    """A tag of a recorded message gets another number, length or value; other data get another number."""
    places = [at for at in range(len(data)) if data.startswith(TAG_OF_NAME, at)] if len(data) < 200_000 else []
    if not places:
        return change_number(dice, data)
    at = dice.choice(places)
    for _ in range(dice.randrange(8)):  # to one of the tags that follow
        step = 4 + int.from_bytes(data[at + 2 : at + 4])
        if at + step + 4 > len(data) or not data[at : at + 2].strip(b"\0"):
            break
        at += step
    match dice.randrange(3):
        case 0:
            data[at : at + 2] = dice.choice(TAGS).to_bytes(2)
        case 1:
            length = int.from_bytes(data[at + 2 : at + 4])
            data[at + 2 : at + 4] = dice.choice([0, 1, length ^ 1, length ^ 4, length * 2 % 65536, 0xFFFF]).to_bytes(2)
        case _:
            data[at + 4 : at + 8] = dice.choice([bytes(4), b"\xff" * 4, b"\0\1\0\0", dice.randbytes(4)])
    return data


def overwrite(dice: random.Random, data: bytearray, other: Callable[[], bytes]) -> bytearray:
    """A stretch of `other` replaces as many bytes, so that all lengths around it stay true."""
    source = other() or b"\0"
    at, start = dice.randrange(len(data)), dice.randrange(len(source))
    piece = source[start : start + dice.choice([4, 16, 64, 512])][: len(data) - at]
    data[at : at + len(piece)] = piece
    return data


def mutate(dice: random.Random, seed: bytes, other: Callable[[], bytes]) -> bytes:
    """A mutant of a seed by any of these ways, sometimes by several."""
    data = bytearray(seed or b"\0")
    for _ in range(dice.choice([1, 1, 2, 4])):
        match dice.randrange(5):
            case 0:
                data = cut_and_splice(dice, data, other)
            case 1 | 2:
                data = change_number(dice, data)
            case 3:
                data = change_tag(dice, data)
            case _:
                data = overwrite(dice, data, other)
    return bytes(data)
