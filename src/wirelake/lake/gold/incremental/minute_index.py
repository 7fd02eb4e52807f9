"""`tallies`: what was said in each minute of each batch, about what: the sums behind `metrics`.

It is no table for people: it says in which batch things came. It refuses to know exchanges, which cannot be added up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wirelake.lake.gold.incremental.connection_index import BATCH
from wirelake.lake.tables.schema import TIME, Table, column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["INPUTS", "TABLE", "build", "minute"]

INPUTS: Final = ("messages", "quarantine")

TABLE: Final = Table(
    "_wirelake/tallies",
    ("batch", "minute", "protocol", "subject", "quarantined"),
    pa.schema(
        [
            BATCH,
            column("minute", TIME, "When the minute begins."),
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("subject", pa.string(), "What messages are about."),
            column("messages", pa.int64(), "How many messages."),
            column("bytes", pa.int64(), "Bytes of the messages."),
            column("errors", pa.int64(), "How many of them report an error, or break a rule by themselves."),
            column("quarantined", pa.int64(), "How many stretches of bytes could not be read."),
        ]
    ),
    "One row per batch, minute, protocol and subject, and one for what could not be read.",
)

_MINUTE_US: Final = 60_000_000


def minute(ts: str) -> Column:
    """The beginning of the minute, whatever time zone the session is in."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    return sql.expr(f"timestamp_micros(unix_micros({ts}) - pmod(unix_micros({ts}), {_MINUTE_US}))")


def build(messages: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Sums over these rows, which have their `batch`. What could not be read is about nothing; what has no time is in no minute."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

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
    return said.unionByName(unread).select(*TABLE.schema.names)
