"""`emp`: every EMP message with every field of the specification, by its own name. Written in the task that decodes.

It refuses to know the columns: the room's `columns.py` does.
"""

from __future__ import annotations

from typing import Final

from wirelake.lake.schema import room
from wirelake.protocols.emp.columns import SCHEMA

__all__ = ["TABLE"]

TABLE: Final = room("emp", SCHEMA, "One row per EMP message.")
