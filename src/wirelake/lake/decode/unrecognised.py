"""UnrecognisedTraffic: sums traffic of no known protocol by host and port.

It becomes the table `unrecognised`. Tasks sum what blocks account for, and the driver merges their sums, as with the ledger
(`accounting.py`). Both are bounded: beyond `MAX_ROWS` the rest is one row of each source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.capture.blocks.accounting import REST
from wirelake.capture.blocks.block import Account, Unrecognised
from wirelake.capture.containers.records import NO_TIME
from wirelake.lake.decode.accounting import Where
from wirelake.lake.tables.unrecognised import TABLE

__all__ = ["MAX_ROWS", "UnrecognisedTraffic", "bytes_in", "merge", "packed", "unpacked"]

MAX_ROWS: Final = 10_000
"""Rows of one task, and of one batch: those with most bytes are kept.

The rest is one more row of each source.
"""

_KEYS: Final = tuple(name for name in TABLE.grain if name != "batch")
_NAMES: Final = ("transport", "client_address", "server_address", "server_port")
_SUMS: Final = [("source", "max"), ("packets", "sum"), ("bytes", "sum"), ("first_seen", "min"), ("last_seen", "max")]


class _Sum(msgspec.Struct):
    source: str
    items: int = 0
    bytes: int = 0
    first: int = NO_TIME
    last: int = NO_TIME


class UnrecognisedTraffic:
    """The sums of one task."""

    def __init__(self) -> None:
        self._sums: dict[tuple[bytes, Unrecognised], _Sum] = {}

    def add(self, where: Where, account: Account) -> None:
        """Add an account of unrecognised bytes."""
        if account.unrecognised is None:
            return
        source, _ = where.source(account.at)
        key = (source.id, account.unrecognised)
        if key not in self._sums and len(self._sums) >= MAX_ROWS:
            key = (source.id, REST)
        total = self._sums.setdefault(key, _Sum(source.path))
        total.items += account.items
        total.bytes += account.bytes
        if account.first != NO_TIME and (total.first == NO_TIME or account.first < total.first):
            total.first = account.first
        total.last = max(total.last, account.last)

    def close(self) -> pa.RecordBatch:
        """Return all rows, and start again."""
        rows = [_row(source, unrecognised, one) for (source, unrecognised), one in self._sums.items()]
        self._sums = {}
        return pa.RecordBatch.from_pylist(rows, schema=TABLE.schema)


def _row(source: bytes, unrecognised: Unrecognised, total: _Sum) -> dict[str, object]:
    names = (unrecognised.transport, unrecognised.client, unrecognised.server, unrecognised.port)
    return {
        "source": total.source,
        "source_id": source,
        **dict(zip(_NAMES, (None,) * 4 if unrecognised == REST else names, strict=True)),
        "reason": unrecognised.why,
        "packets": total.items,
        "bytes": total.bytes,
        "first_seen": None if total.first == NO_TIME else total.first,
        "last_seen": None if total.last == NO_TIME else total.last,
    }


def merge(batches: Iterable[pa.RecordBatch], number: int | None = None, most: int = MAX_ROWS) -> pa.Table:
    """Merge the sums of many tasks into those of one batch."""
    rows = _summed(pa.Table.from_batches(batches, schema=TABLE.schema))
    if len(rows) > most:
        rows = rows.sort_by([("bytes", "descending"), *((name, "ascending") for name in _KEYS)])
        left = rows.slice(most)
        for name in _NAMES:
            left = left.set_column(left.column_names.index(name), name, pa.nulls(len(left), TABLE.schema.field(name).type))
        left = left.set_column(left.column_names.index("reason"), "reason", pa.array([REST.why] * len(left), pa.string()))
        rows = _summed(pa.concat_tables([rows.slice(0, most), left]))
    rows = rows.set_column(rows.column_names.index("batch"), "batch", pa.array([number] * len(rows), pa.int64()))
    return rows.cast(TABLE.schema).sort_by([("source", "ascending"), ("bytes", "descending")])


def _summed(rows: pa.Table) -> pa.Table:
    """One row for each key."""
    found = rows.group_by(list(_KEYS)).aggregate(_SUMS)
    found = found.rename_columns([name.removesuffix("_sum").removesuffix("_max").removesuffix("_min") for name in found.column_names])
    return found.append_column("batch", pa.nulls(len(found), pa.int64())).select(TABLE.schema.names)


def packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Rows of a task as bytes, to be sent to the driver."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema) as stream:
        for one in batches:
            stream.write_batch(one)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: bytes) -> list[pa.RecordBatch]:
    """Rows from their bytes; see `packed`."""
    return list(pa.ipc.open_stream(content)) if content else []


def bytes_in(paths: Iterable[Path]) -> int:
    """Unrecognised bytes in files of the table."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - decoding does not need it

    return sum(pc.sum(pq.read_table(path, columns=["bytes"])["bytes"]).as_py() or 0 for path in paths)
