"""Relink over history: rules that depend on fields, earlier messages, or time.

A live link judges the same rules as it goes; `relink_connections` and `relink_channels` hold those that take more than one message. If a
side breaks one rule several times on a connection, only the first time counts. Its peer then closes the connection (RELINK-12), and later
messages do not matter. Tolerated faults are listed each time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import FINDING, breaches, odd
from wirelake.lake.gold.rules.relink_channels import by_channel
from wirelake.lake.gold.rules.relink_connections import connections, misled, unasked
from wirelake.lake.tables.security import Threat
from wirelake.protocols.faults import Faults
from wirelake.protocols.relink.analyzer import ODDITIES
from wirelake.protocols.relink.faults import OURS, TOLERATED, Fault
from wirelake.protocols.relink.messages import VERSION

__all__ = ["ODDITIES", "THREATS", "UNSEEN", "by_fields", "by_history", "greetings", "guards"]

THREATS: Final[dict[Faults, Threat]] = dict.fromkeys(
    (Fault.MULTICAST_OVER_LIMIT, Fault.PARTS_OVER_LIMIT, Fault.PART_OVER_LIMIT, Fault.MESSAGE_OVER_LIMIT), Threat.BOMB
)
"""RELINK-24: what endangers a receiver."""

UNSEEN: Final[dict[Faults, str]] = {
    **dict.fromkeys(
        (Fault.ENDPOINT_UNKNOWN, Fault.SETTINGS_DIFFER),
        "the listener closes without a message, and its endpoints are not on the wire",
    ),
    Fault.LINK_LOST: "a listener may forget a link after its shutdown (RELINK-23), which was in another session",
    **dict.fromkeys(
        (
            *(Fault.CHANNELS_OVER_LIMIT, Fault.RESULTS_OVER_LIMIT, Fault.LINKS_OVER_LIMIT),
            *(Fault.UNCONSUMED_OVER_LIMIT, Fault.UNDECIDED_OVER_LIMIT),
        ),
        "the limits of a side are not on the wire",
    ),
    Fault.PONG_TIMEOUT: "the pong timeout is each side's own setting, and an observer does not know when it was read",
    Fault.PACKET_TIMEOUT: "tables have the time of a packet, not of each of its bytes",
    Fault.CLOSED_INSIDE_MESSAGE: "found as MESSAGE_CUT, with the bytes that were left",
    Fault.GIVEN_UP: "the number of retries is a side's own setting; the errors themselves are found",
    Fault.LINK_EXPIRED: "how long a listener keeps a link is its own setting",
    **dict.fromkeys(OURS, "refused before anything is sent"),
}
"""Rules that recorded history cannot tell the breaking of, and why."""


def by_fields(relink: DataFrame) -> DataFrame:
    """§1: a listener's version that does not exist; what is tolerated but should not have been sent."""
    is_other_version = sql.expr(f"type_name = 'version' AND direction = 'to_client' AND fault IS NULL AND version != {VERSION}")
    return breaches(relink, "relink", {Fault.VERSION_UNSUPPORTED: is_other_version} | odd(ODDITIES))


def guards(messages: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """All rules that depend on earlier messages take Relink's own columns: see `by_history`."""
    del messages, paired, session_facts
    return []


def by_history(relink: DataFrame, paired: DataFrame, session_facts: DataFrame) -> list[DataFrame]:
    """Rules about what was *not* sent or done before; they judge only links that were captured whole."""
    del paired
    connected = connections(relink)
    return [once(by_channel(relink, connected).unionByName(misled(connected, session_facts))), unasked(relink)]


def once(found: DataFrame) -> DataFrame:
    """RELINK-12: the first time that a side breaks a rule on a connection.

    The side that closes it then need not part first.
    """
    tolerated = ", ".join(f"'{fault.name}'" for fault in sorted(TOLERATED))
    parting = Fault.CLOSED_WITHOUT_PARTING.name
    again = f"session_id, connection_id, direction, rule, IF(rule IN ({tolerated}), message_id, NULL)"
    return (
        found.withColumns(
            {
                "is_excused": sql.expr(
                    f"rule = '{parting}' AND max(rule NOT IN ('{parting}', {tolerated})) OVER (PARTITION BY session_id, connection_id)"
                ),
                "turn": sql.expr(f"row_number() OVER (PARTITION BY {again} ORDER BY ts, message_id)"),
            }
        )
        .where("turn = 1 AND NOT is_excused")
        .select(*FINDING)
    )


def greetings(relink: DataFrame) -> DataFrame:
    """Per link the fields of both handshakes, and whether the listener gave a link: for `sessions`."""
    said_by_client = sql.col("direction") == "to_server"
    return (
        relink.where("type_name IN ('version', 'reply')")
        .groupBy("session_id")
        .agg(
            sql.min(sql.when(said_by_client, sql.col("version"))).alias("client_version"),
            sql.min(sql.when(~said_by_client, sql.col("version"))).alias("server_version"),
            sql.coalesce(sql.max(sql.expr("type_name = 'reply' AND link_id != 0")), sql.lit(False)).alias("accepted"),
            sql.lit(None).cast("smallint").alias("error_code"),
        )
    )
