"""The Python Data Source `wirelake.tables`: blocks and parcels in, tables out. Decoding happens in the task that writes.

Rows of messages never cross into the virtual machine: a task turns blocks into Parquet files and tells Spark their names. When all
tasks are done, `commit` on the driver brings their books together to one ledger, checks that it adds up, and publishes every table, the
ledger last.

It refuses to know what blocks mean (`decode.py` does) and what happens after a crash (`journal.py` does).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from wirelake import protocols
from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.capture.blocks.transfer import from_batch
from wirelake.errors import LakeError
from wirelake.lake.decode import unrecognised as decode_unrecognised
from wirelake.lake.decode.accounting import balance, merge
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.sources import failures
from wirelake.lake.store import delta, journal
from wirelake.lake.store.commit import publish
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheets, whole
from wirelake.lake.tables import ledger, unrecognised
from wirelake.lake.tables.catalog import SILVER
from wirelake.protocols.event_mesh.security.trust import TrustStore
from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["FORMAT", "TableSink", "TableWriter", "Written", "sink_with"]

FORMAT: Final = "wirelake.tables"


@dataclass
class Written(WriterCommitMessage):
    """What one task made."""

    files: dict[str, File]
    """Table name -> its file."""
    ledger: list[pa.RecordBatch] = field(default_factory=list)
    """What this task accounts for, of sources that others may have read parts of."""
    unrecognised: list[pa.RecordBatch] = field(default_factory=list)
    """What nobody recognised, of connections whose hosts other tasks may have seen, too."""


class TableWriter(DataSourceArrowWriter):
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
        """One task: blocks to files that no table counts yet."""
        fresh = partial(Decoder, self._options, self._keys, keyring=self._keyring, sink=lambda _: None)
        failed = failures.folder(self._lake, self._attempt)
        sheets = Sheets(self._lake, SILVER, self._batch)
        decoder = Decoder(self._options, self._keys, keyring=self._keyring, sink=sheets.add)
        assembly = Assembly(self._ports, protocols.sniff, protocols.dialect)
        try:
            for batch in iterator:
                for item in from_batch(batch):
                    blocks = assembly.feed(item) if isinstance(item, PacketBatch) else [item]
                    for rows in failures.decode(decoder, blocks, item.source, fresh, failed):
                        sheets.add(rows)
            for rows in failures.decode(decoder, assembly.finish(), None, fresh, failed):
                sheets.add(rows)
            decoded = failures.finish(decoder, failed)
            ledger_entries, unknown = decoded.pop(ledger.TABLE.name), decoded.pop(unrecognised.TABLE.name)
            sheets.add(decoded)
            return Written(sheets.close(), ledger_entries, unknown)
        except BaseException:
            sheets.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done: check the books, then publish."""
        with journal.fenced(self._lake):
            self._publish([message for message in messages if isinstance(message, Written)])

    def _pending(self) -> journal.Pending | None:
        """The batch under way, if it is ours: an ingest may have died since, and another one begun."""
        begun = journal.pending(self._lake)
        return begun if begun is not None and (begun.batch, begun.attempt) == (self._batch, self._attempt) else None

    def _publish(self, written: list[Written]) -> None:
        begun = self._pending()
        if begun is None:
            raise LakeError(f"{self._lake}: batch {self._batch} is not the one under way")
        files: dict[str, list[File]] = {table.name: [] for table in SILVER}
        for message in written:
            for name, file in message.files.items():
                files[name].append(file)
        ledger_entries = merge((batch for message in written for batch in message.ledger), self._batch)
        balance(begun.sources, ledger_entries, begun.begins())
        unknown = decode_unrecognised.merge((batch for message in written for batch in message.unrecognised), self._batch)
        files[unrecognised.TABLE.name] = whole(self._lake, unrecognised.TABLE, self._batch, unknown.to_batches())
        files[ledger.TABLE.name] = whole(self._lake, ledger.TABLE, self._batch, [ledger_entries])
        publish(self._lake, journal.prepare(self._lake, files))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed, or the books did not balance: leave no file behind, but for those that are published or will be."""
        with journal.fenced(self._lake):
            begun = self._pending()
            if begun is not None and begun.files is not None:
                return
            counted = {table.name: set(delta.files(self._lake, table)) for table in SILVER}
            for message in messages:
                if isinstance(message, Written):
                    for name, file in message.files.items():
                        path = self._lake / name / file.path
                        if path not in counted[name]:
                            path.unlink(missing_ok=True)


class TableSink(DataSource):
    """`df.write.format("wirelake.tables")`; options `lake`, `batch` and its `attempt`, `decode` (`DecodeOptions`) and `ports` as JSON."""

    keys: TrustStore | None = None
    keyring: Keyring | None = None

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - there is but one schema
        """A writer for one batch of one lake."""
        if overwrite:
            raise LakeError("silver tables only grow: write with mode append")
        options = msgspec.json.decode(self.options["decode"], type=DecodeOptions)
        ports = msgspec.json.decode(self.options["ports"], type=dict[int, str])
        place, batch = Path(self.options["lake"]), int(self.options["batch"])
        return TableWriter(place, batch, options, self.keys, ports, self.options["attempt"], self.keyring)


def sink_with(trusted: TrustStore | None, opening: Keyring | None = None) -> type[TableSink]:
    """The sink for an ingest with these keys. They travel inside the class: options are shown in plans and logs, and secrets are not."""

    class KeyedSink(TableSink):
        keys = trusted
        keyring = opening

    return KeyedSink
