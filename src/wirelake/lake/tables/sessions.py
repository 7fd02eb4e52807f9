"""`sessions`: every conversation, from its handshake to its end. Built from the other tables.

It refuses to know what a handshake is in a given protocol: the rooms say which versions were offered, and whether they were accepted.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wirelake.lake.gold.rules.registry import NODE, ROOMS, SESSION_IS, WITHOUT_HANDSHAKE
from wirelake.lake.tables.schema import TIME, Table, column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["INPUTS", "TABLE", "build"]

INPUTS: Final = ("facts", "exchanges", "violations", *ROOMS)

TABLE: Final = Table(
    "sessions",
    ("session_id",),
    pa.schema(
        [
            column("session_id", pa.binary(), "16 bytes: the conversation: a connection, a node, or a link."),
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("transport", pa.string(), "`tcp`, `tls`, `udp`, …"),
            column("client_address", pa.string(), "Address of the side that opened the connection, or of the node."),
            column("client_port", pa.int32(), "Port of the side that opened the connection, or of the node."),
            column("server_address", pa.string(), "Address of the side that was listening; null of a node, which speaks to many."),
            column("server_port", pa.int32(), "Port of the side that was listening; null of a node."),
            column("known_by", pa.string(), "How the protocol was recognised: `tag`, `port` or `bytes`."),
            column("observed_by", pa.string(), "Who saw the traffic: `client`, `server` (a recording peer) or `wire` (a packet capture)."),
            column("opened", TIME, "When it was opened; when it was first seen, if its opening was not."),
            column("ended", TIME, "When it was last seen; null if it did not end."),
            column("duration_us", pa.int64(), "Microseconds from `opened` to when it was last seen."),
            column(
                "handshake",
                pa.string(),
                "`complete`; `refused`, if it ended with a parting or a version nobody speaks; else `incomplete`. Null without greetings.",
            ),
            column("client_version", pa.int16(), "The version the client offered; null if it said none."),
            column("server_version", pa.int16(), "The version the server offered; null if it said none."),
            column("messages_to_server", pa.int64(), "Messages the client sent."),
            column("messages_to_client", pa.int64(), "Messages the server sent."),
            column("bytes_to_server", pa.int64(), "Bytes of the messages the client sent."),
            column("bytes_to_client", pa.int64(), "Bytes of the messages the server sent."),
            column("requests", pa.int64(), "Requests made by either side."),
            column("answered", pa.int64(), "Requests that were answered, late ones included, or at least confirmed."),
            column("connections", pa.int64(), "Connections it was seen on."),
            column("keepalives", pa.int64(), "Pings, pongs and heartbeats."),
            column("silences", pa.int64(), "How often it said nothing for longer than its protocol allows; null where none tells."),
            column("ended_how", pa.string(), "`bye` or `error` (said), `reset` or `eof` (without a word), `silence` (a node) or `open`."),
            column("ended_by", pa.string(), "`client` or `server`; null if that is not known or it did not end."),
            column("error_code", pa.int16(), "The code of the first error message; null if there was none."),
            column("violations", pa.int64(), "Broken rules, tolerated ones included, findings of severity `info` not."),
            column("source", pa.string(), "The file it was first seen in."),
            column("offset", pa.int64(), "Where in that file."),
        ]
    ),
    "One row per conversation.",
)


def build(facts: DataFrame, exchanges: DataFrame, violations: DataFrame, **rooms: DataFrame) -> DataFrame:
    """The facts of every session, with what the other tables add to them."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    requests = exchanges.where("request_message_id IS NOT NULL").groupBy("session_id")
    asked = requests.agg(sql.count("*").alias("requests"), sql.count("response_message_id").alias("answered"))
    broken = violations.where("severity IS DISTINCT FROM 'info'").groupBy("session_id").agg(sql.count("*").alias("violations"))
    greetings = reduce(lambda left, right: left.unionByName(right), [ROOMS[protocol].greetings(own) for protocol, own in rooms.items()])
    joined = reduce(lambda left, right: left.join(right, "session_id", "left"), [greetings, asked, broken], facts)

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
