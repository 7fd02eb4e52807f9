"""`metrics`: counts, rates and latencies, minute by minute. Built by `gold/metrics.py`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import TIME, Table, column

__all__ = ["KEYS", "TABLE"]

KEYS: Final = ("minute", "protocol", "subject")

TABLE: Final = Table(
    "metrics",
    KEYS,
    pa.schema(
        [
            column("minute", TIME, "When the minute begins."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column(
                "subject",
                pa.string(),
                "Subject of the messages; null for those without one, and for unreadable bytes and violations.",
            ),
            column("messages", pa.int64(), "Messages in that minute."),
            column("bytes", pa.int64(), "Bytes of these messages, envelopes included."),
            column("rate", pa.float64(), "Messages a second, on average over the minute."),
            column("errors", pa.int64(), "Messages that report an error, or break a rule by themselves."),
            column("quarantined", pa.int64(), "Byte ranges that could not be decoded; on the row without a subject."),
            column(
                "violations",
                pa.int64(),
                "Broken rules, tolerated ones included, findings of severity `info` not; on the row without a subject.",
            ),
            column("requests", pa.int64(), "Exchanges that began in that minute."),
            column("answered", pa.int64(), "Those of them that were answered, late ones included."),
            column("late", pa.int64(), "Those of them that were answered late."),
            column("cancelled", pa.int64(), "Those of them that were cancelled."),
            column("latency_p50_us", pa.int64(), "Median latency of answers, in microseconds; null without answers."),
            column("latency_p95_us", pa.int64(), "95th percentile of the latency, in microseconds; null without answers."),
            column("latency_p99_us", pa.int64(), "99th percentile of the latency, in microseconds; null without answers."),
        ]
    ),
    "One row per minute, protocol and subject.",
)
