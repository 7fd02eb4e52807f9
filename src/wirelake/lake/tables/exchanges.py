"""`exchanges`: every request with its answer, every answer nobody asked for, and every message on a channel with its acknowledgement.

It refuses to know protocols: `kind` and `correlation_id` say what belongs together.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wirelake.lake.gold.steps import wolpertinger_calls as calls_of
from wirelake.lake.gold.steps import yamp_outcomes as outcomes_of
from wirelake.lake.gold.steps.request_pairs import UNMATCHED
from wirelake.lake.tables.schema import SESSION, TIME, Table, column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DELIVERY", "INPUTS", "LATE_SECONDS", "REQUEST", "TABLE", "build"]

LATE_SECONDS: Final = 30.0
"""An answer that takes longer than this is late, unless the lake was told otherwise when it was made."""

REQUEST: Final = "request"
"""The kind of an exchange in which somebody is asked something."""
DELIVERY: Final = "delivery"
"""The kind of an exchange in which a message on a channel is acknowledged."""

INPUTS: Final = ("paired", "deliveries", "calls", "outcomes")

TABLE: Final = Table(
    "exchanges",
    ("request_message_id", "response_message_id", "correlation_id"),
    pa.schema(
        [
            SESSION,
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("kind", pa.string(), "`request`: somebody is asked something; `delivery`: a message on a channel is acknowledged."),
            column("requested_by", pa.string(), "`client` or `server`."),
            column("correlation_id", pa.string(), "What ties the response to the request; free to be used again once answered."),
            column("subject", pa.string(), "What was requested, where the protocol says so."),
            column("request_message_id", pa.binary(), "The request in `messages`; null if nobody was seen asking."),
            column("response_message_id", pa.binary(), "The response in `messages`; null if there was none."),
            column("requested", TIME, "When the request was seen; null if it was not."),
            column("answered", TIME, "When the response was seen; null if there was none."),
            column("latency_us", pa.int64(), "Microseconds from request to response; null if one of them is missing."),
            column(
                "status",
                pa.string(),
                "`answered`, `late` (answered, but not in time), `confirmed` (delivered, all that a void method says), `unanswered` or"
                " `unasked` (a response without request).",
            ),
            column(
                "late",
                pa.bool_(),
                "Whether the answer took longer than the lake allows: 30 s, unless it was told otherwise when it was made.",
            ),
            column("request_size", pa.int64(), "Bytes of the request, envelope included; null if it was not seen."),
            column("response_size", pa.int64(), "Bytes of the response, envelope included; null if there was none."),
            column("progress", pa.int32(), "How many reports of progress came before the response; null if there was none."),
            column("cancelled", pa.bool_(), "Whether the requester took it back before it was answered."),
            column("attempts", pa.int32(), "How often it was sent: more than once after a link was resumed; 0 if that was not seen."),
            column(
                "outcome",
                pa.string(),
                "What came of a request: `returned`, `failed` (answered with an error), `cancelled` (answered so), `killed` (its sender"
                " waits no more), `confirmed` (a result of wolpertinger, and no more), `refused` (a result that is not success). Of a"
                " delivery: `consumed`, `committed`, `uncommitted`, `rolled back`. Null if nothing was seen to come of it.",
            ),
        ]
    ),
    "One row per request, per response that matches none, and per message on a channel.",
)


def build(
    paired: DataFrame,
    deliveries: DataFrame | None = None,
    calls: DataFrame | None = None,
    outcomes: DataFrame | None = None,
    *,
    late_seconds: float = LATE_SECONDS,
) -> DataFrame:
    """Every request with the answer that pairing found for it; one whose id is used again before that stays unanswered.

    `outcomes` has the rows of `paired` whose protocol says in the answer how it went.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

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
