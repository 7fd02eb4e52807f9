"""One micro-batch of a followed folder: decode it, and commit all of it together.

Rows, ledger, offset and decoder state are one commit. Each bucket has a saved decoder state. The task loads it, continues, and writes a new
file, which becomes current when the micro-batch commits. A micro-batch that fails anywhere leaves the lake as it was and is read again:
rows are written exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from wirelake import protocols
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import renamed
from wirelake.capture.blocks.read_split import ReadTask
from wirelake.capture.blocks.transfer import from_batch
from wirelake.capture.files.growing import Offset, micro_batches
from wirelake.errors import LakeError
from wirelake.lake.decode import unrecognised as decode_unrecognised
from wirelake.lake.decode.accounting import merge, packed, rows, unpacked, weigh
from wirelake.lake.decode.decoder import Batches, DecodeOptions, Decoder
from wirelake.lake.decode.pipeline import decode
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.jobs.task_files import TaskFiles
from wirelake.lake.session.errors import coded
from wirelake.lake.session.memory import freeze_before_task
from wirelake.lake.sources import failures
from wirelake.lake.store import journal, state_file
from wirelake.lake.store.commit import publish, recover
from wirelake.lake.store.delta import File
from wirelake.lake.store.journal import Following
from wirelake.lake.store.parquet import whole
from wirelake.lake.tables import ledger, messages, unrecognised
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.index import INDEX_TABLES
from wirelake.protocols.kernel import use_compiled

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["MicroBatch", "read_micro_batch"]

_RESULT: Final = pa.schema([pa.field("result", pa.binary())])


class BucketResult(msgspec.Struct):
    """What one task wrote for its bucket."""

    bucket: int
    files: dict[str, File]
    decoder_state: str
    """The file with the new decoder state."""
    ledger_entries: bytes
    newest: int
    """Time of the last message, microseconds since 1970; 0 if there was none."""
    unrecognised: bytes = b""
    """Traffic of no known protocol."""


class MicroBatch(msgspec.Struct, frozen=True):
    """Figures of a committed micro-batch."""

    batch: int
    sources: int
    bytes: int
    messages: int
    quarantined: int
    newest: int
    """Time of its last message, microseconds since 1970; 0 if it has none."""
    is_last: bool
    """Whether all files were complete, so that nothing waits for more bytes."""
    unrecognised: int = 0
    """Bytes that no protocol recognised."""


class _Task:
    """Decodes one bucket. Keys travel in this pickled object, never in options or stored state."""

    def __init__(
        self,
        lake: Path,
        batch: int,
        options: DecodeOptions,
        ports: dict[int, str],
        keys: TrustStore | None,
        keyring: Keyring | None,
        memories: dict[str, str],
        names: dict[bytes, str],
        is_last: bool,
    ) -> None:
        """`names` are the paths of all sources at the end of the micro-batch, by id."""
        self._lake, self._batch, self._options, self._ports = lake, batch, options, ports
        self._keys, self._keyring, self._memories, self._names, self._is_last = keys, keyring, memories, names, is_last

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: decode all batches of a bucket, and yield one row with a `BucketResult`."""
        freeze_before_task()
        first = next(batches, None)
        if first is None:
            return
        use_compiled()
        context = TaskContext.get()
        bucket = int(first.column("bucket")[0].as_py())
        assert context is None or context.partitionId() == bucket  # noqa: S101 - else two tasks would have the same state
        with coded():
            result = self._decode(bucket, first, batches)
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(result)], pa.binary())], schema=_RESULT)

    def _decode(self, bucket: int, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> BucketResult:
        assembly, decoder_state = self._load_state(bucket)
        spare = partial(Decoder, self._options, self._keys, None, self._keyring, sink=lambda _: None)
        sheets = TaskFiles(self._lake, self._batch)
        newest = 0
        ledger_entries: list[pa.RecordBatch] = []
        unknown: list[pa.RecordBatch] = []

        def add(rows: Batches) -> None:
            nonlocal newest
            ledger_entries.extend(rows.pop(ledger.TABLE.name, []))
            unknown.extend(rows.pop(unrecognised.TABLE.name, []))
            times = (pc.max(batch.column("ts")).cast(pa.int64()).as_py() or 0 for batch in rows.get(messages.TABLE.name, []))
            newest = max([newest, *times])
            sheets.add(rows)

        decoder = Decoder(self._options, self._keys, decoder_state, self._keyring, sink=add)
        try:
            # An item without a path only makes sure that the bucket has a task.
            items = (item for batch in chain((first,), batches) for item in from_batch(batch) if item.source.path)
            for decoded in decode(items, decoder, assembly, is_end=self._is_last, guard=partial(failures.guard, None), spare=spare):
                add(decoded.rows)
            if self._is_last:
                empty = Assembly(self._ports, protocols.sniff, protocols.dialect)
                assembly, decoder = empty, Decoder(self._options, decoder_state=decoder.decoder_state)
            decoder_state_file = self._save_state(bucket, assembly, decoder.decoder_state)
            return BucketResult(
                bucket, sheets.close(), decoder_state_file, packed(ledger_entries), newest, decode_unrecognised.packed(unknown)
            )
        except BaseException:
            sheets.discard()
            raise

    def _load_state(self, bucket: int) -> tuple[Assembly, DecoderState]:
        name = self._memories.get(str(bucket))
        if name is None:
            return Assembly(self._ports, protocols.sniff, protocols.dialect), DecoderState()
        assembly, decoder_state = state_file.restored(self._lake, name, self._ports, protocols.sniff, protocols.dialect)
        assembly.rename(self._names)
        decoder_state.rename(self._names)
        return assembly, decoder_state

    def _save_state(self, bucket: int, assembly: Assembly, decoder_state: DecoderState) -> str:
        return state_file.write(self._lake, f"{self._batch:08d}-{bucket}", assembly.take(), decoder_state.take())


def read_micro_batch(
    transfers: DataFrame,
    lake: Path,
    batch: int,
    before: Following,
    end: Offset,
    options: DecodeOptions,
    ports: dict[int, str],
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
) -> tuple[MicroBatch, Following] | None:
    """Decode and commit the bytes between the last committed offset and `end`; None if there are none.

    `transfers` has the blocks and packet batches of these bytes.
    """
    read_tasks = micro_batches(before.offset, end)
    is_last = end.settled > before.offset.settled
    if not read_tasks and not is_last:
        return None
    sources = {read_task.source.id: read_task.source for read_task in read_tasks}
    journal.begin(lake, batch, list(sources.values()), {read_task.source.id: read_task.spans[-1].at for read_task in read_tasks})
    try:
        names = {position.id: position.path for position in end.files}
        task = _Task(lake, batch, options, ports, keys, keyring, before.memories, names, is_last)
        partitioned = transfers.repartitionById(before.buckets, transfers["bucket"]).sortWithinPartitions("rank", "place")
        collected = partitioned.mapInArrow(task, "result binary").collect()
        results = [msgspec.msgpack.decode(row["result"], type=BucketResult) for row in collected]
        unknown = decode_unrecognised.merge(
            (part for result in results for part in decode_unrecognised.unpacked(result.unrecognised)), batch
        )
        after = _publish(lake, batch, before, end, read_tasks, results, unknown)
    except BaseException:
        recover(lake)
        raise
    counts = {name: sum(result.files[name].rows for result in results if name in result.files) for name in ("messages", "quarantine")}
    size = sum(read_task.spans[-1].length for read_task in read_tasks)
    newest = max((result.newest for result in results), default=0)
    unrecognised_bytes = sum(unknown["bytes"].to_pylist())
    return MicroBatch(batch, len(sources), size, counts["messages"], counts["quarantine"], newest, is_last, unrecognised_bytes), after


def _publish(
    lake: Path, batch: int, before: Following, end: Offset, read_tasks: list[ReadTask], results: Sequence[BucketResult], unknown: pa.Table
) -> Following:
    """Check the ledger, then commit everything together."""
    ledger_entries = merge((part for result in results for part in unpacked(result.ledger_entries)), batch)
    names = {position.id: position.path for position in end.files}
    waited = [msgspec.structs.replace(one, source=renamed(one.source, names)) for one in before.waiting]
    entries, waiting = weigh(read_tasks, ledger_entries, waited)
    if waiting and end.settled > before.offset.settled:
        first = waiting[0]
        raise LakeError(
            f"internal error: {first.source.path}: {first.bytes} bytes at byte {first.offset} were read and never decoded. "
            "Nothing was committed; please report this"
        )
    files: dict[str, list[File]] = {table.name: [] for table in (*SILVER, *INDEX_TABLES)}
    for result in results:
        for name, file in result.files.items():
            files[name].append(file)
    files[unrecognised.TABLE.name] = whole(lake, unrecognised.TABLE, batch, unknown.to_batches())
    files[ledger.TABLE.name] = whole(lake, ledger.TABLE, batch, [merge([ledger_entries, rows(entries)], batch)])
    memories = before.memories | {str(result.bucket): result.decoder_state for result in results}
    after = Following(end, before.buckets, memories, waiting)
    publish(lake, journal.prepare(lake, files, after))
    journal.done(lake)
    return after
