"""Which response answers which request: the one place where messages of an exchange are brought together.

Within one session, messages with the same correlation id that belong to requests of the same side take turns: a request opens, a
response closes, and the id is free again. A request while one is open is a repetition and opens nothing; a response while none is
open matches nothing. Messages that break a rule by themselves take no part: whoever receives one stops there.

It refuses to judge: `exchanges` reports, and a room's rules say what is forbidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ANSWERS", "CANCELS", "OPENS", "PROGRESSES", "REPEATS", "UNMATCHED", "pair"]

OPENS: Final = "opens"
REPEATS: Final = "repeats"
ANSWERS: Final = "answers"
UNMATCHED: Final = "unmatched"
PROGRESSES: Final = "progresses"
CANCELS: Final = "cancels"


def pair(messages: DataFrame) -> DataFrame:
    """Messages of exchanges, with `requested_by`, `place` (what the message does there) and `turn` (which use of the id it is in)."""
    from pyspark.sql import Window  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    kind = sql.col("kind")
    by_requester = kind.isin("request", "cancel")
    is_request, is_response = kind == "request", kind == "response"
    said_by_client = sql.col("direction") == "to_server"

    parts = messages.where(
        kind.isin("request", "response", "progress", "cancel") & sql.col("correlation_id").isNotNull() & sql.col("fault").isNull()
    ).select(
        "session_id",
        "protocol",
        sql.when(by_requester == said_by_client, "client").otherwise("server").alias("requested_by"),
        "correlation_id",
        "message_id",
        "ts",
        "direction",
        "kind",
        "subject",
        "size",
        "source",
        "offset",
        "length",
    )

    # message_id is source and offset in one value that compares the same way.
    in_order = Window.partitionBy("session_id", "requested_by", "correlation_id").orderBy("ts", "message_id")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    is_open = sql.coalesce(sql.last(sql.when(is_request | is_response, is_request), ignorenulls=True).over(before), sql.lit(False))
    place = (
        sql.when(is_request, sql.when(sql.col("is_open"), REPEATS).otherwise(OPENS))
        .when(is_response, sql.when(sql.col("is_open"), ANSWERS).otherwise(UNMATCHED))
        .when(kind == "progress", sql.when(sql.col("is_open"), PROGRESSES))
        .when(kind == "cancel", sql.when(sql.col("is_open"), CANCELS))
    )
    opens = (sql.col("place") == OPENS).cast("int")
    return (
        parts.withColumn("is_open", is_open)
        .withColumn("place", place)
        .withColumn("turn", sql.coalesce(sql.sum(opens).over(so_far), sql.lit(0)))
        .drop("is_open")
    )
