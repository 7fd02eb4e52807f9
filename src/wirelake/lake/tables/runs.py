"""`runs`: the log of ingests and other jobs on the lake.

Each run writes its own row at its end (`store/run_log.py`).

It is the only table with times of the ingest rather than of the captures.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "runs",
    ("run",),
    pa.schema(
        [
            column("run", pa.int64(), "Number of the run, from 1."),
            column("kind", pa.string(), "The job: `ingest`, `gold`, `follow` or `forget`."),
            column("outcome", pa.string(), "`done`; `failed`, see `error`; `died` if it was killed: the next run then writes the row."),
            column("started", TIME, "Start time."),
            column("ended", TIME, "End time; null if it died."),
            column("seconds", pa.float64(), "Duration; null if it died."),
            column("batch", pa.int64(), "The batch it committed, the last of several; null if none."),
            column("inputs", pa.list_(pa.string()), "The files given to it, new or not; of `forget`, the sources as they were named."),
            column("files", pa.int64(), "Number of new files."),
            column("bytes", pa.int64(), "Bytes in the new files."),
            column("skipped", pa.int64(), "Files skipped: the lake has them already, or has other contents under their name."),
            column("quarantined", pa.int64(), "Byte ranges that went to quarantine."),
            column(
                "rows",
                pa.list_(pa.struct([column("table", pa.string(), "The table."), column("rows", pa.int64(), "Rows added.")])),
                "Rows added to each table.",
            ),
            column("built", pa.list_(pa.string()), "Gold tables that were refreshed."),
            column(
                "stages",
                pa.list_(pa.struct([column("stage", pa.string(), "The stage."), column("seconds", pa.float64(), "Its duration.")])),
                "The stages of the run, in order.",
            ),
            column("error", pa.string(), "The error in one line; null if it did not fail."),
            column("error_source", pa.string(), "The file it failed on; null if none."),
            column("error_offset", pa.int64(), "Offset in that file; null if unknown."),
            column("wirelake", pa.string(), "Version of wirelake."),
            column("pyspark", pa.string(), "Version of PySpark; null if it is not installed."),
            column("python", pa.string(), "Version of Python."),
            column("lake_format", pa.int64(), "Version of the lake's layout."),
        ]
    ),
    "One row per run.",
)
