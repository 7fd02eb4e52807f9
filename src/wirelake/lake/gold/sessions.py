"""Build `sessions`: every session from handshake to end, with counts from other tables.

The protocols' rules say which versions were offered, and whether they were accepted.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.registry import NODE, RULES, SESSION_IS, WITHOUT_HANDSHAKE
from wirelake.lake.tables.sessions import TABLE

__all__ = ["INPUTS", "TABLE", "build"]

INPUTS: Final = ("session_facts", "exchanges", "violations", *RULES)


def build(session_facts: DataFrame, exchanges: DataFrame, violations: DataFrame, **protocol_tables: DataFrame) -> DataFrame:
    """The session_facts of every session, with what the other tables add to them."""
    requests = exchanges.where("request_message_id IS NOT NULL").groupBy("session_id")
    asked = requests.agg(sql.count("*").alias("requests"), sql.count("response_message_id").alias("answered"))
    broken = violations.where("severity IS DISTINCT FROM 'info'").groupBy("session_id").agg(sql.count("*").alias("violations"))
    greetings = reduce(
        lambda left, right: left.unionByName(right), [RULES[protocol].greetings(own) for protocol, own in protocol_tables.items()]
    )
    joined = reduce(lambda left, right: left.join(right, "session_id", "left"), [greetings, asked, broken], session_facts)

    opened, last = sql.coalesce("opened.ts", "first_seen"), sql.col("last_seen")
    greeted = [sql.col(name).isNotNull() for name in ("client_greeted", "server_greeted")]
    is_node = sql.col("protocol").isin([name for name, what in SESSION_IS.items() if what == NODE])
    has_greeted = (greeted[0] & greeted[1]) | (is_node & (greeted[0] | greeted[1]))
    is_complete = has_greeted & sql.coalesce("accepted", sql.lit(False))
    has_parted, has_reset, has_closed = (sql.col(name).isNotNull() for name in ("parting", "reset", "closed"))
    # Where life goes on after an error, it was the end only if it was the last word.
    is_informal = sql.col("protocol").isin(*WITHOUT_HANDSHAKE)
    has_parted = has_parted & ~(is_informal & (~has_closed | sql.coalesce(sql.col("last_word") > sql.col("parting.ts"), sql.lit(False))))
    ended_how = (
        sql.when(sql.col("is_silent"), "silence")
        .when(is_node, "open")
        .when(has_parted, sql.col("parting.how"))
        .when(has_reset, "reset")
        .when(has_closed, "eof")
        .otherwise("open")
    )
    ended_by = sql.when(has_parted, sql.col("parting.by")).when(has_reset, sql.col("reset.by")).when(has_closed, sql.col("closed.by"))
    derived = {
        "opened": opened,
        "ended": sql.when(ended_how != "open", last),
        "duration_us": sql.unix_micros(last) - sql.unix_micros(opened),
        "handshake": sql.when(is_informal, None)
        .when(is_complete, "complete")
        .when(has_greeted | has_parted, "refused")
        .otherwise("incomplete"),
        "ended_how": ended_how,
        "ended_by": sql.when(~is_node, sql.nullif(ended_by, sql.lit(""))),
        **{name: sql.coalesce(name, sql.lit(0)) for name in ("requests", "answered", "violations")},
    }
    return joined.select(*(derived.get(name, sql.col(name)).alias(name) for name in TABLE.schema.names))
