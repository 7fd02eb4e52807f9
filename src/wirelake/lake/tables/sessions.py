"""`sessions`: every conversation, from its handshake to its end. Built from the other tables.

It refuses to know what a handshake is in a given protocol: the rooms say which versions were offered, and whether they were accepted.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "sessions",
    ("session_id",),
    pa.schema(
        [
            column("session_id", pa.binary(), "16 bytes: the conversation: a connection, a node, or a link."),
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("transport", pa.string(), "`tcp`, `tls`, `udp`, …"),
            column("client_address", pa.string(), "Address of the side that opened the connection, or of the node."),
            column("client_port", pa.int32(), "Port of the side that opened the connection, or of the node."),
            column("server_address", pa.string(), "Address of the side that was listening; null of a node, which speaks to many."),
            column("server_port", pa.int32(), "Port of the side that was listening; null of a node."),
            column("known_by", pa.string(), "How the protocol was recognised: `tag`, `port` or `bytes`."),
            column("observed_by", pa.string(), "Who saw the traffic: `client`, `server` (a recording peer) or `wire` (a packet capture)."),
            column("opened", TIME, "When it was opened; when it was first seen, if its opening was not."),
            column("ended", TIME, "When it was last seen; null if it did not end."),
            column("duration_us", pa.int64(), "Microseconds from `opened` to when it was last seen."),
            column(
                "handshake",
                pa.string(),
                "`complete`; `refused`, if it ended with a parting or a version nobody speaks; else `incomplete`. Null without greetings.",
            ),
            column("client_version", pa.int16(), "The version the client offered; null if it said none."),
            column("server_version", pa.int16(), "The version the server offered; null if it said none."),
            column("messages_to_server", pa.int64(), "Messages the client sent."),
            column("messages_to_client", pa.int64(), "Messages the server sent."),
            column("bytes_to_server", pa.int64(), "Bytes of the messages the client sent."),
            column("bytes_to_client", pa.int64(), "Bytes of the messages the server sent."),
            column("requests", pa.int64(), "Requests made by either side."),
            column("answered", pa.int64(), "Requests that were answered, late ones included, or at least confirmed."),
            column("connections", pa.int64(), "Connections it was seen on."),
            column("keepalives", pa.int64(), "Pings, pongs and heartbeats."),
            column("silences", pa.int64(), "How often it said nothing for longer than its protocol allows; null where none tells."),
            column("ended_how", pa.string(), "`bye` or `error` (said), `reset` or `eof` (without a word), `silence` (a node) or `open`."),
            column("ended_by", pa.string(), "`client` or `server`; null if that is not known or it did not end."),
            column("error_code", pa.int16(), "The code of the first error message; null if there was none."),
            column("violations", pa.int64(), "Broken rules, tolerated ones included, findings of severity `info` not."),
            column("source", pa.string(), "The file it was first seen in."),
            column("offset", pa.int64(), "Where in that file."),
        ]
    ),
    "One row per conversation.",
)
