"""Build `violations`: collect findings of all rules, with clause, severity and text.

Findings come from five places: messages that break a rule by themselves; bytes in quarantine that break one; messages that the protocol's
state machine forbids; rules over history; and messages that are tolerated but should not have been sent. A finding is a violation only if
the specification forbids it. What only a ruling or a limit of this implementation forbids has severity `info`, and no count includes it.

A violation gets its text from `lake/tables/rules.py`. Sessions that were captured with gaps, or not from their beginning, are not judged by
history: the missing message may have been sent.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING, forbidden, state_machine_table, together
from wirelake.lake.gold.rules.registry import RULES, WITHOUT_HANDSHAKE
from wirelake.lake.tables.rules import rules
from wirelake.lake.tables.violations import TABLE

__all__ = ["INPUTS", "TABLE", "build"]

INPUTS: Final = ("messages", "quarantine", "paired", "session_facts", "state_changes", *RULES)


_BOOK: Final = "map<string,struct<clause:string,severity:string,origin:string,text:string,ends:boolean>>"
"""Spark type of what `rules()` returns."""


def by_themselves(messages: DataFrame) -> DataFrame:
    """Find messages that break a rule by themselves."""
    return messages.where(sql.col("fault").isNotNull()).withColumn("rule", sql.col("fault")).select(*FINDING)


def unreadable(quarantine: DataFrame) -> DataFrame:
    """Find bytes that a specification forbids."""
    nothing = sql.lit(None).cast("binary")
    return (
        quarantine.where(sql.col("clause").isNotNull())
        .withColumn("message_id", nothing)
        .withColumn("rule", sql.col("reason"))
        .select(*FINDING)
    )


def build(
    messages: DataFrame,
    quarantine: DataFrame,
    paired: DataFrame,
    session_facts: DataFrame,
    state_changes: DataFrame,
    **protocol_tables: DataFrame,
) -> DataFrame:
    """Return all findings, with the text of each rule, and whether the session ended on it."""
    certain = [by_themselves(messages), unreadable(quarantine)]
    machines = {protocol: state_machine_table(RULES[protocol].state_machine) for protocol in protocol_tables}
    judged = {protocol: machine for protocol, machine in machines.items() if machine.refusals}
    by_absence = [forbidden(messages, state_changes.where(sql.col("protocol").isin(list(judged))), judged)]
    for protocol, own in protocol_tables.items():
        entry, is_its_own = RULES[protocol], sql.col("protocol") == protocol
        certain.append(entry.by_fields(own))
        asked, sessions = paired.where(is_its_own), session_facts.where(is_its_own)
        by_absence += entry.guards(messages.where(is_its_own), asked, sessions)
        if entry.by_history is not None:
            by_absence += entry.by_history(own, asked, sessions)

    found = [one.select(*FINDING, sql.lit(False).alias("needs_whole")) for one in certain]
    found += [one.select(*FINDING, sql.lit(True).alias("needs_whole")) for one in by_absence]
    has_ended = sql.col("closed").isNotNull() | (sql.col("parting").isNotNull() & ~sql.col("protocol").isin(*WITHOUT_HANDSHAKE))
    ends = session_facts.select("session_id", "is_whole", "last_word", has_ended.alias("ended"))
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
