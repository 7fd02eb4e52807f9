"""`emp`, `event_mesh`, …: every message of a protocol with every field of its specification. Written in the task that decodes.

The columns come from the protocol's descriptor, so a protocol of another package has its table, too.
"""

from __future__ import annotations

from typing import Final

from wirelake import protocols
from wirelake.lake.tables.schema import Table, room

__all__ = ["TABLES"]

TABLES: Final[tuple[Table, ...]] = tuple(
    room(name, protocols.get(name).columns().SCHEMA, f"One row per message of {name}.") for name in protocols.names()
)
"""One per protocol, in their order."""
