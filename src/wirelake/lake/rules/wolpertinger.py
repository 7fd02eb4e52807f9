"""Wolpertinger over history: what is tolerated, what was never confirmed or completed, and what answers nothing.

Deliveries are followed by the id of layer 1, calls by their CallId. Whether a method is void nobody says on the wire, so a call that was
confirmed and never answered breaks no rule; `exchanges` tells of it.

It refuses to know the rules' clauses and gravity: the room's faults do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.lake.audit import FINDING, breaches, odd
from wirelake.lake.pairing import REPEATS, UNMATCHED
from wirelake.lake.threats import Threat
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ODDITIES", "THREATS", "by_fields", "by_history", "greetings", "guards"]

ODDITIES: Final = (
    Fault.KEY_NOT_LOWER,
    Fault.ALIAS_USED,
    Fault.PAYLOAD_BLANKS,
    Fault.RESULT_PAYLOAD,
    Fault.RESULT_CODE_UNKNOWN,
    Fault.FRAGMENT_LATE,
)
"""What the bits of the column `oddities` mean, lowest first."""

THREATS: Final = {
    Fault.TEXT_OVER_LIMIT: Threat.BOMB,
    Fault.FRAGMENTS_OVER_LIMIT: Threat.BOMB,
    Fault.INFLATED_OVER_LIMIT: Threat.BOMB,
    Fault.DOCUMENT_OVER_LIMIT: Threat.BOMB,
    Fault.DOCTYPE_REFUSED: Threat.BOMB,
    Fault.CLEAR_WHEN_ENCRYPTED: Threat.DOWNGRADE,
    Fault.ENCRYPTED_TOO_SOON: Threat.FORGED,
    Fault.ENCRYPTION_FAILED: Threat.FORGED,
    Fault.SIGNATURE_REFUSED: Threat.UNTRUSTED,
}
"""WOLP-29, WOLP-17, WOLP-22, WOLP-8, WOLP-5: what endangers a receiver or its secrets. Nothing protects integrity here (WOLP-8)."""

_DELIVERY: Final = "PARTITION BY session_id, sender, text_id"
"""All that is said of the messages with one id: their texts, and results for them."""
_ORDER: Final = f"{_DELIVERY} ORDER BY ts, message_id"


def by_fields(wolpertinger: DataFrame) -> DataFrame:
    """WOLP-2, WOLP-4, WOLP-5, WOLP-6, WOLP-9: what is tolerated on receipt but should not have been sent."""
    return breaches(wolpertinger, "wolpertinger", odd(ODDITIES))


def guards(messages: DataFrame, paired: DataFrame, facts: DataFrame) -> list[DataFrame]:
    """All that depends on what was said before takes wolpertinger's own columns: see `by_history`."""
    del messages, paired, facts
    return []


def by_history(wolpertinger: DataFrame, paired: DataFrame, facts: DataFrame) -> list[DataFrame]:
    """Rules that are judged by what was *not* said before or in time, and so only of sessions that were seen whole."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    mine = wolpertinger.withColumn("protocol", sql.lit("wolpertinger"))
    again = repeated(mine)
    return [again, mismatched(paired, again), unconfirmed(mine, facts)]


def repeated(wolpertinger: DataFrame) -> DataFrame:
    """WOLP-10: a message, in one piece, that was delivered before: the same id, the same contents, within the time it is remembered."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    before = "lag(struct(ts, payload)) OVER (PARTITION BY session_id, direction, text_id ORDER BY ts, message_id)"
    recently = f"ts <= before.ts + make_dt_interval(0, 0, 0, {DEFAULT_OPTIONS.remember_time})"
    return (
        wolpertinger.where("type = 'message'")
        .selectExpr("*", f"{before} AS before")
        .where(f"before.payload = payload AND {recently}")
        .withColumn("rule", sql.lit(Fault.MESSAGE_REPEATED.name))
        .select(*FINDING)
    )


