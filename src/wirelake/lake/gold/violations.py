"""`violations`: every finding: which rule, by whom, where, and whether it was the end. Built from the silver tables.

Findings come from five places: messages that break a rule by themselves; bytes in quarantine that break one; messages the protocol's
state machine does not have; its rules over history; and what is tolerated but should not have been sent. A finding is a violation only if
the specification forbids it: what only a ruling or a limit of ours forbids has severity `info`, and no count includes it.

Sessions that were not seen from their beginning, or with gaps, are not judged by what was said before: what was not seen may well have
been said.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING, conversation, forbidden, together
from wirelake.lake.gold.rules.registry import ROOMS, WITHOUT_HANDSHAKE
from wirelake.lake.tables.rules import rules
from wirelake.lake.tables.violations import TABLE

__all__ = ["INPUTS", "TABLE", "build"]

INPUTS: Final = ("messages", "quarantine", "paired", "facts", "courses", *ROOMS)


_BOOK: Final = "map<string,struct<clause:string,severity:string,origin:string,text:string,ends:boolean>>"
"""What `rulebook.rules` gives, as Spark reads it."""


def by_themselves(messages: DataFrame) -> DataFrame:
    """Messages that break a rule whatever was said before."""
    return messages.where(sql.col("fault").isNotNull()).withColumn("rule", sql.col("fault")).select(*FINDING)


def unreadable(quarantine: DataFrame) -> DataFrame:
    """Bytes that a specification forbids."""
    nothing = sql.lit(None).cast("binary")
    return (
        quarantine.where(sql.col("clause").isNotNull())
        .withColumn("message_id", nothing)
        .withColumn("rule", sql.col("reason"))
        .select(*FINDING)
    )


def build(
    messages: DataFrame, quarantine: DataFrame, paired: DataFrame, facts: DataFrame, courses: DataFrame, **rooms: DataFrame
) -> DataFrame:
    """All findings, with what the rulebook says of each and whether the session ended on it."""
    certain = [by_themselves(messages), unreadable(quarantine)]
    talks = {protocol: conversation(ROOMS[protocol].conversation) for protocol in rooms}
    judged = {protocol: talk for protocol, talk in talks.items() if talk.refusals}
    by_absence = [forbidden(messages, courses.where(sql.col("protocol").isin(list(judged))), judged)]
    for protocol, own in rooms.items():
        room, is_its_own = ROOMS[protocol], sql.col("protocol") == protocol
        certain.append(room.by_fields(own))
        asked, sessions = paired.where(is_its_own), facts.where(is_its_own)
        by_absence += room.guards(messages.where(is_its_own), asked, sessions)
        if room.by_history is not None:
            by_absence += room.by_history(own, asked, sessions)

    found = [one.select(*FINDING, sql.lit(False).alias("needs_whole")) for one in certain]
    found += [one.select(*FINDING, sql.lit(True).alias("needs_whole")) for one in by_absence]
    has_ended = sql.col("closed").isNotNull() | (sql.col("parting").isNotNull() & ~sql.col("protocol").isin(*WITHOUT_HANDSHAKE))
    ends = facts.select("session_id", "is_whole", "last_word", has_ended.alias("ended"))
    book = sql.from_json(sql.lit(msgspec.json.encode(rules()).decode()), _BOOK)
    said = sql.try_element_at(book, sql.concat_ws("/", "protocol", "rule"))
    is_last = sql.coalesce(sql.col("ts") >= sql.col("last_word"), sql.lit(True))
    ended = sql.coalesce(said["ends"] & sql.col("ended") & is_last, sql.lit(False))
    told = {name: said[name] for name in ("clause", "severity", "origin", "text")} | {"ended_session": ended}
    return (
        together(found)
        .join(ends, "session_id", "left")
        .where("is_whole OR NOT needs_whole")
        .select(*(told.get(name, sql.col(name)).alias(name) for name in TABLE.schema.names))
    )
