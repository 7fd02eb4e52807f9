"""What makes an ingest happen exactly once: the lake's format, its lock, and the record of the batch that is under way.

A batch goes through three steps. *Begun*: its sources are written down and files are being written that no table counts. *Prepared*: all
files are there, the ledger adds up, and their names are written down. *Done*: every table counts them, and the record is gone. An
ingest that died before the second step has published nothing, and its files are swept away; one that died after it is finished from
the record, without its sources and without Spark, and tables that have the batch already are left alone.

Spark may outlive the ingest that started it, and publishes in a process of its own. So every attempt at a batch has a name, and who
publishes or gives up a batch holds the fence: what is left of a dead ingest either finishes before the next one looks, or finds its
batch gone.

It refuses to know how files are made, and which tables there are beyond their names.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from wirelake.capture.blocks.block import Source
from wirelake.capture.files.growing import Offset
from wirelake.errors import LakeError
from wirelake.lake.decode.accounting import Waiting
from wirelake.lake.store.delta import File

__all__ = [
    "DRAFT",
    "FOLDER",
    "FORMAT",
    "Following",
    "Pending",
    "begin",
    "check",
    "done",
    "fenced",
    "following",
    "initialise",
    "locked",
    "memories",
    "pending",
    "prepare",
    "read",
    "remember",
    "remove",
    "write",
]

FORMAT: Final = 2
"""The version of the lake's layout that this code reads and writes."""

FOLDER: Final = "_wirelake"
"""Beside the tables: what is written down about the lake itself."""
DRAFT: Final = "format.json.new"
"""All there is in it when making a lake was interrupted."""
_PENDING: Final = "pending.json"
_FOLLOWING: Final = "following.json"
_Kind = TypeVar("_Kind")


class _Format(msgspec.Struct):
    version: int


class Following(msgspec.Struct, frozen=True):
    """What following a folder goes on with: it is published with the rows that led to it."""

    offset: Offset
    buckets: int
    """Connections are dealt into so many buckets, each with a memory of its own."""
    memories: dict[str, str] = {}
    """Bucket -> the file in which its memory is."""
    waiting: list[Waiting] = []


class Pending(msgspec.Struct, frozen=True):
    """The batch that is under way."""

    batch: int
    sources: list[Source]
    attempt: str = ""
    """Which attempt it is: numbers of batches that were given up are used again."""
    read: list[int] = []
    """How far each source was read before; none if none was."""
    files: dict[str, list[File]] | None = None
    """Table name -> the files to publish; None until the batch is prepared."""
    following: Following | None = None
    """What following goes on with when they are published, if this is a portion of it, or takes away from it."""
    removed: dict[str, list[File]] = {}
    """Table name -> files that stop to count with this batch, because sources are removed or read again."""
    kept: dict[str, list[File]] = {}
    """Table name -> files with the rows of other sources that were in those."""

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


def write(lake: Path, name: str, content: bytes) -> None:
    """Write something down about a lake, in one step."""
    (lake / FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
    _write(lake / FOLDER / name, content)


def read(lake: Path, name: str) -> bytes | None:
    """What was written down under a name; None if nothing was."""
    try:
        return (lake / FOLDER / name).read_bytes()
    except FileNotFoundError:
        return None


def remove(lake: Path, name: str) -> None:
    """Keep it no longer."""
    (lake / FOLDER / name).unlink(missing_ok=True)
    _sync(lake / FOLDER)


def check(lake: Path) -> bool:
    """Whether there is a lake here that this code understands; one it does not understand is an error."""
    try:
        content = (lake / FOLDER / "format.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise LakeError(f"{lake} cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(content, type=_Format).version
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {FOLDER}/format.json does not say which version of a lake it is") from error
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
        (lake / FOLDER).mkdir(parents=True, exist_ok=True)
        _write(lake / FOLDER / "format.json", msgspec.json.encode(_Format(FORMAT)))
    except OSError as error:
        raise LakeError(f"{lake} cannot be made a lake: {error.strerror}") from error


@contextmanager
def locked(lake: Path) -> Iterator[None]:
    """Hold the lake for writing; a second writer is refused at once."""
    path = lake / FOLDER / "lock"
    try:
        opened = path.open("a+")
    except OSError as error:
        raise LakeError(f"{lake} cannot be written: {error.strerror}") from error
    with opened as file:
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


@contextmanager
def fenced(lake: Path) -> Iterator[None]:
    """Nobody else publishes or gives up a batch meanwhile; waits until whoever does is done, which takes no longer than a few commits."""
    with (lake / FOLDER / "fence").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def begin(
    lake: Path,
    batch: int,
    sources: list[Source],
    read: Mapping[bytes, int] | None = None,
    attempt: str = "",
    *,
    removed: dict[str, list[File]] | None = None,
    kept: dict[str, list[File]] | None = None,
    following: Following | None = None,
) -> Pending:
    """First step: write down what is going to be read, how far it was read before, and what is going to be removed."""
    begins = [(read or {}).get(source.id, 0) for source in sources]
    begun = Pending(batch, sources, attempt, begins, None, following, removed or {}, kept or {})
    write(lake, _PENDING, msgspec.json.encode(begun))
    return begun


def prepare(lake: Path, files: dict[str, list[File]], following: Following | None = None) -> Pending:
    """Second step: write down what is going to be published. From here on the batch will be finished, whatever happens."""
    begun = pending(lake)
    if begun is None:
        raise LakeError(f"{lake}: no batch is under way")
    prepared = msgspec.structs.replace(begun, files=files, following=following or begun.following)
    write(lake, _PENDING, msgspec.json.encode(prepared))
    return prepared


def pending(lake: Path) -> Pending | None:
    """The batch that is under way, or that an ingest left behind when it died."""
    return _known(lake, _PENDING, Pending)


def _known(lake: Path, name: str, kind: type[_Kind]) -> _Kind | None:
    content = read(lake, name)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {FOLDER}/{name} cannot be read: {error}") from error


def remember(lake: Path, following: Following) -> None:
    """Go on from here from now on; memories that are not of it are removed."""
    write(lake, _FOLLOWING, msgspec.json.encode(following))
    kept = set(following.memories.values())
    for path in memories(lake).glob("*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def following(lake: Path) -> Following | None:
    """What following goes on with; None if nothing was ever followed."""
    return _known(lake, _FOLLOWING, Following)


def memories(lake: Path) -> Path:
    """The folder of memories."""
    return lake / FOLDER / "memory"


def done(lake: Path) -> None:
    """Last step, also for a batch that is given up before it was prepared."""
    remove(lake, _PENDING)
