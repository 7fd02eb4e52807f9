"""Making what was built count: all gold tables in one go, or none.

All files are written before the first table counts one of them. Then it is written down which files go and which come, table by table;
from there on the change will be finished, whatever happens, from that record and without Spark.

It refuses to know how files were made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from wirelake.errors import LakeError
from wirelake.lake.store import delta, journal, snapshot
from wirelake.lake.store.delta import File
from wirelake.lake.tables import ledger, security
from wirelake.lake.tables.catalog import GOLD, RULES_VERSION
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.schema import Table

__all__ = ["Change", "age", "finish", "forget", "has_other_rules", "publish", "stale", "sweep"]

_PENDING: Final = "gold.json"
_EDITION: Final = "edition"


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
    edition: int = 0
    """Of which edition they are then; those that were built before there were any are of none."""


def publish(lake: Path, batch: int, changes: list[Change]) -> None:
    """All tables change, together."""
    revision = 1 + max(delta.revision(lake, table) for table in GOLD)
    journal.write(lake, _PENDING, msgspec.json.encode(_Pending(batch, revision, changes, RULES_VERSION)))
    finish(lake)


def finish(lake: Path) -> bool:
    """Do what is written down, unless it is done; says whether there was something."""
    content = journal.read(lake, _PENDING)
    if content is None:
        return False
    try:
        pending = msgspec.json.decode(content, type=_Pending)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_PENDING} cannot be read: {error}") from error
    for change in pending.changes:
        delta.exchange(lake, table_named(change.table), change.removed, change.added, pending.batch, pending.revision)
    journal.write(lake, _EDITION, str(pending.edition).encode())
    journal.remove(lake, _PENDING)
    return True


def has_other_rules(lake: Path) -> bool:
    """Whether there are gold tables that this edition of the builders did not build."""
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


def age(lake: Path) -> None:
    """Make gold tables count as of no edition, so that the next refresh builds all of them from what silver tables have then."""
    finish(lake)  # which would say otherwise later
    if journal.read(lake, _EDITION) is not None:
        journal.remove(lake, _EDITION)


def forget(lake: Path) -> None:
    """Do not do what is written down: everything is going to be built anew."""
    if journal.read(lake, _PENDING) is not None:
        journal.remove(lake, _PENDING)


def sweep(lake: Path) -> None:
    """Remove what a builder left behind that died, and what nobody can be reading any more."""
    for table in GOLD:
        snapshot.sweep(lake, table)
