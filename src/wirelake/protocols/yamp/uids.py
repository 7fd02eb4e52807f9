"""Uids: fresh ones for every user message, made of random bytes from outside. It refuses to know where randomness comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wirelake.protocols.yamp.scanner import UID_SIZE

__all__ = ["Draw", "Uids"]

Draw = Callable[[int], bytes]
"""Gives so many random bytes, as `os.urandom` does."""
POOL: Final = 256
"""Uids made of one draw."""
_VERSION: Final = bytes((byte & 0x0F) | 0x40 for byte in range(256))
_VARIANT: Final = bytes((byte & 0x3F) | 0x80 for byte in range(256))


class Uids:
    """YAMP-24: UUIDs of version 4."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._pool = b""
        self._at = 0

    def next(self) -> bytes:
        """The next uid."""
        at = self._at
        if at == len(self._pool):
            pool = bytearray(self._draw(POOL * UID_SIZE))
            pool[6::UID_SIZE] = pool[6::UID_SIZE].translate(_VERSION)
            pool[8::UID_SIZE] = pool[8::UID_SIZE].translate(_VARIANT)
            self._pool, at = bytes(pool), 0
        self._at = at + UID_SIZE
        return self._pool[at : at + UID_SIZE]
