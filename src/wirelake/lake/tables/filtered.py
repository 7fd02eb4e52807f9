"""Columns that people filter by: every commit has their smallest and largest values, so that readers skip files."""

from __future__ import annotations

from typing import Final

from wirelake.lake.tables.schema import Table

__all__ = ["FILTERED", "SORTED", "filtered", "sorted_by"]

FILTERED: Final = (
    "ts",
    "requested",
    "opened",
    "minute",
    "first_seen",
    "last_seen",
    "started",
    "protocol",
    "kind",
    "subject",
    "status",
    "what",
    "severity",
    "rule",
    "fault",
    "threat",
    "client_address",
    "server_address",
    "server_port",
    "source",
)
"""Names of these columns, in any table that has them.

Ids are not among them: they are binary, for which Delta has no smallest and largest value. Each column here costs every reader of the log.
"""

SORTED: Final = ("protocol", "session_id", "ts")
"""Message tables are sorted by those of these columns that they have, within each row group."""


def filtered(table: Table) -> tuple[str, ...]:
    """List the columns of a table that commits have statistics of; none for tables that only wirelake reads."""
    return () if table.name.startswith("_") else tuple(name for name in FILTERED if name in table.schema.names)


def sorted_by(table: Table) -> tuple[str, ...]:
    """List the columns that row groups of a table are sorted by: only those of messages are."""
    is_of_messages = table.grain == ("message_id",) and "session_id" in table.schema.names
    return tuple(name for name in SORTED if name in table.schema.names) if is_of_messages else ()
