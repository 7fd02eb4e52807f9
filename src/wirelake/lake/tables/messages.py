"""`messages`: every message of every protocol in one vocabulary. Written in the task that decodes.

It refuses to know how a room maps its messages to these columns: each room's `columns.py` does.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import CONNECTION, SESSION, TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "messages",
    ("message_id",),
    pa.schema(
        [
            column("message_id", pa.binary(), "16 bytes: the source's id, then the offset of the first byte, big-endian."),
            SESSION,
            CONNECTION,
            column("ts", TIME, "When the last byte of the message was seen; null if the source does not say."),
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("direction", pa.string(), "`to_server` when the client speaks, `to_client` when the server does."),
            column(
                "kind",
                pa.string(),
                "What it is: handshake, event, request, response, progress, cancel, ack, keepalive, control, error or close.",
            ),
            column("name", pa.string(), "What its own protocol calls it, for instance `hello`."),
            column("subject", pa.string(), "What it is about: event name, method, uri; null where the protocol has no such thing."),
            column("correlation_id", pa.string(), "What ties a response to its request; null if the message is no part of an exchange."),
            column("size", pa.int64(), "Bytes of the message itself, envelope included."),
            column("status", pa.string(), "`ok`; `faulty`, if it breaks a rule by itself; `error`, if it reports one."),
            column("fault", pa.string(), "Name of the first rule the message breaks by itself; null if none."),
            column("body", pa.binary(), "The payload, plain: after undoing compression. Null if the message carries none."),
            column("body_json", pa.string(), "The payload as JSON text, if it is that."),
            column(
                "verified",
                pa.bool_(),
                "Whether its HMAC or signature was right by the keys it was read with; see `security`.",
            ),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Where in the source the bytes of the message begin."),
            column("length", pa.int64(), "Bytes in the source from there to the last of them: other packets may lie between."),
        ]
    ),
    "One row per protocol message.",
)
