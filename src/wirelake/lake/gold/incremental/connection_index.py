"""Build the connection index: sums per batch, session, connection and direction.

It is stored in `_wirelake/connection_index`. `sessions` and `topology` add up its rows. A batch is summed once, when it is new.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.tables.index import CONNECTION_INDEX

__all__ = ["INPUTS", "batch_of_file", "build"]

INPUTS: Final = ("messages", "connections", "quarantine")

_ENDS: Final = ("observer_kind", "client_address", "client_port", "server_address", "server_port")


def batch_of_file() -> Column:
    """The batch that a row of a table came with that only grows: its file's name says so."""
    return sql.substring(sql.col("_metadata.file_name"), 6, 8).cast("long")


def build(messages: DataFrame, connections: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Sums over these rows, which have their `batch`."""
    parts = [_said(messages), _happened(connections), _unread(quarantine)]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts).select(
        *(name for name in CONNECTION_INDEX.schema.names if name != "file")
    )


def _said(messages: DataFrame) -> DataFrame:
    """All messages go through this: only numbers, so that Spark aggregates them in place."""
    kind, ts = sql.col("kind"), sql.col("ts")
    is_parting = kind.isin("error", "close")
    parting = sql.struct("ts", "message_id", sql.when(kind == "error", "error").otherwise("bye").alias("how"))
    return messages.groupBy("batch", "protocol", "session_id", "connection_id", "direction", "observer").agg(
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
    return (
        connections.groupBy("batch", "protocol", "connection_id", "observer")
        .agg(sql.min("ts").alias("first_seen"), sql.max("ts").alias("last_seen"), sql.min(sql.struct(*_ENDS)).alias("ends"))
        .select("*", sql.col("connection_id").alias("session_id"), *(sql.col(f"ends.{name}").alias(name) for name in _ENDS))
        .drop("ends")
    )


def _unread(quarantine: DataFrame) -> DataFrame:
    """Unreadable bytes of sessions and connections.

    They may change the judgement of a session, and some connections have nothing else.
    """
    nobody = sql.lit(b"")
    return (
        quarantine.where("session_id IS NOT NULL OR clause IS NOT NULL")
        .withColumn("connection_id", sql.coalesce("connection_id", nobody))
        .groupBy("batch", "protocol", sql.coalesce("session_id", nobody).alias("session_id"), "connection_id", "observer")
        .agg(sql.min("ts").alias("first_seen"))
    )
