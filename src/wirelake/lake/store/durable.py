"""What of a lake survives a power cut: syncs, and the recovery of Delta logs.

A file is on the disk when it is synced, and its name when its folder is. `deltalake` syncs nothing in a folder, so this module does: data
files before a record names them, each Delta entry before the next one of its table and before the next record. So at most the last entry of
a log is torn after a power cut, and it never counted. `docs/architecture.md` has the whole order.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections import deque
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.index import INDEX_TABLES

__all__ = [
    "LINES",
    "LOG",
    "commit_later",
    "discard",
    "entry_name",
    "foreign_later",
    "last_entry",
    "later",
    "newest_protocol",
    "recover",
    "settle",
    "sync",
    "write",
]

LOG: Final = "_delta_log"
"""Folder of a table's Delta log."""
LINES: Final = "wirelake.lines"
"""Key in the first line of an entry: how many lines it has. An entry of another program has none."""
_HINT: Final = "_last_checkpoint"
_PARQUET: Final = b"PAR1"
"""How a whole Parquet file begins and ends."""
_THREADS: Final = 8
"""Syncs at a time: the file system writes what waits together at once."""
_LATER: Final[dict[Path, None]] = {}
"""Files and folders that are durable with the next `settle`."""
_LOCK: Final = threading.RLock()
_LOGGER: Final = logging.getLogger("wirelake.lake")


def sync(paths: Iterable[Path], above: int = 2) -> None:
    """Make files durable, and their names: `above` folders over each of them."""
    _sync_all(_with_folders(paths, above))


def later(paths: Iterable[Path], above: int = 1) -> None:
    """Make them durable with the next `settle`."""
    with _LOCK:
        _LATER.update(_with_folders(paths, above))


def settle(folder: Path) -> None:
    """Make durable what was put off in a folder: before a record is written or removed, and before files are deleted."""
    with _LOCK:
        mine = {path: None for path in _LATER if path.is_relative_to(folder)}
        _sync_all(mine)
        for path in mine:
            del _LATER[path]


def _with_folders(paths: Iterable[Path], above: int) -> dict[Path, None]:
    level = dict.fromkeys(paths)
    every = dict(level)
    for _ in range(above):
        level = dict.fromkeys(path.parent for path in level)
        every |= level
    return every


def _sync_all(paths: Collection[Path]) -> None:
    """Sync in a few threads: one after the other took eight times as long on a busy machine."""
    if paths:
        with ThreadPoolExecutor(min(len(paths), _THREADS)) as pool:
            deque(pool.map(_sync, paths), maxlen=0)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes) -> None:
    """Replace a file atomically and durably."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_bytes(content)
    _sync(draft)
    draft.rename(path)
    _sync(path.parent)


def discard(folder: Path) -> None:
    """Delete a folder in one step: after a death it is there, whole, or it is gone."""
    settle(folder)
    gone = folder.with_name(f"{folder.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)  # of a process that died here
    if folder.exists():
        folder.rename(gone)
        _sync(folder.parent)
        shutil.rmtree(gone, ignore_errors=True)


def entry_name(version: int) -> str:
    """Return the name of the entry of a version."""
    return f"{version:020d}.json"


def commit_later(table: Path, first: int, last: int) -> None:
    """Put off syncing the entries of these versions, in the folder of a table. Version 0 brings new folders, too."""
    entries = (table / LOG / entry_name(version) for version in range(first, last + 1))
    later((path for path in entries if path.exists()), above=1 if first else 3)


def foreign_later(table: Path, first: int, last: int) -> None:
    """The same for those of these entries that another program committed."""
    entries = (table / LOG / entry_name(version) for version in range(first, last + 1))
    later(path for path in entries if path.exists() and LINES.encode() not in path.read_bytes())


def last_entry(log: Path) -> str | None:
    """Return the name of the last whole entry of a log; None if there is none."""
    return next((name for name in _entries(log) if _is_whole(log / name)), None)


def newest_protocol(log: Path, after: int) -> dict[str, Any] | None:
    """Return the newest `protocol` action in entries after a version; None if they have none."""
    for name in _entries(log):
        if int(name[:-5]) <= after:
            break
        content = (log / name).read_bytes()
        for line in content.split(b"\n") if b'"protocol"' in content else ():
            if found := (_object(line) or {}).get("protocol"):
                return dict(found)
    return None


def _entries(log: Path) -> list[str]:
    """Names of entries, newest first."""
    try:
        names = os.listdir(log)  # noqa: PTH208 - many names, no paths
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((name for name in names if name.endswith(".json") and name[:-5].isdigit()), reverse=True)


def _is_whole(entry: Path) -> bool:
    """Whether an entry has all its lines."""
    content = entry.read_bytes().rstrip(b"\n")
    if not content or b"\0" in content:
        return False
    lines = content.split(b"\n")
    first, last = _object(lines[0]), _object(lines[-1])
    if first is None or last is None:
        return False
    return str(first.get("commitInfo", {}).get(LINES, len(lines))) == str(len(lines))


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def recover(lake: Path, *, was_killed: bool) -> None:
    """Remove what a power cut left of entries and checkpoints that never counted.

    The last entry may be of a process that was killed before it synced: then it is synced now. The caller holds the lake's lock.
    """
    settle(lake)
    for table in (*TABLES.values(), *INDEX_TABLES, CHECKPOINTS):
        log = lake / table.name / LOG
        last = last_entry(log)
        torn = [log / name for name in _entries(log) if last is None or name > last]
        torn += [path for path in log.glob("*.checkpoint*.parquet") if last is None or path.name > last or not _has_end(path)]
        for path in torn:
            path.unlink()
        hint = log / _HINT
        if hint.exists() and not _is_valid(hint):
            torn.append(hint)
            hint.unlink()
        if torn:
            _LOGGER.warning("table %s of %s: removed what never counted: %s", table.name, lake, ", ".join(path.name for path in torn))
        if last is not None and (was_killed or torn):
            later([log / last])
    settle(lake)


def _has_end(path: Path) -> bool:
    content = path.read_bytes()
    return len(content) > 2 * len(_PARQUET) and content.endswith(_PARQUET)


def _is_valid(hint: Path) -> bool:
    """Whether a hint names a checkpoint that is there."""
    version = (_object(hint.read_bytes()) or {}).get("version")
    return isinstance(version, int) and any(hint.parent.glob(f"{version:020d}.checkpoint*.parquet"))
