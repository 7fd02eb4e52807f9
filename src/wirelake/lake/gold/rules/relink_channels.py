"""Relink's channels over history: limits of acknowledgements and decisions, and order.

Numbers count from where the sender of a connection begins. On a fresh link that is 0. After a reconnection it is behind what the other side
reported of the channel before its `resume`. It is 0 again if the other side reported nothing, or that the channel is closed (RELINK-20 to
RELINK-22). From there on messages count themselves. A channel ends with `closed`, and the next message is number 0 of another life of it.
Numbers are compared as distances, so they may wrap (RELINK-15).

Messages pass every observer in the order of cause and effect. Where an observer cannot know (the next form after a reconnection, what was
lost behind it), nothing is judged.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.sequence import HALF
from wirelake.protocols.relink.messages import LAST_SEQUENCE

__all__ = ["by_channel"]

_WORDS: Final = {
    "message": "message",
    "commit": "decision",
    "rollback": "decision",
    "close": "close",
    "received": "received",
    "consumed": "consumed",
    "committed": "result",
    "uncommitted": "result",
    "closed": "closed",
}
"""Kind of message about a channel -> the cursor of the channel that it moves."""
_SENT: Final = "word IN ('message', 'decision', 'close')"
"""Sent by the sender of the channel; the receiver sends all others."""
_ACKNOWLEDGING: Final = ("received", "consumed", "result")
_ACKED: Final = f"word IN {_ACKNOWLEDGING}"
_COUNTED: Final = (*_ACKNOWLEDGING, "decision")
"""Cursors that are moved by a number, or by one in the next form."""
_DECIDING: Final = ("decision", "consumed")
"""Cursors that a result may not be ahead of, both."""

_CHANNEL: Final = "PARTITION BY session_id, sender, channel ORDER BY rank, ts, message_id, place"
"""Over all connections of a link.

