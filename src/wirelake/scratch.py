"""Scratch folders: deleted when their process ends, or at the start of the next one that needs one.

Shuffle files can take gigabytes. A lock shows that a process still runs: the system releases it when the process dies, and no later
process with the same number has it. A folder of another user or another machine is never touched.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["folder", "temporary"]

_PREFIX: Final = "wirelake-"
_HELD: Final = "held"
"""The file in each folder that its process has locked; it contains the name of the machine."""


class _Folder(NamedTuple):
    """A scratch folder, and the descriptor of its lock."""

    path: Path
    held: int


def folder(kind: str) -> Path:
    """Create a scratch folder that is deleted when this process ends."""
    made = _create(kind)
    atexit.register(_leave, made)
    return made.path


@contextmanager
def temporary(kind: str) -> Iterator[Path]:
    """Create a scratch folder for a block."""
    made = _create(kind)
    try:
        yield made.path
    finally:
        _leave(made)


def _create(kind: str) -> _Folder:
    home = Path(tempfile.gettempdir())
    _sweep(home)
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=home))
    draft = path / f"{_HELD}.new"
    held = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.write(held, os.uname().nodename.encode())
    fcntl.flock(held, fcntl.LOCK_EX)
    draft.rename(path / _HELD)  # only now: a sweep finds it locked, or not at all
    return _Folder(path, held)


def _leave(made: _Folder) -> None:
    shutil.rmtree(made.path, ignore_errors=True)
    os.close(made.held)


def _sweep(home: Path) -> None:
    """Delete folders of processes that ended."""
    for path in home.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is locked, or no scratch folder, or was just deleted
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            held = os.open(path / _HELD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.read(held, 1024) == os.uname().nodename.encode():
                    _delete(path)
            finally:
                os.close(held)


def _delete(path: Path) -> None:
    """Delete a folder, `held` last: what cannot be deleted now is found by the next sweep."""
    for inside in path.iterdir():
        if inside.name == _HELD:
            continue
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside)
        else:
            inside.unlink()
    shutil.rmtree(path)
