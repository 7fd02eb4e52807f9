"""`emp`, `event_mesh`, …: every message of a protocol, with every field.

Written by the tasks that decode. The columns come from the protocol's descriptor, so a protocol of another package has its table, too.
"""

from __future__ import annotations

from typing import Final

from wirelake import protocols
from wirelake.lake.tables.protocol_schema import table_of
from wirelake.lake.tables.schema import Table
from wirelake.protocols.protocol import SessionKind

__all__ = ["LINKS", "NODES", "TABLES"]

TABLES: Final[tuple[Table, ...]] = tuple(map(table_of, protocols.names()))
"""One per protocol, in their order."""

LINKS: Final = tuple(name for name in protocols.names() if protocols.get(name).session_kind is SessionKind.LINK)
"""Protocols whose sessions are links over several connections."""
NODES: Final = tuple(name for name in protocols.names() if protocols.get(name).session_kind is SessionKind.NODE)
"""Protocols whose sessions are nodes."""
