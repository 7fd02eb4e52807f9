"""Making what was built count: all gold tables in one go, or none.

All files are written before the first table counts one of them. Then it is written down which files go and which come, table by table;
from there on the change will be finished, whatever happens, from that record and without Spark. Files that went are kept for a while:
somebody may be reading them.

It refuses to know how files were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from wirelake.errors import LakeError
from wirelake.lake import delta, journal
from wirelake.lake.catalog import GOLD
from wirelake.lake.catalog import table as table_named
from wirelake.lake.delta import File

__all__ = ["GRACE_SECONDS", "Change", "finish", "publish", "sweep"]

GRACE_SECONDS: Final = 600.0
"""How long files that count no more are kept for whoever still reads them."""

T = TypeVar("T")

_PENDING: Final = "gold.json"
_GONE: Final = "gone.json"


class Change(msgspec.Struct, frozen=True):
    """What becomes of one table."""

    table: str
    removed: list[File]
    added: list[File]


class _Pending(msgspec.Struct, frozen=True):
    batch: int
    """As of which batch all tables are, afterwards."""
    revision: int
    changes: list[Change]


class _Gone(msgspec.Struct, frozen=True):
    table: str
    path: str
    at: float
    """When it ceased to count, in seconds since 1970."""


def publish(lake: Path, batch: int, changes: list[Change]) -> None:
    """All tables change, together."""
    revision = 1 + max(delta.revision(lake, table) for table in GOLD)
    journal.write(lake, _PENDING, msgspec.json.encode(_Pending(batch, revision, changes)))
    finish(lake)


def finish(lake: Path) -> bool:
    """Do what is written down, unless it is done; says whether there was something."""
    content = journal.read(lake, _PENDING)
    if content is None:
        return False
    pending = _decode(lake, _PENDING, content, _Pending)
    for change in pending.changes:
        delta.exchange(lake, table_named(change.table), change.removed, change.added, pending.batch, pending.revision)
    now = time.time()
    gone = [_Gone(change.table, file.path, now) for change in pending.changes for file in change.removed]
    _remember(lake, [*_gone(lake), *gone])
    journal.remove(lake, _PENDING)
    return True


def sweep(lake: Path) -> None:
    """Remove what a builder left behind that died, and what nobody can be reading any more."""
    kept = [one for one in _gone(lake) if one.at > time.time() - GRACE_SECONDS]
    for table in GOLD:
        delta.sweep(lake, table, keep={one.path for one in kept if one.table == table.name})
    _remember(lake, kept)


def _gone(lake: Path) -> list[_Gone]:
    content = journal.read(lake, _GONE)
    return [] if content is None else _decode(lake, _GONE, content, list[_Gone])


def _remember(lake: Path, gone: Iterable[_Gone]) -> None:
    journal.write(lake, _GONE, msgspec.json.encode(list({(one.table, one.path): one for one in gone}.values())))


def _decode(lake: Path, name: str, content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: _wirelake/{name} cannot be read: {error}") from error
