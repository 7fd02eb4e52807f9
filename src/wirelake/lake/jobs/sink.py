"""The Python Data Source `wirelake.tables`: writes blocks and packet batches as tables.

The task that writes also decodes.

Decoded rows never enter the JVM: a task writes Parquet files, and its commit message has their names. When all tasks are done, `commit` on
the driver merges their ledger entries, checks that they add up to the bytes of all sources, and publishes every table, the ledger last.
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
from wirelake.capture.blocks.transfer import from_batch
from wirelake.errors import LakeError
from wirelake.lake.decode import unrecognised as decode_unrecognised
from wirelake.lake.decode.accounting import balance, merge
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.pipeline import decode
from wirelake.lake.jobs.task_files import TaskFiles
from wirelake.lake.session.errors import coded
from wirelake.lake.sources import failures
from wirelake.lake.store import delta, journal
from wirelake.lake.store.commit import publish
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import whole
from wirelake.lake.tables import ledger, unrecognised
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.index import INDEX_TABLES
from wirelake.protocols.event_mesh.security.trust import TrustStore
from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["FORMAT", "TableSink", "TableWriter", "Written", "sink_with"]

FORMAT: Final = "wirelake.tables"


@dataclass
class Written(WriterCommitMessage):
    """Commit message of one task: the files that it wrote."""

    files: dict[str, File]
    """Table name -> its file."""
    ledger: list[pa.RecordBatch] = field(default_factory=list)
    """Ledger entries of this task. Other tasks may have entries of the same sources."""
    unrecognised: list[pa.RecordBatch] = field(default_factory=list)
    """Traffic of no known protocol. Other tasks may have seen the same hosts."""


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
                return Written(sheets.close(), ledger_entries, unknown)
        except BaseException:
            sheets.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, after all tasks: check the ledger, then publish in one transaction per table."""
        with coded(), journal.fenced(self._lake):
            self._publish([message for message in messages if isinstance(message, Written)])

    def _pending(self) -> journal.Pending | None:
        """The pending batch, if it is of this attempt: this ingest may have died, and another one begun."""
        pending = journal.pending(self._lake)
        return pending if pending is not None and (pending.batch, pending.attempt) == (self._batch, self._attempt) else None

    def _publish(self, written: list[Written]) -> None:
        pending = self._pending()
        if pending is None:
            raise LakeError(f"{self._lake}: batch {self._batch} belongs to another ingest by now; nothing was committed")
        files: dict[str, list[File]] = {table.name: [] for table in (*SILVER, *INDEX_TABLES)}
        for message in written:
            for name, file in message.files.items():
                files[name].append(file)
        ledger_entries = merge((batch for message in written for batch in message.ledger), self._batch)
        balance(pending.sources, ledger_entries, pending.begins())
        unknown = decode_unrecognised.merge((batch for message in written for batch in message.unrecognised), self._batch)
        files[unrecognised.TABLE.name] = whole(self._lake, unrecognised.TABLE, self._batch, unknown.to_batches())
        files[ledger.TABLE.name] = whole(self._lake, ledger.TABLE, self._batch, [ledger_entries])
        publish(self._lake, journal.prepare(self._lake, files))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, after a failure: remove the files of all tasks.

        Files that are published, or will be, stay.
        """
        with journal.fenced(self._lake):
            pending = self._pending()
            if pending is not None and pending.files is not None:
                return
            referenced = {table.name: set(delta.files(self._lake, table)) for table in (*SILVER, *INDEX_TABLES)}
            for message in messages:
                if isinstance(message, Written):
                    for name, file in message.files.items():
                        path = self._lake / name / file.path
                        if path not in referenced[name]:
                            path.unlink(missing_ok=True)


class TableSink(DataSource):
    """The data source `df.write.format("wirelake.tables")`: tasks decode blocks and write rows.

    Options are `lake`, `batch` and its `attempt`, and as JSON `decode` (`DecodeOptions`) and `ports`.
    """

    keys: TrustStore | None = None
    keyring: Keyring | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - there is but one schema
        """A writer for one batch of one lake."""
        if overwrite:
            raise LakeError("silver tables are append-only: write with mode append")
        options = msgspec.json.decode(self.options["decode"], type=DecodeOptions)
        ports = msgspec.json.decode(self.options["ports"], type=dict[int, str])
        place, batch = Path(self.options["lake"]), int(self.options["batch"])
        return TableWriter(place, batch, options, self.keys, ports, self.options["attempt"], self.keyring)


def sink_with(trusted: TrustStore | None, opening: Keyring | None = None) -> type[TableSink]:
    """A sink class that carries keys.

    Options would appear in plans and logs, so secrets travel in the pickled class.
    """

    class KeyedSink(TableSink):
        keys = trusted
        keyring = opening

    return KeyedSink
