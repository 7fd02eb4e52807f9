"""`messages`: every message of every protocol, in one vocabulary.

Written by the tasks that decode.

Each protocol's `columns.py` maps its messages to these columns.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import CONNECTION, OBSERVER, SESSION, TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "messages",
    ("message_id",),
    pa.schema(
        [
            column("message_id", pa.binary(), "16 bytes: the source's id, then the offset of the first byte, big-endian."),
            SESSION,
            CONNECTION,
            column("ts", TIME, "Time of the last byte of the message; null if the source has no times."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column("direction", pa.string(), "`to_server` if the client sent it, `to_client` if the server did."),
            column(
                "kind",
                pa.string(),
                "`handshake`, `event`, `request`, `response`, `progress`, `cancel`, `ack`, `keepalive`, `control`, `error` or `close`.",
            ),
            column("name", pa.string(), "Name of the message in its protocol, for instance `hello`."),
            column("subject", pa.string(), "Event name, method or uri; null where the protocol has none."),
            column(
                "correlation_id", pa.string(), "Id that ties a response to its request; null if the message is not part of an exchange."
            ),
            column("size", pa.int64(), "Bytes of the message itself, envelope included."),
            column("status", pa.string(), "`ok`; `faulty`, if it breaks a rule by itself; `error`, if it reports one."),
            column("fault", pa.string(), "Name of the first rule the message breaks by itself; null if none."),
            column("body", pa.binary(), "The payload, decompressed. Null if the message has none."),
            column("body_json", pa.string(), "The payload as JSON text, if it is JSON."),
            column(
                "verified",
                pa.bool_(),
                "Whether its HMAC or signature was valid by the keys given to the ingest; see `security`.",
            ),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Offset of the first byte of the message in the source."),
            column(
                "length", pa.int64(), "Bytes in the source from the first to the last byte of the message; other packets may lie between."
            ),
            OBSERVER,
        ]
    ),
    "One row per protocol message.",
)
