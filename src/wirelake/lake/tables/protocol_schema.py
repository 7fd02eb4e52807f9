"""The table of one protocol, made when it is needed.

A process that decodes one protocol does not import the others.
"""

from __future__ import annotations

from functools import cache

from wirelake import protocols
from wirelake.lake.tables.schema import Table, protocol_table

__all__ = ["table_of"]


@cache
def table_of(name: str) -> Table:
    """Return the table of a protocol; its columns come from the protocol's descriptor."""
    return protocol_table(name, protocols.get(name).columns().SCHEMA, f"One row per message of {name}.")
