"""How Spark is to go about a piece of work, decided by its rows and nowhere else.

Generating and compiling code for a plan takes longer than running it over a few thousand rows, and so do many empty partitions: a small
slice is interpreted, and stays in one piece. What is large gets all that Spark can do.

It refuses to know what the work is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from wirelake.lake.session.start import set_for_now

__all__ = ["SMALL_ROWS", "is_small", "paced"]

SMALL_ROWS: Final = 100_000
"""Up to how many rows a piece of work is small."""

_ALWAYS: Final = {"spark.sql.session.timeZone": "UTC"}
_SMALL: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.constraintPropagation.enabled": "false",
}


def is_small(rows: int) -> bool:
    """Whether work on so many rows costs less than deciding how to do less of it."""
    return rows <= SMALL_ROWS


@contextmanager
def paced(spark: SparkSession, rows: int) -> Iterator[None]:
    """Settings for work on so many rows; afterwards they are what they were.

    A session of its own would keep them from others who use this one meanwhile, but a new session becomes the active one, for everybody.
    Streams do not notice: they have had a copy of the settings since they were started.
    """
    with set_for_now(spark, _ALWAYS | (_SMALL if is_small(rows) else {})):
        yield
