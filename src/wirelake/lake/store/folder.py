"""The folder of a lake: whether one may be created there, and which files are foreign.

A lake is created in a folder that is missing or empty. Other files there are not touched.
"""

from __future__ import annotations

import os
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from wirelake.capture.files.source_file import is_elsewhere, local_path
from wirelake.errors import LakeError
from wirelake.lake.store import journal
from wirelake.lake.tables.catalog import TABLES

__all__ = ["REPORT", "claim", "foreign", "lake_folder"]

REPORT: Final = "report.html"
"""Where `wirelake report` writes in a lake by default."""
_SYSTEM: Final = frozenset({"lost+found", ".DS_Store"})
"""Entries that operating systems create in empty folders."""


def lake_folder(lake: str | PathLike[str]) -> Path:
    """Return the folder of a lake, from a path or a `file:` URI. Raises LakeError for other URIs."""
    if is_elsewhere(fspath(lake)):
        raise LakeError(f"{fspath(lake)}: a lake is a folder that driver and executors share; mount it, and name it by its path")
    return Path(local_path(fspath(lake))).absolute()


def foreign(lake: Path) -> list[Path]:
    """List entries of a lake's folder that do not belong to a lake."""
    known = {*TABLES, journal.FOLDER, REPORT, *_SYSTEM}
    return sorted(path for path in lake.iterdir() if path.name not in known) if lake.is_dir() else []


def claim(lake: Path) -> None:
    """Raise LakeError unless this is a writable lake, or a folder in which one can be created.

    Changes nothing.
    """
    if not journal.check(lake):
        if lake.exists() and not lake.is_dir():
            raise LakeError(f"{lake} is a file: a lake is a folder")
        if lake.is_dir() and (path := _occupant(lake)) is not None:
            raise LakeError(f"{lake} is no lake, and not empty ({path.name} is there): name an empty or a new folder")
    there = next(path for path in (lake / journal.FOLDER, lake, *lake.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise LakeError(f"{lake} cannot be written: {there} is read-only for this user")


def _occupant(folder: Path) -> Path | None:
    """Return an entry that an interrupted creation of a lake does not explain; None if there is none."""
    for path in sorted(folder.iterdir()):
        if path.name == journal.FOLDER and path.is_dir():
            if strange := [inside for inside in path.iterdir() if inside.name != journal.DRAFT]:
                return strange[0]
        elif path.name not in _SYSTEM:
            return path
    return None
