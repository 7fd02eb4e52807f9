"""Open a lake by its path: tables by name, as pyarrow datasets or Spark DataFrames.

Datasets need no Spark.

```
from wirelake.lake import open_lake

lake = open_lake("my-lake")
lake.dataset("messages").count_rows()
lake.frame(spark, "violations").show()
lake.frame(spark, "messages", since=datetime(2026, 1, 31), until=datetime(2026, 2, 1)).count()
```
"""

from __future__ import annotations

from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake.lake.store import snapshot
from wirelake.lake.store.skipping import between
from wirelake.lake.tables.catalog import TABLES, table

if TYPE_CHECKING:
    import pyarrow.dataset as pads
    from pyspark.sql import DataFrame, SparkSession

    from wirelake.lake.store.snapshot import Snapshot

__all__ = ["Lake", "open_lake", "table_names"]


def table_names() -> tuple[str, ...]:
    """Every table of a lake; docs/tables.md describes them."""
    return tuple(TABLES)


class Lake:
    """A lake as of its last commit.

    It does not change while later batches are committed, so its tables always fit together.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"<Lake {self.path} at commit {self.version}>"

    @property
    def path(self) -> Path:
        """The lake's folder."""
        return self._snapshot.lake

    @property
    def version(self) -> int:
        """Grows with every commit; 0 before the first."""
        return self._snapshot.number

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables."""
        return tuple(name for name in TABLES if name in self._snapshot.versions)

    def files(self, name: str, *, since: datetime | None = None, until: datetime | None = None) -> list[Path]:
        """The Parquet files of a table. Raises LakeError if there is no table of this name.

        With `since` or `until`, both included, only files that may have rows of that time, by the statistics in the table's log.
        """
        if since is None and until is None:
            return self._snapshot.files(name)
        return self._snapshot.matching(name, between(table(name), since, until))

    def dataset(self, name: str) -> pads.Dataset:
        """A table as a pyarrow dataset. Raises LakeError if there is no table of this name."""
        return self._snapshot.dataset(name)

    def frame(self, spark: SparkSession, name: str, *, since: datetime | None = None, until: datetime | None = None) -> DataFrame:
        """A table as a Spark DataFrame. Raises LakeError if there is no table of this name.

        With `since` or `until`, both included, it has only rows of that time. Files without any are not opened; a `where` of Spark
        opens all.
        """
        from wirelake.lake.sources.tables import snapshot_frame  # noqa: PLC0415 - imports Spark

        return snapshot_frame(spark, self._snapshot, name, since, until)


def open_lake(lake: str | PathLike[str]) -> Lake:
    """Open a lake as it is now. Raises LakeMissing if there is none in this folder."""
    return Lake(snapshot.current(lake))
