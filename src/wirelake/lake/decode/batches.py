"""Gathering: collects decoded rows and passes them on in batches of bounded size.

Rows are passed on before they take more memory than a task may use. Rows of `quarantine` come one by one and are put into batches here: a
batch costs several kilobytes, however few rows it has.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, Final, Self

import pyarrow as pa

from wirelake.lake.decode import rows
from wirelake.lake.tables import quarantine

__all__ = ["SPOILT_ROWS", "Batches", "Gathering", "Overflow"]

Batches = dict[str, list[pa.RecordBatch]]
"""Table name -> its new rows."""

SPOILT_ROWS: Final = 8192
"""Rows of `quarantine` in a batch."""


class Gathering:
    """Collects rows of all tables; `sink` gets them as soon as they take more than `most` bytes."""

    def __init__(self, most: int, sink: Callable[[Batches], object] | None = None) -> None:
        self._most = most
        self._sink = sink
        self._batches: Batches = defaultdict(list)
        self._bytes = 0
        self._spoilt: list[tuple[object, ...]] = []
        self._raw = 0

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Rows of a table."""
        self._batches[table].append(batch)
        self._bytes += batch.nbytes
        if self._sink is not None and self._bytes > self._most:
            batches, self._batches, self._bytes = self._batches, defaultdict(list), 0
            self._sink(dict(batches))

    def spoil(self, row: tuple[object, ...], size: int) -> None:
        """One row of `quarantine`, with so many bytes in it; see `rows.quarantined`."""
        self._spoilt.append(row)
        self._raw += size
        if len(self._spoilt) >= SPOILT_ROWS or self._raw > self._most:
            self._put_spoilt()

    def give(self) -> Batches:
        """Return the rows that are left."""
        self._put_spoilt()
        batches, self._batches, self._bytes = self._batches, defaultdict(list), 0
        return dict(batches)

    def _put_spoilt(self) -> None:
        if self._spoilt:
            spoilt, self._spoilt, self._raw = self._spoilt, [], 0
            self.add(quarantine.TABLE.name, rows.quarantined(spoilt))


class Overflow:
    """A sink that keeps the rows of one table in order, in an unnamed file and not in memory."""

    def __init__(self, table: str, schema: pa.Schema) -> None:
        self._table = table
        self._schema = schema

    def __enter__(self) -> Self:
        self._file: IO[bytes] | None = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, batches: Batches) -> None:
        """Keep the rows of the table."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="wirelake-rows-")  # noqa: SIM115 - see __exit__
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        for batch in batches.get(self._table, []):
            self._writer.write_table(pa.Table.from_batches([batch]).cast(self._schema))

    def take(self, last: Batches) -> Iterator[pa.RecordBatch]:
        """Return the kept rows, then those of the table in `last`; keeps nothing afterwards."""
        if self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
            self._file.close()
            self._file = None
        yield from last.get(self._table, [])
