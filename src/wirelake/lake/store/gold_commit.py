"""Commit gold tables: all of them in one go, or none.

All files are written before the first commit. Then `gold.json` records which files go and which come, table by table. From there on the
change will be finished from that record, without Spark, even after a crash.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from wirelake.errors import LakeError
from wirelake.lake.store import delta, journal, snapshot
from wirelake.lake.store.delta import File
from wirelake.lake.tables import ledger, security
from wirelake.lake.tables.catalog import GOLD, RULES_VERSION, gold_table
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.schema import Table

__all__ = ["Change", "drop_pending", "finish", "has_other_rules", "mark_stale", "publish", "stale", "sweep"]

_PENDING: Final = "gold.json"
_EDITION: Final = "edition"


class Change(msgspec.Struct, frozen=True):
    """The files that one table loses and gets."""

    table: str
    removed: list[File]
    added: list[File]


class _Pending(msgspec.Struct, frozen=True):
    batch: int
    """Newest batch in all tables, afterwards."""
    revision: int
    changes: list[Change]
    edition: int = 0
    """Rules version they are built by; 0 before there were versions."""


def publish(lake: Path, batch: int, changes: list[Change]) -> None:
    """Record the changes of all tables, then commit them."""
    revision = 1 + max(delta.revision(lake, table) for table in GOLD)
    journal.write(lake, _PENDING, msgspec.json.encode(_Pending(batch, revision, changes, RULES_VERSION)))
    finish(lake)


def finish(lake: Path) -> bool:
    """Commit recorded changes that are not committed yet; returns whether there were any."""
    content = journal.read(lake, _PENDING)
    if content is None:
        return False
    try:
        pending = msgspec.json.decode(content, type=_Pending)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_PENDING} cannot be read: {error}") from error
    for change in pending.changes:
        delta.exchange(lake, gold_table(change.table), change.removed, change.added, pending.batch, pending.revision)
    journal.write(lake, _EDITION, str(pending.edition).encode())
    journal.remove(lake, _PENDING)
    return True


def has_other_rules(lake: Path) -> bool:
    """Whether there are gold tables that another version of the rules built."""
    return journal.read(lake, _EDITION) != str(RULES_VERSION).encode() and any(delta.batch(lake, table) is not None for table in GOLD)


def stale(lake: Path, keys: object | None = None) -> list[Table]:
    """List the gold tables that a refresh must rebuild, in build order.

    A table is stale when it is older than the ledger, `security` also when keys are given. All are stale when the rules version changed.
    """
    newest = delta.batch(lake, ledger.TABLE)
    if newest is None:
        return []
    if has_other_rules(lake):
        return list(GOLD)
    return [table for table in GOLD if delta.batch(lake, table) != newest or (table is security.TABLE and keys is not None)]


def mark_stale(lake: Path) -> None:
    """Mark all gold tables as stale: the next refresh rebuilds them from the silver tables."""
    finish(lake)  # else it would mark them as fresh later
    if journal.read(lake, _EDITION) is not None:
        journal.remove(lake, _EDITION)


def drop_pending(lake: Path) -> None:
    """Drop recorded changes: all gold tables are going to be rebuilt."""
    if journal.read(lake, _PENDING) is not None:
        journal.remove(lake, _PENDING)


def sweep(lake: Path) -> None:
    """Delete files of dead refreshes, and replaced files that no reader needs any more."""
    for table in GOLD:
        snapshot.sweep(lake, table)
    delta.sweep(lake, CHECKPOINTS)  # it has no readers
