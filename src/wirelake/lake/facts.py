"""What is known of every session, one row each: the step between the silver tables and those that judge and summarise sessions.

It is not a table of the lake: the gold job computes it once and hands it to whoever asks for it.

It refuses to judge, and to know protocols beyond which of their messages are milestones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.lake.audit import conversation, is_milestone
from wirelake.lake.rulebook import ROOMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["INPUTS", "build"]

INPUTS: Final = ("connections", "messages", "quarantine")

_ENDPOINTS: Final = ("transport", "client_address", "client_port", "server_address", "server_port", "known_by", "observed_by")


def _happened(connections: DataFrame) -> DataFrame:
    """What happened to the connection. `connections` knows every session, so the others are joined to this."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    what, event = sql.col("what"), sql.struct("ts", "source", "offset", "by")
    return (
        connections.groupBy("session_id", "protocol")
        .agg(
            sql.min(sql.struct("ts", "source", "offset", *_ENDPOINTS)).alias("first"),
            sql.min(sql.when(what == "opened", event)).alias("opened"),
            sql.min(sql.when(what.isin("finished", "closed", "reset"), event)).alias("closed"),
            sql.min(sql.when(what == "reset", event)).alias("reset"),
            sql.max("ts").alias("last_happened"),
        )
        .select("session_id", "protocol", "first.*", "opened", "closed", "reset", "last_happened")
        .withColumnRenamed("ts", "first_happened")
    )


def _said(messages: DataFrame) -> DataFrame:
    """How much was said, by whom, and when. All messages go through this: only numbers, so that Spark aggregates them in place."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    to_server, kind, ts, size = (sql.col(name) for name in ("direction", "kind", "ts", "size"))
    to_server = to_server == "to_server"
    is_handshake, is_parting = kind == "handshake", kind.isin("error", "close")
    return messages.groupBy("session_id").agg(
        sql.count_if(to_server).alias("messages_to_server"),
        sql.count_if(~to_server).alias("messages_to_client"),
        sql.sum(sql.when(to_server, size).otherwise(0)).alias("bytes_to_server"),
        sql.sum(sql.when(~to_server, size).otherwise(0)).alias("bytes_to_client"),
        sql.min("ts").alias("first_said"),
        sql.max("ts").alias("last_said"),
        sql.max(sql.when(~is_parting, ts)).alias("last_word"),
        sql.min(sql.when(is_handshake & to_server, ts)).alias("client_greeted"),
        sql.min(sql.when(is_handshake & ~to_server, ts)).alias("server_greeted"),
    )


def _steps(messages: DataFrame) -> DataFrame:
    """The few messages that move conversations on, and the first of them that was a parting."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    is_step = " OR ".join(f"(protocol = '{name}' AND ({is_milestone(conversation(room.conversation))}))" for name, room in ROOMS.items())
    how = sql.when(sql.col("kind") == "error", "error").otherwise("bye")
    by = sql.when(sql.col("direction") == "to_server", "client").otherwise("server")
    parting = sql.struct("ts", "message_id", how.alias("how"), by.alias("by"))
    return (
        messages.where(f"{is_step} OR kind IN ('error', 'close')")
        .groupBy("session_id")
        .agg(
            sql.collect_list(sql.when(sql.expr(is_step), sql.struct("ts", "message_id", "direction", "name"))).alias("milestones"),
            sql.min(sql.when(sql.col("kind").isin("error", "close"), parting)).alias("parting"),
        )
    )


def _spoilt(quarantine: DataFrame) -> DataFrame:
    """What could not be read: by whose fault, or by nobody's."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    return (
        quarantine.where("session_id IS NOT NULL")
        .groupBy("session_id")
        .agg(sql.collect_set("reason").alias("spoilt_by"), sql.max(sql.col("clause").isNull()).alias("has_gap"))
    )


def build(connections: DataFrame, messages: DataFrame, quarantine: DataFrame) -> DataFrame:
    """One row per session.

    `is_whole` says that it was seen from its beginning and without a gap: only such a session can be judged by what was *not* said.
    Bytes that no specification speaks of were lost or mangled on the way to us, not by a speaker.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    no_milestones = sql.array().cast("array<struct<ts:timestamp,message_id:binary,direction:string,name:string>>")
    began = sql.col("opened").isNotNull() | sql.coalesce(
        sql.least("client_greeted", "server_greeted") == sql.col("first_said"), sql.lit(False)
    )
    counts = ("messages_to_server", "messages_to_client", "bytes_to_server", "bytes_to_client")
    return (
        _happened(connections)
        .join(_said(messages), "session_id", "left")
        .join(_steps(messages), "session_id", "left")
        .join(_spoilt(quarantine), "session_id", "left")
        .withColumns({name: sql.coalesce(name, sql.lit(0)) for name in counts})
        .withColumn("milestones", sql.coalesce("milestones", no_milestones))
        .withColumn("spoilt_by", sql.coalesce("spoilt_by", sql.array().cast("array<string>")))
        .withColumn("is_whole", began & ~sql.coalesce("has_gap", sql.lit(False)))
        .withColumn("first_seen", sql.least("first_happened", "first_said"))
        .withColumn("last_seen", sql.greatest("last_happened", "last_said"))
        .drop("has_gap", "first_happened", "last_happened", "first_said", "last_said")
    )
