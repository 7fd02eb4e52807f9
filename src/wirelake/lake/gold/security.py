"""Build `security`: check signed packets of Event Mesh, and list rules broken as threats.

For Event Mesh three things come together: the result of checking keys (`verify_rows.py`), the time in the packet, and all
earlier captures of it. A packet breaks at most one rule: the first in the order of EMM-28, as for a live receiver at that time. Without
keys nothing is checked again, and earlier results stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.registry import threats
from wirelake.lake.tables.security import TABLE, Threat
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import CLOCK_SKEW_ALLOWANCE, REPLAY_WINDOW
from wirelake.protocols.event_mesh.security import verify_rows

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore

__all__ = ["INPUTS", "PROTOCOL", "TABLE", "THREATENING", "build"]

PROTOCOL: Final = "event_mesh"
"""The protocol whose messages carry proofs."""

INPUTS: Final = (PROTOCOL, "connections", "quarantine", "violations")


THREATENING: Final = frozenset(name.partition("/")[2] for name in threats() if not name.startswith(f"{PROTOCOL}/"))
"""Rules of other protocols that are threats, by name."""

_WINDOW_US: Final = REPLAY_WINDOW * 1_000_000
_SKEW_US: Final = CLOCK_SKEW_ALLOWANCE * 1_000_000
_FARTHEST_US: Final = 1 << 62
"""A time beyond this is as far from now as this."""


def build(
    event_mesh: DataFrame,
    connections: DataFrame,
    quarantine: DataFrame,
    violations: DataFrame,
    *,
    before: DataFrame,
    keys: TrustStore | None = None,
) -> DataFrame:
    """All packets of these nodes, checked with these keys.

    Without keys their results come from `before`, the table as it was. Threats of other protocols come from `violations`. The rule a packet
    breaks by repetition depends on its own node's packets and no others.
    """
    known = before.where("message_id IS NOT NULL").select("message_id", "verdict", "genuine", "trust", "accepted", "was_accepted")
    packets = _with_ends(event_mesh, connections)
    if keys is None:
        packets = packets.join(known.drop("accepted"), "message_id", "left")
    else:
        earlier = known.selectExpr("message_id", "verdict AS old_verdict", "accepted AS old_accepted", "was_accepted AS older")
        was_accepted = sql.when(sql.col("old_verdict") != sql.col("verdict"), sql.col("old_accepted")).otherwise(sql.col("older"))
        packets = packets.join(_verdicts(event_mesh, keys), "message_id", "left").join(earlier, "message_id", "left")
        packets = packets.withColumn("was_accepted", was_accepted)
    judged = _by_history(_by_time(packets)).where("proof IS NOT NULL OR rule IS NOT NULL")
    accepted = sql.when(sql.col("rule").isNotNull(), False).when(sql.col("verdict").isNotNull(), True)
    rows = judged.withColumn("accepted", accepted).withColumn("protocol", sql.lit("event_mesh"))
    meshed = _with_book(rows.unionByName(_unreadable(quarantine), allowMissingColumns=True))
    return meshed.unionByName(_elsewhere(violations), allowMissingColumns=True).select(*TABLE.schema.names)


def _with_ends(event_mesh: DataFrame, connections: DataFrame) -> DataFrame:
    """Packets with the endpoints they came from and went to, and whether the observer sent them."""
    client, server = (sql.concat_ws(":", f"{side}_address", f"{side}_port") for side in ("client", "server"))
    ends = (
        connections.where("protocol = 'event_mesh'")
        .groupBy("connection_id")
        .agg(sql.min(sql.struct(client.alias("client"), server.alias("server"), "observed_by")).alias("ends"))
    )
    from_client = sql.col("direction") == "to_server"
    sent_by_observer = sql.col("ends.observed_by") == sql.when(from_client, "client").otherwise("server")
    watched_by = sql.when(sent_by_observer, "sender").when(sql.col("ends.observed_by") == "wire", "wire").otherwise("receiver")
    return (
        event_mesh.join(ends, "connection_id", "left")
        .withColumn("sender", sql.when(from_client, sql.col("ends.client")).otherwise(sql.col("ends.server")))
        .withColumn("receiver", sql.when(from_client, sql.col("ends.server")).otherwise(sql.col("ends.client")))
        .withColumn("watched_by", watched_by)
    )


def _by_time(packets: DataFrame) -> DataFrame:
    """EMM-28: the rule each packet breaks by its form, its proof or its time.

    Time is asked of packets that carry a proof (EMM-24).
    """
    hmac, signature = (sql.col(name).isNotNull() for name in ("hmac", "signature"))
    proof = sql.when(hmac & signature, "hmac+signature").when(hmac, "hmac").when(signature, "signature")
    said = sql.coalesce("signed_timestamp", "timestamp").cast("double") * 1e6
    claimed = sql.least(said, sql.lit(float(_FARTHEST_US))).cast("long")
    is_forged = sql.coalesce(sql.col("verdict") != verify_rows.GENUINE, sql.lit(False))
    rule = (
        sql.when(sql.col("fault").isNotNull(), sql.col("fault"))
        .when(is_forged, sql.col("verdict"))
        .when(proof.isNotNull() & (sql.col("age_us") > _WINDOW_US), Fault.STALE.name)
        .when(proof.isNotNull() & (sql.col("age_us") < -_SKEW_US), Fault.FUTURE.name)
    )
    return (
        packets.withColumns({"proof": proof, "claimed": claimed, "arrived": sql.unix_micros("ts")})
        .withColumn("age_us", sql.col("arrived") - sql.col("claimed"))
        .withColumns({"rule": rule, "is_believed": sql.col("fault").isNull() & ~is_forged & sql.col("node_id").isNotNull()})
    )


def _by_history(packets: DataFrame) -> DataFrame:
    """Add the rule of replayed packets (EMM-23), and the number of each sighting of a packet.

    Only packets that break no other rule get it. A packet that relays pass on is seen at many places. It is repeated only if it comes to
    the same receiver again, as seen by the same kind of observer. A repetition within the replay window is a replay whatever its content;
    later, only if the content is the same. Forged packets are never a first sighting. Packets with a valid proof are counted apart from
    others. Packets without a node id differ only by connection, which is best effort: they are not judged.
    """
    packet = ("is_believed", "node_id", "packet_id")
    everywhere = Window.partitionBy(*packet).orderBy("ts", "message_id")
    at_receiver = Window.partitionBy(*packet, "receiver", "watched_by", "is_proven", "is_clean").orderBy("ts", "message_id")
    content = sql.xxhash64("timestamp", "flags", "event_type", "payload")
    kept_until = sql.greatest("arrived", sql.least("claimed", sql.col("arrived") + _SKEW_US)) + _WINDOW_US  # EMM-25
    again = (sql.col("arrived") <= sql.col("earlier.until")) | (sql.col("content") == sql.col("earlier.content"))
    is_replay = sql.col("is_believed") & sql.col("is_clean") & (sql.col("watched_by") != "sender") & sql.coalesce(again, sql.lit(False))
    is_believed = sql.col("is_believed")
    return (
        packets.withColumns({"is_proven": sql.col("proof").isNotNull(), "is_clean": sql.col("rule").isNull(), "content": content})
        .withColumns(
            {
                "earlier": sql.lag(sql.struct(kept_until.alias("until"), "content")).over(at_receiver),
                "sighting": sql.when(is_believed, sql.row_number().over(everywhere)),
                "first_message_id": sql.when(is_believed, sql.first("message_id").over(everywhere)),
            }
        )
        .withColumn("rule", sql.when(is_replay, Fault.REPLAY.name).otherwise(sql.col("rule")))
    )


def _verdicts(event_mesh: DataFrame, keys: TrustStore) -> DataFrame:
    """What the keys say of every packet that carries a proof and has the form of a packet."""
    store = keys

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return verify_rows.judge_batches(batches, store)

    return (
        event_mesh.where("fault IS NULL AND (hmac IS NOT NULL OR signature IS NOT NULL)")
        .select(*verify_rows.INPUT)
        .mapInArrow(judge, verify_rows.OUTPUT)
    )


def _unreadable(quarantine: DataFrame) -> DataFrame:
    """Datagrams that are no packets: too large, too short, reserved bits, fields that overrun."""
    return quarantine.where("protocol = 'event_mesh' AND clause IS NOT NULL").select(
        *("session_id", "connection_id", "ts", "protocol", "source", "offset", "length"),
        sql.col("reason").alias("rule"),
        sql.lit(False).alias("accepted"),
    )


def _with_book(rows: DataFrame) -> DataFrame:
    """Clause and sentence of each rule."""
    text = msgspec.json.encode({fault.name: {"clause": fault.clause, "text": fault.text} for fault in Fault}).decode()
    book = sql.from_json(sql.lit(text), "map<string,struct<clause:string,text:string>>")
    told = {name: sql.col(f"said.{name}") for name in ("clause", "text")}
    threat = sql.when(sql.col("rule").isNotNull(), sql.coalesce(_threat(), sql.lit(Threat.MALFORMED.value)))
    return rows.withColumn("said", sql.try_element_at(book, "rule")).withColumns(told | {"threat": threat})


def _threat() -> Column:
    """Return the threat of a protocol's rule; null if it is none."""
    said = sql.from_json(sql.lit(msgspec.json.encode(threats()).decode()), "map<string,string>")
    return sql.try_element_at(said, sql.concat_ws("/", "protocol", "rule"))


def _elsewhere(violations: DataFrame) -> DataFrame:
    """Threats of protocols that know no proofs."""
    return (
        violations.where((sql.col("protocol") != PROTOCOL) & sql.col("rule").isin(sorted(THREATENING)))
        .withColumns({"threat": _threat(), "accepted": sql.lit(False)})
        .where("threat IS NOT NULL")
        .select(
            *("session_id", "message_id", "ts", "protocol", "accepted", "threat", "rule", "clause", "text", "source", "offset", "length"),
        )
    )
