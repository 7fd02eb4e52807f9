"""Snapshots: for every table the version that belongs to one whole batch.

A Delta transaction changes one table, but a batch changes many. So `published.json` says which versions belong together. It is replaced
atomically when a batch is complete, gold tables included. Until then, and after a crash, readers see the batch before. Replaced files stay
for `READERS_SECONDS`, because readers may still have them open.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.errors import LakeError, LakeMissing
from wirelake.lake.store import delta, durable, journal
from wirelake.lake.store.folder import lake_folder
from wirelake.lake.store.skipping import Condition, may_match, skipping_dataset
from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.schema import Table

if TYPE_CHECKING:
    import pyarrow.dataset as pads

__all__ = ["READERS_SECONDS", "Snapshot", "begin", "current", "publish", "sweep"]

READERS_SECONDS: Final = 600.0
"""How long a replaced file stays on disk, so that readers can finish."""

_PUBLISHED: Final = "published.json"
_UNCOUNTED: Final = "uncounted"
"""Folder with a file per table: when each replaced file was first found."""

_changing: Final = threading.Lock()
"""For threads of this process. The lake's lock excludes other processes."""


class _Published(msgspec.Struct, frozen=True):
    number: int
    """Number of publications so far."""
    versions: dict[str, int]
    """Table name -> the version of its Delta log."""


class Snapshot(msgspec.Struct, frozen=True):
    """The tables of a lake as of one moment. Later commits do not change it."""

    lake: Path
    number: int
    """Grows with every publication; 0 before the first."""
    versions: dict[str, int | None]
    """Table name -> version of its Delta log; None: the newest.

    A table that is missing here did not exist yet.
    """

    def files(self, name: str) -> list[Path]:
        """List the Parquet files of the table of this name. Raises LakeError if there is no such table."""
        table = table_named(name)
        return delta.files(self.lake, table, self.versions[name]) if name in self.versions else []

    def matching(self, name: str, condition: Condition) -> list[Path]:
        """List the Parquet files of a table that may have rows of a condition, by their statistics."""
        table = table_named(name)
        if name not in self.versions:
            return []
        known = delta.statistics(self.lake, table, self.versions[name])
        return [delta.folder(self.lake, table) / path for path in known["path"].filter(may_match(known, condition)).to_pylist()]

    def batch(self, name: str) -> int | None:
        """Return the newest batch in the table of this name; None if it has none."""
        table = table_named(name)
        return delta.batch(self.lake, table, self.versions[name]) if name in self.versions else None

    def dataset(self, name: str) -> pads.Dataset:
        """Open the table of this name as a pyarrow dataset. A filter of times opens only files that may have such rows."""
        table = table_named(name)
        known = delta.statistics(self.lake, table, self.versions[name]) if name in self.versions else None
        if known is None or not len(known):
            return delta.dataset(self.lake, table, ())
        return skipping_dataset(delta.folder(self.lake, table), table, known)


def current(lake: str | PathLike[str]) -> Snapshot:
    """Return the snapshot that readers see now. Raises LakeMissing if there is no lake."""
    root = lake_folder(lake)
    if not journal.check(root):
        raise LakeMissing(f"{lake} is not a lake: make one with `wirelake ingest`")
    published = _read(root)
    if published is None:  # nothing was published yet: there are no tables, or an older wirelake wrote them
        return Snapshot(root, 0, dict.fromkeys(TABLES))
    return Snapshot(root, published.number, dict(published.versions))


def begin(lake: Path) -> None:
    """Publish the tables as they are, before the first batch of a lake, unless that happened."""
    if _read(lake) is None:
        publish(lake)


def publish(lake: Path, tables: Iterable[Table] = TABLES.values()) -> Snapshot:
    """Publish the newest versions of these tables in one atomic step. The caller holds the lake's lock."""
    with _changing:
        before = _read(lake) or _Published(0, {})
        versions = {table.name: delta.version(lake, table) for table in tables}
        now = before.versions | {name: version for name, version in versions.items() if version is not None}
        if now != before.versions or not before.number:
            for name in now:
                if now[name] != before.versions.get(name):
                    durable.foreign_later(lake / name, before.versions.get(name, -1) + 1, now[name])
            before = _Published(before.number + 1, now)
            journal.write(lake, _PUBLISHED, msgspec.json.encode(before))
        return Snapshot(lake, before.number, dict(before.versions))


def _read(lake: Path) -> _Published | None:
    content = journal.read(lake, _PUBLISHED)
    try:
        return None if content is None else msgspec.json.decode(content, type=_Published)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_PUBLISHED} cannot be read: {error}") from error


def sweep(lake: Path, table: Table, *, patience: float = READERS_SECONDS) -> int:
    """Delete files of a table that have not counted for `patience` seconds; returns how many.

    They count neither now nor in the snapshot. Only call it while no job writes files of this table.
    """
    note = f"{_UNCOUNTED}/{table.name}.json"
    content = journal.read(lake, note)
    known = msgspec.json.decode(content, type=dict[str, float]) if content else {}
    now = time.time()
    read = set(current(lake).files(table.name))
    since = {path: min(known.get(str(path), now), now) for path in delta.uncounted(lake, table) if path not in read}
    recent = {path: at for path, at in since.items() if now - at < patience}
    removed = delta.sweep(lake, table, {*read, *recent})
    left = {str(path): at for path, at in recent.items()}
    if left != known:
        journal.write(lake, note, msgspec.json.encode(left))
    return removed
