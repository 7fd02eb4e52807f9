"""Frames of one size with one head, read together: what a sender of bulk sends most often."""

from __future__ import annotations

from struct import iter_unpack
from typing import Final

__all__ = ["equal_frames"]

_OCTETS: Final = tuple(bytes((octet,)) for octet in range(256))


def equal_frames(data: bytes, start: int, stop: int, head: bytes, length: int, padding: int = 0) -> list[tuple[bytes, ...]]:
    """The parts of all whole frames in data[start:stop], if each is this head, `length` bytes, and zeros; else none.

    It compares columns of bytes, one for each place around the parts, instead of frames: 0.1 µs a frame of 128 bytes, not 0.3.
    """
    size = len(head) + length + padding
    count = (stop - start) // size
    end = start + count * size
    around = (*enumerate(head), *((place, 0) for place in range(len(head) + length, size)))
    if any(data[start + place : end : size] != _OCTETS[octet] * count for place, octet in around):
        return []
    return list(iter_unpack(f"{len(head)}x{length}s{padding}x", memoryview(data)[start:end]))
