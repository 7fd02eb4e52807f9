"""What makes an ingest happen exactly once: the lake's format, its lock, and the record of the batch that is under way.

A batch goes through three steps. *Begun*: its sources are written down and files are being written that no table counts. *Prepared*: all
files are there, the ledger adds up, and their names are written down. *Done*: every table counts them, and the record is gone. An
ingest that died before the second step has published nothing, and its files are swept away; one that died after it is finished from
the record, without its sources and without Spark, and tables that have the batch already are left alone.

It refuses to know how files are made, and which tables there are beyond their names.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from wirelake.capture.blocks import Source
from wirelake.errors import LakeError
from wirelake.lake.delta import File

__all__ = ["FORMAT", "Pending", "begin", "check", "done", "initialise", "locked", "pending", "prepare"]

FORMAT: Final = 2
"""The version of the lake's layout that this code reads and writes."""

_FOLDER: Final = "_wirelake"


class _Format(msgspec.Struct):
    version: int


class Pending(msgspec.Struct, frozen=True):
    """The batch that is under way."""

    batch: int
    sources: list[Source]
    read: list[int] = []
    """How far each source was read before; none if none was."""
    files: dict[str, list[File]] | None = None
    """Table name -> the files to publish; None until the batch is prepared."""

    def begins(self) -> dict[bytes, int]:
        """Source id -> where reading goes on."""
        return {source.id: at for source, at in zip(self.sources, self.read, strict=False)}


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step that survives a crash."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check(lake: Path) -> bool:
    """Whether there is a lake here that this code understands; one it does not understand is an error."""
    try:
        content = (lake / _FOLDER / "format.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise LakeError(f"{lake} cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(content, type=_Format).version
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {_FOLDER}/format.json does not say which version of a lake it is") from error
    if found > FORMAT:
        raise LakeError(f"{lake} was made by a newer wirelake (lake format {found}, this one reads {FORMAT}): upgrade wirelake")
    if found < FORMAT:
        raise LakeError(
            f"{lake} was made by an older wirelake (lake format {found}, this one reads {FORMAT}), which knew files in another way: "
            "ingest its sources into a new folder, or go on with the older version"
        )
    return True


def initialise(lake: Path) -> None:
    """Make a folder a lake, unless it is one."""
    if check(lake):
        return
    if lake.exists() and not lake.is_dir():
        raise LakeError(f"{lake} is a file: a lake is a folder")
    try:
        (lake / _FOLDER).mkdir(parents=True, exist_ok=True)
        _write(lake / _FOLDER / "format.json", msgspec.json.encode(_Format(FORMAT)))
    except OSError as error:
        raise LakeError(f"{lake} cannot be made a lake: {error.strerror}") from error


@contextmanager
def locked(lake: Path) -> Iterator[None]:
    """Hold the lake for writing; a second writer is refused at once."""
    path = lake / _FOLDER / "lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise LakeError(f"{lake} is being written by process {holder}: wait until it is done") from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def begin(lake: Path, batch: int, sources: list[Source], read: Mapping[bytes, int] | None = None) -> Pending:
    """First step: write down what is going to be read, and how far it was read before."""
    begun = Pending(batch, sources, [(read or {}).get(source.id, 0) for source in sources])
    _write(lake / _FOLDER / "pending.json", msgspec.json.encode(begun))
    return begun


def prepare(lake: Path, files: dict[str, list[File]]) -> Pending:
    """Second step: write down what is going to be published. From here on the batch will be finished, whatever happens."""
    begun = pending(lake)
    if begun is None:
        raise LakeError(f"{lake}: no batch is under way")
    prepared = msgspec.structs.replace(begun, files=files)
    _write(lake / _FOLDER / "pending.json", msgspec.json.encode(prepared))
    return prepared


def pending(lake: Path) -> Pending | None:
    """The batch that is under way, or that an ingest left behind when it died."""
    try:
        content = (lake / _FOLDER / "pending.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=Pending)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {_FOLDER}/pending.json cannot be read: {error}") from error


def done(lake: Path) -> None:
    """Last step, also for a batch that is given up before it was prepared."""
    (lake / _FOLDER / "pending.json").unlink(missing_ok=True)
    _sync(lake / _FOLDER)
