"""State changes: the few messages of a connection that move its state machine.

The input of the rules engine.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.rules.engine import is_milestone, state_machine_table
from wirelake.lake.gold.rules.registry import RULES

__all__ = ["INPUTS", "build"]

INPUTS: Final = ("connections", "messages")


def build(connections: DataFrame, messages: DataFrame) -> DataFrame:
    """One row per connection: its `protocol` and its `milestones`, none if no message changes its state."""
    is_step = " OR ".join(
        f"(protocol = '{name}' AND ({is_milestone(state_machine_table(entry.state_machine))}))" for name, entry in RULES.items()
    )
    steps = (
        messages.where(is_step)
        .groupBy("connection_id")
        .agg(sql.collect_list(sql.struct("ts", "message_id", "direction", "name")).alias("milestones"))
    )
    none = sql.array().cast("array<struct<ts:timestamp,message_id:binary,direction:string,name:string>>")
    known = connections.select("connection_id", "protocol").distinct()
    return known.join(steps, "connection_id", "left").withColumn("milestones", sql.coalesce("milestones", none))
