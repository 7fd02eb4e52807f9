"""One input for one target, and its file in the corpus."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

CORPUS = Path(__file__).parent / "corpus"
"""Inputs that broke something once; ordinary tests run them all."""


class Case(msgspec.Struct, frozen=True):
    """An input."""

    target: str
    """Which code reads it: a key of `targets.TARGETS`."""
    what: str
    """What the target has to know besides, in words: the protocol, the side, the serializer."""
    data: bytes
    name: str = ""
    """Of a handmade input."""

    @property
    def file_name(self) -> str:
        """Says all but the bytes, so that the file alone is enough to run the input again."""
        digest = hashlib.sha256(self.data).hexdigest()[:12]
        return f"{self.target}.{self.what.replace(' ', '-') or 'any'}.{digest}.bin"

    def __str__(self) -> str:
        """For reports."""
        return " ".join(filter(None, (self.target, self.what, self.name and f"({self.name})")))


def load(path: Path) -> Case:
    """The input in a file; its name was made by `file_name`."""
    found = re.fullmatch(r"(\w+)\.([\w-]+)\.\w+\.bin", path.name)
    if found is None:
        raise SystemExit(f"{path}: the file name says no target; it must be TARGET.WHAT.DIGEST.bin")
    what = "" if found[2] == "any" else found[2].replace("-", " ")
    return Case(found[1], what, path.read_bytes(), path.stem)


def save(folder: Path, case: Case) -> Path:
    """Write an input into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / case.file_name
    path.write_bytes(case.data)
    return path


def corpus() -> list[Case]:
    """All inputs in files, in the order of their names."""
    return [load(path) for path in sorted(CORPUS.glob("*.bin"))]
