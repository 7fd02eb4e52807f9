"""`metrics`: how much, how fast and how well, minute by minute. Built from sums of every batch, and from `exchanges` and `violations`.

Percentiles are exact, by nearest rank: an approximation would depend on the order in which history came.

It refuses to know protocols.
"""

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
            column("protocol", pa.string(), "The room: `emp`, …"),
            column(
                "subject",
                pa.string(),
                "What messages were about; null for what is about nothing, unreadable bytes and violations included.",
            ),
            column("messages", pa.int64(), "Messages seen in that minute."),
            column("bytes", pa.int64(), "Bytes of these messages, envelopes included."),
            column("rate", pa.float64(), "Messages a second, on average over the minute."),
            column("errors", pa.int64(), "Messages that report an error, or break a rule by themselves."),
            column("quarantined", pa.int64(), "Stretches of bytes that could not be read; on the row without subject."),
            column(
                "violations",
                pa.int64(),
                "Broken rules, tolerated ones included, findings of severity `info` not; on the row without subject.",
            ),
            column("requests", pa.int64(), "Exchanges that began in that minute."),
            column("answered", pa.int64(), "How many of them were answered, late ones included."),
            column("late", pa.int64(), "How many of them were answered late."),
            column("cancelled", pa.int64(), "How many of them were taken back."),
            column("latency_p50_us", pa.int64(), "Microseconds within which half of the answers came; null if none came."),
            column("latency_p95_us", pa.int64(), "Microseconds within which 95 % of the answers came; null if none came."),
            column("latency_p99_us", pa.int64(), "Microseconds within which 99 % of the answers came; null if none came."),
        ]
    ),
    "One row per minute, protocol and subject.",
)
