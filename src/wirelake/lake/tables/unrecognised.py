"""`unrecognised`: traffic that no protocol recognises, by host and port. Written where the ledger is, from the same accounts.

Its bytes and packets of a source are those that the ledger has as `other / unrecognised`.
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
            column("source", pa.string(), "The file, as it was called when it was ingested."),
            column("source_id", pa.binary(), "8 bytes: which file it is. The same as in `ledger`."),
            column("transport", pa.string(), "`tcp`, `udp`, …; null in the row that sums what is not listed."),
            column("client_address", pa.string(), "Address of the side that opened connections, or spoke first; null as above."),
            column("server_address", pa.string(), "Address of the side that was listening; null as above."),
            column("server_port", pa.int32(), "Port of the side that was listening; null as above."),
            column(
                "reason",
                pa.string(),
                "`no protocol begins like this`, `beginning not captured`, `recorded as` another protocol, "
                "`neither a tag nor a known port` in a recording, or `more than are listed`.",
            ),
            column("packets", pa.int64(), "Packets that carried something."),
            column("bytes", pa.int64(), "Bytes they carried."),
            column("first_seen", TIME, "When the first of them was seen; null if the source does not say."),
            column("last_seen", TIME, "When the last of them was seen; null if the source does not say."),
            column("batch", pa.int64(), "The batch that read them."),
        ]
    ),
    "One row per source, batch and pair of hosts with the port that one of them listens on.",
)
