"""An ingest in a process of its own, for tests that end it: it starts Spark, says so, waits for a word, and tells how far it is.

`python -m tests.lake.driver LAKE PATH…` prints `ready`, waits for a line on stdin, then prints every stage it comes to, and `whole`.
"""

from __future__ import annotations

import sys

from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.session.start import SHORT_SESSION, spark_session


def main() -> None:
    """Ingest."""
    lake, *paths = sys.argv[1:]
    spark = spark_session("local[2]", {**SHORT_SESSION, "spark.sql.shuffle.partitions": "1"})
    print("ready", flush=True)
    sys.stdin.readline()
    told = ""

    def tell(stage: str) -> None:
        nonlocal told
        if stage != told:
            told = stage
            print(stage, flush=True)

    ingest(spark, lake, paths, progress=lambda step: tell(step.stage))
    tell("whole")
    spark.stop()


if __name__ == "__main__":
    main()
