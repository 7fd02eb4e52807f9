"""What is known of every session, one row each: the step between the silver tables and those that judge and summarise sessions.

A session is what its protocol says it is: a connection, or a node that was heard on several, or a link that outlived one. So what was said
and what happened is first brought together by connection, and then by session.

It is not a table of the lake: the gold job computes it once and hands it to whoever asks for it.

It refuses to judge, and to know protocols beyond what their sessions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.lake.rulebook import LINK, NODE, SESSION_IS, SILENCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["INPUTS", "build"]

INPUTS: Final = ("connections", "messages", "quarantine")

_ENDPOINTS: Final = ("transport", "client_address", "client_port", "server_address", "server_port", "known_by", "observed_by")
_SUMS: Final = ("messages_to_server", "messages_to_client", "bytes_to_server", "bytes_to_client", "keepalives")


def _happened(connections: DataFrame) -> DataFrame:
    """What happened to each connection."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    what, event = sql.col("what"), sql.struct("ts", "source", "offset", "by")
    return connections.groupBy("connection_id", "protocol").agg(
        sql.min(sql.struct("ts", "source", "offset", *_ENDPOINTS)).alias("first"),
        sql.min(sql.when(what == "opened", event)).alias("opened"),
        sql.min(sql.when(what.isin("finished", "closed", "reset"), event)).alias("closed"),
        sql.min(sql.when(what == "reset", event)).alias("reset"),
        sql.max("ts").alias("last_happened"),
    )


def _said(messages: DataFrame) -> DataFrame:
    """How much was said, by whom, and when. All messages go through this: only numbers, so that Spark aggregates them in place."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    to_server, kind, ts, size = (sql.col(name) for name in ("direction", "kind", "ts", "size"))
    to_server = to_server == "to_server"
    is_handshake, is_parting = kind == "handshake", kind.isin("error", "close")
    return messages.groupBy("session_id", "connection_id", "protocol").agg(
        sql.count_if(to_server).alias("messages_to_server"),
        sql.count_if(~to_server).alias("messages_to_client"),
        sql.sum(sql.when(to_server, size).otherwise(0)).alias("bytes_to_server"),
        sql.sum(sql.when(~to_server, size).otherwise(0)).alias("bytes_to_client"),
        sql.count_if(kind == "keepalive").alias("keepalives"),
        sql.min("ts").alias("first_said"),
        sql.max("ts").alias("last_said"),
        sql.max(sql.when(~is_parting & (kind != "ack"), ts)).alias("last_word"),
        sql.min(sql.when(is_handshake & to_server, ts)).alias("client_greeted"),
        sql.min(sql.when(is_handshake & ~to_server, ts)).alias("server_greeted"),
    )


def _talks(connections: DataFrame, messages: DataFrame) -> DataFrame:
    """One row per session and connection: what was said there, and what happened to it.

    A connection without a message is a session of its own, unless its protocol has none without somebody who speaks. A node is where it
    first spoke, which is its own endpoint and not that of a relay; it has no server, and what becomes of connections is not its fate.
    """
    from pyspark.sql import Window  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    joined = _said(messages).join(_happened(connections), ["connection_id", "protocol"], "full")
    is_node = sql.col("protocol").isin([name for name, what in SESSION_IS.items() if what == NODE])
    is_link = sql.col("protocol").isin([name for name, what in SESSION_IS.items() if what == LINK])
    # What was said before the link was agreed on belongs to it, too.
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


def _sessions(talks: DataFrame) -> DataFrame:
    """The same, one row per session: it opens with its first connection, and ends as its last one does."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    last = sql.max(sql.struct("first.ts", "closed", "reset"))
    return (
        talks.groupBy("session_id", "protocol")
        .agg(
            sql.min("first").alias("first"),
            sql.min("opened").alias("opened"),
            last.alias("last"),
            sql.countDistinct("connection_id").alias("connections"),
            sql.least(sql.min("first.ts"), sql.min("first_said")).alias("first_seen"),
            sql.greatest(sql.max("last_happened"), sql.max("last_said")).alias("last_seen"),
            sql.min("first_said").alias("first_said"),
            sql.max("last_word").alias("last_word"),
            *(sql.min(name).alias(name) for name in ("client_greeted", "server_greeted")),
            *(sql.coalesce(sql.sum(name), sql.lit(0)).alias(name) for name in _SUMS),
        )
        .withColumns({name: sql.col(f"first.{name}") for name in ("source", "offset", *_ENDPOINTS)})
        .withColumns({name: sql.col(f"last.{name}") for name in ("closed", "reset")})
        .drop("first", "last")
    )


def _silences(messages: DataFrame) -> DataFrame:
    """How often a session said nothing for longer than its protocol waits, where the protocol says how long that is."""
    from pyspark.sql import Window  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    in_order = Window.partitionBy("session_id").orderBy("ts", "message_id")
    gap = (sql.unix_micros("ts") - sql.unix_micros(sql.lag("ts").over(in_order))) / 1e6
    return (
        messages.where(sql.col("protocol").isin(list(SILENCE)))
        .select("session_id", (gap > _by_protocol(SILENCE)).alias("is_silence"))
        .groupBy("session_id")
        .agg(sql.count_if("is_silence").alias("silences"))
    )


def _by_protocol(values: dict[str, float]) -> Column:
    """What each protocol says, as a column; null for those that say nothing."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    said = sql.lit(None).cast("double")
    for name, value in values.items():
        said = sql.when(sql.col("protocol") == name, value).otherwise(said)
    return said


def _partings(messages: DataFrame) -> DataFrame:
    """Who was the first to part, and how."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    how = sql.when(sql.col("kind") == "error", "error").otherwise("bye")
    by = sql.when(sql.col("direction") == "to_server", "client").otherwise("server")
    parting = sql.struct("ts", "message_id", how.alias("how"), by.alias("by"))
    return messages.where("kind IN ('error', 'close')").groupBy("session_id").agg(sql.min(parting).alias("parting"))


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
    Bytes that no specification speaks of were lost or mangled on the way to us, not by a speaker. `is_silent` says that others spoke on
    long after it was heard last.
    """
    from pyspark.sql import Window  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    waited = (sql.unix_micros("newest") - sql.unix_micros("last_seen")) / 1e6
    began = sql.col("opened").isNotNull() | sql.coalesce(
        sql.least("client_greeted", "server_greeted") == sql.col("first_said"), sql.lit(False)
    )
    return (
        _sessions(_talks(connections, messages))
        .join(_partings(messages), "session_id", "left")
        .join(_spoilt(quarantine), "session_id", "left")
        .withColumn("spoilt_by", sql.coalesce("spoilt_by", sql.array().cast("array<string>")))
        .join(_silences(messages), "session_id", "left")
        .withColumn("newest", sql.max("last_seen").over(Window.partitionBy("protocol")))
        .withColumn("is_silent", sql.coalesce(waited > _by_protocol(SILENCE), sql.lit(False)))
        .withColumn("is_whole", began & ~sql.coalesce("has_gap", sql.lit(False)))
        .drop("has_gap", "first_said", "newest")
    )
