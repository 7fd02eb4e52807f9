"""Memory of Python workers: one allocator for NumPy and Arrow, what allocators keep, and what the garbage collector looks at."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

import pyarrow as pa
from pyspark import TaskContext

__all__ = ["freeze_before_task", "give_back_memory", "use_one_allocator"]


def use_one_allocator() -> None:
    """Let Arrow allocate from the C library, as NumPy does: each can use what the other freed.

    So freed memory need not go back to the system in between, which clears every page before it is used again. That took 0.3 to 0.5 µs of
    CPU a packet.
    """
    pa.set_memory_pool(pa.system_memory_pool())


def give_back_memory() -> None:
    """Give freed memory back to the system."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def freeze_before_task() -> None:
    """In a task, before it has made anything: let the garbage collector pass over all that is there.

    Spark orders a full collection after every task. In a worker with modules, kernels and schemas it takes a tenth of a second each time,
    as long as decoding a hundred thousand packets. These stay as long as the worker: a collection would find nothing.
    """
    if TaskContext.get() is not None:
        gc.freeze()
