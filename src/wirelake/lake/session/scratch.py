"""A folder for what a Spark session needs for a while: it goes away with its process, or, if that was killed, when a later one starts.

What Spark has sorted halfway can be gigabytes. A lock tells who still lives; a virtual machine may outlive its driver for a moment, so
what was touched lately stays all the same.

It refuses to know what is put there.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

__all__ = ["IDLE_SECONDS", "folder"]

IDLE_SECONDS: Final = 3600.0
"""How long nothing must have happened in a folder that nobody holds before it is removed."""

_PREFIX: Final = "wirelake-spark-"
_HELD: Final = "held"


def folder() -> Path:
    """A new one, for this process."""
    _sweep(Path(tempfile.gettempdir()))
    made = Path(tempfile.mkdtemp(prefix=_PREFIX))
    held = (made / _HELD).open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    atexit.register(_leave, made, held)
    return made


def _leave(made: Path, held: IO[str]) -> None:
    shutil.rmtree(made, ignore_errors=True)
    held.close()


def _sweep(home: Path) -> None:
    """Remove folders of processes that are gone."""
    for one in home.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is at work, or not ours, or gone in this moment
            if one.stat().st_uid != os.getuid() or time.time() - _touched(one) < IDLE_SECONDS:
                continue
            with (one / _HELD).open() as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(one)  # which refuses to follow a link


def _touched(one: Path) -> float:
    return max(entry.stat().st_mtime for entry in (one, *one.iterdir()))
