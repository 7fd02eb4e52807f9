"""Write: dissectors into a folder, one file each. Files of others are not overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wirelake.errors import UsageError
from wirelake.explore.dissector.generate import MARK, dissector

__all__ = ["file_name", "write"]


def file_name(protocol: str) -> str:
    """Return the name of a dissector's file."""
    return f"wirelake_{protocol}.lua"


def write(folder: Path, protocols: Sequence[str], *, force: bool = False) -> list[Path]:
    """Write the dissectors of these protocols; returns their files.

    Raises UsageError if a file there is not ours, unless `force` is set, or if the folder cannot be written. Nothing is written then.
    """
    paths = [folder / file_name(protocol) for protocol in protocols]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = [path for path in paths if path.exists() and not force and not _is_ours(path)]
        if foreign:
            raise UsageError(f"{foreign[0]} was not written by `wirelake dissector`: move it away, or overwrite it with --force")
        for path, protocol in zip(paths, protocols, strict=True):
            path.write_text(dissector(protocol), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write dissectors into {folder}: {error.strerror or error}; choose another folder with -o") from error
    return paths


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK.encode()
