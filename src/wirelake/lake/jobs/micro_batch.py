"""One micro-batch of a followed folder: decode it, and commit rows, ledger, offset and decoder state together.

Each bucket has a saved decoder state. The task loads it, continues, and writes a new file, which becomes current when the micro-batch
commits. A micro-batch that fails anywhere leaves the lake as it was and is read again: rows are written exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from wirelake import protocols
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.capture.blocks.read_split import ReadTask
from wirelake.capture.blocks.transfer import from_batch
from wirelake.capture.files.growing import Offset, micro_batches
from wirelake.errors import LakeError
from wirelake.lake.decode import unrecognised as decode_unrecognised
from wirelake.lake.decode.accounting import merge, rows, weigh
from wirelake.lake.decode.decoder import Batches, DecodeOptions, Decoder
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.sources import failures
from wirelake.lake.store import journal, state_file
from wirelake.lake.store.commit import publish, recover
from wirelake.lake.store.delta import File
from wirelake.lake.store.journal import Following
from wirelake.lake.store.parquet import Sheets, whole
from wirelake.lake.tables import ledger, messages, unrecognised
from wirelake.lake.tables.catalog import SILVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["MicroBatch", "read_micro_batch"]

_TOLD: Final = pa.schema([pa.field("told", pa.binary())])


class Done(msgspec.Struct):
    """What one task made of its bucket."""

    bucket: int
    files: dict[str, File]
    decoder_state: str
    """The file its memory is in."""
    ledger_entries: bytes
    newest: int
    """When the last message was seen, microseconds since 1970; 0 if there was none."""
    unrecognised: bytes = b""
    """What nobody recognised."""


class MicroBatch(msgspec.Struct, frozen=True):
    """What a portion was."""

    batch: int
    sources: int
    bytes: int
    messages: int
    quarantined: int
    newest: int
    """When its last message was seen, microseconds since 1970; 0 if it has none."""
    settled: bool
    unrecognised: int = 0
    """Bytes that no protocol recognised."""


class _Task:
    """Decodes one bucket of a portion. Keys travel in here, inside the code that is sent: never in options, nor in memories."""

    def __init__(
        self,
        lake: Path,
        batch: int,
        options: DecodeOptions,
        ports: dict[int, str],
        keys: TrustStore | None,
        keyring: Keyring | None,
        memories: dict[str, str],
        settles: bool,
    ) -> None:
        self._lake, self._batch, self._options, self._ports = lake, batch, options, ports
        self._keys, self._keyring, self._memories, self._settles = keys, keyring, memories, settles

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task: it tells what it made in one row."""
        from pyspark import TaskContext  # noqa: PLC0415 - only Spark work pays for importing Spark

        from wirelake.protocols.kernel import use_compiled  # noqa: PLC0415

        first = next(batches, None)
        if first is None:
            return
        use_compiled()
        context = TaskContext.get()
        bucket = int(first.column("bucket")[0].as_py())
        assert context is None or context.partitionId() == bucket  # noqa: S101 - else two tasks would have the same memory
        told = self._decode(bucket, first, batches)
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(told)], pa.binary())], schema=_TOLD)

    def _decode(self, bucket: int, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Done:
        assembly, decoder_state = self._put_back(bucket)
        fresh_decoder = partial(Decoder, self._options, self._keys, None, self._keyring, sink=lambda _: None)
        sheets = Sheets(self._lake, SILVER, self._batch)
        newest, unknown = 0, []

        def add(decoded: Batches) -> list[pa.RecordBatch]:
            nonlocal newest
            ledger_entries = decoded.pop(ledger.TABLE.name, [])
            unknown.extend(decoded.pop(unrecognised.TABLE.name, []))
            newest = max(
                [newest, *(pc.max(one.column("ts")).cast(pa.int64()).as_py() or 0 for one in decoded.get(messages.TABLE.name, []))]
            )
            sheets.add(decoded)
            return ledger_entries

        decoder = Decoder(self._options, self._keys, decoder_state, self._keyring, sink=add)
        try:
            for batch in (first, *batches):
                for item in from_batch(batch):
                    if not item.source.path:  # it only says that there is a bucket
                        continue
                    for part in failures.decode(decoder, self._blocks(assembly, item), item.source, fresh_decoder, None):
                        add(part)
            for part in failures.decode(decoder, assembly.finish() if self._settles else assembly.rest(), None, fresh_decoder, None):
                add(part)
            ledger_entries = add(failures.finish(decoder, None) if self._settles else decoder.rest())
            if self._settles:
                fresh = Assembly(self._ports, protocols.sniff, protocols.dialect)
                assembly, decoder = fresh, Decoder(self._options, decoder_state=decoder.decoder_state)
            decoder_state_file = self._take_out(bucket, assembly, decoder.decoder_state)
            return Done(bucket, sheets.close(), decoder_state_file, _packed(ledger_entries), newest, decode_unrecognised.packed(unknown))
        except BaseException:
            sheets.discard()
            raise

    @staticmethod
    def _blocks(assembly: Assembly, item: PacketBatch | Block) -> Iterable[Block]:
        return assembly.feed(item) if isinstance(item, PacketBatch) else [item]

    def _put_back(self, bucket: int) -> tuple[Assembly, DecoderState]:
        name = self._memories.get(str(bucket))
        if name is None:
            return Assembly(self._ports, protocols.sniff, protocols.dialect), DecoderState()
        return state_file.restored(self._lake, name, self._ports, protocols.sniff, protocols.dialect)

    def _take_out(self, bucket: int, assembly: Assembly, decoder_state: DecoderState) -> str:
        return state_file.write(self._lake, f"{self._batch:08d}-{bucket}", assembly.take(), decoder_state.take())


def _packed(ledger_entries: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ledger.TABLE.schema) as stream:
        for one in ledger_entries:
            stream.write_batch(one)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def read_micro_batch(
    shipments: DataFrame,
    lake: Path,
    batch: int,
    before: Following,
    end: Offset,
    options: DecodeOptions,
    ports: dict[int, str],
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
) -> tuple[MicroBatch, Following] | None:
    """Decode what lies between where following is and an offset, and publish it; None if there is nothing between them."""
    works = micro_batches(before.offset, end)
    settles = end.settled > before.offset.settled
    if not works and not settles:
        return None
    sources = {work.source.id: work.source for work in works}
    journal.begin(lake, batch, list(sources.values()), {work.source.id: work.spans[-1].at for work in works})
    try:
        task = _Task(lake, batch, options, ports, keys, keyring, before.memories, settles)
        partitioned = shipments.repartitionById(before.buckets, shipments["bucket"]).sortWithinPartitions("rank", "place")
        told = [msgspec.msgpack.decode(row["told"], type=Done) for row in partitioned.mapInArrow(task, "told binary").collect()]
        unknown = decode_unrecognised.merge((part for one in told for part in decode_unrecognised.unpacked(one.unrecognised)), batch)
        after = _publish(lake, batch, before, end, works, told, unknown)
    except BaseException:
        recover(lake)
        raise
    counts = {name: sum(one.files[name].rows for one in told if name in one.files) for name in ("messages", "quarantine")}
    size = sum(work.spans[-1].length for work in works)
    newest = max((one.newest for one in told), default=0)
    lost = sum(unknown["bytes"].to_pylist())
    return MicroBatch(batch, len(sources), size, counts["messages"], counts["quarantine"], newest, settles, lost), after


def _publish(
    lake: Path, batch: int, before: Following, end: Offset, works: list[ReadTask], told: Sequence[Done], unknown: pa.Table
) -> Following:
    """Check the books, then publish everything together."""
    ledger_entries = merge((part for one in told for part in pa.ipc.open_stream(one.ledger_entries)), batch)
    entries, waiting = weigh(works, ledger_entries, before.waiting)
    if waiting and end.settled > before.offset.settled:
        raise LakeError(f"{waiting[0].source.path}: {waiting[0].bytes} bytes at byte {waiting[0].offset} were read and never decoded")
    files: dict[str, list[File]] = {table.name: [] for table in SILVER}
    for one in told:
        for name, file in one.files.items():
            files[name].append(file)
    files[unrecognised.TABLE.name] = whole(lake, unrecognised.TABLE, batch, unknown.to_batches())
    files[ledger.TABLE.name] = whole(lake, ledger.TABLE, batch, [merge([ledger_entries, rows(entries)], batch)])
    memories = before.memories | {str(one.bucket): one.decoder_state for one in told}
    after = Following(end, before.buckets, memories, waiting)
    publish(lake, journal.prepare(lake, files, after))
    journal.done(lake)
    return after
