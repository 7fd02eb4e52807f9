"""Number every message on a Relink channel as its link does, with its outcome.

This is a step to `exchanges`. Numbers are implicit on the wire: the first message of a channel is 0, each one more. After a reconnection
its sender begins behind what the other side says it received (RELINK-14, RELINK-21). A retransmission has the number it had, so it differs
from a new message. Acknowledgements cover all up to a number, or just the next (RELINK-15); the first that covers a message resolves it.
`closed` covers every message of its channel: they were consumed (RELINK-22), or rolled back if they were never decided (RELINK-29).

Numbers that wrap at 2^32 are not followed. Rules are judged elsewhere.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.relink_connections import connections

__all__ = ["INPUTS", "build"]

INPUTS: Final = ("relink",)

_NOTHING: Final = (1 << 32) - 1
"""RELINK-15: the sequence number that means that there is none yet."""
_WORDS: Final = {
    "message": "message",
    "consumed": "consumed",
    "committed": "result",
    "uncommitted": "result",
    "commit": "decision",
    "rollback": "decision",
    "close": "close",
    "closed": "closed",
    "received": "received",
}
"""Kind of message about a channel -> the cursor it moves."""
_SENT: Final = ("message", "commit", "rollback", "close")
"""Sent by the sender of the channel; the receiver sends all others."""
_RESOLVING: Final = ("result", "consumed", "decision", "closed")
"""Cursors that say what came of a message."""
_ALL: Final = 1 << 62
"""Beyond every number: how far `closed` reaches."""
_CHANNEL: Final = "session_id, sender, channel"
_LIFE: Final = ("session_id", "sender", "channel", "life")
"""One life of a channel."""
_ORDER: Final = "ORDER BY ts, message_id, place"
_SO_FAR: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _said(relink: DataFrame) -> DataFrame:
    """One row for each message and channel it is about: the sender of the channel, and its life.

    A channel lives again with the first message after `closed`, which may be sent more than once (RELINK-22). A `closed` of a channel that
    its sender has not closed resolves nothing. Before `resume`, it is about an earlier channel of the same id, and so is all that is
    reported with it.
    """
    words = ", ".join(f"'{word}'" for word in _WORDS)
    cursors = " ".join(f"WHEN '{word}' THEN '{cursor}'" for word, cursor in _WORDS.items())
    exploded = relink.where(f"type_name IN ({words}) AND fault IS NULL").selectExpr(
        *("session_id", "connection_id", "ts", "message_id", "direction", "type_name", "size"),
        f"CASE type_name {cursors} END AS cursor",
        f"IF((direction = 'to_server') = (type_name IN {_SENT}), 'client', 'server') AS sender",
        f"IF(sequence = {_NOTHING}, -1, sequence) AS sequence",
        "posexplode(channel_ids) AS (place, id)",
    )
    agreed = connections(relink).selectExpr(
        *("connection_id", "is_resumed", "asked.connector_transactions", "asked.listener_transactions"),
        *(f"struct(resume_{side}.ts, resume_{side}.message_id) AS resume_{side}" for side in ("client", "server")),
    )
    resume = "IF(direction = 'to_server', resume_client, resume_server)"
    is_told = f"coalesce(is_resumed, false) AND type_name NOT IN {_SENT} AND ({resume}.ts IS NULL OR struct(ts, message_id) < {resume})"
    placed = exploded.withColumnRenamed("id", "channel").join(agreed, "connection_id", "left")
    closing = f"last(IF(cursor IN ('message', 'close'), cursor, NULL), true) OVER (PARTITION BY {_CHANNEL} {_ORDER} {_SO_FAR})"
    judged = placed.selectExpr(
        *("session_id", "connection_id", "ts", "message_id", "direction", "type_name", "size", "cursor", "sender", "sequence", "place"),
        "channel",
        "coalesce(IF(sender = 'client', connector_transactions, listener_transactions), false) AS is_transactional",
        f"{is_told} AS is_told",
        f"cursor = 'closed' AND coalesce({closing} = 'message', false) AS is_void",
    )
    section = f"max(is_told AND is_void) OVER (PARTITION BY {_CHANNEL}, connection_id)"
    lives = judged.selectExpr("*", f"{section} AS is_former").where("NOT is_void AND NOT (is_told AND is_former)")
    turn = f"lag(IF(cursor IN ('message', 'closed'), cursor, NULL)) IGNORE NULLS OVER (PARTITION BY {_CHANNEL} {_ORDER})"
    return lives.selectExpr("*", f"cursor = 'message' AND coalesce({turn}, '') = 'closed' AS reopens").selectExpr(
        "*",
        f"count_if(reopens) OVER (PARTITION BY {_CHANNEL} {_ORDER} {_SO_FAR}) AS life",
    )


def _firsts(said: DataFrame) -> DataFrame:
    """RELINK-20, RELINK-21: the first number of a sender on a connection that resumes a link.

    It follows what the other side reported before `resume`.
    """
    return (
        said.where("is_told AND cursor = 'received' AND sequence IS NOT NULL")
        .groupBy("connection_id", "sender", "channel", "life")
        .agg((sql.max("sequence") + 1).alias("first"))
    )


def _messages(said: DataFrame, firsts: DataFrame) -> DataFrame:
    """Every message with its number, once, however often it was sent."""
    keys = ["connection_id", "sender", "channel", "life"]
    place = f"row_number() OVER (PARTITION BY connection_id, {_CHANNEL}, life {_ORDER})"
    sent = sql.min(sql.struct("ts", "message_id", "place", "size"))
    return (
        said.where("cursor = 'message'")
        .join(firsts, keys, "left")
        .selectExpr("*", f"coalesce(first, 0) + {place} - 1 AS number")
        .groupBy(*_LIFE, "number")
        .agg(sent.alias("sent"), sql.count("*").cast("int").alias("attempts"), sql.max("is_transactional").alias("is_transactional"))
    )


def _covered(said: DataFrame) -> DataFrame:
    """RELINK-15: the range of numbers that each message covers.

    One without a number means the next of its cursor.
    """
    within = f"PARTITION BY {_CHANNEL}, life, cursor"
    told = said.where(f"cursor IN ({', '.join(map(repr, _RESOLVING))})").selectExpr(
        "*", f"count(sequence) OVER ({within} {_ORDER} {_SO_FAR}) AS since"
    )
    again = f"{within}, since {_ORDER}"
    reached = f"IF(since = 0, -1, first_value(sequence) OVER ({again}) - 1) + row_number() OVER ({again})"
    return (
        told.selectExpr("*", f"IF(cursor = 'closed', {_ALL}, {reached}) AS last")
        .selectExpr("*", f"coalesce(lag(last) OVER ({within} {_ORDER}), -1) AS before")
        .where("last > before")
        .selectExpr(*_LIFE, "cursor", "before", "last", "struct(ts, message_id, size, type_name AS word) AS told")
    )


def build(relink: DataFrame) -> DataFrame:
    """Every message of every channel of every link, with its resolution.

    Rows have the time it was first sent, how often it was sent, and the first packet that resolves it.
    """
    said = _said(relink)
    numbered = _messages(said, _firsts(said))
    reaches = " AND ".join((*(f"one.{name} = word.{name}" for name in _LIFE), "number > before", "number <= last"))
    messages = (
        numbered.alias("one")
        .join(_covered(said).alias("word"), sql.expr(reaches), "left")
        .groupBy(*(sql.col(f"one.{name}") for name in (*_LIFE, "number", "sent", "attempts", "is_transactional")))
        .agg(*(sql.min(sql.when(sql.col("cursor") == cursor, sql.col("word.told"))).alias(cursor) for cursor in _RESOLVING))
    )
    is_undecided = sql.col("is_transactional") & sql.col("decision").isNull() & sql.col("result").isNull()
    rolled_back = sql.coalesce(sql.col("decision.word") == "rollback", is_undecided & sql.col("closed").isNotNull())
    is_consumed = sql.col("consumed").isNotNull() | sql.col("closed").isNotNull()
    return messages.select(
        "session_id",
        sql.lit("relink").alias("protocol"),
        sql.col("sender").alias("requested_by"),
        sql.concat_ws("/", sql.lower(sql.hex("channel")), sql.col("number").cast("string")).alias("correlation_id"),
        sql.lower(sql.hex("channel")).alias("subject"),
        "sent",
        sql.coalesce(sql.col("result"), sql.least("consumed", "closed")).alias("answer"),
        "attempts",
        rolled_back.alias("cancelled"),
        sql.when(rolled_back, "rolled back")
        .otherwise(sql.coalesce(sql.col("result.word"), sql.when(is_consumed, "consumed")))
        .alias("outcome"),
    )
