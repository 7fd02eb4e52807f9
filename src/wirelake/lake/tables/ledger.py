"""`ledger`: where every byte of every source went.

Written by the tasks that decode, committed after all other silver tables.

A source in the ledger is in the lake as a whole. The bytes of a source add up to its size exactly, or the ingest fails.
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
            column("source", pa.string(), "Path of the file when it was ingested."),
            column("source_id", pa.binary(), "8 bytes: id of the file, a hash of its beginning; the same wherever the file lies."),
            column("source_size", pa.int64(), "Size of the file when the batch read it."),
            column("offset", pa.int64(), "Where the accounted byte range begins."),
            column("length", pa.int64(), "Bytes in that range."),
            column(
                "category",
                pa.string(),
                "`container` (the capture format's own), `headers` (below the protocol), `other` (of no known protocol), `message` or "
                "`quarantine`. While a folder is followed also `waiting`: read but not yet decoded; negative when decoded later.",
            ),
            column("reason", pa.string(), "Detail within the category; for `message` the protocol."),
            column("bytes", pa.int64(), "Bytes of the range in this category."),
            column("items", pa.int64(), "Number of packets, blocks or messages."),
            column(
                "mark",
                pa.binary(),
                "32 bytes: a hash (SHA-256) of the byte range, to recognise a changed file later. Written by an older wirelake: 16 bytes, "
                "a BLAKE2b hash of the range, or 8 bytes, a hash of its last bytes. Or empty.",
            ),
            column("batch", pa.int64(), "Batch that committed the row."),
            column("observer", pa.string(), "The name that `--observer` gave to the observer of the source; null if none was given."),
        ]
    ),
    "One row per byte range of a source, category and reason.",
)
