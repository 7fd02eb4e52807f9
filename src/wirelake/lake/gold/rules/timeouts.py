"""Rules about connections: handshake in time, close with a message, never inside one.

Session facts have these messages by kind; each protocol names its rules and its timeouts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.errors import FaultLike
from wirelake.lake.gold.rules.engine import FINDING
from wirelake.protocols.reply_timer import MIN_RATE

__all__ = ["CARRIED", "WENT_BY", "Timeouts", "in_time", "omissions", "omitted", "went_by"]

WENT_BY: Final = ("last_seen", "closed", "parting")
"""The columns of `session_facts` that `went_by` looks at."""


_LARGE: Final = f"sum(IF(length >= {MIN_RATE}, length, 0)) OVER (PARTITION BY session_id"
CARRIED: Final = (f"{_LARGE} ORDER BY ts, message_id) AS carried", f"{_LARGE}) AS carried_in_all")
"""EMP-32: bytes of large messages, both ways, up to each message and in all.

An observer does not see what still drained, so that all of it counts as before the answer, at the slowest line that live sessions accept.
"""


class Timeouts(NamedTuple):
    """The connection rules of one protocol."""

    inside: FaultLike
    """Broken by a side that closes inside its own message."""
    cut: FaultLike | None = None
    """Broken by a side that closes without a closing message; None if the protocol has none."""
    late: FaultLike | None = None
    """Broken by a side that does not complete the handshake in time; None if the protocol has none."""
    seconds: float | None = None
    """How long a handshake may take, from the protocol's live options; None: any time."""
    excuses: tuple[FaultLike, ...] = ()
    """Faults that justify closing without a closing message."""


def omissions(session_facts: DataFrame, timeouts: Timeouts) -> DataFrame:
    """Find connections that break these rules, unless a side left first."""
    deadline = sql.col("opened.ts") + sql.make_dt_interval(secs=sql.lit(timeouts.seconds).cast("double"))
    client_in_time, server_in_time, parted_in_time = (
        sql.coalesce(sql.col(when) <= sql.col("deadline"), sql.lit(False)) for when in ("client_greeted", "server_greeted", "parting.ts")
    )
    is_late = (sql.col("last_seen") > sql.col("deadline")) & ~parted_in_time & ~(client_in_time & server_in_time)
    late_side = sql.when(server_in_time, "to_server").when(client_in_time, "to_client")
    excuses = sql.array(*(sql.lit(fault.name) for fault in timeouts.excuses)).cast("array<string>")
    cut_side = sql.when(sql.col("closed.by") == "client", "to_server").when(sql.col("closed.by") == "server", "to_client")
    is_inside = sql.when(cut_side.isNull(), sql.size("unfinished") > 0).otherwise(sql.array_contains("unfinished", cut_side))
    is_rude = sql.col("parting").isNull() if timeouts.cut else sql.lit(True)
    is_cut = sql.col("closed").isNotNull() & is_rude & ~sql.arrays_overlap("spoilt_by", excuses)

    def finding(fault: FaultLike, ts: Column, direction: Column, event: str) -> Column:
        place = (sql.col(f"{event}.{name}").alias(name) for name in ("source", "offset"))
        return sql.struct(sql.lit(fault.name).alias("rule"), ts.alias("ts"), direction.alias("direction"), *place)

    found = [sql.when(is_cut & is_inside, finding(timeouts.inside, sql.col("closed.ts"), cut_side, "closed"))]
    if timeouts.cut is not None:
        found.append(sql.when(is_cut & ~is_inside, finding(timeouts.cut, sql.col("closed.ts"), cut_side, "closed")))
    if timeouts.late is not None:
        found.append(sql.when(is_late, finding(timeouts.late, sql.col("deadline"), late_side, "opened")))
    return (
        session_facts.withColumn("deadline", deadline)
        .select("session_id", "protocol", sql.explode(sql.array_compact(sql.array(*found))).alias("found"))
        .select("session_id", "protocol", "found.*")
        .withColumns({"message_id": sql.lit(None).cast("binary"), "length": sql.lit(0).cast("long")})
        .select(*FINDING)
    )


def in_time(since: Column, seconds: float | None, until_carried: str = "") -> Column:
    """When the time is up that begins at `since`; null, so that it never is, without a number of seconds.

    With the name of a column that holds `CARRIED` at the answer, the time is longer by what was carried since (EMP-32).
    """
    more = sql.expr(f"(coalesce({until_carried}, carried_in_all) - carried) / {MIN_RATE}") if until_carried else sql.lit(0)
    return since + sql.make_dt_interval(secs=(sql.lit(seconds) + more).cast("decimal(18,6)"))


def went_by(due: Column, done: Column) -> Column:
    """Whether a required message (null: never sent) was not there when it was `due`.

    The session must have been seen until after `due`, and no side may have left by then.
    """
    left = sql.least("closed.ts", "parting.ts")
    return (sql.col("last_seen") > due) & sql.coalesce(left > due, sql.lit(True)) & sql.coalesce(done > due, sql.lit(True))


def omitted(found: DataFrame, due: Column, is_omission: Column) -> DataFrame:
    """Findings at messages that were not answered in time.

    They blame the side that did not answer, have the time when the answer was due, and name no message.
    """
    whose = sql.expr("IF(direction = 'to_server', 'to_client', 'to_server')")
    return found.withColumns(
        {
            "ts": sql.when(is_omission, due).otherwise(sql.col("ts")),
            "direction": sql.when(is_omission, whose).otherwise(sql.col("direction")),
            "message_id": sql.when(~is_omission, sql.col("message_id")),
        }
    )
