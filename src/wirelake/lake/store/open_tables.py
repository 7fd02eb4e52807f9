"""Delta tables that are open: one whose log did not change is not opened again.

Opening a table takes 6 to 20 milliseconds of CPU, a question about an open one about two. A job asks every table many times, so the answers
are kept, too. A commit brings the open table up to date.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema

__all__ = ["OpenTable", "commit", "open_table"]

Stamp = tuple[str, int, int]
"""Name, inode and time of an entry of a log."""

_OPEN: Final[dict[tuple[str, int | None], tuple[Stamp, OpenTable]]] = {}
"""(folder, version) -> the table, and what the last entry of its log looked like when it was opened. None: the newest version."""
_MOST_OPEN: Final = 128
"""Tables that are kept open, at most."""
_LOCK: Final = threading.RLock()
"""Threads of a job share open tables."""


class OpenTable:
    """One version of a table. Each answer is asked for once."""

    def __init__(self, at: Path, table: DeltaTable) -> None:
        self.version: Final = table.version()
        self._at = at
        self._table: DeltaTable | None = table
        self._numbers: dict[str, int | None] = {}
        self._files: pa.Table | None = None
        self._fields: list[tuple[str, Any]] | None = None

    def number(self, application: str) -> int | None:
        """The newest number that an application gave to its commits; None if it made none."""
        with _LOCK:
            if application not in self._numbers:
                self._numbers[application] = self._delta().transaction_version(application)
            return self._numbers[application]

    def files(self) -> pa.Table:
        """The files that count, with their statistics, as the log has them."""
        with _LOCK:
            if self._files is None:
                self._files = pa.table(self._delta().get_add_actions(flatten=True))
            return self._files

    def fields(self) -> list[tuple[str, Any]]:
        """Names and types of its columns."""
        with _LOCK:
            if self._fields is None:
                self._fields = [(field.name, field.type) for field in self._delta().schema().fields]
            return self._fields

    def take(self) -> DeltaTable:
        """Hand out the table itself, which is going to have another version."""
        with _LOCK:
            table = self._delta()
            self._table = None
            return table

    def _delta(self) -> DeltaTable:
        if self._table is None:
            self._table = DeltaTable(self._at, version=self.version)
        return self._table


def open_table(at: Path, version: int | None = None) -> OpenTable | None:
    """Open the table in a folder at a version, or at its newest; None if there is none. Raises what `deltalake` raises."""
    log = at / "_delta_log"
    newest = _last_entry(log)
    with _LOCK:
        if version is not None and (known := _known(at, None, newest)) is not None and known.version == version:
            return known
        stamp = newest if version is None else _entry(log, version)
        known = _known(at, version, stamp)
        if known is not None:
            return known
        if not log.is_dir():
            return None
        opened = OpenTable(at, DeltaTable(at, version=version))
        if stamp is not None:
            _keep(at, version, stamp, opened)
        return opened


def commit(at: Path, opened: OpenTable, actions: list[Any], schema: DeltaSchema, numbers: list[Transaction]) -> None:
    """Commit a transaction that appends and removes files. Raises what `deltalake` raises, if another commit came first."""
    with _LOCK:
        _OPEN.pop((str(at), None), None)
        table = opened.take()
        table.create_write_transaction(actions, "append", schema, commit_properties=CommitProperties(app_transactions=numbers))
        table.update_incremental()
        stamp = _entry(at / "_delta_log", table.version())
        if stamp is not None:
            _keep(at, None, stamp, OpenTable(at, table))


def _known(at: Path, version: int | None, stamp: Stamp | None) -> OpenTable | None:
    known = _OPEN.get((str(at), version))
    return known[1] if known is not None and stamp is not None and known[0] == stamp else None


def _keep(at: Path, version: int | None, stamp: Stamp, opened: OpenTable) -> None:
    if len(_OPEN) >= _MOST_OPEN:
        _OPEN.clear()
    _OPEN[str(at), version] = (stamp, opened)


def _last_entry(log: Path) -> Stamp | None:
    """The last entry of a log; None if there is none."""
    try:
        name = max((name for name in os.listdir(log) if name.endswith(".json")), default=None)  # noqa: PTH208 - many names, no paths
    except OSError:
        return None
    return None if name is None else _stamp(log, name)


def _entry(log: Path, version: int) -> Stamp | None:
    """The entry of a version; None if it is gone."""
    return _stamp(log, f"{version:020d}.json")


def _stamp(log: Path, name: str) -> Stamp | None:
    try:
        found = (log / name).stat()
    except OSError:
        return None
    return name, found.st_ino, found.st_mtime_ns
