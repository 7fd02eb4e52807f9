"""The one way to get a Spark session: the right interpreter, a Java that will do, quiet, on loopback, and nothing left lying about.

Start-up takes seconds, so nothing but Spark work calls this, and importing this module does not import Spark.

It refuses to know tables and captures.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wirelake.errors import LakeError
from wirelake.lake import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "BRISK", "session"]

BATCH_ROWS: Final = 10_000
"""Rows in one Arrow batch between Spark and Python; larger ones gain nothing."""
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Bytes in one Arrow batch: a block is one row of about 8 MiB, so this, not the number of rows, is what bounds a batch of blocks."""

BRISK: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For `conf`, when there is little data: the virtual machine compiles in a hurry. Gold tables of a hundred messages took half the CPU
the first time; those of a million took 30 % less the first time and 15 % more the second (one run each, on a busy machine)."""

_GIB: Final = 1024**3
_LEAST_MEMORY: Final = 1 * _GIB
_MOST_MEMORY: Final = 4 * _GIB


def _memory() -> str:
    """A quarter of the machine for the local virtual machine, within reason: Python and the page cache want the rest."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(physical // 4, _LEAST_MEMORY), _MOST_MEMORY) // (1024 * 1024)}m"


def _settings(master: str, scratch: Path) -> dict[str, str]:
    """What a session is started with; `conf` of `session` may override any of it."""
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": _memory(),
            "spark.local.dir": str(scratch / "local"),
            # Two hundred partitions of a small table are two hundred times nothing; adaptive execution merges what is left over.
            "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
        }
    return settings


def _complaint(log: Path) -> str:
    """The first thing the virtual machine complained of, for a message that has room for one line."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    blamed = [line for line in lines if "Exception" in line or line.startswith(("Error", "Invalid", "Unrecognized"))]
    return f": {(blamed or lines)[0]}" if lines else ""


def session(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """The Spark session of this process, started if there is none."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - only Spark work pays for importing Spark
    except ImportError as error:
        raise LakeError("Spark is not installed: run `pip install 'wirelake[lake]'`") from error

    if (running := SparkSession.getActiveSession()) is not None:
        return running

    chosen = java.find()
    scratch = Path(tempfile.mkdtemp(prefix="wirelake-spark-"))
    log = scratch / "spark.log"
    environment = {
        "JAVA_HOME": str(java.home(chosen, scratch / "java", log)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.update(environment)

    before = signal.getsignal(signal.SIGINT)
    builder = SparkSession.builder.master(master).appName("wirelake")
    for key, value in (_settings(master, scratch) | dict(conf or {})).items():
        builder = builder.config(key, value)
    try:
        started = builder.getOrCreate()
    except Exception as error:  # whatever it was, the user needs one line, and `from` keeps the rest
        raise LakeError(f"Spark did not start on {master} with {chosen}{_complaint(log) or f': {error}'} (log: {log})") from error
    started.sparkContext.setLogLevel("WARN")
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler talks to the virtual machine in the middle of a call to it, which fails; Ctrl-C is for the caller.
        signal.signal(signal.SIGINT, before)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return started
