"""The way in for people who have their own Spark: sources, tables and the writer as functions, each usable alone in a notebook.

```
from wirelake.lake import build_table, decode_table, inputs_of

tables = {name: decode_table(spark, name, "captures/") for name in inputs_of("exchanges")}
build_table(spark, "exchanges", tables).where("status = 'unanswered'").show()
```

Any session will do, whoever started it; the package must be importable on its executors (docs/cluster.md).

It refuses to know how captures are read and how tables are built: it only gives those who do a name.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from wirelake.errors import LakeError
from wirelake.lake.session.start import activate, suited
from wirelake.lake.store import delta, journal, snapshot
from wirelake.lake.store.folder import lake_folder
from wirelake.lake.store.snapshot import Snapshot
from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.catalog import table as table_named

if TYPE_CHECKING:
    import pyarrow.dataset as pads
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Lake", "decode_table", "open_lake", "read_messages", "read_packets", "read_table", "register", "table_names", "write_table"]

Place = str | PathLike[str]


def table_names() -> tuple[str, ...]:
    """Every table of a lake; docs/tables.md says what is in them."""
    return tuple(TABLES)


def register(spark: SparkSession) -> SparkSession:
    """Let a session read captures: `format("wirelake")`, `"wirelake.packets"`, `"wirelake.captured"`; filters are applied while reading."""
    from wirelake.lake.sources.messages import MessageSource, PacketSource  # noqa: PLC0415
    from wirelake.lake.sources.silver import CapturedSource  # noqa: PLC0415 - only Spark work pays for importing Spark

    activate(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in (MessageSource, PacketSource, CapturedSource):
        spark.dataSource.register(source)
    return spark


def _load(spark: SparkSession, form: str, paths: tuple[Place, ...], **told: Any) -> DataFrame:
    options = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in told.items() if value}
    return register(spark).read.format(form).options(**options).load([fspath(path) for path in paths])


def read_messages(spark: SparkSession, *paths: Place, protocol: str = "", ports: Mapping[int, str] | None = None) -> DataFrame:
    """Messages of captures, with the two ends of each connection: one row per message, as in the table `messages`.

    `protocol` asks for one only; `ports` says what is spoken on which port, where a capture does not say it itself.
    """
    return _load(spark, "wirelake", paths, protocol=protocol, ports=ports)


def read_packets(spark: SparkSession, *paths: Place) -> DataFrame:
    """Packets of captures: one row per packet, with its ends, its flags and its payload."""
    return _load(spark, "wirelake.packets", paths)


def decode_table(spark: SparkSession, name: str, *paths: Place, ports: Mapping[int, str] | None = None) -> DataFrame:
    """A table that is written where captures are decoded (`messages`, `emp`, `connections`, `ledger`, …), straight from captures."""
    return _load(spark, "wirelake.captured", paths, table=name, ports=ports)


class Lake:
    """The tables of a lake as of one moment. Commits that come later do not change it."""

    def __init__(self, seen: Snapshot) -> None:
        self._snapshot = seen

    def frame(self, spark: SparkSession, name: str) -> DataFrame:
        """Read the table of this name as a Spark DataFrame. Raises LakeError if there is no such table."""
        from wirelake.lake.sources.tables import snapshot_frame  # noqa: PLC0415 - imports Spark

        return snapshot_frame(spark, self._snapshot, name)

    def dataset(self, name: str) -> pads.Dataset:
        """Open the table of this name as a pyarrow dataset. Raises LakeError if there is no such table."""
        return self._snapshot.dataset(name)


def open_lake(lake: Place) -> Lake:
    """Open a lake as of its last whole batch: `.frame(spark, name)`, `.dataset(name)`. Raises LakeError if there is no lake."""
    return Lake(snapshot.current(lake))


def read_table(spark: SparkSession, lake: Place, name: str) -> DataFrame:
    """A table of a lake, as of its last whole batch, or one that `write_table` wrote. For several that belong together, see `open_lake`."""
    from wirelake.lake.sources.tables import frame, snapshot_frame  # noqa: PLC0415 - imports Spark

    table, root = table_named(name), lake_folder(lake)
    if not journal.check(root) and delta.version(root, table) is not None:
        return frame(spark, root, table)
    return snapshot_frame(spark, snapshot.current(root), name)


def write_table(rows: DataFrame, folder: Place, name: str) -> int:
    """Make rows the whole contents of a table in a folder of yours, in one Delta transaction; gives their number.

    They must fit the table's schema of record, whose comments the table gets. A lake is not written so: ingests keep it.
    """
    from wirelake.lake.sources.tables import spark_schema  # noqa: PLC0415 - imports Spark

    table, root = table_named(name), lake_folder(folder)
    if journal.check(root):
        raise LakeError(f"{root} is a lake, which only ingests write: name another folder")
    at = delta.folder(root, table) / f"batch-{uuid.uuid4().hex}"
    with suited(rows.sparkSession):
        rows.to(spark_schema(table)).write.parquet(at.as_uri())
    found = [(path, pq.read_metadata(path).num_rows) for path in sorted(at.glob("*.parquet"))]
    files = [delta.File(f"{at.name}/{path.name}", path.stat().st_size, count) for path, count in found if count]
    delta.exchange(root, table, delta.entries(root, table), files, 0, 1 + delta.revision(root, table))
    return sum(file.rows for file in files)
