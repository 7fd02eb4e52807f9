"""`quarantine`: stretches of bytes that could not be decoded, kept as they are. Written in the task that decodes.

It refuses to judge: a row that names a clause is judged in `violations`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "quarantine",
    ("source", "offset", "length", "layer"),
    pa.schema(
        [
            column("session_id", pa.binary(), "16 bytes: the conversation; null if the bytes belong to none."),
            column("connection_id", pa.binary(), "16 bytes: the connection; null if the bytes belong to none."),
            column("ts", TIME, "When the first of the bytes was seen; null if the source does not say."),
            column("protocol", pa.string(), "The room that could not read them; null if none was asked."),
            column("direction", pa.string(), "`to_server` or `to_client`; null outside a connection."),
            column("layer", pa.string(), "Who gave up: the capture's container, its packets, or the protocol."),
            column("reason", pa.string(), "Why: the name of the fault."),
            column("clause", pa.string(), "The clause or ruling it breaks; null if no specification speaks of it."),
            column("text", pa.string(), "The same as one plain sentence."),
            column("raw", pa.binary(), "The bytes."),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Where in the source the first of them is."),
            column("length", pa.int64(), "Bytes in the source from the first to the last of them."),
        ]
    ),
    "One row per stretch of bytes that was not decoded.",
)
