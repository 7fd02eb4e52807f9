"""What readers see: for every table the version that belongs to one whole batch, while the next one is being published.

A table changes in one transaction, but a batch changes many tables, one after the other. So the lake has one small file that says which
version of each table belongs together. It is replaced in one step when a batch is whole, gold included; until then, and after a
crash in between, readers read what was whole before. Files that a reader may still have in hand are kept for `READERS_SECONDS` after they
stopped to count.

It refuses to know what is in the tables, and to change them.
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
from wirelake.lake.store import delta, journal
from wirelake.lake.store.folder import lake_folder
from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.schema import Table

if TYPE_CHECKING:
    import pyarrow.dataset as pads

__all__ = ["READERS_SECONDS", "Snapshot", "begin", "current", "publish", "sweep"]

READERS_SECONDS: Final = 600.0
"""How long a file stays after it stopped to count: who began to read before that may finish."""

_PUBLISHED: Final = "published.json"
_UNCOUNTED: Final = "uncounted"
"""A folder with one file for each table: when each file was first found not to count."""

_changing: Final = threading.Lock()
"""Of the threads of one process: the lake's own lock keeps other processes away."""


class _Published(msgspec.Struct, frozen=True):
    number: int
    """How many times something was published here."""
    versions: dict[str, int]
    """Table name -> the version of its Delta log."""


class Snapshot(msgspec.Struct, frozen=True):
    """Tables that belong together. It stays as it is, whatever is published meanwhile."""

    lake: Path
    number: int
    """Grows with every publication; 0 before the first."""
    versions: dict[str, int | None]
    """Table name -> the version of its Delta log; None is whatever is there. A table that is not named was not there yet."""

    def files(self, name: str) -> list[Path]:
        """List the Parquet files of the table of this name. Raises LakeError if there is no such table."""
        table = table_named(name)
        return delta.files(self.lake, table, self.versions[name]) if name in self.versions else []

    def batch(self, name: str) -> int | None:
        """Return the newest batch in the table of this name; None if it has none."""
        table = table_named(name)
        return delta.batch(self.lake, table, self.versions[name]) if name in self.versions else None

    def dataset(self, name: str) -> pads.Dataset:
        """Open the table of this name as a pyarrow dataset."""
        return delta.dataset(self.lake, table_named(name), self.files(name))


def current(lake: str | PathLike[str]) -> Snapshot:
    """What a reader sees now. Raises LakeError if there is no lake."""
    root = lake_folder(lake)
    if not journal.check(root):
        raise LakeMissing(f"{lake} is not a lake: make one with `wirelake ingest`")
    published = _read(root)
    if published is None:  # nothing was ever published as a whole: there are no tables yet, or an older wirelake wrote them
        return Snapshot(root, 0, dict.fromkeys(TABLES))
    return Snapshot(root, published.number, dict(published.versions))


def begin(lake: Path) -> None:
    """Before the first batch of a lake: let readers see its tables as they are now until that is whole."""
    if _read(lake) is None:
        publish(lake)


def publish(lake: Path, tables: Iterable[Table] = TABLES.values()) -> Snapshot:
    """Let readers see these tables as they are now, all at once, and the others as before. Only who holds the lake calls this."""
    with _changing:
        before = _read(lake) or _Published(0, {})
        versions = {table.name: delta.version(lake, table) for table in tables}
        now = before.versions | {name: version for name, version in versions.items() if version is not None}
        if now != before.versions or not before.number:
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
    """Remove files of a table that have not counted for so many seconds, neither now nor for readers; says how many.

    Only while nobody writes files of this table that are to count later.
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
