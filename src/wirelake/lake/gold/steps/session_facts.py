"""Session facts: one row with all that is known of a session.

A step between the silver tables and those that judge sessions.

A session is a connection, a node that uses several, or a link that outlives one. So messages and events are first joined by connection, and
then by session. A refresh computes this step once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.registry import LINK, NODE, SESSION_IS, SILENCE

__all__ = ["INPUTS", "build"]

INPUTS: Final = ("connections", "connection_index", "messages", "quarantine")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_ENDPOINTS: Final = ("transport", "client_address", "client_port", "server_address", "server_port", "known_by", "observed_by")
_SUMS: Final = ("messages_to_server", "messages_to_client", "bytes_to_server", "bytes_to_client", "keepalives")


def _happened(connections: DataFrame) -> DataFrame:
    """What happened to each connection."""
    what, event = sql.col("what"), sql.struct("ts", "source", "offset", "by")
    return connections.groupBy("connection_id", "protocol").agg(
        sql.min(sql.struct("ts", "source", "offset", *_ENDPOINTS)).alias("first"),
        sql.min(sql.when(what == "opened", event)).alias("opened"),
        sql.min(sql.when(what.isin("finished", "closed", "reset"), event)).alias("closed"),
        sql.min(sql.when(what == "reset", event)).alias("reset"),
        sql.max("ts").alias("last_happened"),
    )


def _said(connection_index: DataFrame) -> DataFrame:
    """Sums and times of messages, by sender."""
    by_client = sql.col("direction") == "to_server"

    by = sql.when(by_client, "client").otherwise("server")
    parting = sql.struct("parting.ts", "parting.message_id", "parting.how", by.alias("by"))

    def total(name: str, condition: Column) -> Column:
        return sql.sum(sql.when(condition, sql.col(name)).otherwise(0))

    return connection_index.groupBy("session_id", "connection_id", "protocol").agg(
        *(total(name, by_client).alias(f"{name}_to_server") for name in ("messages", "bytes")),
        *(total(name, ~by_client).alias(f"{name}_to_client") for name in ("messages", "bytes")),
        sql.sum("keepalives").alias("keepalives"),
        sql.min("first_seen").alias("first_said"),
        sql.max("last_seen").alias("last_said"),
        sql.max("last_word").alias("last_word"),
        sql.min(sql.when(by_client, sql.col("greeted"))).alias("client_greeted"),
        sql.min(sql.when(~by_client, sql.col("greeted"))).alias("server_greeted"),
        sql.min(sql.when(sql.col("parting").isNotNull(), parting)).alias("parting"),
    )


def _joined(connections: DataFrame, connection_index: DataFrame) -> DataFrame:
    """One row per session and connection: its messages, and how it began and ended.

    A connection without a message is a session of its own, unless its protocol has no session without a sender. A node is placed where it
    first sent: at its own endpoint, not at a relay's. A node has no server, and the end of a connection is not its end.
    """
    joined = _said(connection_index).join(_happened(connections), ["connection_id", "protocol"], "full")
    is_node = sql.col("protocol").isin([name for name, what in SESSION_IS.items() if what == NODE])
    is_link = sql.col("protocol").isin([name for name, what in SESSION_IS.items() if what == LINK])
    # Messages before the link was agreed on belong to it, too.
    link = sql.max(sql.when(sql.col("session_id") != sql.col("connection_id"), sql.col("session_id")))
    agreed = sql.when(is_link, link.over(Window.partitionBy("connection_id")))
    speaks_as_client = sql.col("messages_to_server") > 0
    ends = {
        name: sql.when(is_node & ~speaks_as_client, sql.col(f"first.server_{name}")).otherwise(sql.col(f"first.client_{name}"))
        for name in ("address", "port")
    }
    first = sql.struct(
        sql.when(is_node, sql.col("first_said")).otherwise(sql.col("first.ts")).alias("ts"),
        *(sql.col(f"first.{name}").alias(name) for name in ("source", "offset", "transport")),
        *(ends[name].alias(f"client_{name}") for name in ends),
        *(sql.when(~is_node, sql.col(f"first.server_{name}")).alias(f"server_{name}") for name in ends),
        *(sql.col(f"first.{name}").alias(name) for name in ("known_by", "observed_by")),
    )
    return (
        joined.where(sql.col("session_id").isNotNull() | ~is_node)
        .withColumn("session_id", sql.coalesce(agreed, "session_id", "connection_id"))
        .withColumn("first", first)
        .withColumns({name: sql.when(~is_node, sql.col(name)) for name in ("opened", "closed", "reset", "last_happened")})
    )


def _sessions(joined: DataFrame) -> DataFrame:
    """The same, one row per session: it opens with its first connection, and ends as its last one does."""
    last = sql.max(sql.struct("first.ts", "closed", "reset"))
    return (
        joined.groupBy("session_id", "protocol")
        .agg(
            sql.min("first").alias("first"),
            sql.min("opened").alias("opened"),
            last.alias("last"),
            sql.countDistinct("connection_id").alias("connections"),
            sql.least(sql.min("first.ts"), sql.min("first_said")).alias("first_seen"),
            sql.greatest(sql.max("last_happened"), sql.max("last_said")).alias("last_seen"),
            sql.min("first_said").alias("first_said"),
            sql.max("last_word").alias("last_word"),
            *(sql.min(name).alias(name) for name in ("client_greeted", "server_greeted", "parting")),
            *(sql.coalesce(sql.sum(name), sql.lit(0)).alias(name) for name in _SUMS),
        )
        .withColumns({name: sql.col(f"first.{name}") for name in ("source", "offset", *_ENDPOINTS)})
        .withColumns({name: sql.col(f"last.{name}") for name in ("closed", "reset")})
        .drop("first", "last")
    )


def _silences(messages: DataFrame) -> DataFrame:
    """How often a session was silent for longer than its protocol allows, where it has such a limit."""
    in_order = Window.partitionBy("session_id").orderBy("ts", "message_id")
    gap = (sql.unix_micros("ts") - sql.unix_micros(sql.lag("ts").over(in_order))) / 1e6
    return (
        messages.where(sql.col("protocol").isin(list(SILENCE)))
        .select("session_id", (gap > _by_protocol(SILENCE)).alias("is_silence"))
        .groupBy("session_id")
        .agg(sql.count_if("is_silence").alias("silences"))
    )


def _by_protocol(values: Mapping[str, float]) -> Column:
    """What each protocol says, as a column; null for those that say nothing."""
    said = sql.lit(None).cast("double")
    for name, value in values.items():
        said = sql.when(sql.col("protocol") == name, value).otherwise(said)
    return said


def _spoilt(quarantine: DataFrame) -> DataFrame:
    """Quarantined bytes by the side at fault, if any; and the side that began a message that never ended."""
    return (
        quarantine.where("session_id IS NOT NULL")
        .groupBy("session_id")
        .agg(
            sql.collect_set("reason").alias("spoilt_by"),
            sql.collect_set(sql.when(sql.col("reason") == "MESSAGE_CUT", sql.col("direction"))).alias("unfinished"),
            sql.max(sql.col("clause").isNull()).alias("has_gap"),
        )
    )


def build(
    connections: DataFrame,
    connection_index: DataFrame,
    messages: DataFrame,
    quarantine: DataFrame,
    *,
    newest: Mapping[str, datetime] | None = None,
) -> DataFrame:
    """One row per session; `newest` has the time of the last message of each protocol.

    `is_whole` says that the session was captured from its beginning and without a gap: only such a session can be judged by what was *not*
    sent. Bytes that no specification covers were lost or damaged on the way to the capture, not by a sender. `is_silent` says that others
    sent messages long after the last message of this session.
    """
    heard = _by_protocol({protocol: (when - _EPOCH) // _MICROSECOND for protocol, when in (newest or {}).items()})
    waited = (heard - sql.unix_micros("last_seen")) / 1e6
    began = sql.col("opened").isNotNull() | sql.coalesce(
        sql.least("client_greeted", "server_greeted") == sql.col("first_said"), sql.lit(False)
    )
    return (
        _sessions(_joined(connections, connection_index))
        .join(_spoilt(quarantine), "session_id", "left")
        .withColumns({name: sql.coalesce(name, sql.array().cast("array<string>")) for name in ("spoilt_by", "unfinished")})
        .join(_silences(messages), "session_id", "left")
        .withColumn("is_silent", sql.coalesce(waited > _by_protocol(SILENCE), sql.lit(False)))
        .withColumn("is_whole", began & ~sql.coalesce("has_gap", sql.lit(False)))
        .drop("has_gap", "first_said")
    )
