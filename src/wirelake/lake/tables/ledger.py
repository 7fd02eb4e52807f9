"""`ledger`: where every byte of every source went. Written in the task that decodes, published after all other tables.

A source that is in here is in the lake, whole; one that is not has left nothing in it that readers could see for long.

It refuses to round: the bytes of a source add up to its size exactly, or the ingest fails.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "ledger",
    ("source_id", "offset", "category", "reason", "batch"),
    pa.schema(
        [
            column("source", pa.string(), "The file, as it was called when it was ingested."),
            column("source_id", pa.binary(), "8 bytes: which file it is, told by how it begins, wherever it lies."),
            column("source_size", pa.int64(), "Bytes in the file, as far as the batch knew."),
            column("offset", pa.int64(), "Where the stretch that is accounted for begins."),
            column("length", pa.int64(), "Bytes in that stretch."),
            column(
                "category",
                pa.string(),
                "`container` (the capture format's own), `headers` (below the protocol), `other` (not ours), `message` or `quarantine`; "
                "while a folder is followed also `waiting`, and with a minus what does not wait any more.",
            ),
            column("reason", pa.string(), "What within the category; for `message` the protocol."),
            column("bytes", pa.int64(), "Bytes of the stretch that went there."),
            column("items", pa.int64(), "How many packets, blocks or messages that was."),
            column(
                "mark",
                pa.binary(),
                "16 bytes: a hash (BLAKE2b) of the bytes of the stretch, to tell later whether a file has them. 8 bytes: what an older "
                "wirelake kept, of its last bytes. Or empty.",
            ),
            column("batch", pa.int64(), "The batch that accounted for it."),
        ]
    ),
    "One row per stretch of a source and place its bytes went to.",
)