The other order is the same on one connection, so that rows are sorted once.
"""
_HERE: Final = "PARTITION BY session_id, sender, channel, rank ORDER BY ts, message_id, place"
_SO_FAR: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_BEFORE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def _distance(one: str, other: str) -> str:
    """RELINK-15: how far one number is ahead of another, or behind."""
    return f"(pmod({one} - {other} + {HALF}, {LAST_SEQUENCE + 1}) - {HALF})"


def _said(relink: DataFrame, connected: DataFrame) -> DataFrame:
    """One row for each message and channel it is about, with what its connection agreed on.

    Closing twice is closing once (RELINK-19).
    """
    cursors = " ".join(f"WHEN '{word}' THEN '{cursor}'" for word, cursor in _WORDS.items())
    names = ", ".join(f"'{word}'" for word in _WORDS)
    packets = relink.where(f"type_name IN ({names}) AND fault IS NULL").selectExpr(
        *("connection_id", "direction", "ts", "message_id", "source", "offset", "length"),
        f"CASE type_name {cursors} END AS word",
        f"IF(sequence = {LAST_SEQUENCE}, -1, sequence) AS sequence",
        "posexplode_outer(IF(type_name IN ('close', 'closed'), array_distinct(channel_ids), channel_ids)) AS (place, channel)",
    )
    links = connected.where("link IS NOT NULL AND asked IS NOT NULL").selectExpr(
        *("connection_id", "session_id", "rank", "is_known", "is_resumed", "asked.connector_transactions", "asked.listener_transactions"),
        *(f"{name}_{side}" for name in ("resume", "shut", "next_resume") for side in ("client", "server")),
    )
    is_client = f"(direction = 'to_server') = ({_SENT})"
    told = packets.join(links, "connection_id").where("struct(ts, message_id) > rank")
    placed = told.selectExpr(
        *("session_id", "connection_id", "rank", "direction", "ts", "message_id", "source", "offset", "length"),
        *("word", "sequence", "place", "channel", "is_known", "is_resumed"),
        f"IF({is_client}, 'client', 'server') AS sender",
        f"IF({is_client}, connector_transactions, listener_transactions) AS is_transactional",
        f"IF({is_client}, resume_server, resume_client) AS resume",
        f"IF({is_client}, shut_client, shut_server) AS shut",
        f"IF({is_client}, next_resume_server, next_resume_client) AS next_resume",
    )
    is_early = "is_resumed AND (resume IS NULL OR struct(ts, message_id) < struct(resume.ts, resume.message_id))"
    is_shut = "shut IS NOT NULL AND struct(rank, ts, message_id) > struct(shut.rank, shut.at.ts, shut.at.message_id)"
    return placed.selectExpr("*", f"{is_early} AS is_early", f"{is_early} AND NOT ({_SENT}) AS is_told", f"{is_shut} AS is_shut").drop(
        "resume", "shut"
    )


def _counted(said: DataFrame) -> DataFrame:
    """Add what was sent about the channel before, on all connections and on this one.

    `ends` is where a life of the channel is over.
    """
    over_link, here = f"{_CHANNEL} {_SO_FAR}", f"{_HERE} {_SO_FAR}"
    counted = said.selectExpr(
        "*",
        f"last(IF(word IN ('message', 'close', 'closed'), word, NULL), true) OVER ({over_link}) AS turn",
        f"lag(IF(word IN ('message', 'closed'), word, NULL)) IGNORE NULLS OVER ({_CHANNEL}) AS opened_or_closed",
        f"count_if(word IN ('close', 'closed')) OVER ({over_link}) AS closings",
        f"count_if(word = 'close') OVER ({over_link}) AS closes",
        f"lead(struct(rank, is_told, is_early)) OVER ({_CHANNEL}) AS next",
    ).selectExpr(
        "*",
        f"count_if(word = 'message') OVER ({here}) AS messages",
        *(f"count_if(word = '{one}' AND sequence IS NULL) OVER ({here}) AS next_{one}" for one in _COUNTED),
        *(f"last(IF(is_told AND word = '{one}', sequence, NULL), true) OVER ({here}) AS told_{one}" for one in _ACKNOWLEDGING),
        f"coalesce(max(is_told AND {_ACKED} AND sequence IS NULL) OVER ({here}), false) AS is_vague",
        f"coalesce(max(is_told) OVER ({here}), false) AS is_mentioned",
        f"lag(IF(word IN ('close', 'closed'), word, NULL)) IGNORE NULLS OVER ({_HERE}) AS closing",
    )
    return counted.selectExpr("*", "word = 'closed' AND coalesce(closing = 'close', is_resumed) AS ends")


def _reaching(counted: DataFrame) -> DataFrame:
    """Add where the sender began in this life of the channel, how far it sent, and this row's reach."""
    acknowledges = f"{_ACKED} AND turn = 'message' AND coalesce(sequence, 0) >= 0 AND (closings = 0 OR NOT is_told)"
    since = {
        one: f"last(CASE WHEN ends THEN struct(next_{one} AS nexts, CAST(NULL AS BIGINT) AS sequence)"
        f" WHEN word = '{one}' AND sequence IS NOT NULL THEN struct(next_{one} AS nexts, sequence) END, true) OVER ({_HERE} {_BEFORE})"
        for one in _COUNTED
    }
    lives = (
        counted.selectExpr(
            "*",
            f"coalesce(last(CASE WHEN word IN ('close', 'closed') THEN false WHEN {acknowledges} THEN true END, true)"
            f" OVER ({_CHANNEL} {_SO_FAR}), false) AS is_acknowledged",
        )
        .selectExpr(
            "*",
            f"last(IF(ends, struct(messages, next_decision, next_consumed), NULL), true) OVER ({_HERE} {_BEFORE}) AS past",
            f"count_if(ends) OVER ({_HERE} {_BEFORE}) AS life",
            *(f"{window} AS since_{one}" for one, window in since.items()),
        )
        .selectExpr(
            "*",
            "past.messages AS messages_then",
            *(
                f"max(IF(word = '{one}' AND sequence IS NOT NULL, struct(life, sequence), NULL)) OVER ({_HERE} {_SO_FAR}) AS most_{one}"
                for one in _DECIDING
            ),
        )
    )
    told = "coalesce(told_received, told_consumed, told_result)"
    ahead = ", ".join(f"coalesce({_distance(f'told_{one}', told)}, 0)" for one in ("consumed", "result"))
    cursors = (f"WHEN '{one}' THEN struct(since_{one}.nexts, since_{one}.sequence, next_{one} AS now)" for one in _COUNTED)
    begun = lives.selectExpr("*", f"messages_then IS NULL AND {told} IS NOT NULL AS is_taken_up").selectExpr(
        "*",
        f"IF(is_taken_up, {told} + greatest(0, {ahead}), -1L) AS origin",
        "messages - coalesce(messages_then, 0) AS messages_here",
        f"CASE word {' '.join(cursors)} END AS cursor",
    )
    explicit, before = (f"origin + {_distance(number, 'origin')}" for number in ("sequence", "cursor.sequence"))
    steps = "cursor.now - coalesce(cursor.nexts, 0)"
    return begun.selectExpr(
        "*",
        "origin + messages_here AS sent",
        "is_taken_up OR messages_here > 0 OR (is_vague AND messages_then IS NULL) AS is_open",
        f"coalesce({before} + {steps}, IF(is_taken_up, NULL, {steps} - 1)) AS reached",
        f"{explicit} AS named",
        f"origin + {_distance('since_consumed.sequence', 'origin')} AS consumed",
    )


