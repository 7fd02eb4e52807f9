"""All tables of the lake, by name. A table exists because its file under `tables/` is listed here.

It refuses to know Spark: listing tables starts nothing.
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
from wirelake.lake.tables.schema import Table

__all__ = ["GOLD", "RULES_VERSION", "SILVER", "TABLES", "table"]

SILVER: Final = (messages.TABLE, *protocols.TABLES, connections.TABLE, quarantine.TABLE, unrecognised.TABLE, ledger.TABLE)
"""Written where captures are decoded, and published in this order: a source that is in the ledger is in all of them."""

GOLD: Final = (exchanges.TABLE, violations.TABLE, sessions.TABLE, security.TABLE, metrics.TABLE, topology.TABLE)
"""Built by Spark SQL from the others, in this order."""

RULES_VERSION: Final = 4
"""Which edition of their builders and of all rules gold tables are of. Raise it when they would say something else of the same messages:
then every lake has them built anew by its next ingest, so that what a table says does not depend on who added what, and when."""

TABLES: Final[dict[str, Table]] = {table.name: table for table in (*SILVER, *GOLD, runs.TABLE)}
"""Name -> table: those that say what was captured, and the one that says what was done."""


def table(name: str) -> Table:
    """The table of this name; a name that is none is answered with those that are."""
    try:
        return TABLES[name]
    except KeyError:
        raise LakeError(f"there is no table {name!r}; there are {', '.join(TABLES)}") from None
