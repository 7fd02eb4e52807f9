"""Input paths: files, folders and patterns, local or remote, become a list of captures.

Files are not opened.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Final

from wirelake.capture.files.source_file import find_elsewhere, is_elsewhere, local_path
from wirelake.errors import CapturesMissing

__all__ = ["PACKED_SUFFIXES", "SUFFIXES", "captures", "expand"]

SUFFIXES: Final = (".pcap", ".pcapng", ".cap")
"""Suffixes of captures in a folder. A file that is named itself may have any."""
PACKED_SUFFIXES: Final = (".gz", ".zst")
"""Suffixes of compressed captures, after the others."""


def _is_capture(name: str) -> bool:
    path = PurePath(name.lower())
    return (PurePath(path.stem) if path.suffix in PACKED_SUFFIXES else path).suffix in SUFFIXES


def expand(paths: Iterable[str | PathLike[str]], unreadable: list[str] | None = None) -> list[str]:
    """List files, captures in folders and below, and matches of patterns; each once, in order.

    Unreadable entries of a folder are added to `unreadable`, with the reason; without such a list they raise CapturesMissing.
    A path that is named itself and cannot be read always raises it.
    """
    files: dict[str, None] = {}
    left_out: list[str] = []
    for path in paths:
        files.update(dict.fromkeys(_elsewhere(fspath(path)) if is_elsewhere(fspath(path)) else map(str, _here(path, left_out))))
    if unreadable is not None:
        unreadable += left_out
    elif left_out:
        raise CapturesMissing(left_out[0])
    return list(files)


def captures(folder: Path) -> list[str]:
    """List the captures in a local folder and below; there may be none."""
    return sorted(str(inside.absolute()) for inside in folder.rglob("*") if _is_capture(inside.name) and inside.is_file())


def _here(pattern: str | PathLike[str], left_out: list[str]) -> list[Path]:
    path = Path(local_path(fspath(pattern)))
    if path.is_dir():
        before = len(left_out)
        matches = _inside(path, left_out)
        if not matches and left_out[before:]:
            raise CapturesMissing(left_out[before])
        if not matches:
            raise CapturesMissing(f"{pattern}: no captures ({', '.join(SUFFIXES)}) in this folder or below")
    elif path.is_file():
        if reason := _unnameable(path):
            raise CapturesMissing(reason)
        matches = [path]
    elif path.exists():  # opening a FIFO waits for a writer
        raise CapturesMissing(f"{pattern}: a FIFO, socket or device, not a file: captures need random access, so copy it to a file first")
    else:
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())  # noqa: PTH207 - absolute patterns too
        if not matches:
            raise CapturesMissing(f"{pattern}: no such file, folder or pattern")
    return [match.absolute() for match in matches]


def _inside(folder: Path, left_out: list[str]) -> list[Path]:
    """List the captures in a folder and below.

    Unreadable folders, and names that no table can hold, go to `left_out`.
    """
    files: list[Path] = []

    def unlisted(error: OSError) -> None:
        left_out.append(f"{error.filename}: cannot read this folder: {error.strerror}")

    for place, _, names in os.walk(folder, onerror=unlisted):
        candidates = [Path(place, name) for name in names if _is_capture(name)]
        for path in candidates:
            if reason := _unnameable(path):
                left_out.append(reason)
            elif path.is_file():
                files.append(path)
    return sorted(files)


def _unnameable(path: Path) -> str:
    """Why a table cannot hold the name of a file; empty if it can."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return f"{path}: the name is not UTF-8, so no table can hold it: rename the file"
    return ""


def _elsewhere(given: str) -> list[str]:
    matches, is_folder = find_elsewhere(given)
    captures = [match for match in matches if _is_capture(match)] if is_folder else matches
    if not captures:
        raise CapturesMissing(f"{given}: no such file, folder or pattern, or no captures in it")
    return captures