def _rule() -> str:
    """The rule that a row breaks, if any; of several, the one a live session meets first."""
    is_counted = "NOT (is_vague AND messages_then IS NULL)"
    decided, consumed = (
        f"IF(most_{one}.life = life, most_{one}.sequence, -1) + next_{one} - coalesce(past.next_{one}, 0)" for one in _DECIDING
    )
    is_result_early = f"word = 'result' AND NOT is_taken_up AND reach > greatest({decided}, {consumed})"
    is_backward = "named < reached OR (word = 'received' AND named < consumed)"
    is_closed_unasked = "word = 'closed' AND (NOT ends OR (closing IS NULL AND is_known AND closes = 0))"
    is_told_too_much = f"{_ACKED} AND is_known AND sequence > sent_ever"
    is_told_closed = "word = 'closed' AND is_known AND closes = 0 AND sent_ever IS NOT NULL"
    rules = (
        ("word IN ('decision', 'result') AND NOT is_transactional", Fault.TRANSACTIONS_OFF),
        ("channel IS NULL", None),
        (f"is_told AND {is_told_too_much}", Fault.ACKNOWLEDGED_TOO_MUCH),
        (f"is_told AND {is_told_closed}", Fault.CLOSED_UNASKED),
        ("is_told", None),
        (f"{_SENT} AND is_early AND NOT is_mentioned", Fault.SPOKE_BEFORE_RESUME),
        (f"{_SENT} AND is_closing", Fault.CHANNEL_CLOSING),
        (
            "word = 'message' AND is_shut AND is_known AND NOT is_taken_up AND coalesce(opened_or_closed = 'closed', true)",
            Fault.CHANNEL_AFTER_SHUTDOWN,
        ),
        ("word = 'decision' AND NOT is_open AND NOT (is_resumed AND messages_then IS NOT NULL)", Fault.DECIDED_TOO_MUCH),
        (f"word = 'decision' AND is_open AND {is_counted} AND reach > sent", Fault.DECIDED_TOO_MUCH),
        (f"{is_closed_unasked} AND is_open", Fault.CLOSED_UNASKED),
        (f"({is_closed_unasked} OR {_ACKED}) AND NOT is_open", Fault.CHANNEL_UNKNOWN),
        (f"{_ACKED} AND {is_counted} AND (reach > sent OR {is_backward} OR {is_result_early})", Fault.ACKNOWLEDGED_TOO_MUCH),
    )
    cases = (f"WHEN {condition} THEN {repr(fault.name) if fault else 'NULL'}" for condition, fault in rules)
    return f"CASE {' '.join(cases)} END"


def by_channel(relink: DataFrame, connected: DataFrame) -> DataFrame:
    """RELINK-13, RELINK-15, RELINK-21 to RELINK-27: every message that its channel does not allow.

    Returns `FINDING`s with their `connection_id`.
    """
    reaching = _reaching(_counted(_said(relink, connected)))
    sent_ever = f"max(IF(word = 'message', sent, NULL)) OVER ({_CHANNEL} {_BEFORE})"
    is_closing = f"last(CASE WHEN ends THEN false WHEN word = 'close' AND is_open THEN true END, true) OVER ({_HERE} {_BEFORE})"
    judged = reaching.selectExpr(
        "*",
        "coalesce(named, reached) AS reach",
        f"{sent_ever} AS sent_ever",
        f"coalesce({is_closing}, false) AS is_closing",
    )
    # RELINK-21: acknowledged, not closing, and the next resume comes without a word of it.
    is_untold = "next IS NULL OR next.rank > next_resume.rank OR (next.rank = next_resume.rank AND NOT next.is_told AND NOT next.is_early)"
    is_forgotten = f"is_known AND channel IS NOT NULL AND next_resume IS NOT NULL AND is_acknowledged AND ({is_untold})"
    place = ("ts", "message_id", "source", "offset", "length")
    here = f"struct(rule, direction, {', '.join(place)})"
    there = (
        f"struct('{Fault.RESUME_INCONSISTENT.name}' AS rule, IF(sender = 'client', 'to_client', 'to_server') AS direction, "
        f"{', '.join(f'next_resume.at.{name}' for name in place)})"
    )
    found = f"array_compact(array(IF(rule IS NOT NULL, {here}, NULL), IF({is_forgotten}, {there}, NULL)))"
    return (
        judged.withColumn("rule", sql.expr(_rule()))
        .where(f"rule IS NOT NULL OR ({is_forgotten})")
        .select("session_id", "connection_id", sql.explode(sql.expr(found)).alias("found"))
        .select("session_id", "connection_id", "found.*")
        .withColumn("protocol", sql.lit("relink"))
        .select(*FINDING, "connection_id")
    )
