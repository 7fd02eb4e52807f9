"""A driver whose ingest meets misfortune at known moments: `python hostile.py MASTER LAKE CAPTURES GATE MISFORTUNE…`.

`fails`: the first attempt at writing ends with an error. `waits`: the next one leaves its process id in the folder GATE, and waits
there until somebody writes `go`. `twin`: the first attempt waits until a second one runs beside it. Whatever comes after is left in peace.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from wirelake.lake.jobs import sink as jobs_sink
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.session.start import spark_session

PATIENCE = 240.0


def hostile(gate: Path, misfortunes: list[str]) -> type[jobs_sink.TableWriter]:
    """A writer that hands out misfortunes, one for each attempt; sent to the executors by value, as it is no part of the package."""

    class Hostile(jobs_sink.TableWriter):
        def write(self, iterator):
            for misfortune in misfortunes:
                try:
                    descriptor = os.open(gate / misfortune, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                except FileExistsError:
                    continue
                os.write(descriptor, b"%d\n" % os.getpid())
                os.close(descriptor)
                if misfortune == "fails":
                    next(iterator, None)
                    raise OSError("a misfortune")
                until = time.monotonic() + PATIENCE
                while not (gate / "go").exists() and time.monotonic() < until:
                    time.sleep(0.05)
                return super().write(iterator)
            if "twin" in misfortunes:
                (gate / "go").touch()
            return super().write(iterator)

    return Hostile


def main() -> None:
    """Ingest, with misfortunes."""
    master, lake, captures, gate, *misfortunes = sys.argv[1:]
    jobs_sink.TableWriter = hostile(Path(gate), misfortunes)
    conf = {"spark.executor.memory": "600m", "spark.sql.shuffle.partitions": "2"}
    if "twin" in misfortunes:
        conf |= {"spark.speculation": "true", "spark.speculation.task.duration.threshold": "1s", "spark.speculation.minTaskRuntime": "1s"}
    spark = spark_session(master, conf)
    result = ingest(spark, lake, [captures])
    print(result.messages)
    spark.stop()


if __name__ == "__main__":
    main()
