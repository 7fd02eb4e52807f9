"""The Python Data Source `wirelake.follow`: a folder of growing captures as a stream.

Its rows are blocks and packet batches. An offset has the position in each file, as legible JSON. The first offset comes from the lake,
committed together with the rows that lead to it. So Spark's own checkpoint is never needed after a restart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles
from pyspark.sql.types import StructType

from wirelake.capture.blocks.block import ORIGIN_COLUMNS, SEGMENT_COLUMNS, Block, Source
from wirelake.capture.blocks.read_split import Partitioned
from wirelake.capture.blocks.transfer import SCHEMA, to_batches
from wirelake.capture.files.growing import Follower, Limits, Offset, micro_batches
from wirelake.capture.files.identity import KnownFile
from wirelake.lake.session.errors import coded
from wirelake.lake.sources.blocks import BlockReader, TaskGroup, group_tasks
from wirelake.lake.sources.paths import captures
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "Begin", "FollowReader", "FollowSource"]

FORMAT: Final = "wirelake.follow"
_CACHE: Final = "NUMBA_CACHE_DIR"
_NULLABLE: Final = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])


class Begin(msgspec.Struct, frozen=True):
    """Where a stream begins, and which files the lake has."""

    offset: Offset
    known: list[KnownFile]


class EveryBucket(InputPartition):
    """A partition that sends an empty block to every bucket, so that each of them gets a task."""

    def __init__(self) -> None:
        super().__init__(None)


class FollowReader(DataSourceStreamReader):
    """Finds out on the driver how far files go, reads them on executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self._folder = Path(options["folder"])
        self._buckets = int(options["buckets"])
        self._limits = Limits(int(options.get("max_files", "0")), int(options.get("max_bytes", "0")))
        self._complete_after = float(options["complete_after"])
        self._begin = options["begin"]
        self._ports = msgspec.json.decode(options["ports"], type=dict[int, str])
        self._observer = options.get("observer", "")
        self._follower: Follower | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset that the lake has."""
        with coded():
            return _plain(self._begun().offset)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The positions up to which whole records are there now, within the read limits (backpressure)."""
        if self._follower is None:
            _leave_working_folder()
            use_compiled()
            self._follower = Follower(self._begun().known, settle=self._complete_after, observer=self._observer)
        limits = self._limits
        if isinstance(limit, ReadAllAvailable):
            limits = Limits()
        elif isinstance(limit, ReadMaxFiles):
            limits = Limits(limit.max_files, limits.bytes)
        elif isinstance(limit, ReadMaxBytes):
            limits = Limits(limits.files, limit.max_bytes)
        with coded():
            return _plain(self._follower.latest(_offset(start), captures(self._folder), limits))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of a micro-batch; if there are two, `latestOffset` keeps the other as well."""
        if self._limits.bytes:
            return ReadMaxBytes(self._limits.bytes)
        return ReadMaxFiles(self._limits.files) if self._limits.files else ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The read tasks between two offsets."""
        before, after = _offset(start), _offset(end)
        with coded():
            groups = group_tasks(micro_batches(before, after))
        return [*groups, *([EveryBucket()] if after.settled > before.settled else [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield blocks and packet batches, all of them partitioned into buckets."""
        if isinstance(partition, TaskGroup):
            yield from BlockReader(partition.read_tasks, self._ports, self._buckets).read(partition)
            return
        for bucket in range(self._buckets):
            empty = Block(Source("", b"", 0), b"", np.empty((0, SEGMENT_COLUMNS), np.int64), np.empty((0, ORIGIN_COLUMNS), np.int64))
            for batch in to_batches([Partitioned(empty, 0, 0, bucket)]):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=_NULLABLE)

    def _begun(self) -> Begin:
        return msgspec.json.decode(Path(self._begin).read_bytes(), type=Begin)


class FollowSource(DataSource):
    """`spark.readStream.format("wirelake.follow")`.

    Options: `folder`, `begin` (a file with a `Begin`), `complete_after`, `buckets`, `ports`, and perhaps `observer`, `max_files` and
    `max_bytes`.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The Arrow schema of blocks and packet batches, as Spark has it."""
        return from_arrow_schema(_NULLABLE)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - there is but one schema; Spark's name
        """A reader for the folder in the options."""
        return FollowReader(dict(self.options))


def _leave_working_folder() -> None:
    """Do not write compiled scanners into the driver's working folder.

    Executors do, and the same setting reaches this process.
    """
    if not Path(os.environ.get(_CACHE, "/")).is_absolute():
        del os.environ[_CACHE]


def _plain(offset: Offset) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(offset))  # type: ignore[no-any-return]  # lists for tuples, as they come back


def _offset(plain: dict[str, Any]) -> Offset:
    return msgspec.convert(plain, Offset)
