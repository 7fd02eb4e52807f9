"""Settings of a Spark session, as data: each with its reason.

`docs/spark.md` is generated from this.

Callers may override each of them: `--conf NAME=VALUE` on the command line, `conf` of `session` in Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "CLUSTER",
    "EVERYWHERE",
    "LOCAL",
    "LONG_INGEST",
    "LOOPBACK",
    "NEEDED",
    "SESSION",
    "SHORT_SESSION",
    "SHORT_SESSION_BYTES",
    "Setting",
    "for_one_ingest",
    "is_local",
    "settings",
]

BATCH_ROWS: Final = 10_000
"""Rows in one Arrow batch between Spark and Python; larger ones gain nothing."""
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Bytes in one Arrow batch.

A block is one row of some MiB, so this, not the number of rows, bounds a batch of blocks.
"""

SHORT_SESSION: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
}
"""JVM flags for short sessions: faster start, lower peak speed. docs/performance.md has the figures.

With C1 alone the JVM's default code cache is 48 MB, and a long session fills it: then nothing more is compiled.
"""
LONG_INGEST: Final = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
"""JVM flags for an ingest of more. Blocks of some MiB are larger than a region of the default collector, which then works all the time.

A packet costs 0.1 µs less. The JVM starts 0.3 s later: the collector cannot use the objects of the ahead-of-time cache.
"""
SHORT_SESSION_BYTES: Final = 64 * 1024 * 1024
"""`wirelake ingest` uses these flags up to this many bytes of captures and of messages in the lake."""

_GIB: Final = 1024**3
_LEAST_MEMORY: Final = 1 * _GIB
_MOST_MEMORY: Final = 4 * _GIB


class Setting(msgspec.Struct, frozen=True):
    """One setting, its value, and why."""

    name: str
    value: str | Callable[[Path], str]
    """Or a function of the session's scratch folder."""
    why: str
    shown: str = ""
    """How the docs describe a computed value."""


def _memory(_: Path) -> str:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(physical // 4, _LEAST_MEMORY), _MOST_MEMORY) // (1024 * 1024)}m"


def _partitions(_: Path) -> str:
    return str(max(4, 2 * (os.cpu_count() or 1)))


SESSION: Final = (
    Setting("spark.sql.session.timeZone", "UTC", "Every time in the lake is UTC, wherever the driver is."),
    Setting("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS", "Times are microseconds, as Delta Lake wants them."),
    Setting("spark.sql.parquet.compression.codec", "zstd", "Gold tables are small and read often: half the bytes of snappy."),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS), "Rows in one batch between Spark and Python; more gain nothing."
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        str(BATCH_BYTES),
        "A block is one row of some MiB: this, not the number of rows, bounds a batch of blocks.",
    ),
)
"""For every session, also one of a Spark Connect server."""

NEEDED: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Settings that any session needs while it writes tables."""

EVERYWHERE: Final = (
    Setting("spark.pyspark.driver.python", lambda _: sys.executable, "Not the first one on the PATH.", "this interpreter"),
    Setting("spark.ui.enabled", "false", "Its web server costs start-up time. Turn it on to look into a job."),
    Setting("spark.ui.showConsoleProgress", "false", "Wirelake shows its own progress."),
    Setting(
        "spark.python.sql.dataFrameDebugging.enabled",
        "false",
        "Else every column that Python names asks the JVM several times, only to name the line if a query fails.",
    ),
    Setting("spark.sql.dataFrameQueryContext.enabled", "false", "The same on the other side: a stack trace for every column."),
    Setting("spark.sql.catalogImplementation", "in-memory", "No metastore: a table is a folder."),
    Setting(
        "spark.sql.warehouse.dir", lambda scratch: (scratch / "warehouse").as_uri(), "Nothing is left in the working folder.", "scratch"
    ),
)
"""For every master."""

LOOPBACK: Final = (
    Setting("spark.driver.host", "127.0.0.1", "Only this machine needs to reach this Spark."),
    Setting("spark.driver.bindAddress", "127.0.0.1", "And only this machine can."),
)
"""For `local`, and for a cluster whose master is on loopback."""

LOCAL: Final = (
    Setting("spark.pyspark.python", lambda _: sys.executable, "Tasks run in it, too.", "this interpreter"),
    Setting(
        "spark.driver.memory",
        _memory,
        "Python decodes outside the JVM, and the page cache wants memory, too.",
        "a quarter of the machine, 1 to 4 GiB",
    ),
    Setting(
        "spark.shuffle.compress",
        "false",
        "Shuffle files stay on this machine. Compressing them takes a tenth of the CPU of a packet. Without, they take twice the disk.",
    ),
    Setting("spark.local.dir", lambda scratch: str(scratch / "local"), "Shuffle files go away with the session.", "scratch"),
    Setting(
        "spark.sql.shuffle.partitions",
        _partitions,
        "Two hundred partitions of a small table are two hundred times nothing; adaptive execution merges what is left over.",
        "twice the cores, at least 4",
    ),
)
"""For `local` only."""

CLUSTER: Final = (
    Setting(
        "spark.pyspark.python",
        lambda _: os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "Executors run an interpreter at the same place; where theirs lies elsewhere, say so (see [cluster.md](cluster.md)).",
        "`PYSPARK_PYTHON`, else this interpreter",
    ),
    Setting(
        "spark.executorEnv.NUMBA_CACHE_DIR",
        "numba-cache",
        "Compiled scanners are kept in the executor's working folder: a home may not be writable. One that lasts saves compiling again.",
    ),
    Setting(
        "spark.executor.memoryOverheadFactor",
        "0.4",
        "Decoding happens beside the JVM, and YARN and Kubernetes count that against the container.",
    ),
)
"""For any master but `local`."""


def is_local(master: str) -> bool:
    """Whether tasks run in the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def settings(master: str, scratch: Path) -> dict[str, str]:
    """Return the settings for a master: name -> value."""
    chosen = [*SESSION, *EVERYWHERE, *(LOCAL if is_local(master) else CLUSTER)]
    if is_local(master) or any(f"//{host}:" in master for host in ("127.0.0.1", "localhost")):
        chosen += LOOPBACK
    return {one.name: one.value if isinstance(one.value, str) else one.value(scratch) for one in chosen}


def for_one_ingest(stored_bytes: int, paths: Iterable[str]) -> dict[str, str]:
    """Return settings for a session that ends with one ingest: `SHORT_SESSION` if it reads little, else `LONG_INGEST`.

    `stored_bytes` is the size of what the lake has, which may be read again. A file of unknown size counts as large.
    """
    from wirelake.capture.files.source_file import is_elsewhere, local_path  # noqa: PLC0415 - imports NumPy; the JVM starts before

    size = stored_bytes
    for path in paths:
        if is_elsewhere(path):
            return dict(LONG_INGEST)
        try:
            size += Path(local_path(path)).stat().st_size
        except OSError:  # the file is gone: the ingest will report it
            return dict(LONG_INGEST)
    return dict(SHORT_SESSION if size <= SHORT_SESSION_BYTES else LONG_INGEST)
