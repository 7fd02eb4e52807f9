"""Listing: which files are meant by paths, folders and patterns, here and elsewhere.

It refuses to open files.
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
"""What counts as a capture in a folder; a file that is named outright is taken as it is."""
PACKED_SUFFIXES: Final = (".gz", ".zst")
"""What may come after it."""


def _is_capture(name: str) -> bool:
    path = PurePath(name.lower())
    return (PurePath(path.stem) if path.suffix in PACKED_SUFFIXES else path).suffix in SUFFIXES


def expand(paths: Iterable[str | PathLike[str]], unreadable: list[str] | None = None) -> list[str]:
    """Files, the captures in folders and below, and whatever patterns match; each once, in order.

    What lies in a folder and cannot be read is added to `unreadable`, with the reason; without such a list it raises CapturesMissing.
    A path that is named outright and cannot be read always does.
    """
    found: dict[str, None] = {}
    left_out: list[str] = []
    for given in paths:
        found.update(dict.fromkeys(_elsewhere(fspath(given)) if is_elsewhere(fspath(given)) else map(str, _here(given, left_out))))
    if unreadable is not None:
        unreadable += left_out
    elif left_out:
        raise CapturesMissing(left_out[0])
    return list(found)


def captures(folder: Path) -> list[str]:
    """The captures in a local folder and below, which may be none."""
    return sorted(str(inside.absolute()) for inside in folder.rglob("*") if _is_capture(inside.name) and inside.is_file())


def _here(given: str | PathLike[str], left_out: list[str]) -> list[Path]:
    path = Path(local_path(fspath(given)))
    if path.is_dir():
        before = len(left_out)
        matches = _inside(path, left_out)
        if not matches and left_out[before:]:
            raise CapturesMissing(left_out[before])
        if not matches:
            raise CapturesMissing(f"{given}: no captures ({', '.join(SUFFIXES)}) in this folder or below")
    elif path.is_file():
        if reason := _unnameable(path):
            raise CapturesMissing(reason)
        matches = [path]
    elif path.exists():  # opening a FIFO waits until somebody writes to it
        raise CapturesMissing(f"{given}: a FIFO, socket or device, not a file: captures are read by place; write it to a file first")
    else:
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())  # noqa: PTH207 - absolute patterns too
        if not matches:
            raise CapturesMissing(f"{given}: no such file, folder or pattern")
    return [match.absolute() for match in matches]


def _inside(folder: Path, left_out: list[str]) -> list[Path]:
    """The captures in a folder and below; folders that cannot be listed are left out, and so are names that no table can hold."""
    found: list[Path] = []

    def unlisted(error: OSError) -> None:
        left_out.append(f"{error.filename}: cannot read this folder: {error.strerror}")

    for place, _, names in os.walk(folder, onerror=unlisted):
        captured = [Path(place, name) for name in names if _is_capture(name)]
        for one in captured:
            if reason := _unnameable(one):
                left_out.append(reason)
            elif one.is_file():
                found.append(one)
    return sorted(found)


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
