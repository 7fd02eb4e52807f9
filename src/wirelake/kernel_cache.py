"""The folder where Numba keeps compiled kernels from one process to the next.

Numba's own cache has faults that matter here. It notices a change in the file of a function, but not in the functions and constants
that the function uses: after an upgrade, a kernel would go on with the scanner of the old version. So each kernel has a folder named by a
fingerprint of everything it uses. Path and time of its source file do not matter: a second checkout or a new virtual environment finds the
code of the first. Two processes that compile the same kernel at the same time do the work twice, and can swap their results. So one
process at a time compiles a kernel, and others that need it wait for the code. Code that cannot be loaded is compiled again.

The folder is `NUMBA_CACHE_DIR`, if set, else `wirelake/kernels` in the user's cache folder, which outlives an upgrade and works for a
package that is installed read-only. Where neither can be written, kernels are compiled in each process.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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
        _compile_alone(dispatcher, where / fingerprint)
    return dispatcher


def _name_by_fingerprint(dispatcher: Any, place: Path) -> None:
    """Let a dispatcher find code by its fingerprint alone; Numba's own name has the path, the line and the time of the source."""
    from numba.core import caching  # noqa: PLC0415 - as in jit

    index_file: Any = caching.IndexDataCacheFile  # it has no types
    cache = dispatcher._cache  # there are no public names
    cache._impl.locator._cache_path = str(place)
    name = f"{dispatcher.py_func.__name__}.{sys.implementation.cache_tag}"
    cache._cache_file = index_file(cache_path=str(place), filename_base=name, source_stamp=place.name)


def _compile_alone(dispatcher: Any, place: Path) -> None:
    """Let one process at a time compile a kernel: those that wait find its code.

    Numba also chooses the name of a file from an index that it read before: without a lock, two processes choose the same.
    """
    from numba.core.compiler_lock import global_compiler_lock  # noqa: PLC0415 - as in jit

    cache, has_lock = dispatcher._cache, False  # there is no public name
    compile_kernel, load, save = dispatcher.compile, cache.load_overload, cache.save_overload

    def compile_alone(signature: object) -> object:
        nonlocal has_lock
        with global_compiler_lock, ExitStack() as stack:  # of this process, one thread at a time
            if has_lock:  # a kernel that needs itself, for other types
                return compile_kernel(signature)
            with suppress(OSError):  # a full disk, or one that cannot be written, costs the cache, not the job
                stack.enter_context(locked(place))
                has_lock = True
            try:
                return compile_kernel(signature)
            finally:
                has_lock = False

    def load_overload(signature: object, target: object) -> object:
        try:
            return load(signature, target)
        except Exception:  # damaged, or it names a module that is gone: compiled again, and replaced
            if has_lock:
                with suppress(OSError):
                    cache.flush()
            return None

    def save_overload(signature: object, result: object) -> None:
        if has_lock:
            with suppress(OSError):
                save(signature, result)

    dispatcher.compile, cache.load_overload, cache.save_overload = compile_alone, load_overload, save_overload
