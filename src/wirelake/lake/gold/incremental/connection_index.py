"""`talks`: who spoke on which connection in which batch, how much and when. The index of the lake, and the sums behind `sessions` and
`topology`.

Its rows are sums over one batch, so a batch is counted once, when it is new; what is asked of all of history adds up rows of batches. It
is no table for people: it says in which batch things came, which no other table does.

It refuses to know what was said beyond its kind.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wirelake.lake.tables.schema import CONNECTION, TIME, Table, column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BATCH", "INPUTS", "TABLE", "batch_of_file", "build"]

INPUTS: Final = ("messages", "connections", "quarantine")

BATCH: Final = column("batch", pa.int64(), "The batch it came with.")

_PARTING: Final = pa.struct([("ts", TIME), ("message_id", pa.binary()), ("how", pa.string())])
_ENDS: Final = ("client_address", "client_port", "server_address", "server_port")

TABLE: Final = Table(
    "_wirelake/talks",
    ("batch", "session_id", "connection_id", "direction", "protocol"),
    pa.schema(
        [
            BATCH,
            column("protocol", pa.string(), "The room; null if bytes belong to none."),
            column("session_id", pa.binary(), "The conversation; of a connection as such, the connection; empty if there is none."),
            CONNECTION,
            column(
                "direction", pa.string(), "Who spoke; null if nobody did: something happened to the connection, or bytes were unreadable."
            ),
            column("messages", pa.int64(), "How many messages."),
            column("bytes", pa.int64(), "Bytes of the messages."),
            column("keepalives", pa.int64(), "How many of them keep the connection alive."),
            column("errors", pa.int64(), "How many of them report an error, or break a rule by themselves."),
            column("first_seen", TIME, "When the first was seen."),
            column("last_seen", TIME, "When the last was seen."),
            column("last_word", TIME, "When the last was seen that is neither a parting nor an acknowledgement."),
            column("greeted", TIME, "When the first was seen that is a handshake."),
            column("parting", _PARTING, "The first that is a parting: when, which and how; null if there was none."),
            column("client_address", pa.string(), "Of what happened to the connection: its ends."),
            column("client_port", pa.int32(), "See `client_address`."),
            column("server_address", pa.string(), "See `client_address`."),
            column("server_port", pa.int32(), "See `client_address`."),
        ]
    ),
    "One row per batch, conversation, connection and direction, and one per batch and connection.",
)


def batch_of_file() -> Column:
    """The batch that a row of a table came with that only grows: its file's name says so."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    return sql.substring(sql.col("_metadata.file_name"), 6, 8).cast("long")


def build(messages: DataFrame, connections: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Sums over these rows, which have their `batch`."""
    parts = [_said(messages), _happened(connections), _unread(quarantine)]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts).select(*TABLE.schema.names)


def _said(messages: DataFrame) -> DataFrame:
    """All messages go through this: only numbers, so that Spark aggregates them in place."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    kind, ts = sql.col("kind"), sql.col("ts")
    is_parting = kind.isin("error", "close")
    parting = sql.struct("ts", "message_id", sql.when(kind == "error", "error").otherwise("bye").alias("how"))
    return messages.groupBy("batch", "protocol", "session_id", "connection_id", "direction").agg(
        sql.count("*").alias("messages"),
        sql.sum("size").alias("bytes"),
        sql.count_if(kind == "keepalive").alias("keepalives"),
        sql.count_if(sql.col("status") != "ok").alias("errors"),
        sql.min("ts").alias("first_seen"),
        sql.max("ts").alias("last_seen"),
        sql.max(sql.when(~is_parting & (kind != "ack"), ts)).alias("last_word"),
        sql.min(sql.when(kind == "handshake", ts)).alias("greeted"),
        sql.min(sql.when(is_parting, parting)).alias("parting"),
    )


def _happened(connections: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    return (
        connections.groupBy("batch", "protocol", "connection_id")
        .agg(sql.min("ts").alias("first_seen"), sql.max("ts").alias("last_seen"), sql.min(sql.struct(*_ENDS)).alias("ends"))
        .select("*", sql.col("connection_id").alias("session_id"), *(sql.col(f"ends.{name}").alias(name) for name in _ENDS))
        .drop("ends")
    )


def _unread(quarantine: DataFrame) -> DataFrame:
    """Bytes that could not be read may change what is thought of a session, and connections that only have such are known by them."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    nobody = sql.lit(b"")
    return (
        quarantine.where("session_id IS NOT NULL OR clause IS NOT NULL")
        .withColumn("connection_id", sql.coalesce("connection_id", nobody))
        .groupBy("batch", "protocol", sql.coalesce("session_id", nobody).alias("session_id"), "connection_id")
        .agg(sql.min("ts").alias("first_seen"))
    )
