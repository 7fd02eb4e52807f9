"""Build `topology`: add up the connection index for every pair of peers.

A client is known by its address, because its port changes with every connection. A server is known by address and port. Where sessions
are nodes, the client is the node, and the server each address and port it sends to.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.view_frames import counted_messages, views_of
from wirelake.lake.tables.protocols import NODES
from wirelake.lake.tables.topology import TABLE

__all__ = ["INPUTS", "TABLE", "build", "pairs"]

INPUTS: Final = ("pairs",)


def pairs(connection_index: DataFrame, left: DataFrame) -> DataFrame:
    """Rows of the index with the `client` and `server` they count for.

    A connection that was not seen opening or passing counts for none. `left` has the sums of the index without unconfirmed messages.
    """
    rows = counted_messages(left, views_of(connection_index))
    ends = (
        rows.where("direction IS NULL AND last_seen IS NOT NULL")  # what happened to connections
        .groupBy("connection_id")
        .agg(sql.min(sql.struct("client_address", "client_port", "server_address", "server_port")).alias("ends"))
    )
    is_node = sql.col("protocol").isin(*NODES)
    address = {side: sql.coalesce(f"ends.{side}_address", sql.lit("?")) for side in ("client", "server")}
    client, server = (sql.concat_ws(":", address[side], f"ends.{side}_port") for side in ("client", "server"))
    is_back = sql.col("direction") == "to_client"
    return (
        rows.join(ends, "connection_id")
        .where(~is_node | sql.col("direction").isNotNull())
        .withColumn("client", sql.when(is_node, sql.lower(sql.hex("session_id"))).otherwise(address["client"]))
        .withColumn("server", sql.when(is_node & is_back, client).otherwise(server))
        .withColumn("direction", sql.when(is_node, "to_server").otherwise(sql.col("direction")))
    )


def build(pairs: DataFrame) -> DataFrame:
    """The sums of all rows that count for the same pair."""

    def total(name: str, direction: str) -> Column:
        return sql.coalesce(sql.sum(sql.when(sql.col("direction") == direction, sql.col(name))), sql.lit(0)).alias(f"{name}_{direction}")

    return (
        pairs.groupBy(*TABLE.grain)
        .agg(
            sql.countDistinct("session_id").alias("sessions"),
            sql.countDistinct("connection_id").alias("connections"),
            *(total(name, direction) for name in ("messages", "bytes") for direction in ("to_server", "to_client")),
            sql.coalesce(sql.sum("errors"), sql.lit(0)).alias("errors"),
            sql.min("first_seen").alias("first_seen"),
            sql.max("last_seen").alias("last_seen"),
        )
        .select(*TABLE.schema.names)
    )
