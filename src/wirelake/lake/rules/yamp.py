"""YAMP over history: rules that depend on fields, on what was said before, or on what was not said in time.

A live session judges the same rules as it goes. Pongs nobody asked for (YAMP-19) and cancels that crossed the answer (YAMP-32) are so
normal that they are left out.

It refuses to know the rules' clauses and gravity: the room's faults do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.lake.audit import FINDING, breaches, odd
from wirelake.lake.manners import Manners, omissions
from wirelake.lake.pairing import REPEATS, UNMATCHED
from wirelake.lake.threats import Threat
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import VERSION, MessageType, ResponseType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["HANDSHAKE_SECONDS", "MANNERS", "ODDITIES", "THREATS", "by_fields", "greetings", "guards"]

HANDSHAKE_SECONDS: Final = 10.0
"""YAMP-12: how long a handshake may take; peers wait 5 to 10 seconds."""

THREATS: Final = {
    Fault.BODY_OVER_LIMIT: Threat.BOMB,
    Fault.ECHO_DIFFERS: Threat.DOWNGRADE,
}
"""YAMP-43, YAMP-8: what endangers a receiver, and a handshake that somebody may have changed on its way."""

MANNERS: Final = Manners(Fault.HANDSHAKE_TIMEOUT, HANDSHAKE_SECONDS, Fault.CLOSED_WITHOUT_WORD)
"""YAMP-12, YAMP-20: shake hands in time, and close with system.close."""

ODDITIES: Final = (Fault.BOOL_ODD, Fault.URI_EMPTY, Fault.REASON_NOT_UTF8, Fault.SERIALIZER_EMPTY, Fault.BODY_UNDECODABLE)
"""What the bits of the column `oddities` mean, lowest first."""


def by_fields(yamp: DataFrame) -> DataFrame:
    """A version that is none (YAMP-3), what is tolerated but should not have been sent, and what contradicts an earlier message."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    is_other_version = sql.expr(f"type = {int(MessageType.HANDSHAKE)} AND fault IS NULL AND version != {VERSION}")
    alone = breaches(yamp, "yamp", {Fault.VERSION_UNSUPPORTED: is_other_version} | odd(ODDITIES))
    return alone.unionByName(differing(yamp)).unionByName(unasked(yamp))


def differing(yamp: DataFrame) -> DataFrame:
    """YAMP-8: a server's first handshake that is not what the client's first one was."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    hands = yamp.where(f"type = {int(MessageType.HANDSHAKE)} AND fault IS NULL")
    place = sql.struct("ts", "message_id", "version", "serializer", "source", "offset", "length")
    first = hands.groupBy("session_id").agg(
        sql.min(sql.when(sql.col("direction") == "to_server", place)).alias("wanted"),
        sql.min(sql.when(sql.col("direction") == "to_client", place)).alias("echo"),
    )
    return (
        first.where("echo.version != wanted.version OR echo.serializer != wanted.serializer")
        .select("session_id", "echo.*")
        .withColumns({"protocol": sql.lit("yamp"), "direction": sql.lit("to_client"), "rule": sql.lit(Fault.ECHO_DIFFERS.name)})
        .select(*FINDING)
    )


def unasked(yamp: DataFrame) -> DataFrame:
    """YAMP-29: progress of a request that did not ask for it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    steps = yamp.where(f"response_type = {int(ResponseType.PROGRESS)}").alias("step")
    silent = yamp.where("NOT progressive").alias("asked")
    same = sql.expr(
        "step.session_id = asked.session_id AND step.request_uid = asked.uid AND step.direction != asked.direction AND step.ts >= asked.ts"
    )
    return (
        steps.join(silent, same, "left_semi")
        .withColumns({"protocol": sql.lit("yamp"), "rule": sql.lit(Fault.PROGRESS_UNASKED.name)})
        .select(*FINDING)
    )


def mismatched(paired: DataFrame) -> DataFrame:
    """YAMP-25, YAMP-37: requests with a uid that is in flight, and responses nobody waits for."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    place = sql.col("place")
    rule = sql.when(place == UNMATCHED, Fault.RESPONSE_UNMATCHED.name).otherwise(Fault.REQUEST_UID_IN_FLIGHT.name)
    return paired.where(place.isin(UNMATCHED, REPEATS)).withColumn("rule", rule).select(*FINDING)


def repeated(messages: DataFrame, facts: DataFrame) -> DataFrame:
    """YAMP-11: a second handshake of the same side; over datagrams (YAMP-15) that is no fault."""
    from pyspark.sql import Window  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    reliable = facts.where("transport != 'udp'").select("session_id")
    in_order = Window.partitionBy("session_id", "direction").orderBy("ts", "message_id")
    return (
        messages.where("kind = 'handshake' AND fault IS NULL")
        .join(reliable, "session_id", "left_semi")
        .withColumn("place", sql.row_number().over(in_order))
        .where("place > 1")
        .withColumn("rule", sql.lit(Fault.HANDSHAKE_REPEATED.name))
        .select(*FINDING)
    )


def guards(messages: DataFrame, paired: DataFrame, facts: DataFrame) -> list[DataFrame]:
    """Rules that are judged by what was *not* said or done before, and so only of sessions that were seen whole."""
    return [mismatched(paired), repeated(messages, facts), omissions(facts, MANNERS)]


def greetings(yamp: DataFrame) -> DataFrame:
    """Per session what both sides said of themselves: for `sessions`. A version that no small number can hold is null there."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    said_by_client = sql.col("direction") == "to_server"
    told = sql.struct("ts", "message_id", "version", "serializer")
    accepted = f"server.version = {VERSION} AND client.version = server.version AND client.serializer = server.serializer"
    return (
        yamp.where(f"type = {int(MessageType.HANDSHAKE)}")
        .groupBy("session_id")
        .agg(sql.min(sql.when(said_by_client, told)).alias("client"), sql.min(sql.when(~said_by_client, told)).alias("server"))
        .select(
            "session_id",
            *(sql.expr(f"try_cast({side}.version AS smallint)").alias(f"{side}_version") for side in ("client", "server")),
            sql.coalesce(sql.expr(accepted), sql.lit(False)).alias("accepted"),
            sql.lit(None).cast("smallint").alias("error_code"),
        )
    )
