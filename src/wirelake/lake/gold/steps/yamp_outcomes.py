"""Outcomes of YAMP requests: what their last response says, or that they were killed.

A step to `exchanges`.

A response says itself whether the request was completed, failed or cancelled (0x08 response). After a cancel with the kill flag the
requester discards whatever still comes (0x07 cancel, YAMP-34), so the request was killed even if an answer follows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.protocols.yamp.analyzer import KILLED, OUTCOMES
from wirelake.protocols.yamp.messages import MessageType

__all__ = ["INPUTS", "KILLED", "OUTCOMES", "PROTOCOL", "build"]

INPUTS: Final = ("paired", "yamp")
PROTOCOL: Final = "yamp"

_REQUEST: Final = ("session_id", "requested_by", "correlation_id")


def build(paired: DataFrame, yamp: DataFrame) -> DataFrame:
    """The rows of `paired` that are YAMP's, each with its outcome.

    It is null where no outcome of a request was seen.
    """
    words = " ".join(f"WHEN {int(kind)} THEN '{outcome}'" for kind, outcome in OUTCOMES.items())
    said = yamp.where(f"type = {int(MessageType.RESPONSE)}").selectExpr(
        "message_id AS answer_id", f"CASE response_type {words} END AS answer_says"
    )
    kills = (
        yamp.where(f"type = {int(MessageType.CANCEL)} AND kill AND fault IS NULL")
        .selectExpr(
            *("session_id", "IF(direction = 'to_server', 'client', 'server') AS requested_by"),
            *("lower(hex(request_uid)) AS correlation_id", "ts"),
        )
        .groupBy(*_REQUEST)
        .agg(sql.collect_list("ts").alias("kills"))
    )
    # A uid may be used again once it is answered: only a kill between request and answer is about this request.
    is_killed = "exists(kills, kill -> kill >= ts AND coalesce(kill <= answer.ts, true))"
    return (
        paired.where(f"protocol = '{PROTOCOL}'")
        .withColumn("answer_id", sql.col("answer.message_id"))
        .join(said, "answer_id", "left")
        .join(kills, list(_REQUEST), "left")
        .withColumn(
            "outcome", sql.expr(f"CASE WHEN coalesce({is_killed}, false) AND place != 'unmatched' THEN '{KILLED}' ELSE answer_says END")
        )
        .select(*paired.columns, "outcome")
    )
