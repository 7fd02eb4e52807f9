"""`emp`, `event_mesh`, …: every message of a protocol with every field of its specification. Written in the task that decodes.

It refuses to know the columns: each room's `columns.py` does.
"""

from __future__ import annotations

from typing import Final

from wirelake import protocols
from wirelake.lake.tables.schema import Table, room

__all__ = ["TABLES"]

TABLES: Final[tuple[Table, ...]] = tuple(
    room(name, protocols.columns(name).SCHEMA, f"One row per message of {name}.") for name in protocols.ROOMS
)
"""One per room, in their order."""
