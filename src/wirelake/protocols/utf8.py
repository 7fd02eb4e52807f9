"""UTF-8 for scanners, and text cut to fit a field."""

from __future__ import annotations

from typing import Any, Final

from wirelake.protocols.kernel import kernel, u32

__all__ = ["fit", "is_ascii", "utf8"]

HIGH_BITS: Final = 0x80808080
"""The first bit of each of four bytes: none is set in ASCII."""


@kernel
def is_ascii(data: Any, start: int, stop: int) -> bool:
    """Whether a piece of text has nothing but ASCII in it.

    Eight bytes at a time, the last eight once more if need be.
    """
    if stop - start < 8:
        for at in range(start, stop):  # noqa: SIM110 - kernels have no generators
            if data[at] >= 0x80:
                return False
        return True
    at = start
    while at >= 0 and stop - at > 8:
        if (u32(data, at) | u32(data, at + 4)) & HIGH_BITS:
            return False
        at += 8
    return (u32(data, stop - 8) | u32(data, stop - 4)) & HIGH_BITS == 0


@kernel
def utf8(data: Any, start: int, stop: int, pending: int) -> tuple[int, int]:
    """Read a piece of text that follows what `pending` stands for.

    Gives what is pending then (-1: broken), and where.

    Pending is 0 between characters, else the bytes that are still to come, and the least and the greatest the next may be.
    """
    if pending < 0:
        return pending, start
    left, least, greatest = pending >> 16, (pending >> 8) & 0xFF, pending & 0xFF
    for at in range(start, stop):
        byte = 0 + data[at]
        if left:
            if byte < least or byte > greatest:
                return -1, at
            left, least, greatest = left - 1, 0x80, 0xBF
        elif byte >= 0x80:
            if byte < 0xC2 or byte > 0xF4:
                return -1, at
            least, greatest = 0x80, 0xBF
            left = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            if byte == 0xE0:
                least = 0xA0
            elif byte == 0xED:
                greatest = 0x9F
            elif byte == 0xF0:
                least = 0x90
            elif byte == 0xF4:
                greatest = 0x8F
    return (left << 16) | (least << 8) | greatest if left else 0, stop


def fit(text: str, most: int) -> bytes:
    """The text as UTF-8, cut at a character so that it takes at most so many bytes."""
    data = text.encode()
    return data if len(data) <= most else data[:most].decode(errors="ignore").encode()
