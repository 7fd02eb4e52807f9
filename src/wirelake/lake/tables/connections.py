"""`connections`: what happened to connections rather than in them. Written in the task that decodes.

It refuses to know what was said: `messages` does, and `sessions` brings the two together.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "connections",
    ("connection_id", "source", "offset", "what", "by"),
    pa.schema(
        [
            column("connection_id", pa.binary(), "16 bytes: the connection."),
            column("ts", TIME, "When it happened; of `seen`, when the first of its bytes was. Null if the source does not say."),
            column("protocol", pa.string(), "The room: `emp`, …"),
            column(
                "what",
                pa.string(),
                "`seen` (its first bytes in a source), `opened`, `finished` (one side sent its last byte), `closed` or `reset`.",
            ),
            column("by", pa.string(), "`client`, `server`, or empty when that is not known."),
            column("detail", pa.string(), "What else the capture says of it, if anything."),
            column("transport", pa.string(), "`tcp`, `tls`, `udp`, …"),
            column("client_address", pa.string(), "Address of the side that opened the connection."),
            column("client_port", pa.int32(), "Port of the side that opened the connection."),
            column("server_address", pa.string(), "Address of the side that was listening."),
            column("server_port", pa.int32(), "Port of the side that was listening."),
            column("known_by", pa.string(), "How the protocol was recognised: `tag`, `port` or `bytes`."),
            column("observed_by", pa.string(), "Who saw the traffic: `client`, `server` (a recording peer) or `wire` (a packet capture)."),
            column("source", pa.string(), "The file that says so."),
            column("offset", pa.int64(), "Where in the source it says so."),
        ]
    ),
    "One row per thing that happened to a connection, and one `seen` per connection and source.",
)
