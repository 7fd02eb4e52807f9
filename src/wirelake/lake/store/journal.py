"""The journal: exactly-once commits of batches.

It has the lake's format, its lock, and the record of the batch under way.

A batch goes through three steps. *Begun*: its sources are recorded; tasks write files that no table counts. *Prepared*: all files are
written, the ledger adds up, and the files are recorded. *Done*: every table counts them, and the record is removed. If an ingest dies
before *prepared*, its files are deleted. If it dies after, the next ingest finishes the batch from the record, without its sources and
without Spark. Tables that have the batch already are skipped: committing is idempotent.

Every attempt has an id. Committing or abandoning a batch takes an exclusive lock (`fence`). A commit left over from a dead ingest either
finishes before the next ingest gets the lock, or sees another attempt id and stops.
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
from wirelake.lake.store import durable
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
    "format_of",
    "initialise",
    "locked",
    "memories",
    "migrated",
    "pending",
    "prepare",
    "read",
    "remember",
    "remove",
    "write",
]

FORMAT: Final = 3
"""The version of the lake's layout that this code writes."""
OLDEST: Final = 2
"""The oldest version that it reads, and migrates when it writes (`migration.py`)."""

FOLDER: Final = "_wirelake"
"""Folder beside the tables, with the lake's own records."""
DRAFT: Final = "format.json.new"
"""The only file in it after an interrupted creation of a lake."""
_PENDING: Final = "pending.json"
_FOLLOWING: Final = "following.json"
_Kind = TypeVar("_Kind")


class _Format(msgspec.Struct):
    version: int


class Following(msgspec.Struct, frozen=True):
    """Where following a folder continues: committed together with the rows of its micro-batch."""

    offset: Offset
    buckets: int
    """Number of buckets that connections are partitioned into, each with a decoder state."""
    memories: dict[str, str] = {}
    """Bucket -> file with its decoder state."""
    waiting: list[Waiting] = []


class Pending(msgspec.Struct, frozen=True):
    """The batch under way."""

    batch: int
    sources: list[Source]
    attempt: str = ""
    """Id of the attempt: numbers of abandoned batches are used again."""
    read: list[int] = []
    """How far each source was read before; empty if none was."""
    files: dict[str, list[File]] | None = None
    """Table name -> files to commit; None until the batch is prepared."""
    following: Following | None = None
    """State of following after the commit, if this is a micro-batch of it, or removes sources from it."""
    removed: dict[str, list[File]] = {}
    """Table name -> files that this batch replaces, because sources are removed or read again."""
    kept: dict[str, list[File]] = {}
    """Table name -> files with the rows of other sources in the replaced files."""

    def begins(self) -> dict[bytes, int]:
        """Source id -> offset where reading continues."""
        return {source.id: at for source, at in zip(self.sources, self.read, strict=False)}


def write(lake: Path, name: str, content: bytes) -> None:
    """Write a record of a lake atomically. What was committed before is durable first."""
    durable.settle(lake)
    (lake / FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
    durable.write(lake / FOLDER / name, content)


def read(lake: Path, name: str) -> bytes | None:
    """Read a record of a lake; None if there is none."""
    try:
        return (lake / FOLDER / name).read_bytes()
    except FileNotFoundError:
        return None


def remove(lake: Path, name: str) -> None:
    """Remove a record of a lake. What was committed before is durable first."""
    durable.settle(lake)
    (lake / FOLDER / name).unlink(missing_ok=True)
    durable.sync([lake / FOLDER], above=0)


def check(lake: Path) -> bool:
    """Whether there is a lake here. Raises LakeError if this version cannot read it."""
    return format_of(lake) is not None


def format_of(lake: Path) -> int | None:
    """Return the version of a lake's layout; None if there is no lake. Raises LakeError if this version cannot read it."""
    try:
        content = (lake / FOLDER / "format.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LakeError(f"{lake} cannot be read: {error.strerror}") from error
    try:
        version = msgspec.json.decode(content, type=_Format).version
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {FOLDER}/format.json does not say which version of a lake it is") from error
    if version > FORMAT:
        raise LakeError(f"{lake} was made by a newer wirelake (lake format {version}, this one reads {FORMAT}): upgrade wirelake")
    if version < OLDEST:
        raise LakeError(
            f"{lake} was made by an older wirelake (lake format {version}, this one reads {FORMAT}), which knew files in another way: "
            "ingest its sources into a new folder, or go on with the older version"
        )
    return version


def migrated(lake: Path) -> None:
    """Note that a lake has the layout of this version now."""
    write(lake, "format.json", msgspec.json.encode(_Format(FORMAT)))


def initialise(lake: Path) -> None:
    """Create a lake in a folder, unless there is one."""
    if check(lake):
        return
    if lake.exists() and not lake.is_dir():
        raise LakeError(f"{lake} is a file: a lake is a folder")
    try:
        new = [path for path in (lake, *lake.parents) if not path.exists()]
        (lake / FOLDER).mkdir(parents=True, exist_ok=True)
        durable.sync([lake, *(path.parent for path in new)], above=0)
        durable.write(lake / FOLDER / "format.json", msgspec.json.encode(_Format(FORMAT)))
    except OSError as error:
        raise LakeError(f"{lake} cannot be made a lake: {error.strerror}") from error


@contextmanager
def locked(lake: Path) -> Iterator[None]:
    """Hold the lake's lock for writing, after recovery from a power cut. Raises LakeError at once if another process has it."""
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
        file.seek(0)
        was_killed = bool(file.read())
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            durable.recover(lake, was_killed=was_killed)
            yield
            durable.settle(lake)
        finally:
            file.truncate(0)


@contextmanager
def fenced(lake: Path) -> Iterator[None]:
    """Hold the exclusive lock for committing or abandoning a batch.

    Waits for another holder: a few commits at most.
    """
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
    """First step: record the sources to read, how far they were read before, and the files to replace."""
    begins = [(read or {}).get(source.id, 0) for source in sources]
    begun = Pending(batch, sources, attempt, begins, None, following, removed or {}, kept or {})
    write(lake, _PENDING, msgspec.json.encode(begun))
    return begun


def prepare(lake: Path, files: dict[str, list[File]], following: Following | None = None) -> Pending:
    """Second step: record the files to commit.

    From here on the batch will be finished, even after a crash.
    """
    begun = pending(lake)
    if begun is None:
        raise LakeError(f"internal error: {lake}: no batch is under way. Nothing was committed; please report this.")
    prepared = msgspec.structs.replace(begun, files=files, following=following or begun.following)
    write(lake, _PENDING, msgspec.json.encode(prepared))
    return prepared


def pending(lake: Path) -> Pending | None:
    """Return the batch under way, or the one that a dead ingest left behind; None if there is none."""
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
    """Record where following continues; delete decoder states that it does not name."""
    write(lake, _FOLLOWING, msgspec.json.encode(following))
    kept = set(following.memories.values())
    for path in memories(lake).glob("*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def following(lake: Path) -> Following | None:
    """Return where following continues; None if no folder was ever followed."""
    return _known(lake, _FOLLOWING, Following)


def memories(lake: Path) -> Path:
    """Return the folder of decoder states."""
    return lake / FOLDER / "memory"


def done(lake: Path) -> None:
    """Last step: remove the record of the batch, committed or abandoned."""
    remove(lake, _PENDING)
