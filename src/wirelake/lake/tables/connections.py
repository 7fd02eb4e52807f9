"""`connections`: events of connections, such as opening and closing.

Written by the tasks that decode.

`messages` has what was sent on them; `sessions` joins the two.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import OBSERVER, TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "connections",
    ("connection_id", "source", "offset", "what", "by"),
    pa.schema(
        [
            column("connection_id", pa.binary(), "16 bytes: the connection."),
            column("ts", TIME, "Time of the event; of `seen`, time of the first bytes. Null if the source has no times."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column(
                "what",
                pa.string(),
                "The event: `seen` (its first bytes in a source), `opened`, `finished` (one side sent its last byte), `closed`, `reset` or"
                " `missing` (the capture lacks bytes of a side), or `unconfirmed` (from `ts` on, what `by` sent had not left its"
                " machine when the connection broke).",
            ),
            column("by", pa.string(), "The side that caused it: `client`, `server`, or empty if unknown."),
            column(
                "detail", pa.string(), "How it was closed; of `unconfirmed`: `bytes=N confirmed=K`, all but the first K bytes since `ts`."
            ),
            column("transport", pa.string(), "`tcp`, `tls`, `udp`, …"),
            column("client_address", pa.string(), "Address of the side that opened the connection."),
            column("client_port", pa.int32(), "Port of the side that opened the connection."),
            column("server_address", pa.string(), "Address of the side that was listening."),
            column("server_port", pa.int32(), "Port of the side that was listening."),
            column("known_by", pa.string(), "How the protocol was recognised: `tag`, `port` or `bytes`."),
            OBSERVER,
            column(
                "observer_kind", pa.string(), "Kind of the observer: `client`, `server` (a recording peer) or `wire` (a packet capture)."
            ),
            column("source", pa.string(), "The file that has the event."),
            column("offset", pa.int64(), "Offset of the event in the source."),
        ]
    ),
    "One row per event of a connection, and one `seen` per connection and source.",
)
