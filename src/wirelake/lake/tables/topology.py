"""`topology`: who talks to whom, and how much. Built from sums of every batch.

Who opens a connection is known by address: the port is another one each time. Who listens is known by address and port. Where sessions
are nodes, who speaks is the node, wherever it is, and the other is the address and port it speaks to; all it says counts as said to that.

It refuses to know what was said.
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
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("client", pa.string(), "Who opened connections: an address; where sessions are nodes, the node's session id in hex."),
            column("server", pa.string(), "Who was listening: address and port; where sessions are nodes, whom the node spoke to."),
            column("sessions", pa.int64(), "Conversations between the two."),
            column("connections", pa.int64(), "Connections between the two."),
            column("messages_to_server", pa.int64(), "Messages the client sent."),
            column("messages_to_client", pa.int64(), "Messages the server sent; 0 where sessions are nodes."),
            column("bytes_to_server", pa.int64(), "Bytes of the messages the client sent."),
            column("bytes_to_client", pa.int64(), "Bytes of the messages the server sent; 0 where sessions are nodes."),
            column("errors", pa.int64(), "Messages of either that report an error, or break a rule by themselves."),
            column("first_seen", TIME, "When the two were first seen together."),
            column("last_seen", TIME, "When the two were last seen together."),
        ]
    ),
    "One row per protocol and pair of peers.",
)
