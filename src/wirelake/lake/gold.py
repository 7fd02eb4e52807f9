"""The gold job: tables that Spark SQL builds from the others, replaced as a whole when what they are built from has changed.

Spark writes the Parquet files into the table's own folder, one subfolder per batch; one Delta transaction then makes them the table.
Rows do not cross into Python. A table is stale when its batch is not the ledger's, so a job that died is simply done again.

It refuses to know what the tables contain: each one's `build` does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from wirelake.lake import calls, courses, deliveries, delta, facts, pairing
from wirelake.lake.catalog import GOLD
from wirelake.lake.catalog import table as table_named
from wirelake.lake.delta import File
from wirelake.lake.schema import Table
from wirelake.lake.tables import exchanges, ledger, security, sessions, violations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wirelake.protocols.event_mesh.trust import TrustStore

__all__ = ["refresh", "stale"]

_BUILDERS: Final[dict[str, ModuleType]] = {module.TABLE.name: module for module in (exchanges, violations, sessions, security)}


_STEPS: Final[dict[str, ModuleType]] = {"facts": facts, "courses": courses, "paired": pairing, "deliveries": deliveries, "calls": calls}
"""What several tables are built from, and no table itself."""


def stale(lake: Path, keys: TrustStore | None = None) -> list[Table]:
    """Gold tables that are older than the ledger, in the order in which they are to be built; new keys age what is judged by keys."""
    newest = delta.batch(lake, ledger.TABLE)
    if newest is None:
        return []
    return [table for table in GOLD if delta.batch(lake, table) != newest or (table is security.TABLE and keys is not None)]


def refresh(
    spark: SparkSession, lake: Path, late_seconds: float, keys: TrustStore | None = None, tell: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Build every stale table, and with keys the one that is judged by them; says which."""
    newest = delta.batch(lake, ledger.TABLE)
    old = stale(lake, keys)
    if newest is None or not old:
        return []

    def frames(names: Iterable[str]) -> dict[str, DataFrame]:
        return {name: steps[name] if name in steps else delta.frame(spark, lake, table_named(name)) for name in names}

    before = delta.frame(spark, lake, security.TABLE)
    told: dict[str, dict[str, Any]] = {
        exchanges.TABLE.name: {"late_seconds": late_seconds},
        security.TABLE.name: {"keys": keys, "before": before},
    }
    steps: dict[str, DataFrame] = {}
    for name, step in _STEPS.items():
        steps[name] = step.build(**frames(step.INPUTS))
    # Few rows that several plans need: kept. Paired messages are many, and keeping them costs as much as pairing them again.
    steps["facts"].persist()
    try:
        for table in old:
            tell(table.name)
            build = _BUILDERS[table.name]
            extra = told.get(table.name, {})
            still_read = delta.files(lake, table)
            delta.replace(lake, table, _write(build.build(**frames(build.INPUTS), **extra), lake, table, newest), newest, again=True)
            # Whoever reads the contents of a moment ago may finish; what is older than that goes.
            delta.sweep(lake, table, keep=still_read)
    finally:
        steps["facts"].unpersist()
    return [table.name for table in old]


def _write(rows: DataFrame, lake: Path, table: Table, batch: int) -> list[File]:
    """Let Spark write the files; `to` holds the builder to the schema of record."""
    at = delta.folder(lake, table) / f"batch-{batch:08d}-{uuid.uuid4().hex}"
    (
        rows.to(delta.spark_schema(table))
        .write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(f"file://{at.absolute()}")
    )
    files = []
    for path in sorted(at.glob("*.parquet")):
        if count := pq.read_metadata(path).num_rows:
            files.append(File(f"{at.name}/{path.name}", path.stat().st_size, count))
    return files
