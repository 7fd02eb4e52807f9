"""The Spark job of a batch ingest: tasks read, decode and write; the driver commits.

Decoded rows never enter the JVM: a task writes Parquet files, and returns one row with their names. When all tasks are done, `commit` on
the driver merges their ledger entries, checks that they add up to the bytes of all sources, and publishes every table, the ledger last.

Recordings of stateless protocols are read and decoded by one task. Others are read by one, repartitioned by connection, and decoded by
another. The work items travel in the functions that Spark pickles: no Python process is started only to plan or to commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from wirelake import protocols
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.transfer import from_batch
from wirelake.errors import LakeError
from wirelake.lake.decode import unrecognised as decode_unrecognised
from wirelake.lake.decode.accounting import balance, merge, packed, unpacked
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.pipeline import decode
from wirelake.lake.jobs.task_files import TaskFiles
from wirelake.lake.session.errors import coded
from wirelake.lake.session.memory import freeze_before_task
from wirelake.lake.sources import failures
from wirelake.lake.sources.blocks import NULLABLE, BlockReader, TaskGroup, group_tasks
from wirelake.lake.sources.plan import Plan
from wirelake.lake.sources.warm_up import PLAIN_BYTES
from wirelake.lake.store import delta, journal
from wirelake.lake.store.commit import publish
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import whole
from wirelake.lake.tables import ledger, unrecognised
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.index import INDEX_TABLES
from wirelake.protocols.event_mesh.security.trust import TrustStore
from wirelake.protocols.kernel import use_plain
from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["TableWriter", "Written", "results", "run"]

_RESULT: Final = "result binary"
"""Schema of the rows that tasks return."""


class Written(msgspec.Struct):
    """The result of one task: the files that it wrote."""

    files: dict[str, File]
    """Table name -> its file."""
    ledger: bytes = b""
    """Ledger entries of this task. Other tasks may have entries of the same sources."""
    unrecognised: bytes = b""
    """Traffic of no known protocol. Other tasks may have seen the same hosts."""


class TableWriter:
    """Decodes and writes in tasks, publishes on the driver."""

    def __init__(
        self,
        lake: Path,
        batch: int,
        options: DecodeOptions,
        keys: TrustStore | None = None,
        ports: dict[int, str] | None = None,
        attempt: str = "",
        keyring: Keyring | None = None,
    ) -> None:
        self._lake = lake
        self._batch = batch
        self._attempt = attempt
        self._options = options
        self._ports = ports or {}
        self._keys = keys
        self._keyring = keyring

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: decode, and write files that no table refers to yet."""
        spare = partial(Decoder, self._options, self._keys, keyring=self._keyring, sink=lambda _: None)
        guard = partial(failures.guard, failures.folder(self._lake, self._attempt))
        ledger_entries: list[pa.RecordBatch] = []
        unknown: list[pa.RecordBatch] = []
        sheets = TaskFiles(self._lake, self._batch)
        decoder = Decoder(self._options, self._keys, keyring=self._keyring, sink=sheets.add)
        assembly = Assembly(self._ports, protocols.sniff, protocols.dialect)
        try:
            with coded():
                items = (item for batch in iterator for item in from_batch(batch))
                for decoded in decode(items, decoder, assembly, guard=guard, spare=spare):
                    ledger_entries += decoded.rows.pop(ledger.TABLE.name, [])
                    unknown += decoded.rows.pop(unrecognised.TABLE.name, [])
                    sheets.add(decoded.rows)
                return Written(sheets.close(), packed(ledger_entries), decode_unrecognised.packed(unknown))
        except BaseException:
            sheets.discard()
            raise

    def commit(self, results: Sequence[Written]) -> None:
        """On the driver, after all tasks: check the ledger, then publish in one transaction per table."""
        with journal.fenced(self._lake):
            self._publish(results)

    def _pending(self) -> journal.Pending | None:
        """The pending batch, if it is of this attempt: this ingest may have died, and another one begun."""
        pending = journal.pending(self._lake)
        return pending if pending is not None and (pending.batch, pending.attempt) == (self._batch, self._attempt) else None

    def _publish(self, results: Sequence[Written]) -> None:
        pending = self._pending()
        if pending is None:
            raise LakeError(f"{self._lake}: batch {self._batch} belongs to another ingest by now; nothing was committed")
        files: dict[str, list[File]] = {table.name: [] for table in (*SILVER, *INDEX_TABLES)}
        for result in results:
            for name, file in result.files.items():
                files[name].append(file)
        ledger_entries = merge((part for result in results for part in unpacked(result.ledger)), self._batch)
        balance(pending.sources, ledger_entries, pending.begins())
        parts = (part for result in results for part in decode_unrecognised.unpacked(result.unrecognised))
        unknown = decode_unrecognised.merge(parts, self._batch)
        files[unrecognised.TABLE.name] = whole(self._lake, unrecognised.TABLE, self._batch, unknown.to_batches())
        files[ledger.TABLE.name] = whole(self._lake, ledger.TABLE, self._batch, [ledger_entries])
        publish(self._lake, journal.prepare(self._lake, files))

    def abort(self, results: Sequence[Written]) -> None:
        """On the driver, after a failure: remove the files of these tasks.

        Files that are published, or will be, stay.
        """
        with journal.fenced(self._lake):
            pending = self._pending()
            if pending is not None and pending.files is not None:
                return
            referenced = {table.name: set(delta.files(self._lake, table)) for table in (*SILVER, *INDEX_TABLES)}
            for result in results:
                for name, file in result.files.items():
                    path = self._lake / name / file.path
                    if path not in referenced[name]:
                        path.unlink(missing_ok=True)


