"""Listing: which files are meant by paths, folders and patterns, here and elsewhere.

It refuses to open files.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Final

from wirelake.capture.files import find_elsewhere, is_elsewhere, local_path
from wirelake.errors import CapturesMissing, LakeError

__all__ = ["PACKED_SUFFIXES", "SUFFIXES", "captures", "expand", "lake_folder"]

SUFFIXES: Final = (".pcap", ".pcapng", ".cap")
"""What counts as a capture in a folder; a file that is named outright is taken as it is."""
PACKED_SUFFIXES: Final = (".gz", ".zst")
"""What may come after it."""


def lake_folder(lake: str | PathLike[str]) -> Path:
    """The folder of a lake, from a path or a `file:` URI; what is not mounted as a folder cannot be one."""
    if is_elsewhere(fspath(lake)):
        raise LakeError(f"{fspath(lake)}: a lake is a folder that driver and executors share; mount it, and name it by its path")
    return Path(local_path(fspath(lake))).absolute()


def _is_capture(name: str) -> bool:
    path = PurePath(name.lower())
    return (PurePath(path.stem) if path.suffix in PACKED_SUFFIXES else path).suffix in SUFFIXES


def expand(paths: Iterable[str | PathLike[str]]) -> list[str]:
    """Files, the captures in folders and below, and whatever patterns match; each once, in order."""
    found: dict[str, None] = {}
    for given in paths:
        found.update(dict.fromkeys(_elsewhere(fspath(given)) if is_elsewhere(fspath(given)) else map(str, _here(given))))
    return list(found)


def captures(folder: Path) -> list[str]:
    """The captures in a local folder and below, which may be none."""
    return sorted(str(inside.absolute()) for inside in folder.rglob("*") if _is_capture(inside.name) and inside.is_file())


def _here(given: str | PathLike[str]) -> list[Path]:
    path = Path(local_path(fspath(given)))
    if path.is_dir():
        matches = sorted(inside for inside in path.rglob("*") if _is_capture(inside.name) and inside.is_file())
        if not matches:
            raise CapturesMissing(f"{given}: no captures ({', '.join(SUFFIXES)}) in this folder or below")
    elif path.exists():
        matches = [path]
    else:
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())  # noqa: PTH207 - absolute patterns too
        if not matches:
            raise CapturesMissing(f"{given}: no such file, folder or pattern")
    return [match.absolute() for match in matches]


def _elsewhere(given: str) -> list[str]:
    matches, is_folder = find_elsewhere(given)
    captures = [match for match in matches if _is_capture(match)] if is_folder else matches
    if not captures:
        raise CapturesMissing(f"{given}: no such file, folder or pattern, or no captures in it")
    return captures
