"""Relink's connections over history: handshake, resume, ping and parting.

A connection may be cut at any time, and its link goes on with the next. So only the last connection of a link can have been closed without
parting. A side that closes it because a rule was broken does right (RELINK-12).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.options import DEFAULT_OPTIONS

__all__ = ["HANDSHAKE_SECONDS", "connections", "misled", "unasked"]

HANDSHAKE_SECONDS: Final = DEFAULT_OPTIONS.handshake_timeout
"""RELINK-4: how long the whole handshake may take."""

_SIDES: Final = {"client": "to_server", "server": "to_client"}
_PLACE: Final = "ts, message_id, source, offset, length"
_LINK: Final = "OVER (PARTITION BY session_id)"
_LATER: Final = "IGNORE NULLS OVER (PARTITION BY session_id ORDER BY rank)"


def connections(relink: DataFrame) -> DataFrame:
    """One row per connection with a message: its handshake, and what its link says on other connections.

    `rank` puts the connections of a link in order. One end may still send on a connection while the other is on the next already: those
    messages come before all messages there (RELINK-11). `is_known` says that the link was seen from its first connection on, once.
    """

    def first(what: str, condition: str) -> Column:
        return sql.expr(f"min(IF({condition}, struct({what}), NULL))")

    said = (
        relink.where("type_name IN ('version', 'request', 'reply', 'resume', 'shutdown') AND fault IS NULL")
        .groupBy("connection_id")
        .agg(
            sql.expr("max(IF(session_id != connection_id, session_id, NULL))").alias("link"),
            first(_PLACE, "true").alias("began"),
            first("ts", "type_name = 'version' AND direction = 'to_client'").alias("answered"),
            first(
                "ts, epoch, link_id, require_old_link, connector_transactions, listener_transactions",
                "type_name = 'request'",
            ).alias("asked"),
            first(f"{_PLACE}, epoch, link_id", "type_name = 'reply'").alias("agreed"),
            *(first(_PLACE, f"type_name = 'resume' AND direction = '{way}'").alias(f"resume_{side}") for side, way in _SIDES.items()),
            *(first(_PLACE, f"type_name = 'shutdown' AND direction = '{way}'").alias(f"shut_{side}") for side, way in _SIDES.items()),
        )
    )
    ranked = said.selectExpr(
        "*",
        "coalesce(link, connection_id) AS session_id",
        "struct(agreed.ts, agreed.message_id) AS rank",
        "link IS NOT NULL AND coalesce(asked.epoch = agreed.epoch AND asked.link_id = agreed.link_id, false) AS is_resumed",
    )
    return ranked.selectExpr(
        *("connection_id", "session_id", "link", "began", "answered", "asked", "agreed", "rank", "is_resumed"),
        *(f"resume_{side}" for side in _SIDES),
        f"count_if(NOT is_resumed) {_LINK} = 1 AS is_known",
        f"rank = max(rank) {_LINK} AS is_last",
        *(f"min(IF(shut_{side} IS NULL, NULL, struct(rank, shut_{side} AS at))) {_LINK} AS shut_{side}" for side in _SIDES),
        *(
            f"lead(IF(is_resumed AND resume_{side} IS NOT NULL, struct(rank, resume_{side} AS at), NULL)) {_LATER} AS next_resume_{side}"
            for side in _SIDES
        ),
    )


def misled(connected: DataFrame, session_facts: DataFrame) -> DataFrame:
    """RELINK-10, RELINK-4, RELINK-23: a wrong link, a slow handshake, a link that ends without parting.

    These are `FINDING`s with their `connection_id`. Connections without a message are in `session_facts` only.
    """
    known = session_facts.select(
        "session_id", "opened", "closed", "first_seen", "last_seen", "spoilt_by", "client_greeted", "source", "offset"
    )
    seen = known.join(connected, "session_id", "left").selectExpr(
        "*",
        f"coalesce(began.ts, opened.ts, first_seen) + make_dt_interval(0, 0, 0, {HANDSHAKE_SECONDS}) AS deadline",
        "coalesce(agreed.ts, last_seen) AS until",
    )
    is_other = "agreed.link_id != 0 AND (agreed.link_id != asked.link_id OR agreed.epoch != asked.epoch)"
    breaker = "IF(closed.by = 'client', 'to_server', IF(closed.by = 'server', 'to_client', NULL))"
    late = "IF(client_greeted IS NOT NULL AND (answered IS NULL OR asked.ts <= deadline), 'to_client', 'to_server')"

    def finding(fault: Fault, condition: str, at: str, direction: str) -> str:
        return f"IF({condition}, struct('{fault.name}' AS rule, {direction} AS direction, {at}), NULL)"

    reply = ", ".join(f"agreed.{name}" for name in ("ts", "message_id", "source", "offset", "length"))
    nothing = "CAST(NULL AS BINARY) AS message_id"
    begin = f"deadline AS ts, {nothing}, coalesce(began.source, source) AS source, coalesce(began.offset, offset) AS offset, 0L AS length"
    end = f"closed.ts, {nothing}, closed.source, closed.offset, 0L AS length"
    found = (
        finding(Fault.LINK_REFUSED, "agreed.link_id = 0 AND NOT asked.require_old_link", reply, "'to_client'"),
        finding(Fault.LINK_REPLACED, f"asked.require_old_link AND asked.link_id != 0 AND {is_other}", reply, "'to_client'"),
        finding(Fault.HANDSHAKE_TIMEOUT, "until > deadline", begin, late),
        finding(
            Fault.CLOSED_WITHOUT_PARTING,
            "link IS NOT NULL AND is_last AND closed IS NOT NULL AND (shut_client IS NULL OR shut_server IS NULL) AND size(spoilt_by) = 0",
            end,
            breaker,
        ),
    )
    return (
        seen.select("session_id", "connection_id", sql.explode(sql.expr(f"array_compact(array({', '.join(found)}))")).alias("found"))
        .select("session_id", "connection_id", "found.*")
        .withColumn("protocol", sql.lit("relink"))
        .select(*FINDING, "connection_id")
    )


def unasked(relink: DataFrame) -> DataFrame:
    """RELINK-20, RELINK-25: a resume on a fresh link, or a second one; and pongs to no ping.

    Every connection starts again.
    """
    order = "OVER (PARTITION BY connection_id ORDER BY ts, message_id ROWS BETWEEN UNBOUNDED PRECEDING AND"
    so_far, before = f"{order} CURRENT ROW)", f"{order} 1 PRECEDING)"

    def balance(side: str, answer: str) -> str:
        is_ping, is_pong = (f"type_name = '{name}' AND direction = '{way}'" for name, way in (("ping", side), ("pong", answer)))
        return f"sum(CASE WHEN {is_ping} THEN 1 WHEN {is_pong} THEN -1 ELSE 0 END) {so_far}"

    stepped = relink.where("type_name IN ('request', 'reply', 'resume', 'ping', 'pong') AND fault IS NULL").selectExpr(
        *("session_id", "direction", "type_name", "ts", "message_id", "source", "offset", "length"),
        f"{balance('to_server', 'to_client')} AS of_client",
        f"{balance('to_client', 'to_server')} AS of_server",
        f"max(IF(type_name = 'request', struct(epoch, link_id), NULL)) {so_far} AS asked",
        f"max(IF(type_name = 'reply', struct(epoch, link_id), NULL)) {so_far} AS agreed",
        *(f"count_if(type_name = 'resume' AND direction = '{way}') {so_far} AS resumes_{way}" for way in _SIDES.values()),
        "connection_id",
    )
    # A count that never goes below zero: the sum so far, less the lowest it has been.
    lowest = {side: f"least(coalesce(min({side}) {before}, 0), 0)" for side in ("of_client", "of_server")}
    judged = stepped.selectExpr(
        "*",
        f"of_client + 1 - {lowest['of_client']} <= 0 AS is_unasked_of_client",
        f"of_server + 1 - {lowest['of_server']} <= 0 AS is_unasked_of_server",
    )
    is_pong = "type_name = 'pong' AND IF(direction = 'to_client', is_unasked_of_client, is_unasked_of_server)"
    is_resume = "type_name = 'resume' AND (asked != agreed OR IF(direction = 'to_server', resumes_to_server, resumes_to_client) > 1)"
    return (
        judged.withColumn(
            "rule",
            sql.expr(
                f"CASE WHEN {is_pong} THEN '{Fault.PONG_UNSOLICITED.name}' WHEN {is_resume} THEN '{Fault.RESUME_UNEXPECTED.name}' END"
            ),
        )
        .where("rule IS NOT NULL")
        .withColumn("protocol", sql.lit("relink"))
        .select(*FINDING)
    )
