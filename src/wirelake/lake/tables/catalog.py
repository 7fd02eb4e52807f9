"""All tables of a lake, by name.

A table exists because its file in this folder is listed here.
"""

from __future__ import annotations

from typing import Final

from wirelake.errors import LakeError
from wirelake.lake.tables import (
    connections,
    exchanges,
    ledger,
    messages,
    metrics,
    protocols,
    quarantine,
    runs,
    security,
    sessions,
    topology,
    unrecognised,
    violations,
)
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.schema import Table

__all__ = ["GOLD", "RULES_VERSION", "SILVER", "TABLES", "gold_table", "table"]

SILVER: Final = (messages.TABLE, *protocols.TABLES, connections.TABLE, quarantine.TABLE, unrecognised.TABLE, ledger.TABLE)
"""Written by the tasks that decode captures.

Committed in this order: a source in the ledger is in all of them.
"""

GOLD: Final = (exchanges.TABLE, violations.TABLE, sessions.TABLE, security.TABLE, metrics.TABLE, topology.TABLE)
"""Built from other tables, in this order (`lake/gold`)."""

RULES_VERSION: Final = 8
"""Version of the builders of gold tables and of all rules.

Raise it when they give other rows for the same messages.

The next ingest into a lake of another version rebuilds its gold tables. So their rows never depend on which version added a source.
"""

TABLES: Final[dict[str, Table]] = {table.name: table for table in (*SILVER, *GOLD, runs.TABLE)}
"""Name -> table: silver, gold, and the log of runs."""


def table(name: str) -> Table:
    """Return the table of this name. Raises LakeError, which lists the tables, if there is none."""
    try:
        return TABLES[name]
    except KeyError:
        raise LakeError(f"unknown table {name!r}: choose one of {', '.join(TABLES)}") from None


def gold_table(name: str) -> Table:
    """Return the gold table of this name, or the table of checkpoints, which is committed with them."""
    return CHECKPOINTS if name == CHECKPOINTS.name else table(name)