def mismatched(paired: DataFrame, again: DataFrame) -> DataFrame:
    """WOLP-14, WOLP-16: calls with a CallId that is in flight, and answers to no call that waits, unless they were just sent again."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    place = sql.col("place")
    rule = sql.when(place == UNMATCHED, Fault.RESPONSE_UNMATCHED.name).otherwise(Fault.CALL_ID_IN_FLIGHT.name)
    return (
        paired.where(place.isin(UNMATCHED, REPEATS))
        .join(again.select("message_id"), "message_id", "left_anti")
        .withColumn("rule", rule)
        .select(*FINDING)
    )


def unconfirmed(wolpertinger: DataFrame, facts: DataFrame) -> DataFrame:
    """WOLP-10, WOLP-9, WOLP-4: messages without a result, pieces without the others, and results for what does not wait for one.

    What was not done in time is told when the time is up, if the session was seen as long. A result that is not success may answer a text
    that could not be read, and so is never too many.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    is_result = "type = 'result'"
    deliveries = wolpertinger.selectExpr(
        *("session_id", "protocol", "direction", "ts", "message_id", "text_id", "type", "result_code", "source", "offset", "length"),
        "coalesce(fault IN ('FRAGMENT_CONFLICT', 'FRAGMENTS_OVER_LIMIT'), false) AS is_refused",
        f"IF(({is_result}) = (direction = 'to_client'), 'client', 'server') AS sender",
        "coalesce(fragment_count, 1) AS pieces",
        "coalesce(fragment_index, 0) AS piece",
    ).selectExpr(
        "*",
        f"lag(type) OVER ({_ORDER}) AS before",
        f"lead(type) OVER ({_ORDER}) AS after",
        f"size(collect_set(IF({is_result}, NULL, piece)) OVER ({_DELIVERY})) < pieces AS is_incomplete",
        f"max(is_refused) OVER ({_DELIVERY}) AS was_refused",
    )
    seen = facts.selectExpr("session_id", "last_seen", "closed IS NOT NULL AS is_closed")
    due = deliveries.join(seen, "session_id").withColumn(
        "due", sql.expr(f"ts + make_dt_interval(0, 0, 0, {DEFAULT_OPTIONS.confirm_timeout} * pieces)")
    )
    rule = (
        sql.when(sql.expr(f"{is_result} AND result_code = 0 AND coalesce(before, 'result') = 'result'"), Fault.RESULT_UNMATCHED.name)
        .when(
            sql.expr(f"NOT {is_result} AND after IS NULL AND is_incomplete AND NOT was_refused AND (last_seen > due OR is_closed)"),
            Fault.FRAGMENTS_TIMED_OUT.name,
        )
        .when(sql.expr(f"NOT {is_result} AND after IS NULL AND NOT is_incomplete AND last_seen > due"), Fault.NOT_CONFIRMED.name)
    )
    is_omission = sql.col("rule") != Fault.RESULT_UNMATCHED.name
    whose = sql.expr("IF(direction = 'to_server', 'to_client', 'to_server')")
    return (
        due.withColumn("rule", rule)
        .where("rule IS NOT NULL")
        .withColumns(
            {
                "direction": sql.when(sql.col("rule") == Fault.NOT_CONFIRMED.name, whose).otherwise(sql.col("direction")),
                "ts": sql.when(is_omission, sql.least("due", "last_seen")).otherwise(sql.col("ts")),
                "message_id": sql.when(~is_omission, sql.col("message_id")),
            }
        )
        .select(*FINDING)
    )


def greetings(wolpertinger: DataFrame) -> DataFrame:
    """Per session how the first error went: for `sessions`. There are no versions on the wire, and nobody greets."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    error = sql.min(sql.struct("ts", "message_id", "error_code"))
    return (
        wolpertinger.where("error_code IS NOT NULL")
        .groupBy("session_id")
        .agg(error.alias("error"))
        .select(
            "session_id",
            *(sql.lit(None).cast("smallint").alias(f"{side}_version") for side in ("client", "server")),
            sql.lit(None).cast("boolean").alias("accepted"),
            sql.expr("try_cast(error.error_code AS smallint)").alias("error_code"),
        )
    )
