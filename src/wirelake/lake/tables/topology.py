"""`topology`: which peers communicate, and how much. Built by `gold/topology.py`.

A client is known by its address, because its port changes with every connection. A server is known by address and port. Where sessions
are nodes, the client is the node, and the server each address and port it sends to.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "topology",
    ("protocol", "client", "server"),
    pa.schema(
        [
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column(
                "client",
                pa.string(),
                "Address of the side that opened connections; where sessions are nodes, the node's session id in hex.",
            ),
            column("server", pa.string(), "Address and port of the side that was listening; where sessions are nodes, of the receiver."),
            column("sessions", pa.int64(), "Sessions between the two."),
            column("connections", pa.int64(), "Connections between the two."),
            column("messages_to_server", pa.int64(), "Messages the client sent."),
            column("messages_to_client", pa.int64(), "Messages the server sent; 0 where sessions are nodes."),
            column("bytes_to_server", pa.int64(), "Bytes of the messages the client sent."),
            column("bytes_to_client", pa.int64(), "Bytes of the messages the server sent; 0 where sessions are nodes."),
            column("errors", pa.int64(), "Messages of either side that report an error, or break a rule by themselves."),
            column("first_seen", TIME, "Time of the first traffic between the two."),
            column("last_seen", TIME, "Time of the last traffic between the two."),
        ]
    ),
    "One row per protocol and pair of peers.",
)
