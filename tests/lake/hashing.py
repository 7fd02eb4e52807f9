"""What a lake says, as one hash for each table: over all rows and columns, in an order that does not depend on how they were written."""

from __future__ import annotations

import hashlib
from pathlib import Path

from wirelake.lake.store import snapshot
from wirelake.lake.store.snapshot import Snapshot
from wirelake.lake.tables.catalog import TABLES

LEFT_OUT = frozenset({"runs"})
"""Tables that tell of runs, not of captures."""


def hashes(lake: Path, seen: Snapshot | None = None, *, apart_from: frozenset[str] = frozenset()) -> dict[str, str]:
    """Table name -> hash of its rows, as a reader sees them now or saw them in a snapshot; some columns may be left out."""
    seen = seen or snapshot.current(lake)
    found = {}
    for name, table in TABLES.items():
        if name not in LEFT_OUT:
            columns = [column for column in table.schema.names if column not in apart_from]
            rows = sorted(repr(sorted(row.items())) for row in seen.dataset(table.name).to_table(columns).to_pylist())
            found[name] = hashlib.sha256("\n".join([*table.schema.names, *rows]).encode()).hexdigest()
    return found
