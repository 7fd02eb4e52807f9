"""`sessions`: every session, from its handshake to its end. Built by `gold/fold`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import OBSERVER, TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "sessions",
    ("session_id",),
    pa.schema(
        [
            column("session_id", pa.binary(), "16 bytes: the session: a connection, a node or a link."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column("transport", pa.string(), "`tcp`, `tls`, `udp`, …"),
            column("client_address", pa.string(), "Address of the side that opened the connection, or of the node."),
            column("client_port", pa.int32(), "Port of the side that opened the connection, or of the node."),
            column("server_address", pa.string(), "Address of the side that was listening; null for a node, which sends to many."),
            column("server_port", pa.int32(), "Port of the side that was listening; null for a node."),
            column("known_by", pa.string(), "How the protocol was recognised: `tag`, `port` or `bytes`."),
            OBSERVER,
            column(
                "observer_kind", pa.string(), "Kind of the observer: `client`, `server` (a recording peer) or `wire` (a packet capture)."
            ),
            column(
                "is_primary",
                pa.bool_(),
                "Whether it counts in sums: of what several observers saw of one link or connection, only the most complete does.",
            ),
            column("opened", TIME, "Time it was opened; time of its first message, if its opening was not captured."),
            column("ended", TIME, "Time of its last message or event; null if it did not end."),
            column("duration_us", pa.int64(), "Microseconds from `opened` to its last message or event."),
            column(
                "handshake",
                pa.string(),
                "`complete`; `refused`, if it was closed or its version not accepted; else `incomplete`. Null for protocols without one.",
            ),
            column("client_version", pa.int16(), "The version the client offered; null if none."),
            column("server_version", pa.int16(), "The version the server offered; null if none."),
            column("messages_to_server", pa.int64(), "Messages the client sent."),
            column("messages_to_client", pa.int64(), "Messages the server sent."),
            column("bytes_to_server", pa.int64(), "Bytes of the messages the client sent."),
            column("bytes_to_client", pa.int64(), "Bytes of the messages the server sent."),
            column(
                "unconfirmed",
                pa.int64(),
                "Messages that were recorded as sent, and had not left when their connection broke; not in the counts before.",
            ),
            column("requests", pa.int64(), "Requests made by either side."),
            column(
                "answered", pa.int64(), "Requests that were answered, late ones included, at least confirmed, or killed by their sender."
            ),
            column("connections", pa.int64(), "Connections of the session."),
            column("keepalives", pa.int64(), "Pings, pongs and heartbeats."),
            column("silences", pa.int64(), "Pauses longer than the protocol allows; null for protocols without such a limit."),
            column(
                "ended_how",
                pa.string(),
                "How it ended: `bye` or `error` (by a message), `reset` or `eof` (without one), `silence` (a node) or `open` (it did not).",
            ),
            column("ended_by", pa.string(), "Side that ended it: `client` or `server`; null if unknown or it did not end."),
            column("error_code", pa.int16(), "The code of the first error message; null if there was none."),
            column("violations", pa.int64(), "Broken rules, tolerated ones included, findings of severity `info` not."),
            column("source", pa.string(), "The file with its first message."),
            column("offset", pa.int64(), "Offset in that file."),
            column(
                "link",
                pa.binary(),
                "8 bytes: what several observers saw of one link or connection has the same value; null if only one saw it.",
            ),
            column(
                "uncounted",
                pa.list_(
                    pa.struct(
                        [
                            column("connection_id", pa.binary(), "The connection."),
                            column("observer", pa.string(), "The observer of these messages; null in rows of an older lake."),
                        ]
                    )
                ),
                "Connection and observer of its messages in `messages` that sums leave out; null if it is primary.",
            ),
        ]
    ),
    "One row per session.",
)
