"""Files that only their owner may read, such as keys.

A file is replaced atomically: written and synced beside the old one, then renamed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from wirelake.errors import UsageError

__all__ = ["PRIVATE", "load_bytes", "save_bytes"]

PRIVATE: Final = 0o600
"""The mode of such a file."""


def load_bytes(path: str | Path) -> bytes:
    """What a private file holds; raises UsageError if it cannot be read, or if others may."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(f"{path}: not a file")
            if mode & 0o077:
                raise UsageError(f"{path}: others may read or write this file: chmod 600 {path}")
            return file.read()
    except OSError as reason:
        raise UsageError(f"{path}: {reason.strerror}") from None


def save_bytes(path: str | Path, content: bytes) -> None:
    """Replace a private file: written and synced beside it under another name, then renamed."""
    path = Path(path)
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    except OSError as reason:
        raise UsageError(f"{path}: {reason.strerror}") from None
    try:
        with os.fdopen(number, "wb") as file:
            os.fchmod(file.fileno(), PRIVATE)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except BaseException as reason:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        if isinstance(reason, OSError):
            raise UsageError(f"{path}: {reason.strerror}") from None
        raise
