"""Messages of views that are not primary, summed up by minute: `metrics` leaves them out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from wirelake.lake.store import delta
from wirelake.lake.tables import messages, quarantine
from wirelake.lake.tables.index import MINUTE_INDEX
from wirelake.lake.tables.schema import TIME, Table
from wirelake.lake.views import Views, apart

__all__ = ["UNCOUNTED", "uncounted_minutes"]

_MINUTE_US: Final = 60_000_000
_SUMS: Final = ("messages", "bytes", "errors", "quarantined")
_KEYS: Final = ("minute", "protocol", "subject")
UNCOUNTED: Final = [*_KEYS, *_SUMS]
"""Columns of sums that `metrics` subtracts: of messages of views that are not primary, and of unconfirmed ones."""
_COLUMNS: Final = {
    messages.TABLE.name: ["session_id", "connection_id", "observer", "ts", "protocol", "subject", "size", "status"],
    quarantine.TABLE.name: ["session_id", "connection_id", "observer", "ts", "protocol"],
}


def uncounted_minutes(
    lake: Path, index: pa.Table, known: Views, sessions: Collection[bytes], edges: tuple[int, int] | None = None
) -> pa.Table:
    """Sum up the messages and unreadable ranges of these sessions by minute: rows as the minute index has them.

    `index` has the connection index as `known` resolves it. Only what lies between `edges` is read, microseconds since 1970.
    """
    rows = index.filter(pc.is_in(index["session_id"], value_set=pa.array(list(sessions), pa.binary())))
    near = pads.field("ts").is_valid()
    if edges is not None:
        first, last = (pa.scalar(edge, pa.int64()).cast(TIME) for edge in edges)
        near &= (pads.field("ts") >= first) & (pads.field("ts") < last)
        # Of unreadable ranges only the first time is known.
        is_before = pc.fill_null(pc.less(rows["last_seen"], first), False)
        rows = rows.filter(pc.invert(pc.or_(is_before, pc.fill_null(pc.greater_equal(rows["first_seen"], last), False))))
    parts = [part for table in (messages.TABLE, quarantine.TABLE) for part in _parts(lake, table, rows, known, near)]
    empty = MINUTE_INDEX.schema.empty_table().select(UNCOUNTED)
    if not parts:
        return empty
    found = pa.concat_tables(parts).group_by(list(_KEYS), use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    return found.rename_columns({f"{name}_sum": name for name in _SUMS}).select(empty.column_names).cast(empty.schema)


def _parts(lake: Path, table: Table, index: pa.Table, known: Views, near: pads.Expression) -> Iterator[pa.Table]:
    """Sums of the rows of one table, file by file."""
    chosen = pc.unique(index["connection_id"])
    former = {other: connection_id for (connection_id, _), other in known.apart.items()}
    wanted = [*chosen.to_pylist(), *(former[one] for one in chosen.to_pylist() if one in former)]
    paths: dict[Path, None] = {}
    for batch, name in sorted(set(zip(index["batch"].to_pylist(), index["file"].to_pylist(), strict=True)), key=str):
        paths.update(dict.fromkeys(delta.locate(lake, table, batch, name)))
    if not paths:
        return
    is_wanted = pads.field("connection_id").isin(pa.array(wanted, pa.binary())) & near
    if table is quarantine.TABLE:
        is_wanted &= pads.field("protocol").is_valid()
    for batch in delta.dataset(lake, table, list(paths)).to_batches(columns=_COLUMNS[table.name], filter=is_wanted):
        rows = apart(pa.Table.from_batches([batch]), known.apart)
        rows = rows.filter(pc.is_in(rows["connection_id"].cast(pa.binary()), value_set=chosen))
        if rows.num_rows:
            yield _summed(rows, is_read=table is messages.TABLE)


def _summed(rows: pa.Table, *, is_read: bool) -> pa.Table:
    times = rows["ts"].cast(pa.int64()).to_numpy()
    nothing, one = pa.array(np.zeros(len(times), np.int64)), pa.array(np.ones(len(times), np.int64))
    is_error = pc.fill_null(pc.not_equal(rows["status"].cast(pa.string()), "ok"), False).cast(pa.int64()) if is_read else nothing
    return pa.table(
        {
            "minute": pa.array(times - times % _MINUTE_US).cast(TIME),
            "protocol": rows["protocol"].cast(pa.string()),
            "subject": rows["subject"].cast(pa.string()) if is_read else pa.nulls(len(times), pa.string()),
            "messages": one if is_read else nothing,
            "bytes": rows["size"] if is_read else nothing,
            "errors": is_error,
            "quarantined": nothing if is_read else one,
        }
    )
