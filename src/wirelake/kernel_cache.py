"""The folder where Numba keeps compiled kernels from one process to the next.

Numba's own cache has two faults that matter here. It notices a change in the file of a function, but not in the functions and constants
that the function uses: after an upgrade, a kernel would go on with the scanner of the old version. So each kernel has a folder named by a
fingerprint of everything it uses. Path and time of its source file do not matter: a second checkout or a new virtual environment finds the
code of the first. And two processes that compile the same kernel for other types at the same time can swap their results.
So one process writes at a time.

The folder is `NUMBA_CACHE_DIR`, if set, else `wirelake/kernels` in the user's cache folder, which outlives an upgrade and works for a
package that is installed read-only. Where neither can be written, kernels are compiled in each process.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from wirelake.cache_folder import cache_folder

__all__ = ["OPTIONS", "VARIABLE", "folder", "jit", "locked"]

VARIABLE: Final = "NUMBA_CACHE_DIR"
"""The environment variable that names another folder; Numba's own."""
OPTIONS: Final[dict[str, Any]] = {"_nrt": False}
"""How Numba compiles kernels: without counting references to arrays.

Kernels never create arrays, so their callers keep all of them alive. Each count is an atomic instruction: without them a packet takes 40 %
less CPU to follow.
"""
_LOCK: Final = "lock"


def folder() -> Path | None:
    """Return the folder, created if there is none; None if it cannot be written."""
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return cache_folder("kernels")
    try:
        made = Path(chosen)
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:  # read-only
        return None
    return made if os.access(made, os.W_OK | os.X_OK) else None


@contextmanager
def locked(where: Path) -> Iterator[None]:
    """Hold the lock of a cache folder: other processes that want it wait."""
    with (where / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def jit(function: Callable[..., object], fingerprint: str) -> Callable[..., object]:
    """Return a function as Numba compiles it on its first call; code for this fingerprint is loaded instead.

    Returns the function itself if Numba is switched off.
    """
    import numba  # noqa: PLC0415 - half a second that a short command must not pay
    from numba.core.options import DefaultOptions  # noqa: PLC0415 - see above

    options = {name: value for name, value in OPTIONS.items() if name in vars(DefaultOptions)}  # another Numba may not know them
    njit: Any = numba.njit  # its types lack the options
    where = folder()
    if where is None:
        plain: Callable[..., object] = njit(**options)(function)
        return plain
    config: Any = numba.config  # its names are made when it is imported
    before, config.CACHE_DIR = config.CACHE_DIR, str(where / fingerprint)  # read once, when the dispatcher is made
    try:
        dispatcher: Callable[..., object] = njit(cache=True, **options)(function)
    except RuntimeError:  # Numba finds no folder that it can write
        uncached: Callable[..., object] = njit(**options)(function)
        return uncached
    finally:
        config.CACHE_DIR = before
    if dispatcher is not function:
        _name_by_fingerprint(dispatcher, where / fingerprint)
        _write_alone(dispatcher, where)
    return dispatcher


def _name_by_fingerprint(dispatcher: Any, place: Path) -> None:
    """Let a dispatcher find code by its fingerprint alone; Numba's own name has the path, the line and the time of the source."""
    from numba.core import caching  # noqa: PLC0415 - as in jit

    index_file: Any = caching.IndexDataCacheFile  # it has no types
    cache = dispatcher._cache  # there are no public names
    cache._impl.locator._cache_path = str(place)
    name = f"{dispatcher.py_func.__name__}.{sys.implementation.cache_tag}"
    cache._cache_file = index_file(cache_path=str(place), filename_base=name, source_stamp=place.name)


def _write_alone(dispatcher: Any, where: Path) -> None:
    """Let a dispatcher save compiled code only while it holds the lock.

    Numba chooses the name of a file from an index that it read before: without a lock, two processes choose the same.
    """
    cache = dispatcher._cache  # there is no public name
    save = cache.save_overload

    def save_overload(signature: object, result: object) -> None:
        with suppress(OSError), locked(where):  # a full disk costs the cache, not the job
            save(signature, result)

    cache.save_overload = save_overload
