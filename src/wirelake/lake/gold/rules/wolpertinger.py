"""Wolpertinger over history: tolerated faults, missing confirmations, unmatched answers.

Deliveries are followed by the id of layer 1, calls by their CallId. Which components a callee has, and whom it trusts, is not on the wire.
But a callee answers a call for a component it does not have: that answer is believed. Whether a method is void is not on the wire either.
So a call that was confirmed and never answered breaks no rule, unless every peer has its component; `exchanges` shows it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING, breaches, odd
from wirelake.lake.gold.rules.timeouts import WENT_BY, Timeouts, omissions, went_by
from wirelake.lake.gold.steps.request_pairs import REPEATS, UNMATCHED
from wirelake.lake.tables.security import Threat
from wirelake.protocols.faults import Faults
from wirelake.protocols.wolpertinger.analyzer import Analyzer
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import ErrorCode
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS
from wirelake.protocols.wolpertinger.trust.authentication import METHODS
from wirelake.protocols.wolpertinger.trust.key_agreement import IV_SIZE

__all__ = ["ODDITIES", "THREATS", "UNSEEN", "by_fields", "by_history", "greetings", "guards"]

ODDITIES: Final = Analyzer.ODDITIES

THREATS: Final[dict[Faults, Threat]] = {
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
"""WOLP-29, WOLP-17, WOLP-22, WOLP-8, WOLP-5: what endangers a receiver or its secrets.

