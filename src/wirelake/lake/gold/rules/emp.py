"""EMP over history: rules that depend on data or time rather than on the state machine.

A live session judges the same rules as it goes; here they are windows and aggregations over what was recorded. Every function takes rows
and returns findings (`engine.FINDING`).
"""

from __future__ import annotations

from typing import Final, cast

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING, breaches, odd
from wirelake.lake.gold.rules.timeouts import CARRIED, WENT_BY, Timeouts, in_time, omissions, omitted, went_by
from wirelake.lake.gold.steps.request_pairs import REPEATS, UNMATCHED
from wirelake.lake.tables.security import Threat
from wirelake.protocols.emp.analyzer import Analyzer
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import VERSION, MessageType
from wirelake.protocols.emp.options import DEFAULT_OPTIONS
from wirelake.protocols.faults import Faults

__all__ = ["ODDITIES", "THREATS", "UNSEEN", "by_fields", "greetings", "guards"]

ODDITIES: Final = Analyzer.ODDITIES
"""What the bits of the column `oddities` mean, lowest first."""

THREATS: Final[dict[Faults, Threat]] = dict.fromkeys(
    (Fault.SIZE_OVER_LIMIT, Fault.BLOCKS_OVER_LIMIT, Fault.COMPRESSION_NESTED, Fault.INFLATED_OVER_LIMIT), Threat.BOMB
)
"""EMP-35, EMP-36, EMP-8, EMP-37: what endangers a receiver."""

TIMEOUTS: Final = cast(Timeouts, Analyzer.TIMEOUTS)
"""EMP-29, EMP-43: say hello in time, end with bye or error, and never inside a message."""

UNSEEN: Final[dict[Faults, str]] = {
    Fault.TYPE_UNREGISTERED: "which types an application handles is not on the wire",
    Fault.EXTENSION_REFUSED: "what an application's extension refuses is not on the wire",
    Fault.REQUEST_UNHANDLED: "whether a peer answers requests is not on the wire; to send one breaks no rule",
    Fault.HANDLER_FAILED: "a failure of the application that was asked; no message breaks a rule",
    Fault.IDENTIFIERS_EXHAUSTED: "refused before anything is sent",
    Fault.FIELD_OUT_OF_RANGE: "refused before anything is sent",
    Fault.RESPONSE_LATE: "the timeout of a request is its sender's own setting; `exchanges` shows late answers",
}
"""What history cannot tell, and why."""

_PONG_SECONDS: Final = DEFAULT_OPTIONS.pong_timeout
_NEXT_PONG: Final = "lead(IF(name = 'pong', {}, NULL)) IGNORE NULLS OVER (PARTITION BY session_id, pinged_by ORDER BY ts, message_id)"


def by_fields(emp: DataFrame) -> DataFrame:
    """EMP-27, EMP-5, EMP-20: an invalid version, and faults that are tolerated on receipt."""
    is_other_version = sql.expr(f"type = {int(MessageType.HELLO)} AND fault IS NULL AND version != {VERSION}")
    return breaches(emp, "emp", {Fault.VERSION_UNSUPPORTED: is_other_version} | odd(ODDITIES))


def mismatched(paired: DataFrame) -> DataFrame:
    """EMP-16, EMP-18: responses without a waiting request, and requests with an id that is in flight."""
    place = sql.col("place")
    rule = sql.when(place == UNMATCHED, Fault.RESPONSE_UNMATCHED.name).otherwise(Fault.REQUEST_ID_IN_FLIGHT.name)
    return paired.where(place.isin(UNMATCHED, REPEATS)).withColumn("rule", rule).select(*FINDING)


def out_of_step(messages: DataFrame, session_facts: DataFrame) -> DataFrame:
    """EMP-30, EMP-31, EMP-32: pongs without a ping, pings before the last pong, and pings without a pong.

    A finding about a late pong has the time when it was due, and blames the side that owed it. It counts only if no side had left by then.
    """
    is_ping = sql.col("name") == "ping"
    said_by_client = sql.col("direction") == "to_server"
    in_order = Window.partitionBy("session_id", "pinged_by").orderBy("ts", "message_id")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    step = sql.when(is_ping, 1).otherwise(-1)
    # A count that never goes below zero: the sum so far, less the lowest it has been.
    waiting = sql.coalesce(sql.sum(step).over(before), sql.lit(0)) - sql.least(
        sql.coalesce(sql.min("balance").over(before), sql.lit(0)), sql.lit(0)
    )
    stepped = (
        messages.where("fault IS NULL")
        .selectExpr("*", *CARRIED)
        .where(sql.col("name").isin("ping", "pong"))
        .withColumn("pinged_by", sql.when(is_ping == said_by_client, "client").otherwise("server"))
        .withColumn("balance", sql.sum(step).over(so_far))
        .withColumns({"waiting": waiting, "pong": sql.expr(_NEXT_PONG.format("ts")), "ponged": sql.expr(_NEXT_PONG.format("carried"))})
    )
    due = in_time(sql.col("ts"), _PONG_SECONDS, "ponged")
    rule = (
        sql.when(is_ping & (sql.col("waiting") > 0), Fault.PING_OVERLAPPING.name)
        .when(~is_ping & (sql.col("waiting") <= 0), Fault.PONG_UNSOLICITED.name)
        .when(is_ping & went_by(due, sql.col("pong")), Fault.PONG_TIMEOUT.name)
    )
    found = stepped.join(session_facts.select("session_id", *WENT_BY), "session_id").withColumn("rule", rule).where("rule IS NOT NULL")
    return omitted(found, due, sql.col("rule") == Fault.PONG_TIMEOUT.name).select(*FINDING)


def guards(messages: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """Rules about what was *not* sent or done before; they judge only sessions that were captured whole."""
    return [mismatched(paired), out_of_step(messages, session_facts), omissions(session_facts, TIMEOUTS)]


def greetings(emp: DataFrame) -> DataFrame:
    """Per session the fields of both greetings, and the first error: for `sessions`."""
    is_hello, is_error = (sql.col("type") == int(kind) for kind in (MessageType.HELLO, MessageType.ERROR))
    said_by_client = sql.col("direction") == "to_server"
    told = sql.struct("ts", "message_id", "version")
    return (
        emp.where(is_hello | is_error)
        .groupBy("session_id")
        .agg(
            sql.min(sql.when(is_hello & said_by_client, told)).alias("client"),
            sql.min(sql.when(is_hello & ~said_by_client, told)).alias("server"),
            sql.min(sql.when(is_error, sql.struct("ts", "message_id", "error_code"))).alias("error"),
        )
        .select(
            "session_id",
            sql.col("client.version").alias("client_version"),
            sql.col("server.version").alias("server_version"),
            ((sql.col("client.version") == VERSION) & (sql.col("server.version") == VERSION)).alias("accepted"),
            sql.col("error.error_code").alias("error_code"),
        )
    )
