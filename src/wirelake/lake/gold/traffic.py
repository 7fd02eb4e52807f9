"""Messages that left their sender, from DataFrames: without those that `gold/incremental/unconfirmed.py` takes out of a lake's sums."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from wirelake.protocols.connections import UNCONFIRMED

__all__ = ["INPUTS", "traffic"]

INPUTS: Final = ("messages", "connections")


def traffic(messages: DataFrame, connections: DataFrame) -> DataFrame:
    """Return the rows of `messages` that are not unconfirmed."""
    direction = sql.when(sql.col("by") == "client", "to_server").otherwise("to_client")
    confirmed = sql.regexp_extract("detail", r"confirmed=(\d+)", 1).cast("long")
    lost = connections.where(sql.col("what") == UNCONFIRMED).select(
        "connection_id", direction.alias("direction"), sql.col("ts").alias("since"), confirmed.alias("confirmed")
    )
    in_order = Window.partitionBy("connection_id", "direction").orderBy("ts", "message_id")
    unsent = (
        messages.join(sql.broadcast(lost), ["connection_id", "direction"])
        .where("ts >= since")
        .withColumn("until", sql.sum("length").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .where("until > confirmed")
        .select("message_id")
    )
    return messages.join(unsent, "message_id", "left_anti")
