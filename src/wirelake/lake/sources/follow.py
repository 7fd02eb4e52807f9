"""The Python Data Source `wirelake.follow`: a folder of captures that grow, as a stream of shipments.

An offset says how far each file was read; it is JSON that a person can read. The first one comes from the lake, where the rows are that
lead to it: what Spark keeps of its own about a stream is never needed again.

It refuses to know what is in files (`capture/files/growing.py` does) and what becomes of shipments.
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
from wirelake.lake.sources.blocks import BlockReader, TaskGroup, share
from wirelake.lake.sources.paths import captures
from wirelake.protocols.kernel import use_compiled

__all__ = ["FORMAT", "Begin", "FollowReader", "FollowSource"]

FORMAT: Final = "wirelake.follow"
_CACHE: Final = "NUMBA_CACHE_DIR"
_PLAIN: Final = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])


class Begin(msgspec.Struct, frozen=True):
    """Where following begins, and what else the lake has."""

    offset: Offset
    known: list[KnownFile]


class Settling(InputPartition):
    """Nothing is read: every bucket is told that there is one."""

    def __init__(self) -> None:
        super().__init__(None)


class FollowReader(DataSourceStreamReader):
    """Looks at files on the driver, reads them on executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self._folder = Path(options["folder"])
        self._buckets = int(options["buckets"])
        self._limits = Limits(int(options.get("max_files", "0")), int(options.get("max_bytes", "0")))
        self._settle = float(options["settle"])
        self._begin = options["begin"]
        self._ports = msgspec.json.decode(options["ports"], type=dict[int, str])
        self._follower: Follower | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the lake is."""
        return _plain(self._begun().offset)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """As far as files go now, within limits."""
        if self._follower is None:
            _keep_out_of_here()
            use_compiled()
            self._follower = Follower(self._begun().known, settle=self._settle)
        limits = self._limits
        if isinstance(limit, ReadAllAvailable):
            limits = Limits()
        elif isinstance(limit, ReadMaxFiles):
            limits = Limits(limit.max_files, limits.bytes)
        elif isinstance(limit, ReadMaxBytes):
            limits = Limits(limits.files, limit.max_bytes)
        return _plain(self._follower.latest(_offset(start), captures(self._folder), limits))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What Spark asks with; the other limit holds as well."""
        if self._limits.bytes:
            return ReadMaxBytes(self._limits.bytes)
        return ReadMaxFiles(self._limits.files) if self._limits.files else ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What lies between two offsets."""
        before, after = _offset(start), _offset(end)
        return [*share(micro_batches(before, after)), *([Settling()] if after.settled > before.settled else [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Shipments, all of them dealt into buckets."""
        if isinstance(partition, TaskGroup):
            yield from BlockReader(partition.read_tasks, self._ports, self._buckets).read(partition)
            return
        for bucket in range(self._buckets):
            empty = Block(Source("", b"", 0), b"", np.empty((0, SEGMENT_COLUMNS), np.int64), np.empty((0, ORIGIN_COLUMNS), np.int64))
            for batch in to_batches([Partitioned(empty, 0, 0, bucket)]):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=_PLAIN)

    def _begun(self) -> Begin:
        return msgspec.json.decode(Path(self._begin).read_bytes(), type=Begin)


class FollowSource(DataSource):
    """`spark.readStream.format("wirelake.follow")`.

    Options: `folder`, `begin` (a file with a `Begin`), `settle`, `buckets`, `ports`, and perhaps `max_files` and `max_bytes`.
    """

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """The Arrow schema of shipments as Spark sees it."""
        return from_arrow_schema(_PLAIN)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - there is but one schema; Spark's name
        """A reader for the folder in the options."""
        return FollowReader(dict(self.options))


def _keep_out_of_here() -> None:
    """Executors keep compiled scanners in their working folder, and this process is told the same; but the driver's is somebody's."""
    if not Path(os.environ.get(_CACHE, "/")).is_absolute():
        del os.environ[_CACHE]


def _plain(offset: Offset) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(offset)
    return msgspec.json.decode(msgspec.json.encode(told))  # type: ignore[no-any-return]  # lists for tuples, as they come back


def _offset(told: dict[str, Any]) -> Offset:
    return msgspec.convert(told, Offset)
