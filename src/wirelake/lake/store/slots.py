"""Hash slots: every key of a gold table falls into one of them, and files have ranges of them."""

from __future__ import annotations

import zlib
from typing import Final

__all__ = ["SLOTS", "slot"]

SLOTS: Final = 1024
"""Number of hash slots of keys."""


def slot(key: bytes) -> int:
    """Return the hash slot of a key: the same as `pmod(crc32(key), 1024)` in Spark."""
    return zlib.crc32(key) % SLOTS
