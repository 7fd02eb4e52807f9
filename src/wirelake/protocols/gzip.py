"""gzip (RFC 1952) with a limit on the inflated size."""

from __future__ import annotations

import zlib
from typing import Final

from wirelake.errors import DecodeError
from wirelake.protocols.faults import Faults

__all__ = ["deflate", "inflate", "inflated_at_most"]

FORMAT: Final = 31
"""zlib's number for the format of RFC 1952."""
WINDOW: Final = 512
"""Bytes that each member after the first is offered at first.

zlib copies its unused input, and members can be tiny and many.
"""


def deflate(data: bytes) -> bytes:
    """Compress data into one gzip member: the same bytes every time."""
    packer = zlib.compressobj(wbits=FORMAT)
    return packer.compress(data) + packer.flush()


MOST: Final = 1032
"""Bytes that one compressed byte can become."""


def inflated_at_most(size: int, limit: int) -> int:
    """How many bytes `inflate` makes at most of so many, whether it fails or not."""
    return min(MOST * size, limit + 1)


def inflate(data: bytes, limit: int, *, invalid: Faults, over_limit: Faults) -> bytes:
    """Undo gzip: one or more members, and nothing before, between or after them (EMP-37, WOLP-7).

    Raises DecodeError with the fault `invalid`, or `over_limit` if there are more than `limit` bytes inside. At most one byte over the
    limit is ever inflated. Offsets count from the start of `data`.
    """
    pieces, size, at, view = [], 0, 0, memoryview(data)
    while True:
        member, start, offer = zlib.decompressobj(FORMAT), at, WINDOW if at else len(data)
        while not member.eof:
            offered = view[at : at + offer]
            if not offered:
                raise DecodeError(invalid, len(data), "cut")
            try:
                piece = member.decompress(offered, limit - size + 1)
            except zlib.error as reason:
                raise DecodeError(invalid, start, str(reason)) from None
            size += len(piece)
            if size > limit:
                raise DecodeError(over_limit, start, f"over {limit} bytes")
            if piece:
                pieces.append(piece)
            at += len(offered) - len(member.unused_data)
            offer *= 2
        if at == len(data):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
