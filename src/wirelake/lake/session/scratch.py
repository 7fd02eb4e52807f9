"""Scratch folders of Spark sessions: deleted when their process ends, or by a later one.

Shuffle files can take gigabytes. A lock shows that a process still runs. The folders of a killed process are deleted when a later one
starts. A JVM may outlive its driver for a moment, so recently changed folders stay, too.
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
"""An unlocked folder is deleted after this many seconds without a change."""

_PREFIX: Final = "wirelake-spark-"
_HELD: Final = "held"


def folder() -> Path:
    """Create a scratch folder for this process."""
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
    """Delete folders of processes that ended."""
    for folder in home.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is locked, or not ours, or was just deleted
            if folder.stat().st_uid != os.getuid() or time.time() - _changed(folder) < IDLE_SECONDS:
                continue
            with (folder / _HELD).open() as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)  # does not follow links


def _changed(one: Path) -> float:
    return max(entry.stat().st_mtime for entry in (one, *one.iterdir()))
