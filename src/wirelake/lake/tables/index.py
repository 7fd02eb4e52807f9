"""The index of the lake: tables with sums of every batch, which gold tables are refreshed from.

They are not in the catalog: their rows say in which batch a message came, which no other table does. Their folders lie in `_wirelake`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import CONNECTION, TIME, Table, column

__all__ = ["CONNECTION_INDEX", "INDEX_TABLES", "MINUTE_INDEX"]

_BATCH: Final = column("batch", pa.int64(), "The batch it came with.")
_PARTING: Final = pa.struct([("ts", TIME), ("message_id", pa.binary()), ("how", pa.string())])

CONNECTION_INDEX: Final = Table(
    "_wirelake/talks",
    ("batch", "session_id", "connection_id", "direction", "protocol"),
    pa.schema(
        [
            _BATCH,
            column("protocol", pa.string(), "The room; null if bytes belong to none."),
            column("session_id", pa.binary(), "The conversation; of a connection as such, the connection; empty if there is none."),
            CONNECTION,
            column(
                "direction", pa.string(), "Who spoke; null if nobody did: something happened to the connection, or bytes were unreadable."
            ),
            column("messages", pa.int64(), "How many messages."),
            column("bytes", pa.int64(), "Bytes of the messages."),
            column("keepalives", pa.int64(), "How many of them keep the connection alive."),
            column("errors", pa.int64(), "How many of them report an error, or break a rule by themselves."),
            column("first_seen", TIME, "When the first was seen."),
            column("last_seen", TIME, "When the last was seen."),
            column("last_word", TIME, "When the last was seen that is neither a parting nor an acknowledgement."),
            column("greeted", TIME, "When the first was seen that is a handshake."),
            column("parting", _PARTING, "The first that is a parting: when, which and how; null if there was none."),
            column("client_address", pa.string(), "Of what happened to the connection: its ends."),
            column("client_port", pa.int32(), "See `client_address`."),
            column("server_address", pa.string(), "See `client_address`."),
            column("server_port", pa.int32(), "See `client_address`."),
        ]
    ),
    "One row per batch, conversation, connection and direction, and one per batch and connection.",
)

MINUTE_INDEX: Final = Table(
    "_wirelake/tallies",
    ("batch", "minute", "protocol", "subject", "quarantined"),
    pa.schema(
        [
            _BATCH,
            column("minute", TIME, "When the minute begins."),
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("subject", pa.string(), "What messages are about."),
            column("messages", pa.int64(), "How many messages."),
            column("bytes", pa.int64(), "Bytes of the messages."),
            column("errors", pa.int64(), "How many of them report an error, or break a rule by themselves."),
            column("quarantined", pa.int64(), "How many stretches of bytes could not be read."),
        ]
    ),
    "One row per batch, minute, protocol and subject, and one for what could not be read.",
)

INDEX_TABLES: Final = (CONNECTION_INDEX, MINUTE_INDEX)
"""All tables of the index."""
