"""`topology`: who talks to whom, and how much. Built from sums of every batch.

Who opens a connection is known by address: the port is another one each time. Who listens is known by address and port. Where sessions
are nodes, who speaks is the node, wherever it is, and the other is the address and port it speaks to; all it says counts as said to that.

It refuses to know what was said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wirelake.lake.gold.rules.registry import LINK, NODE, SESSION_IS
from wirelake.lake.tables.schema import TIME, Table, column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["INPUTS", "TABLE", "build", "pairs"]

INPUTS: Final = ("pairs",)

TABLE: Final = Table(
    "topology",
    ("protocol", "client", "server"),
    pa.schema(
        [
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("client", pa.string(), "Who opened connections: an address; where sessions are nodes, the node's session id in hex."),
            column("server", pa.string(), "Who was listening: address and port; where sessions are nodes, whom the node spoke to."),
            column("sessions", pa.int64(), "Conversations between the two."),
            column("connections", pa.int64(), "Connections between the two."),
            column("messages_to_server", pa.int64(), "Messages the client sent."),
            column("messages_to_client", pa.int64(), "Messages the server sent; 0 where sessions are nodes."),
            column("bytes_to_server", pa.int64(), "Bytes of the messages the client sent."),
            column("bytes_to_client", pa.int64(), "Bytes of the messages the server sent; 0 where sessions are nodes."),
            column("errors", pa.int64(), "Messages of either that report an error, or break a rule by themselves."),
            column("first_seen", TIME, "When the two were first seen together."),
            column("last_seen", TIME, "When the two were last seen together."),
        ]
    ),
    "One row per protocol and pair of peers.",
)


def pairs(talks: DataFrame) -> DataFrame:
    """Rows of the index with the `client` and `server` they count for; whose connection nobody saw opening or passing count for none."""
    from pyspark.sql import Window  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    ends = (
        talks.where("direction IS NULL AND last_seen IS NOT NULL")  # what happened to connections
        .groupBy("connection_id")
        .agg(sql.min(sql.struct("client_address", "client_port", "server_address", "server_port")).alias("ends"))
    )
    is_node, is_link = (sql.col("protocol").isin([name for name, it in SESSION_IS.items() if it == what]) for what in (NODE, LINK))
    address = {side: sql.coalesce(f"ends.{side}_address", sql.lit("?")) for side in ("client", "server")}
    client, server = (sql.concat_ws(":", address[side], f"ends.{side}_port") for side in ("client", "server"))
    is_back = sql.col("direction") == "to_client"
    # What was said before the link was agreed on belongs to it, too.
    link = sql.max(sql.when(sql.col("session_id") != sql.col("connection_id"), sql.col("session_id")))
    agreed = sql.when(is_link, link.over(Window.partitionBy("connection_id")))
    return (
        talks.join(ends, "connection_id")
        .where(~is_node | sql.col("direction").isNotNull())
        .withColumn("session_id", sql.coalesce(agreed, "session_id"))
        .withColumn("client", sql.when(is_node, sql.lower(sql.hex("session_id"))).otherwise(address["client"]))
        .withColumn("server", sql.when(is_node & is_back, client).otherwise(server))
        .withColumn("direction", sql.when(is_node, "to_server").otherwise(sql.col("direction")))
    )


def build(pairs: DataFrame) -> DataFrame:
    """The sums of all rows that count for the same pair."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

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
