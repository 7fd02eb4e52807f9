"""Commit a prepared batch to all silver tables; recover what the last ingest left behind.

Needs neither sources nor Spark: a prepared batch can be committed from the lake alone.
"""

from __future__ import annotations

from pathlib import Path

from wirelake.lake.store import delta, gold_commit, journal, migration, snapshot
from wirelake.lake.tables import ledger
from wirelake.lake.tables.catalog import SILVER, TABLES
from wirelake.lake.tables.index import INDEX_TABLES

__all__ = ["prepare", "publish", "recover"]


def prepare(lake: Path) -> None:
    """Create missing tables, and migrate gold tables of another version."""
    migration.widen(lake)
    for table in SILVER:  # raises if it has other columns, before anything has changed
        delta.create(lake, table)
    migration.upgrade(lake)
    for table in TABLES.values():
        delta.create(lake, table)
    snapshot.begin(lake)


def publish(lake: Path, prepared: journal.Pending) -> None:
    """Commit the files of a prepared batch, one transaction per table, the index before the ledger, and that last.

    Idempotent: a table that has the batch is skipped.

    A batch that removes rows marks gold tables and the index as stale: the next refresh rebuilds all of them.
    The state of following is recorded last. Until then following continues from where it was, and finds the batch pending.
    """
    if prepared.removed:
        gold_commit.mark_stale(lake)
    for table in SILVER:
        if table is ledger.TABLE and not prepared.removed:
            _extend_index(lake, prepared)
        added = [*(prepared.files or {}).get(table.name, ()), *prepared.kept.get(table.name, ())]
        removed = prepared.removed.get(table.name, [])
        if added or removed:
            delta.append(lake, table, added, prepared.batch, removed)
    if prepared.removed:
        for table in INDEX_TABLES:  # it has sums of rows that were removed
            delta.recreate(lake, table)
    if prepared.following is not None:
        journal.remember(lake, prepared.following)


def _extend_index(lake: Path, prepared: journal.Pending) -> None:
    """Commit the index rows of a batch, unless the index lacks earlier ones: then a refresh adds this one, too.

    The ledger comes later, so its batch is the one before.
    """
    before = delta.batch(lake, ledger.TABLE) or 0
    for table in INDEX_TABLES:
        if before <= (delta.batch(lake, table) or 0) < prepared.batch:
            delta.append(lake, table, (prepared.files or {}).get(table.name, ()), prepared.batch)


def recover(lake: Path) -> bool:
    """Finish a batch that was prepared, delete the files of one that was not.

    Returns whether there was one to finish.
    """
    with journal.fenced(lake):
        left = journal.pending(lake)
        if left is None:
            return False
        if left.files is not None:
            publish(lake, left)
        journal.done(lake)
    read = snapshot.current(lake)
    for table in SILVER:
        delta.sweep(lake, table, read.files(table.name))
    for table in INDEX_TABLES:
        delta.sweep_batch(lake, table, left.batch)
    return left.files is not None
