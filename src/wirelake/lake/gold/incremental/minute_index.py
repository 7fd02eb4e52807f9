"""Build the minute index: sums per batch, minute, protocol and subject.

It is stored in `_wirelake/minute_index`. `metrics` adds up its rows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.tables.index import MINUTE_INDEX

__all__ = ["INPUTS", "build", "minute"]

INPUTS: Final = ("messages", "quarantine")


_MINUTE_US: Final = 60_000_000


def minute(ts: str) -> Column:
    """The beginning of the minute, whatever time zone the session is in."""
    return sql.expr(f"timestamp_micros(unix_micros({ts}) - pmod(unix_micros({ts}), {_MINUTE_US}))")


def build(messages: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Sums over these rows, which have their `batch`.

    What could not be read is about nothing; what has no time is in no minute.
    """
    said = (
        messages.where("ts IS NOT NULL")
        .groupBy("batch", minute("ts").alias("minute"), "protocol", "subject")
        .agg(
            sql.count("*").alias("messages"),
            sql.sum("size").alias("bytes"),
            sql.count_if(sql.col("status") != "ok").alias("errors"),
            sql.lit(0).cast("long").alias("quarantined"),
        )
    )
    nothing = sql.lit(0).cast("long")
    unread = (
        quarantine.where("protocol IS NOT NULL AND ts IS NOT NULL")
        .groupBy("batch", minute("ts").alias("minute"), "protocol")
        .agg(sql.count("*").alias("quarantined"))
        .withColumns({"subject": sql.lit(None).cast("string"), "messages": nothing, "bytes": nothing, "errors": nothing})
    )
    return said.unionByName(unread).select(*(name for name in MINUTE_INDEX.schema.names if name != "file"))
