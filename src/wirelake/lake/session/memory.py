"""Memory that was freed, but that allocators keep."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

__all__ = ["give_back_memory"]


def give_back_memory() -> None:
    """Give freed memory back to the system.

    NumPy and Arrow have allocators of their own: neither can use what the other keeps.
    """
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)