Nothing protects integrity here (WOLP-8).
"""

UNSEEN: Final[dict[Faults, str]] = {
    Fault.CALLS_OVER_LIMIT: "the limit of a callee is its own setting, and the calls in flight are not on the wire",
    Fault.TOO_BUSY: "how much waits at a receiver is not on the wire; from outside the message is NOT_CONFIRMED",
    Fault.STEP_OUT_OF_ORDER: "refused before anything is sent; on the wire it is TRUST_TOO_LOW",
    Fault.VALUE_UNSENDABLE: "refused before anything is sent",
    Fault.FIELD_OUT_OF_RANGE: "refused before anything is sent",
    Fault.CLOSED_WITHOUT_WORD: "no message is required before a close; `sessions` shows how each ended",
}
"""What history cannot tell, or the lake does not, and why."""

TIMEOUTS: Final = Timeouts(*(Analyzer.TIMEOUTS or ()))

_RETURNING: Final = ", ".join(f"'{name}'" for name, method in METHODS.items() if method.returns)
"""WOLP-21: methods that every peer has and that answer."""
_FITTING: Final = (
    "'EstablishConnection/boolean', 'EstablishConnection/string', 'EstablishConnection/guid', 'KeyExchange/string',"
    " 'ClusterAuthGetToken/string', 'UserAuthGetToken/string', 'ClusterAuthVerify/boolean', 'UserAuthVerify/boolean'"
)
"""WOLP-23 to WOLP-25: these methods, and the data types of their answers."""
_TRUST: Final = "lower(component) = 'authentication'"
_TEXTS: Final = (
    f"{_TRUST} AND method IN ('KeyExchange', 'ClusterAuthVerify', 'UserAuthVerify')"
    " AND size(parameters) = IF(method = 'ClusterAuthVerify', 1, 2) AND forall(parameters, one -> one.type = 'string')"
)
"""Calls with keys or proofs in them, the right number of texts."""
_IV: Final = "length(try_to_binary(trim(BOTH '\"' FROM parameters[1].value), 'base64'))"
_ANSWERED: Final = f"call.is_trust AND call.method IN ({_RETURNING}) AND answer.error_code IS NULL AND answer IS NOT NULL"

_VERDICTS: Final[dict[Fault, str]] = {
    Fault.KEY_INVALID: f"call.is_unfit OR (call.are_texts AND answer.error_code = {ErrorCode.INVALID_PARAMETERS:d})",
    Fault.KEYS_CROSSED: f"call.is_trust AND call.method = 'KeyExchange' AND answer.error_code = {ErrorCode.REQUEST:d}",
    Fault.TRUST_TOO_LOW: f"answer.error_code = {ErrorCode.NOT_AUTHORIZED:d}",
    Fault.METHOD_UNKNOWN: f"answer.error_code = {ErrorCode.METHOD_NOT_FOUND:d}",
    Fault.COMPONENT_UNKNOWN: f"answer.error_code = {ErrorCode.COMPONENT_NOT_FOUND:d}",
    Fault.PARAMETERS_WRONG: f"answer.error_code = {ErrorCode.INVALID_PARAMETERS:d}",
    Fault.PROOF_WRONG: f"{_ANSWERED} AND call.method LIKE '%Verify' AND answer.value.value = 'false'",
    Fault.ANSWER_WRONG: f"{_ANSWERED} AND concat_ws('/', call.method, answer.value.type) NOT IN ({_FITTING})",
}
"""What a call and the first answer to it break; the first of them counts."""
_MISFIT: Final = Fault.ANSWER_WRONG.name

_DELIVERY: Final = "PARTITION BY session_id, sender, text_id"
"""All messages with one id: their texts, and results for them."""
_ORDER: Final = f"{_DELIVERY} ORDER BY ts, message_id"


def by_fields(wolpertinger: DataFrame) -> DataFrame:
    """WOLP-2, WOLP-4, WOLP-5, WOLP-6, WOLP-9: faults that are tolerated on receipt, and refused calls."""
    return breaches(wolpertinger, "wolpertinger", odd(ODDITIES)).unionByName(judged(wolpertinger))


def judged(wolpertinger: DataFrame) -> DataFrame:
    """WOLP-20, WOLP-23 to WOLP-25: refused calls, proofs not believed, answers that do not fit the call.

    Where a CallId is used again it is unknown which of the calls was answered: then there is no finding.
    """
    is_call, place = "root = 'RemoteMethodCall'", "ts, message_id, direction, source, offset, length"
    is_unfit = f"{_TEXTS} AND method = 'KeyExchange' AND coalesce({_IV}, -1) != {IV_SIZE}"
    call = f"struct({place}, method, {_TRUST} AS is_trust, {_TEXTS} AS are_texts, {is_unfit} AS is_unfit)"
    rule = " ".join(f"WHEN {verdict} THEN '{fault.name}'" for fault, verdict in _VERDICTS.items())
    answered, called = (f"struct({', '.join(f'{one}.{name}' for name in place.split(', '))})" for one in ("answer", "call"))
    return (
        wolpertinger.where("call_id IS NOT NULL AND fault IS NULL")
        .selectExpr(
            *("session_id", "call_id", f"({is_call}) = (direction = 'to_server') AS by_client"),
            *(f"IF({is_call}, text_id, NULL) AS text_id", f"IF({is_call}, {call}, NULL) AS call"),
            f"IF({is_call}, NULL, struct({place}, error_code, value)) AS answer",
        )
        .groupBy("session_id", "call_id", "by_client")
        .agg(sql.min("call").alias("call"), sql.min("answer").alias("answer"), sql.expr("min(text_id) = max(text_id) AS is_one"))
        .where("is_one AND coalesce(answer.ts >= call.ts, true)")
        .selectExpr("session_id", "call", "answer", f"CASE {rule} END AS rule")
        .where("rule IS NOT NULL")
        .selectExpr("session_id", "rule", "'wolpertinger' AS protocol", f"IF(rule = '{_MISFIT}', {answered}, {called}) AS place")
        .select("session_id", "rule", "protocol", "place.*")
        .select(*FINDING)
    )


def guards(messages: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """WOLP-11: how connections ended.

    Rules that depend on earlier messages take wolpertinger's own columns: see `by_history`.
    """
    del messages, paired
    return [omissions(session_facts, TIMEOUTS)]


def by_history(wolpertinger: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """Rules about what was *not* sent before or in time.

    They judge only sessions that were captured whole.
    """
    mine = wolpertinger.withColumn("protocol", sql.lit("wolpertinger"))
    again = repeated(mine)
    return [again, mismatched(paired, again), left_open(mine, session_facts)]


def repeated(wolpertinger: DataFrame) -> DataFrame:
    """WOLP-10: an unfragmented message that was delivered before.

    It has the same id and contents, within the time that ids are remembered.
    """
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
    """WOLP-14, WOLP-16: calls with a CallId in flight, and answers without a waiting call.

    Retransmissions do not count.
    """
    place = sql.col("place")
    rule = sql.when(place == UNMATCHED, Fault.RESPONSE_UNMATCHED.name).otherwise(Fault.CALL_ID_IN_FLIGHT.name)
    return (
        paired.where(place.isin(UNMATCHED, REPEATS))
        .join(again.select("message_id"), "message_id", "left_anti")
        .withColumn("rule", rule)
        .select(*FINDING)
    )


def left_open(wolpertinger: DataFrame, session_facts: DataFrame) -> DataFrame:
    """WOLP-10, WOLP-9, WOLP-4, WOLP-21: messages without a result, incomplete pieces, unexpected results.

    Also calls that every peer must answer, after which the callee sent nothing. A finding about something missing has the time when it was
    due, if the session was seen as long. A result that is not success may answer a text that could not be read, and so is never too many.
    """
    is_result = "type = 'result'"
    deliveries = wolpertinger.selectExpr(
        *("session_id", "protocol", "direction", "ts", "message_id", "text_id", "type", "result_code", "source", "offset", "length"),
        "coalesce(fault IN ('FRAGMENT_CONFLICT', 'FRAGMENTS_OVER_LIMIT'), false) AS is_refused",
        f"coalesce(root = 'RemoteMethodCall' AND {_TRUST} AND method IN ({_RETURNING}), false) AS is_question",
        f"IF(({is_result}) = (direction = 'to_client'), 'client', 'server') AS sender",
        "coalesce(fragment_count, 1) AS pieces",
        "coalesce(fragment_index, 0) AS piece",
    ).selectExpr(
        "*",
        f"lag(type) OVER ({_ORDER}) AS before",
        f"lead(type) OVER ({_ORDER}) AS after",
        f"lead(IF(result_code = 0, ts, NULL)) OVER ({_ORDER}) AS confirmed",
        f"size(collect_set(IF({is_result}, NULL, piece)) OVER ({_DELIVERY})) < pieces AS is_incomplete",
        f"max(is_refused) OVER ({_DELIVERY}) AS was_refused",
    )
    seen = session_facts.select("session_id", "last_word", *WENT_BY)
    waits = f"make_dt_interval(0, 0, 0, {DEFAULT_OPTIONS.confirm_timeout} * pieces)"
    answers = f"make_dt_interval(0, 0, 0, {DEFAULT_OPTIONS.call_timeout})"
    due = deliveries.join(seen, "session_id").withColumn("due", sql.expr(f"coalesce(confirmed + {answers}, ts + {waits})"))
    # Where clocks are so coarse that a result is as old as its call, an answer may be as old.
    is_last_word = sql.expr("is_question AND confirmed > ts AND ts = last_word AND parting IS NULL")
    rule = (
        sql.when(sql.expr(f"{is_result} AND result_code = 0 AND coalesce(before, 'result') = 'result'"), Fault.RESULT_UNMATCHED.name)
        .when(
            sql.expr(
                f"NOT {is_result} AND after IS NULL AND is_incomplete AND NOT was_refused AND (last_seen > due OR closed IS NOT NULL)"
            ),
            Fault.FRAGMENTS_TIMED_OUT.name,
        )
        .when(sql.expr(f"NOT {is_result} AND after IS NULL AND NOT is_incomplete AND last_seen > due"), Fault.NOT_CONFIRMED.name)
        .when(is_last_word & went_by(sql.col("due"), sql.lit(None)), Fault.NO_ANSWER.name)
    )
    is_omission = sql.col("rule") != Fault.RESULT_UNMATCHED.name
    whose = sql.expr("IF(direction = 'to_server', 'to_client', 'to_server')")
    return (
        due.withColumn("rule", rule)
        .where("rule IS NOT NULL")
        .withColumns(
            {
                "direction": sql.when(sql.col("rule").isin(Fault.NOT_CONFIRMED.name, Fault.NO_ANSWER.name), whose).otherwise(
                    sql.col("direction")
                ),
                "ts": sql.when(is_omission, sql.least("due", "last_seen")).otherwise(sql.col("ts")),
                "message_id": sql.when(~is_omission, sql.col("message_id")),
            }
        )
        .select(*FINDING)
    )


def greetings(wolpertinger: DataFrame) -> DataFrame:
    """Per session the first error: for `sessions`.

    There are no versions on the wire, and no greetings.
    """
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
