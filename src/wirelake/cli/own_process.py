"""Whether this process is one command, and not a program that calls `run` among other things.

A command of its own may change what a library does in the whole process.
"""

from __future__ import annotations

import gc
import sys
from importlib.machinery import ModuleSpec

__all__ = ["collect_rarely", "is_own", "mark", "without_pandas"]

_marked: list[bool] = []


def mark() -> None:
    """Say that this process is one command."""
    _marked.append(True)


def is_own() -> bool:
    """Whether this process is one command."""
    return bool(_marked)


class _NoPandas:
    """Finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002 - the interface
        """Raise ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("not needed here", name=name)
        return None


def without_pandas() -> None:
    """Let Arrow not load pandas, in a process that is one command.

    The first array asks whether there is pandas by importing it, which takes 0.3 s. Whatever needs pandas later still finds it.
    """
    if not is_own() or "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 - needs the lake extra

    hidden = _NoPandas()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


def collect_rarely() -> None:
    """Let Python look for cycles rarely, in a process that is one command: rows of messages have none."""
    if is_own():
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
