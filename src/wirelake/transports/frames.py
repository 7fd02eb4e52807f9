"""Fast path for WebSocket frames (RFC 6455, section 5.2): whole binary messages.

The library that knows all of the protocol takes several microseconds for each frame, more than a message of ours costs. So frames of
moderate size are read and written here, many at a time. Everything else is left to the library: `read` stops at the first byte it does not
take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["LARGEST", "MASK", "read", "size_of", "write"]

BINARY: Final = 0x82
"""The first byte of a whole binary message."""
MASKED: Final = 0x80
"""In the second byte: what follows is masked.

The rest of it is the size, or says that two more bytes are.
"""
TWO_BYTES: Final = 126
LARGEST: Final = 0xFFFF
"""Bytes of a message that two bytes of size can say."""
MASK: Final = 4
"""Bytes of a mask."""

ApplyMask = Callable[[bytes, bytes], bytes]


def write(message: bytes, mask: bytes, apply_mask: ApplyMask) -> bytes:
    """A message of at most LARGEST bytes as one frame; masked, if there is a mask."""
    size, flag = len(message), MASKED if mask else 0
    head = bytes((BINARY, flag | size)) if size < TWO_BYTES else bytes((BINARY, flag | TWO_BYTES)) + size.to_bytes(2)
    return head + mask + apply_mask(message, mask) if mask else head + message


def size_of(payload: int, masked: bool) -> int:
    """Return how many bytes the frame of a payload takes at least: a sender may write a size in more bytes than it needs."""
    return 2 + (0 if payload < TWO_BYTES else 2 if payload <= LARGEST else 8) + (MASK if masked else 0) + payload


def read(data: bytes, masked: bool, apply_mask: ApplyMask) -> tuple[list[bytes], int, bool]:
    """Messages at the beginning of `data`, and how many bytes they take.

    The last value is True if what is left is the beginning of one more such frame.
    """
    messages: list[bytes] = []
    at, stop, flag, extra = 0, len(data), MASKED if masked else 0, MASK if masked else 0
    while stop - at >= 2 and data[at] == BINARY and data[at + 1] & MASKED == flag:
        size, start = data[at + 1] & ~MASKED, at + 2
        if size > TWO_BYTES:
            return messages, at, False
        if size == TWO_BYTES:
            start += 2
            if stop < start:
                return messages, at, True
            size = int.from_bytes(data[at + 2 : start])
        start += extra
        end = start + size
        if stop < end:
            return messages, at, True
        messages.append(apply_mask(data[start:end], data[start - MASK : start]) if masked else data[start:end])
        at = end
    return messages, at, stop - at == 1 and data[at] == BINARY
