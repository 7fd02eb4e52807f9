"""Unconfirmed messages of a lake: recorded as sent, and not gone when their connection broke.

Rows of silver tables and sums of the index have them, because the end of a connection may be read in a later batch. So `metrics` and
`topology` take them out. Analyzers recognise them by the same rows of `connections`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from wirelake.lake.gold.fold.seen import connection_events, to_server, values
from wirelake.lake.gold.uncounted import UNCOUNTED
from wirelake.lake.store import delta
from wirelake.lake.store.skipping import Comparison, may_match
from wirelake.lake.tables import connections, messages
from wirelake.lake.tables.index import CONNECTION_INDEX, MINUTE_INDEX
from wirelake.lake.tables.schema import TIME, Table
from wirelake.protocols.connections import ENDS, UNCONFIRMED, ConnectionEvent, Unconfirmed

__all__ = ["connection_rows", "minute_rows", "unconfirmed_messages"]

_MINUTE_US: Final = 60_000_000
_COLUMNS: Final = (
    "protocol",
    "session_id",
    "connection_id",
    "observer",
    "message_id",
    "ts",
    "direction",
    "kind",
    "subject",
    "size",
    "length",
    "status",
)
"""Columns of `messages` that are needed."""
_SUMMED: Final = ("messages", "bytes", "errors", "keepalives")


def unconfirmed_messages(lake: Path) -> pa.Table:
    """Return the rows of `messages` that are unconfirmed, with what the index sums up."""
    lost, until = _breaks(lake)
    if not lost:
        return messages.TABLE.schema.empty_table().select(_COLUMNS)
    since = min(one.since for one in lost.values())
    first, last = (pa.scalar(at, pa.int64()).cast(TIME) for at in (since, until))
    is_near = (pads.field("ts") >= first) & (pads.field("ts") <= last) & pads.field("connection_id").isin(list(lost))
    near = Comparison("ts", ">=", first.as_py()), Comparison("ts", "<=", last.as_py())
    rows = delta.dataset(lake, messages.TABLE, _files(lake, messages.TABLE, *near)).to_table(columns=list(_COLUMNS), filter=is_near)
    rows = rows.sort_by([("ts", "ascending"), ("message_id", "ascending")])  # the order in which analyzers see them
    sent = zip(
        *(values(column) for column in (rows["connection_id"], rows["ts"], rows["length"], to_server(rows["direction"]))), strict=True
    )
    return rows.filter(pa.array([lost[name].has(ts, size, to_server=is_client) for name, ts, size, is_client in sent], pa.bool_()))


def minute_rows(lost: pa.Table) -> pa.Table:
    """Return the sums of these messages by minute, which `metrics` leaves out."""
    at = lost["ts"].cast(pa.int64())
    minute = pc.multiply(pc.divide(at, _MINUTE_US), _MINUTE_US).cast(TIME)
    rows = _sums(lost.append_column("minute", minute), ("minute", "protocol", "subject"))
    rows = rows.append_column("quarantined", pa.array([0] * rows.num_rows, pa.int64()))
    return rows.select(UNCOUNTED).cast(pa.schema([MINUTE_INDEX.schema.field(name) for name in UNCOUNTED]))


def connection_rows(lost: pa.Table, batch: int) -> pa.Table:
    """Return rows of the connection index that take these messages out of its sums."""
    rows = _sums(lost, ("protocol", "session_id", "connection_id", "direction"))
    known = {"batch": pa.array([batch] * rows.num_rows, pa.int64()), **{name: rows[name] for name in rows.column_names}}
    known |= {name: pc.negate(rows[name]) for name in _SUMMED}
    fields = CONNECTION_INDEX.schema
    return pa.table({field.name: known.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in fields}).cast(fields)


def _breaks(lake: Path) -> tuple[dict[bytes, Unconfirmed], int]:
    """Return what was unconfirmed on each connection, and when the last of these connections ended."""
    found = delta.dataset(lake, connections.TABLE, _files(lake, connections.TABLE, Comparison("what", ">=", UNCONFIRMED)))
    columns = list(ConnectionEvent.__struct_fields__)
    events = list(connection_events(found.to_table(columns=columns, filter=pads.field("what").isin([UNCONFIRMED, *ENDS]))))
    lost = {event.connection_id: Unconfirmed.of(event) for event in events if event.what == UNCONFIRMED}
    return lost, max((event.ts for event in events if event.connection_id in lost), default=0)


def _files(lake: Path, table: Table, *conditions: Comparison) -> list[Path]:
    """Return the files of a table that may have such rows."""
    known = delta.statistics(lake, table)
    for one in conditions:
        known = known.filter(may_match(known, one))
    return [delta.folder(lake, table) / path for path in known["path"].to_pylist()]


def _sums(lost: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Return the sums of messages with equal keys."""
    ones = {
        "messages": pa.array([1] * lost.num_rows, pa.int64()),
        "bytes": lost["size"].cast(pa.int64()),
        "errors": pc.not_equal(lost["status"], "ok").cast(pa.int64()),
        "keepalives": pc.equal(lost["kind"], "keepalive").cast(pa.int64()),
    }
    rows = pa.table({**{name: lost[name] for name in keys}, **ones})
    sums = rows.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in _SUMMED])
    return sums.rename_columns({f"{name}_sum": name for name in _SUMMED})