class _Decode:
    """In a task: decode all blocks and packet batches of a partition, and yield one row with what was written."""

    def __init__(self, writer: TableWriter, *, is_small: bool) -> None:
        self._writer, self._is_small = writer, is_small

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_before_task()
        use_plain(self._is_small)
        first = next(batches, None)
        if first is not None:
            yield _row(self._writer.write(chain((first,), batches)))


class _Read:
    """In a task: yield the blocks and packet batches of its group of read tasks."""

    def __init__(self, reader: BlockReader, groups: list[TaskGroup]) -> None:
        self._reader, self._groups = reader, groups

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_before_task()
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from self._reader.read(self._groups[number])


class _ReadAndDecode(_Read):
    """In a task: read its group of read tasks, decode it in place, and yield one row with what was written."""

    def __init__(self, reader: BlockReader, groups: list[TaskGroup], writer: TableWriter, *, is_small: bool) -> None:
        super().__init__(reader, groups)
        self._writer, self._is_small = writer, is_small

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        use_plain(self._is_small)
        yield _row(self._writer.write(super().__call__(batches)))


def _row(written: Written) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(written)], pa.binary())], names=["result"])


def run(spark: SparkSession, plan: Plan, ports: dict[int, str], notes: Path, writer: TableWriter, plain: bool = False) -> list[Written]:
    """Read and decode a plan in Spark tasks; return what each task wrote.

    A task may run more than once, and writes other files then: only those of the returned results count. Tasks write notes of their
    failures into the folder `notes`. With `plain`, tasks use no Numba.
    """
    collected = results(spark, plan, ports, notes, writer, plain=plain).collect()
    return [msgspec.msgpack.decode(row["result"], type=Written) for row in collected]


def results(spark: SparkSession, plan: Plan, ports: dict[int, str], notes: Path, writer: TableWriter, *, plain: bool = False) -> DataFrame:
    """Return the DataFrame whose tasks read and decode a plan; each has a row with its result.

    Keys travel in the pickled functions: plans and logs do not show them.
    """
    frames: list[DataFrame] = []
    is_small = plain or sum(task.size for task in (*plan.direct, *plan.partitioned)) < PLAIN_BYTES
    if plan.direct:
        groups = group_tasks(plan.direct)
        reader = BlockReader((), ports, 0, notes, plain=plain)
        frames.append(_numbers(spark, groups).mapInArrow(_ReadAndDecode(reader, groups, writer, is_small=is_small), _RESULT))
    if plan.partitioned:
        groups = group_tasks(plan.partitioned)
        reader = BlockReader((), ports, plan.buckets, notes, plain=plain)
        transfers = _numbers(spark, groups).mapInArrow(_Read(reader, groups), from_arrow_schema(NULLABLE))
        shuffled = transfers.repartitionById(plan.buckets, sql.col("bucket")).sortWithinPartitions("rank", "place")
        frames.append(shuffled.mapInArrow(_Decode(writer, is_small=is_small), _RESULT))
    return reduce(lambda left, right: left.union(right), frames)


def _numbers(spark: SparkSession, groups: list[TaskGroup]) -> DataFrame:
    """One row, and one Spark task, for each group."""
    return spark.range(0, len(groups), 1, len(groups))
