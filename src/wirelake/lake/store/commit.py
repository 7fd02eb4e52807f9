"""Publishing a prepared batch, and what a new ingest does first: finish or sweep away what the last one left behind.

It refuses to know sources and Spark: what is prepared can be published with nothing but the lake itself.
"""

from __future__ import annotations

from pathlib import Path

from wirelake.lake.store import delta, gold_commit, journal, migration, snapshot
from wirelake.lake.tables.catalog import SILVER, TABLES
from wirelake.lake.tables.index import INDEX_TABLES

__all__ = ["prepare", "publish", "recover"]


def prepare(lake: Path) -> None:
    """Make every table that is not there; what another version of wirelake built from others will be built anew."""
    for table in SILVER:  # with other columns it is refused, and nothing has changed
        delta.create(lake, table)
    migration.upgrade(lake)
    for table in TABLES.values():
        delta.create(lake, table)
    snapshot.begin(lake)


def publish(lake: Path, prepared: journal.Pending) -> None:
    """Make every table count the files of a prepared batch, the ledger last; tables that do already are left alone.

    A batch that removes rows makes gold tables and their index count as built by nobody: the next refresh builds all of them.
    What following goes on with comes after them: until then it goes on from where it was, and finds the batch pending.
    """
    if prepared.removed:
        gold_commit.age(lake)
    for table in SILVER:
        added = [*(prepared.files or {}).get(table.name, ()), *prepared.kept.get(table.name, ())]
        removed = prepared.removed.get(table.name, [])
        if added or removed:
            delta.append(lake, table, added, prepared.batch, removed)
    if prepared.removed:
        for table in INDEX_TABLES:  # it has sums of rows that are gone
            delta.make_anew(lake, table)
    if prepared.following is not None:
        journal.remember(lake, prepared.following)


def recover(lake: Path) -> bool:
    """Finish a batch that was prepared, sweep away one that was not; says whether there was one to finish."""
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
    return left.files is not None
