"""Pair every wolpertinger call with its response, its error, or its confirmation.

This is a step to `exchanges`. A CallId is never used twice, so a call that comes again was sent again. A void method has no answer but the
result that confirms its delivery, which looks the same as a missing response.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.protocols.wolpertinger.analyzer import CONFIRMED

__all__ = ["CONFIRMED", "INPUTS", "PROTOCOL", "build"]

INPUTS: Final = ("paired", "wolpertinger")
PROTOCOL: Final = "wolpertinger"

_NEXT: Final = "lead(result) IGNORE NULLS OVER (PARTITION BY session_id, sender, text_id ORDER BY ts, message_id)"
_CALL: Final = ("session_id", "requested_by", "correlation_id")


def _results(wolpertinger: DataFrame) -> DataFrame:
    """The result that the text got that says, or completes, a call."""
    told = wolpertinger.where("type = 'result' OR root = 'RemoteMethodCall'").selectExpr(
        *("session_id", "message_id", "ts", "text_id", "root"),
        "IF((type = 'result') = (direction = 'to_client'), 'client', 'server') AS sender",
        "IF(type = 'result', struct(ts, message_id, size, result_code), NULL) AS result",
    )
    return told.selectExpr("message_id", "root", f"{_NEXT} AS result").where("root IS NOT NULL AND result IS NOT NULL")


def build(paired: DataFrame, wolpertinger: DataFrame) -> DataFrame:
    """Every call: when it was first sent, how often, and what came of it, in the form of `deliveries`."""
    roots = wolpertinger.where("root != 'RemoteMethodCall'").selectExpr("message_id AS answer_id", "root")
    calls = (
        paired.where(f"protocol = '{PROTOCOL}' AND place != 'unmatched'")
        .join(_results(wolpertinger).select("message_id", "result"), "message_id", "left")
        .groupBy(*_CALL)
        .agg(
            sql.min("subject").alias("subject"),
            sql.min(sql.struct("ts", "message_id", "size")).alias("sent"),
            sql.min("answer").alias("answer"),
            sql.min("result").alias("result"),
            sql.count("*").cast("int").alias("attempts"),
        )
        .withColumn("answer_id", sql.col("answer.message_id"))
        .join(roots, "answer_id", "left")
    )
    is_delivered = sql.col("result.result_code") == 0
    outcome = (
        sql.when(sql.col("root") == "RemoteError", "failed")
        .when(sql.col("answer_id").isNotNull(), "returned")
        .when(is_delivered, CONFIRMED)
        .when(sql.col("result").isNotNull(), "refused")
    )
    result = sql.struct(*(sql.col(f"result.{part}").alias(part) for part in ("ts", "message_id", "size")))
    return calls.select(
        *("session_id", sql.lit(PROTOCOL).alias("protocol"), "requested_by", "correlation_id", "subject", "sent"),
        sql.coalesce("answer", sql.when(sql.col("result").isNotNull(), result)).alias("answer"),
        "attempts",
        sql.lit(False).alias("cancelled"),
        outcome.alias("outcome"),
    )
