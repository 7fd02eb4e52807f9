"""`unrecognised`: traffic that no protocol recognises, by host and port.

Written with the ledger, from the same accounting.

Its bytes and packets of a source equal those that the ledger has as `other / unrecognised`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "unrecognised",
    ("source_id", "transport", "client_address", "server_address", "server_port", "reason", "batch"),
    pa.schema(
        [
            column("source", pa.string(), "Path of the file when it was ingested."),
            column("source_id", pa.binary(), "8 bytes: id of the file, as in `ledger`."),
            column("transport", pa.string(), "`tcp`, `udp`, …; null in the row that sums the pairs that are not listed."),
            column("client_address", pa.string(), "Address of the side that opened connections, or sent first; null as above."),
            column("server_address", pa.string(), "Address of the side that was listening; null as above."),
            column("server_port", pa.int32(), "Port of the side that was listening; null as above."),
            column(
                "reason",
                pa.string(),
                "`no protocol begins like this`, `beginning not captured`, `recorded as` another protocol, "
                "`neither a tag nor a known port` in a recording, or `more than are listed`.",
            ),
            column("packets", pa.int64(), "Packets with a payload."),
            column("bytes", pa.int64(), "Bytes of their payloads."),
            column("first_seen", TIME, "Time of the first; null if the source has no times."),
            column("last_seen", TIME, "Time of the last; null if the source has no times."),
            column("batch", pa.int64(), "Batch that read them."),
        ]
    ),
    "One row per source, batch and pair of hosts with the port that one of them listens on.",
)
