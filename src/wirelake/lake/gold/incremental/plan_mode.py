"""Choose how Spark plans a piece of work, by its number of rows.

Generating and compiling code for a plan takes longer than running it over a few thousand rows; so do many empty shuffle partitions. Small
work is interpreted, in one partition. Large work uses Spark's full optimisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from wirelake.lake.session.start import set_for_now

__all__ = ["SMALL_ROWS", "is_small", "plan_mode"]

SMALL_ROWS: Final = 100_000
"""Work on at most this many rows is small."""

_ALWAYS: Final = {"spark.sql.session.timeZone": "UTC"}
_SMALL: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.constraintPropagation.enabled": "false",
}


def is_small(rows: int) -> bool:
    """Whether work on so many rows is small."""
    return rows <= SMALL_ROWS


@contextmanager
def plan_mode(spark: SparkSession, rows: int) -> Iterator[None]:
    """Set Spark's planner for work on so many rows; restore its settings afterwards.

    A new session would isolate these settings, but it would become the active one for the whole process. Running streams are not affected:
    they copied the settings when they started.
    """
    with set_for_now(spark, _ALWAYS | (_SMALL if is_small(rows) else {})):
        yield
