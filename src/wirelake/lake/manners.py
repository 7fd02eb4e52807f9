"""What every room with a handshake and a parting word expects of a connection: greet in time, and do not leave without a word.

It refuses to know which messages those are: `facts` has them by kind, and the rooms name the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from wirelake.errors import FaultLike
from wirelake.lake.audit import FINDING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Manners", "omissions"]


class Manners(NamedTuple):
    """A room's rules."""

    late: FaultLike
    """Broken by who does not greet in time."""
    seconds: float
    """How long both sides have to greet."""
    cut: FaultLike
    """Broken by who closes without a parting word."""
    excuses: tuple[FaultLike, ...] = ()
    """Bytes of the connection that broke one of these are why it was closed so."""


def omissions(facts: DataFrame, manners: Manners) -> DataFrame:
    """What was not done on connections, unless somebody left first."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    deadline = sql.col("opened.ts") + sql.make_dt_interval(secs=sql.lit(manners.seconds))
    client_in_time, server_in_time, parted_in_time = (
        sql.coalesce(sql.col(when) <= sql.col("deadline"), sql.lit(False)) for when in ("client_greeted", "server_greeted", "parting.ts")
    )
    is_late = (sql.col("last_seen") > sql.col("deadline")) & ~parted_in_time & ~(client_in_time & server_in_time)
    late_side = sql.when(server_in_time, "to_server").when(client_in_time, "to_client")
    excuses = sql.array(*(sql.lit(fault.name) for fault in manners.excuses)).cast("array<string>")
    is_cut = sql.col("closed").isNotNull() & sql.col("parting").isNull() & ~sql.arrays_overlap("spoilt_by", excuses)
    cut_side = sql.when(sql.col("closed.by") == "client", "to_server").when(sql.col("closed.by") == "server", "to_client")

    def finding(fault: FaultLike, ts: Column, direction: Column, event: str) -> Column:
        place = (sql.col(f"{event}.{name}").alias(name) for name in ("source", "offset"))
        return sql.struct(sql.lit(fault.name).alias("rule"), ts.alias("ts"), direction.alias("direction"), *place)

    found = sql.array(
        sql.when(is_late, finding(manners.late, sql.col("deadline"), late_side, "opened")),
        sql.when(is_cut, finding(manners.cut, sql.col("closed.ts"), cut_side, "closed")),
    )
    return (
        facts.withColumn("deadline", deadline)
        .select("session_id", "protocol", sql.explode(sql.array_compact(found)).alias("found"))
        .select("session_id", "protocol", "found.*")
        .withColumns({"message_id": sql.lit(None).cast("binary"), "length": sql.lit(0).cast("long")})
        .select(*FINDING)
    )
