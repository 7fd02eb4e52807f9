"""`runs`: what was done to the lake, run by run. Written by the runs themselves, at their end.

It is about us, not about what was captured: it says when things were done and how long they took, which no other table does.

It refuses to know how a run goes: `lake/store/run_log.py` does.
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
            column("run", pa.int64(), "Its number, from 1."),
            column("kind", pa.string(), "What was to be done: `ingest`, `follow` or `forget`."),
            column("outcome", pa.string(), "`done`; `failed`, see `error`; `died`, if it was killed, which the next run writes down."),
            column("started", TIME, "When it began."),
            column("ended", TIME, "When it ended; null if it died."),
            column("seconds", pa.float64(), "How long it took; null if it died."),
            column("batch", pa.int64(), "The batch it added, the last one of several; null if it added none."),
            column(
                "inputs", pa.list_(pa.string()), "The files it was given, whether new or not; of `forget`, the sources as they were named."
            ),
            column("files", pa.int64(), "How many of them were new."),
            column("bytes", pa.int64(), "Bytes in those that were new."),
            column("skipped", pa.int64(), "How many of them the lake had already, or knows with other contents."),
            column("quarantined", pa.int64(), "Stretches of bytes that went to quarantine."),
            column(
                "rows",
                pa.list_(pa.struct([column("table", pa.string(), "The table."), column("rows", pa.int64(), "Rows it got.")])),
                "What each table got.",
            ),
            column("built", pa.list_(pa.string()), "Gold tables that were brought up to date."),
            column(
                "stages",
                pa.list_(pa.struct([column("stage", pa.string(), "What was done."), column("seconds", pa.float64(), "How long it took.")])),
                "What it did, in order.",
            ),
            column("error", pa.string(), "Why it failed, in one line; null if it did not."),
            column("error_source", pa.string(), "The file it failed on; null if it was none."),
            column("error_offset", pa.int64(), "Where in that file; null if that is not known."),
            column("wirelake", pa.string(), "Version of wirelake."),
            column("pyspark", pa.string(), "Version of PySpark; null if it is not there."),
            column("python", pa.string(), "Version of Python."),
            column("lake_format", pa.int64(), "Version of the lake's layout."),
        ]
    ),
    "One row per run.",
)
