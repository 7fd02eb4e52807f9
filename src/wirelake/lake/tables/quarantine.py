"""`quarantine`: byte ranges that could not be decoded, kept as they are.

Written by the tasks that decode.

A row with a clause is also a violation.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import OBSERVER, TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "quarantine",
    ("source", "offset", "length", "layer"),
    pa.schema(
        [
            column("session_id", pa.binary(), "16 bytes: the session; null if the bytes belong to none."),
            column("connection_id", pa.binary(), "16 bytes: the connection; null if the bytes belong to none."),
            column("ts", TIME, "Time of the first byte; null if the source has no times."),
            column("protocol", pa.string(), "Protocol whose decoder failed; null if none was tried."),
            column("direction", pa.string(), "`to_server` or `to_client`; null outside a connection."),
            column("layer", pa.string(), "Layer that failed: the capture's container, its packets, or the protocol."),
            column("reason", pa.string(), "Name of the fault."),
            column("clause", pa.string(), "The clause or ruling it breaks; null if none applies."),
            column("text", pa.string(), "The reason as one sentence."),
            column("raw", pa.binary(), "The bytes."),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Offset of the first byte in the source."),
            column("length", pa.int64(), "Bytes in the source from the first to the last byte."),
            OBSERVER,
        ]
    ),
    "One row per byte range that was not decoded.",
)
