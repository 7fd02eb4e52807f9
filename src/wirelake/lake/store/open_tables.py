"""Delta tables that are open: one whose log did not change is not opened again.

Opening a table takes 6 to 20 milliseconds of CPU, a question about an open one about two. A job asks every table many times, so the answers
are kept, too. A commit brings the open table up to date. It is durable with the next record of the journal.

All readers and writers open tables here, so tables with features that are not honoured are refused here.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from wirelake.errors import TableFeature
from wirelake.lake.store import durable
from wirelake.lake.store.features import unhonoured

__all__ = ["OpenTable", "commit", "open_table"]

Stamp = tuple[str, int, int]
"""Name, inode and time of an entry of a log."""

_OPEN: Final[dict[tuple[str, int | None], tuple[Stamp, OpenTable]]] = {}
"""(folder, version) -> the table, and what the last entry of its log looked like when it was opened. None: the newest version."""
_HONOURED: Final[dict[str, Stamp]] = {}
"""Folder -> the last entry of its log when its features were looked at."""
_MOST_OPEN: Final = 128
"""Tables that are kept open, at most."""
_CHECKPOINT_EVERY: Final = 100
"""Versions from one checkpoint of a log to the next."""
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""`deltalake` would delete entries before the checkpoint that replaces them is durable."""
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

    def protocol(self) -> dict[str, Any]:
        """Versions and features of Delta Lake that it needs, as its log has them."""
        with _LOCK:
            said = self._delta().protocol()
            return {
                "minReaderVersion": said.min_reader_version,
                "minWriterVersion": said.min_writer_version,
                "readerFeatures": said.reader_features,
                "writerFeatures": said.writer_features,
            }

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
    """Open the table in a folder at a version, or at its newest; None if there is none.

    Raises what `deltalake` raises, and TableFeature, also if newer versions have the feature: readers of a snapshot would not see them.
    """
    log = at / durable.LOG
    newest = _last_entry(log)
    with _LOCK:
        opened = _known(at, None, newest)
        if opened is None or version not in (None, opened.version):
            stamp = newest if version is None else _entry(log, version)
            opened = _known(at, version, stamp) or _opened(at, version, stamp)
        if opened is not None and newest is not None and _HONOURED.get(str(at)) != newest:
            _refuse(at, durable.newest_protocol(log, opened.version) or opened.protocol())
            _HONOURED[str(at)] = newest
        return opened


def _opened(at: Path, version: int | None, stamp: Stamp | None) -> OpenTable | None:
    last = durable.last_entry(at / durable.LOG)
    if last is None:
        return None
    try:
        opened = OpenTable(at, DeltaTable(at, version=int(last[:20]) if version is None else version))
    except DeltaError:
        _refuse(at, durable.newest_protocol(at / durable.LOG, -1) or {})  # `deltalake` does not know the feature
        raise
    if stamp is not None:
        _keep(at, version, stamp, opened)
    return opened


def _refuse(at: Path, protocol: dict[str, Any]) -> None:
    if features := unhonoured(protocol):
        raise TableFeature(str(at), features)


def commit(at: Path, opened: OpenTable, actions: list[Any], schema: DeltaSchema, numbers: list[Transaction], mode: str = "append") -> None:
    """Commit a transaction that appends and removes files. Raises what `deltalake` raises, if another commit came first.

    With the mode `overwrite` it removes all other files, and may change the columns.
    """
    # How many lines the entry has: with `overwrite` only `deltalake` knows.
    lines = {durable.LINES: str(1 + len(actions) + len(numbers))} if mode == "append" else None
    properties = CommitProperties(custom_metadata=lines, app_transactions=numbers)
    with _LOCK:
        durable.settle(at)  # of two commits to a table, a power cut can tear the second one only
        _OPEN.pop((str(at), None), None)
        table = opened.take()
        table.create_write_transaction(actions, mode, schema, commit_properties=properties, post_commithook_properties=_NO_HOOKS)
        table.update_incremental()
        durable.commit_later(at, opened.version + 1, table.version())
        if table.version() // _CHECKPOINT_EVERY > opened.version // _CHECKPOINT_EVERY:
            _checkpoint(at, table)
        stamp = _entry(at / durable.LOG, table.version())
        if stamp is not None:
            _keep(at, None, stamp, OpenTable(at, table))


def _checkpoint(at: Path, table: DeltaTable) -> None:
    """Write a checkpoint of a log. Entries that it replaces go when it is durable."""
    durable.settle(at)
    table.create_checkpoint()
    log = at / durable.LOG
    durable.sync([*log.glob(f"{table.version():020d}.checkpoint*.parquet"), log / "_last_checkpoint"], above=1)
    table.cleanup_metadata()


def _known(at: Path, version: int | None, stamp: Stamp | None) -> OpenTable | None:
    known = _OPEN.get((str(at), version))
    return known[1] if known is not None and stamp is not None and known[0] == stamp else None


def _keep(at: Path, version: int | None, stamp: Stamp, opened: OpenTable) -> None:
    if len(_OPEN) >= _MOST_OPEN:
        _OPEN.clear()
        _HONOURED.clear()
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
    return _stamp(log, durable.entry_name(version))


def _stamp(log: Path, name: str) -> Stamp | None:
    try:
        found = (log / name).stat()
    except OSError:
        return None
    return name, found.st_ino, found.st_mtime_ns
