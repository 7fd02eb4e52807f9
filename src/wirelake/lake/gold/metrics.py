"""Build `metrics`: add up the minute index, `exchanges` and `violations`, minute by minute.

Percentiles are exact, by nearest rank: an approximation would depend on the order of batches.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.gold.incremental.minute_index import minute
from wirelake.lake.gold.uncounted import UNCOUNTED
from wirelake.lake.tables import exchanges as exchanges_table
from wirelake.lake.tables import violations as violations_table
from wirelake.lake.tables.metrics import KEYS, TABLE
from wirelake.lake.tables.severities import FORBIDDEN

__all__ = ["COLUMNS", "INPUTS", "TABLE", "TOLD", "build"]

INPUTS: Final = ("minute_index", "exchanges", "violations")

TOLD: Final = ((exchanges_table.TABLE, "requested"), (violations_table.TABLE, "ts"))
"""Gold tables that minutes are computed from, and the column with the time."""


COLUMNS: Final = ("protocol", "subject", "requested", "latency_us", "late", "cancelled", "ts", "severity")
"""Columns of these tables that minutes are computed from."""

_PERCENTILES: Final = {"latency_p50_us": 0.5, "latency_p95_us": 0.95, "latency_p99_us": 0.99}


def build(minute_index: DataFrame, exchanges: DataFrame, violations: DataFrame, uncounted: DataFrame | None = None) -> DataFrame:
    """Add up the minute index, exchanges and violations of these minutes. `uncounted` has sums that are subtracted."""
    exchanges, violations = (rows.where("is_primary IS DISTINCT FROM false") for rows in (exchanges, violations))
    minute_index = minute_index.select(*UNCOUNTED)
    if uncounted is not None:
        less = [(-sql.col(name)).alias(name) for name in ("messages", "bytes", "errors", "quarantined")]
        minute_index = minute_index.unionByName(uncounted.select(*KEYS, *less))
    said = minute_index.groupBy(*KEYS).agg(*(sql.sum(name).alias(name) for name in ("messages", "bytes", "errors", "quarantined")))
    asked = (
        exchanges.where("requested IS NOT NULL")
        .groupBy(minute("requested").alias("minute"), "protocol", "subject")
        .agg(
            sql.count("*").alias("requests"),
            sql.count("latency_us").alias("answered"),
            sql.count_if("late").alias("late"),
            sql.count_if("cancelled").alias("cancelled"),
            *(sql.expr(f"percentile_disc({part}) WITHIN GROUP (ORDER BY latency_us)").alias(name) for name, part in _PERCENTILES.items()),
        )
    )
    broken = (
        violations.where(f"ts IS NOT NULL AND {FORBIDDEN}")
        .groupBy(minute("ts").alias("minute"), "protocol")
        .agg(sql.count("*").alias("violations"))
        .withColumn("subject", sql.lit(None).cast("string"))
    )
    # A row of each part and then one sum, not joins: null is a subject like any other, and every part has one row at most.
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), [said, asked, broken])
    counts = ("messages", "bytes", "errors", "quarantined", "violations", "requests", "answered", "late", "cancelled")
    rows = (
        every.groupBy(*KEYS)
        .agg(
            *(sql.coalesce(sql.sum(name), sql.lit(0)).alias(name) for name in counts),
            *(sql.max(name).cast("long").alias(name) for name in _PERCENTILES),
        )
        .withColumn("rate", sql.col("messages") / sql.lit(60.0))
        .select(*TABLE.schema.names)
    )
    return rows if uncounted is None else rows.where("messages != 0 OR bytes != 0 OR errors + quarantined + violations + requests != 0")
