"""The Python Data Source `wirelake.tables`: blocks in, tables out. Decoding happens in the task that writes.

Rows of messages never cross into the virtual machine: a task turns blocks into Parquet files and tells Spark their names. When all
tasks are done, `commit` on the driver checks that the ledger adds up and publishes every table, the ledger last.

It refuses to know what blocks mean (`decode.py` does) and what happens after a crash (`journal.py` does).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from wirelake.capture.blocks import Source, from_batch
from wirelake.errors import LakeError
from wirelake.lake import delta, journal
from wirelake.lake.catalog import SILVER
from wirelake.lake.decode import DecodeOptions, Decoder
from wirelake.lake.delta import File
from wirelake.lake.parquet import Sheets
from wirelake.lake.recovery import publish
from wirelake.protocols.event_mesh.trust import TrustStore

__all__ = ["FORMAT", "TableSink", "TableWriter", "Written", "sink_with"]

FORMAT: Final = "wirelake.tables"


@dataclass
class Written(WriterCommitMessage):
    """What one task made."""

    files: dict[str, File]
    """Table name -> its file."""
    accounted: dict[bytes, int] = field(default_factory=dict)
    """Source id -> bytes that this task's ledger rows account for."""


class TableWriter(DataSourceArrowWriter):
    """Decodes and writes in tasks, publishes on the driver."""

    def __init__(self, lake: Path, batch: int, options: DecodeOptions, keys: TrustStore | None = None) -> None:
        self._lake = lake
        self._batch = batch
        self._options = options
        self._keys = keys

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task: blocks to files that no table counts yet."""
        decoder = Decoder(self._options, self._keys)
        sheets = Sheets(self._lake, SILVER, self._batch)
        accounted: dict[bytes, int] = {}
        try:
            for batch in iterator:
                for block in from_batch(batch):
                    decoded = decoder.feed(block)
                    _account(accounted, decoded.get("ledger", ()))
                    sheets.add(decoded)
            decoded = decoder.finish()
            _account(accounted, decoded.get("ledger", ()))
            sheets.add(decoded)
            return Written(sheets.close(), accounted)
        except BaseException:
            sheets.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done: check the books, then publish."""
        written = [message for message in messages if isinstance(message, Written)]
        begun = journal.pending(self._lake)
        if begun is None or begun.batch != self._batch:
            raise LakeError(f"{self._lake}: batch {self._batch} is not the one under way")
        _balance(begun.sources, written)
        files: dict[str, list[File]] = {table.name: [] for table in SILVER}
        for message in written:
            for name, file in message.files.items():
                files[name].append(file)
        publish(self._lake, journal.prepare(self._lake, files))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed, or the books did not balance: leave no file behind, unless the batch was already being published."""
        begun = journal.pending(self._lake)
        if begun is not None and begun.batch == self._batch and begun.files is not None:
            return
        folders = {table.name: delta.folder(self._lake, table) for table in SILVER}
        for message in messages:
            if isinstance(message, Written):
                for name, file in message.files.items():
                    (folders[name] / file.path).unlink(missing_ok=True)


def _account(accounted: dict[bytes, int], ledger: Sequence[pa.RecordBatch]) -> None:
    """Add up what ledger rows say, by source."""
    for batch in ledger:
        sources, counts = batch.column("source_id").to_pylist(), batch.column("bytes").to_pylist()
        for source, count in zip(sources, counts, strict=True):
            accounted[source] = accounted.get(source, 0) + count


def _balance(sources: Sequence[Source], written: Sequence[Written]) -> None:
    """The ledger of every source adds up to its size, or nothing is published."""
    accounted: dict[bytes, int] = {}
    for message in written:
        for source_id, count in message.accounted.items():
            accounted[source_id] = accounted.get(source_id, 0) + count
    for source in sources:
        found = accounted.pop(source.id, 0)
        if found != source.size:
            raise LakeError(f"{source.path}: the ledger accounts for {found} of {source.size} bytes; nothing was published")
    if accounted:
        strange = ", ".join(source_id.hex() for source_id in sorted(accounted))
        raise LakeError(f"the ledger speaks of sources that were not read ({strange}); nothing was published")


class TableSink(DataSource):
    """`df.write.format("wirelake.tables")`; options `lake` (folder), `batch` (number) and `decode` (`DecodeOptions` as JSON)."""

    keys: TrustStore | None = None

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - there is but one schema
        """A writer for one batch of one lake."""
        if overwrite:
            raise LakeError("silver tables only grow: write with mode append")
        options = msgspec.json.decode(self.options["decode"], type=DecodeOptions)
        return TableWriter(Path(self.options["lake"]), int(self.options["batch"]), options, self.keys)


def sink_with(trusted: TrustStore | None) -> type[TableSink]:
    """The sink for an ingest with these keys. They travel inside the class: options are shown in plans and logs, and secrets are not."""

    class KeyedSink(TableSink):
        keys = trusted

    return KeyedSink
