"""The table of checkpoints: how the analysis of long open sessions stands, so that a refresh goes on from there.

It is not in the catalog: only the refresh reads it. Its folder lies in `_wirelake`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["CHECKPOINTS"]

CHECKPOINTS: Final = Table(
    "_wirelake/checkpoints",
    ("session_id",),
    pa.schema(
        [
            column("session_id", pa.binary(), "Session."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column("ts", TIME, "All messages up to this time are analyzed, and none after it."),
            column("messages", pa.int64(), "Number of these messages."),
            column("checkpoint", pa.binary(), "A `Checkpoint` of `lake/gold/fold/checkpoints.py`, as MessagePack."),
        ]
    ),
    "One row per long session that was open when it was last analyzed.",
)
