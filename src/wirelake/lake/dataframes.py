"""DataFrames in any Spark session: from captures, from tables, into a folder of your own.

```
from wirelake.lake import build_table, decode_table, inputs_of

tables = {name: decode_table(spark, name, "captures/") for name in inputs_of("exchanges")}
build_table(spark, "exchanges", tables).where("status = 'unanswered'").show()
```

The package must be importable on the session's executors (docs/cluster.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from wirelake.errors import LakeError
from wirelake.lake.api import open_lake
from wirelake.lake.session.start import activate, suited
from wirelake.lake.sources.messages import MessageSource
from wirelake.lake.sources.packets import PacketSource
from wirelake.lake.sources.silver import CapturedSource
from wirelake.lake.sources.tables import frame, spark_schema
from wirelake.lake.store import delta, durable, journal
from wirelake.lake.store.folder import lake_folder
from wirelake.lake.tables.catalog import table as table_named

__all__ = ["decode_table", "read_messages", "read_packets", "read_table", "register", "write_table"]

AnyPath = str | PathLike[str]


def register(spark: SparkSession) -> SparkSession:
    """Register the formats `wirelake`, `wirelake.packets` and `wirelake.captured` in a session.

    Filter pushdown is enabled.
    """
    activate(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in (MessageSource, PacketSource, CapturedSource):
        spark.dataSource.register(source)
    return spark


def _load(spark: SparkSession, form: str, paths: tuple[AnyPath, ...], **options: Any) -> DataFrame:
    encoded = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in options.items() if value}
    return register(spark).read.format(form).options(**encoded).load([fspath(path) for path in paths])


def read_messages(spark: SparkSession, *paths: AnyPath, protocol: str = "", ports: Mapping[int, str] | None = None) -> DataFrame:
    """Messages of captures: one row per message, as in the table `messages`, with both endpoints.

    `protocol` limits them to one. `ports` maps ports to protocols, for captures that do not name them.
    """
    return _load(spark, "wirelake", paths, protocol=protocol, ports=ports)


def read_packets(spark: SparkSession, *paths: AnyPath) -> DataFrame:
    """Packets of captures: one row per packet, with both ends, flags and payload."""
    return _load(spark, "wirelake.packets", paths)


def decode_table(spark: SparkSession, name: str, *paths: AnyPath, ports: Mapping[int, str] | None = None) -> DataFrame:
    """A silver table (`messages`, `emp`, `connections`, `ledger`, …) straight from captures."""
    return _load(spark, "wirelake.captured", paths, table=name, ports=ports)


def read_table(spark: SparkSession, lake: AnyPath, name: str) -> DataFrame:
    """A table of a lake as of its last commit, or one that `write_table` wrote.

    For several that fit together, see `open_lake`.
    """
    table, root = table_named(name), lake_folder(lake)
    if not journal.check(root) and delta.version(root, table) is not None:
        return frame(spark, root, table)
    return open_lake(root).frame(spark, name)


def write_table(rows: DataFrame, folder: AnyPath, name: str) -> int:
    """Replace a table in a folder of yours by these rows, in one Delta transaction; return their number.

    The rows must fit the table's schema of record, whose comments the table gets. A lake is refused: only ingests write it.
    """
    table, root = table_named(name), lake_folder(folder)
    if journal.check(root):
        raise LakeError(f"{root} is a lake, which only ingests write: name another folder")
    batch = delta.folder(root, table) / f"batch-{uuid.uuid4().hex}"
    with suited(rows.sparkSession):
        rows.to(spark_schema(table)).write.parquet(batch.as_uri())
    counts = [(path, pq.read_metadata(path).num_rows) for path in sorted(batch.glob("*.parquet"))]
    files = [delta.File(f"{batch.name}/{path.name}", path.stat().st_size, count) for path, count in counts if count]
    durable.sync(path for path, _ in counts)
    delta.exchange(root, table, delta.entries(root, table), files, 0, 1 + delta.revision(root, table))
    durable.settle(root)
    return sum(file.rows for file in files)
