"""YAMP over history: rules that depend on fields, earlier messages, or time.

A live session judges the same rules as it goes.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING, breaches, odd
from wirelake.lake.gold.rules.timeouts import CARRIED, WENT_BY, Timeouts, in_time, omissions, omitted, went_by
from wirelake.lake.gold.steps.request_pairs import REPEATS, UNMATCHED
from wirelake.lake.tables.security import Threat
from wirelake.protocols.faults import Faults
from wirelake.protocols.yamp.analyzer import Analyzer
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import VERSION, MessageType, ResponseType
from wirelake.protocols.yamp.options import DEFAULT_OPTIONS

__all__ = ["ODDITIES", "THREATS", "TIMEOUTS", "UNSEEN", "by_fields", "by_history", "followable", "greetings", "guards"]

THREATS: Final[dict[Faults, Threat]] = {
    Fault.BODY_OVER_LIMIT: Threat.BOMB,
    Fault.ECHO_DIFFERS: Threat.DOWNGRADE,
}
"""YAMP-43, YAMP-8: threats to a receiver, and a handshake that may have been changed on its way."""

TIMEOUTS: Final = Timeouts(*Analyzer.TIMEOUTS)

UNSEEN: Final[dict[Faults, str]] = {
    Fault.PONG_UNSOLICITED: "an unsolicited pong is to be ignored",
    Fault.CANCEL_UNMATCHED: "a cancel that crosses the answer is legal, and cannot be distinguished from others",
    Fault.BYTES_AFTER_MESSAGE: "only where one message is decoded alone; in a stream the next message begins there",
    Fault.REQUEST_NOT_IN_FLIGHT: "refused before anything is sent; on the wire it is RESPONSE_UNMATCHED",
    **dict.fromkeys(
        (Fault.URI_SIZE, Fault.FIELD_OUT_OF_RANGE, Fault.BODY_UNSERIALIZABLE, Fault.DATAGRAM_TOO_LARGE), "refused before anything is sent"
    ),
}
"""What history cannot tell, or the lake does not, and why."""

_PORT: Final = "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST: Final = r"(\[[^\]/?#@]+\]|[^/?#@:\[\]]+)"
_FOLLOWABLE: Final = rf"^[\x00-\x20]*(?i)((tcp|tls)://{_HOST}:{_PORT}/?[?]?|wss?://{_HOST}:{_PORT}(/[^?#]*)?([?][^#]*)?)#?$"
"""YAMP-22: urls that some client may follow; whether one that came encrypted may is its own affair."""

_REFUSED: Final = Fault.SERIALIZER_UNSUPPORTED.name
_SECONDS: Final = DEFAULT_OPTIONS.ping_timeout
"""YAMP-18: how long a ping waits for its pong."""

ODDITIES: Final = Analyzer.ODDITIES


def by_fields(yamp: DataFrame) -> DataFrame:
    """Invalid versions (YAMP-3) and redirects (YAMP-22), tolerated faults, and contradictions.

    A contradiction is to an earlier message.
    """
    is_other_version = sql.expr(f"type = {int(MessageType.HANDSHAKE)} AND fault IS NULL AND version != {VERSION}")
    leads_nowhere = sql.expr("url IS NOT NULL AND fault IS NULL AND direction = 'to_client'") & ~followable(sql.col("url"))
    by_themselves = {Fault.VERSION_UNSUPPORTED: is_other_version, Fault.REDIRECT_REFUSED: leads_nowhere}
    return breaches(yamp, "yamp", by_themselves | odd(ODDITIES)).unionByName(differing(yamp)).unionByName(unasked(yamp))


def followable(url: Column) -> Column:
    """YAMP-22: whether some client may follow a redirect.

    Blanks that a reader of urls passes over do not count.
    """
    return sql.translate(url, "\t\r\n", "").rlike(_FOLLOWABLE)


def differing(yamp: DataFrame) -> DataFrame:
    """YAMP-8, YAMP-4: first handshakes that differ, and a serializer that the server refused.

    Which serializers a server knows is not on the wire. But its answer has the text that the ruling gives.
    """
    is_hand = sql.col("type") == int(MessageType.HANDSHAKE)
    is_refusal = (sql.col("type") == int(MessageType.CLOSE)) & sql.col("reason").startswith("Serializer ")
    place = sql.struct("ts", "message_id", "direction", "version", "serializer", "reason", "source", "offset", "length")
    by_client = sql.col("direction") == "to_server"
    first = (
        yamp.where(sql.col("fault").isNull() & (is_hand | is_refusal))
        .groupBy("session_id")
        .agg(
            sql.min(sql.when(is_hand & by_client, place)).alias("wanted"),
            sql.min(sql.when(is_hand & ~by_client, place)).alias("echo"),
            sql.min(sql.when(is_refusal & ~by_client, place)).alias("refusal"),
        )
    )
    is_refused = "echo IS NULL AND startswith(refusal.reason, concat('Serializer ', wanted.serializer, ' '))"
    differs = "echo.version != wanted.version OR echo.serializer != wanted.serializer"
    return (
        first.withColumn("rule", sql.expr(f"CASE WHEN {differs} THEN '{Fault.ECHO_DIFFERS.name}' WHEN {is_refused} THEN '{_REFUSED}' END"))
        .where("rule IS NOT NULL")
        .withColumn("said", sql.when(sql.col("rule") == _REFUSED, sql.col("wanted")).otherwise(sql.col("echo")))
        .select("session_id", "rule", sql.lit("yamp").alias("protocol"), "said.*")
        .select(*FINDING)
    )


def unasked(yamp: DataFrame) -> DataFrame:
    """YAMP-29: progress of a request that did not ask for it."""
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


def mismatched(paired: DataFrame, session_facts: DataFrame) -> DataFrame:
    """YAMP-25, YAMP-15, YAMP-37: requests with a uid in flight, and responses without a waiting request.

    A uid can be in flight in a datagram or not.
    """
    place = sql.col("place")
    rule = (
        sql.when(place == UNMATCHED, Fault.RESPONSE_UNMATCHED.name)
        .when(sql.col("transport") == "udp", Fault.REQUEST_REPEATED.name)
        .otherwise(Fault.REQUEST_UID_IN_FLIGHT.name)
    )
    suspects = paired.where(place.isin(UNMATCHED, REPEATS)).join(session_facts.select("session_id", "transport"), "session_id")
    return suspects.withColumn("rule", rule).select(*FINDING)


def out_of_step(yamp: DataFrame, session_facts: DataFrame) -> DataFrame:
    """YAMP-11, YAMP-18: a second handshake of one side, and pings whose payload did not come back in time.

    Datagrams are sent again, and get lost: there neither is a fault (YAMP-15).
    """
    hand, ping, pong = (int(kind) for kind in (MessageType.HANDSHAKE, MessageType.PING, MessageType.PONG))
    side = f"(type = {pong}) = (direction = 'to_client')"
    in_order = f"OVER (PARTITION BY session_id, type = {hand}, {side}, payload ORDER BY ts, message_id)"
    due = in_time(sql.col("ts"), _SECONDS, "ponged")
    next_pong = "lead(IF(type = {0}, {1}, NULL)) IGNORE NULLS {2} AS {3}"
    rule = sql.when((sql.col("type") == hand) & (sql.col("place") > 1), Fault.HANDSHAKE_REPEATED.name).when(
        (sql.col("type") == ping) & went_by(due, sql.col("pong")), Fault.PING_TIMEOUT.name
    )
    found = (
        yamp.where("fault IS NULL")
        .selectExpr("*", *CARRIED)
        .where(f"type IN ({hand}, {ping}, {pong})")
        .selectExpr(
            *("*", f"row_number() {in_order} AS place"),
            *(next_pong.format(pong, of, in_order, name) for of, name in (("ts", "pong"), ("carried", "ponged"))),
        )
        .join(session_facts.where("transport != 'udp'").select("session_id", "protocol", *WENT_BY), "session_id")
        .withColumn("rule", rule)
        .where("rule IS NOT NULL")
    )
    return omitted(found, due, sql.col("rule") == Fault.PING_TIMEOUT.name).select(*FINDING)


def guards(messages: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """Rules about what was *not* sent or done before; they judge only sessions that were captured whole."""
    del messages
    return [mismatched(paired, session_facts), omissions(session_facts, TIMEOUTS)]


def by_history(yamp: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """The same, where the payload of a ping is asked for."""
    del paired
    return [out_of_step(yamp, session_facts)]


def greetings(yamp: DataFrame) -> DataFrame:
    """Per session the fields of both handshakes: for `sessions`.

    A version that no small number can hold is null there.
    """
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
