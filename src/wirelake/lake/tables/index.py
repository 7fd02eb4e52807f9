"""The index tables: sums per batch and file, from which gold tables are refreshed incrementally.

Written by the tasks that decode (`decode/index_rows.py`), and committed with their batch.

They are not in the catalog: their rows have batch numbers, which no other table has. Their folders lie in `_wirelake`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import CONNECTION, TIME, Table, column

__all__ = ["CONNECTION_INDEX", "INDEX_TABLES", "MINUTE_INDEX", "PARTING"]

_BATCH: Final = column("batch", pa.int64(), "Batch of the rows that are summed.")
_FILE: Final = column("file", pa.string(), "Name of the files of these rows, in every table that has rows of the task; see `delta.locate`.")
PARTING: Final = pa.struct([("ts", TIME), ("message_id", pa.binary()), ("how", pa.string())])

CONNECTION_INDEX: Final = Table(
    "_wirelake/connection_index",
    ("batch", "file", "session_id", "connection_id", "direction", "protocol", "observer"),
    pa.schema(
        [
            _BATCH,
            column("protocol", pa.string(), "Protocol; null for bytes of no protocol."),
            column("session_id", pa.binary(), "Session; the connection's id for its events; empty if there is none."),
            CONNECTION,
            column("direction", pa.string(), "Direction of the messages; null for events of the connection and for unreadable bytes."),
            column("messages", pa.int64(), "Number of messages."),
            column("bytes", pa.int64(), "Bytes of the messages."),
            column("keepalives", pa.int64(), "Number of keep-alive messages."),
            column("errors", pa.int64(), "Messages that report an error, or break a rule by themselves."),
            column("first_seen", TIME, "Time of the first."),
            column("last_seen", TIME, "Time of the last."),
            column("last_word", TIME, "Time of the last that is neither a close, an error nor an acknowledgement."),
            column("greeted", TIME, "Time of the first handshake message."),
            column("parting", PARTING, "The first close or error message: time, id and kind; null if there is none."),
            column("observer", pa.string(), "Who saw the messages, the events or the bytes; of an older lake, `observer_kind`."),
            column("observer_kind", pa.string(), "Kind of the observer, in rows of the events of a connection."),
            column("client_address", pa.string(), "Endpoint of the connection, in rows of its events."),
            column("client_port", pa.int32(), "See `client_address`."),
            column("server_address", pa.string(), "See `client_address`."),
            column("server_port", pa.int32(), "See `client_address`."),
            _FILE,
        ]
    ),
    "One row per batch, file, session, connection and direction, and one per batch, file and connection.",
)

MINUTE_INDEX: Final = Table(
    "_wirelake/minute_index",
    ("batch", "file", "minute", "protocol", "subject", "quarantined"),
    pa.schema(
        [
            _BATCH,
            column("minute", TIME, "When the minute begins."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column("subject", pa.string(), "Subject of the messages."),
            column("messages", pa.int64(), "Number of messages."),
            column("bytes", pa.int64(), "Bytes of the messages."),
            column("errors", pa.int64(), "Messages that report an error, or break a rule by themselves."),
            column("quarantined", pa.int64(), "Number of byte ranges that could not be decoded."),
            _FILE,
        ]
    ),
    "One row per batch, file, minute, protocol and subject, and one for bytes that could not be decoded.",
)

INDEX_TABLES: Final = (CONNECTION_INDEX, MINUTE_INDEX)
"""All tables of the index."""
