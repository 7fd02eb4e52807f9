"""Build `exchanges`: pair requests with answers, and channel messages with acknowledgements.

It does not depend on protocols: the columns `kind` and `correlation_id` say what belongs together.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.steps import wolpertinger_calls as calls_of
from wirelake.lake.gold.steps import yamp_outcomes as outcomes_of
from wirelake.lake.gold.steps.request_pairs import UNMATCHED
from wirelake.lake.tables.exchanges import LATE_SECONDS, TABLE

__all__ = ["DELIVERY", "INPUTS", "REQUEST", "TABLE", "build"]

REQUEST: Final = "request"
"""Kind of an exchange: a request and its answer."""
DELIVERY: Final = "delivery"
"""Kind of an exchange: a message on a channel and its acknowledgement."""

INPUTS: Final = ("paired", "deliveries", "calls", "outcomes")


def build(
    paired: DataFrame,
    deliveries: DataFrame | None = None,
    calls: DataFrame | None = None,
    outcomes: DataFrame | None = None,
    *,
    late_seconds: float = LATE_SECONDS,
) -> DataFrame:
    """Return every request with its answer.

    A request whose id is used again before the answer stays unanswered.

    `outcomes` has the rows of `paired` whose protocol says in the answer how it went.
    """
    itself, is_answer = sql.struct("ts", "message_id", "size"), sql.col("place") == UNMATCHED
    # An answer that cannot say that it failed is what was asked for.
    says_nothing = paired.withColumn("outcome", sql.when(sql.col("answer").isNotNull(), "returned"))
    asked = says_nothing.where(is_answer | (sql.col("protocol") != calls_of.PROTOCOL))
    if outcomes is not None:
        asked = asked.where(sql.col("protocol") != outcomes_of.PROTOCOL).unionByName(outcomes)
    requests = asked.select(
        *("session_id", "protocol", sql.lit(REQUEST).alias("kind"), "requested_by", "correlation_id", "subject"),
        sql.when(~is_answer, itself).alias("sent"),
        sql.when(is_answer, itself).otherwise(sql.col("answer")).alias("answer"),
        *("progress", "cancelled"),
        sql.when(is_answer, 0).otherwise(1).alias("attempts"),
        "outcome",
    )
    same = {name: sql.struct(*(f"{name}.{part}" for part in ("ts", "message_id", "size"))) for name in ("sent", "answer")}
    told = [
        one.withColumns({"progress": sql.lit(None).cast("int"), "kind": sql.lit(kind)}).withColumns(same)
        for one, kind in ((deliveries, DELIVERY), (calls, REQUEST))
        if one is not None
    ]
    answered = sql.col("answer.ts")
    latency = sql.unix_micros(answered) - sql.unix_micros("sent.ts")
    is_late = sql.coalesce(latency > sql.lit(int(late_seconds * 1_000_000)), sql.lit(False))
    return reduce(lambda one, other: one.unionByName(other), [requests, *told]).select(
        "session_id",
        "protocol",
        "kind",
        "requested_by",
        "correlation_id",
        "subject",
        sql.col("sent.message_id").alias("request_message_id"),
        sql.col("answer.message_id").alias("response_message_id"),
        sql.col("sent.ts").alias("requested"),
        answered.alias("answered"),
        latency.alias("latency_us"),
        sql.when(sql.col("outcome") == calls_of.CONFIRMED, calls_of.CONFIRMED)
        .when(answered.isNull(), "unanswered")
        .when(sql.col("sent").isNull(), "unasked")
        .when(is_late, "late")
        .otherwise("answered")
        .alias("status"),
        is_late.alias("late"),
        sql.col("sent.size").alias("request_size"),
        sql.col("answer.size").alias("response_size"),
        "progress",
        "cancelled",
        "attempts",
        "outcome",
    )
