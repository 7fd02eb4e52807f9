"""Checkpoints: how the analysis of a long session stood, so that its messages are not read again at every refresh.

A checkpoint has the state of the analyzer after all messages up to a time. Rows that were certain by then lie in files of their own, and
stay. The next refresh goes on from there, as long as nothing new is known of the time before: no message, event or unreadable range.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wirelake.lake.gold.fold.connection_order import overlapping
from wirelake.lake.gold.fold.seen import analyzer_of, values
from wirelake.lake.tables.catalog import RULES_VERSION
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.schema import times
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent, SessionAnalyzer, Unreadable
from wirelake.version import __version__

__all__ = ["Checkpoint", "CheckpointRules", "checkpoint_rows", "read_checkpoints", "resumed", "rows_after"]

_CODE: Final = f"{__version__}/{RULES_VERSION}"
"""Version of the analyzers: the state of others is not read."""


class CheckpointRules(msgspec.Struct, frozen=True):
    """When checkpoints are taken."""

    messages: int = 50_000
    """A session gets a checkpoint if at least as many of its messages are not in one yet."""
    slack_seconds: float = 2.0
    """Messages of the last seconds are left out: a batch may still bring some as old."""
    files: int = 8
    """Files with settled rows of a session that are merged into one, when there are as many."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an analyzer, and what was known of its session then."""

    session_id: bytes
    protocol: str
    code: str = _CODE
    ts: int
    """All messages up to this time are in the state, and none later."""
    connection_id: bytes
    """The connection of the last of them."""
    messages: int
    violations: int
    batch: int
    """The newest batch of the lake then."""
    known: int
    """Messages of the session in batches up to that one, also those after `ts`."""
    events: int
    """Events of its connections up to `ts`."""
    unreadable: int
    """Unreadable ranges up to `ts`."""
    later: list[tuple[str, int]]
    """Source and offset of unreadable ranges after `ts`: they are in the state, too."""
    is_whole: bool
    """Whether the session was captured from its beginning and without a gap, as far as was known: some findings count only then."""
    is_primary: bool
    """Whether its rows counted in sums."""
    state: bytes


def checkpoint_rows(one: Checkpoint) -> pa.Table:
    """The row of the table of checkpoints."""
    columns = {
        "session_id": pa.array([one.session_id], pa.binary()),
        "protocol": pa.array([one.protocol], pa.string()),
        "ts": times(np.array([one.ts], np.int64)),
        "messages": pa.array([one.messages], pa.int64()),
        "checkpoint": pa.array([msgspec.msgpack.encode(one)], pa.binary()),
    }
    return pa.table(columns, schema=CHECKPOINTS.schema)


def read_checkpoints(paths: Iterable[Path]) -> dict[bytes, Checkpoint]:
    """Session -> its checkpoint. Those of other versions of the analyzers are left out."""
    found: dict[bytes, Checkpoint] = {}
    for path in paths:
        for encoded in pq.read_table(path, columns=["checkpoint"])["checkpoint"].to_pylist():
            try:
                one = msgspec.msgpack.decode(encoded, type=Checkpoint)
            except msgspec.DecodeError:
                continue  # another version wrote it: its session is read again
            if one.code == _CODE:
                found[one.session_id] = one
    return found


def resumed(
    one: Checkpoint, index: pa.Table, events: Collection[ConnectionEvent], unreadable: Collection[Unreadable], *, is_primary: bool
) -> SessionAnalyzer | None:
    """The analyzer that goes on from a checkpoint; None if something new is known of the time before it.

    `index` has all rows of the session in the connection index, events and ranges are all that are known of it.
    """
    said = index.filter(pc.is_valid(index["direction"]))
    is_new = pc.greater(said["batch"], one.batch)
    old, new = said.filter(pc.invert(is_new)), said.filter(is_new)
    kind = analyzer_of(one.protocol)
    is_as_it_was = (
        is_primary == one.is_primary
        and (pc.sum(old["messages"]).as_py() or 0) == one.known
        and all(first > one.ts for first in values(new["first_seen"]))
        and sum(event.ts <= one.ts for event in events) == one.events
        and sum(found.ts <= one.ts for found in unreadable) == one.unreadable
        and (kind.RANKED_BY is None or _is_in_order(one, said))
    )
    if not is_as_it_was:
        return None
    analyzer = kind.decode(one.state)
    for event in events:
        analyzer.event(event)  # those that it knows already change nothing
    known = set(one.later)
    for found in unreadable:
        if found.ts > one.ts and (found.source, found.offset) not in known:
            analyzer.unreadable(found)
    return analyzer if analyzer.is_whole == one.is_whole else None  # findings before the checkpoint counted by it


def _is_in_order(one: Checkpoint, said: pa.Table) -> bool:
    """Whether connections follow each other after the checkpoint: none that was left before it goes on, and none overlap."""
    spans = said.group_by("connection_id").aggregate([("first_seen", "min"), ("last_seen", "max")])
    goes_on = [
        connection_id
        for connection_id, first, last in zip(*(values(spans[name]) for name in spans.column_names), strict=True)
        if first <= one.ts < last
    ]
    if any(connection_id != one.connection_id for connection_id in goes_on):
        return False
    return not len(overlapping(_since(said, one.ts)))


def _since(said: pa.Table, ts: int) -> pa.Table:
    """Rows of the index with messages after a time, as if nothing had been before."""
    later = said.filter(pc.greater(said["last_seen"].cast(pa.int64()), ts))
    first = pc.max_element_wise(later["first_seen"].cast(pa.int64()), ts + 1).cast(said.schema.field("first_seen").type)
    return later.set_column(later.schema.get_field_index("first_seen"), "first_seen", first)


def rows_after(rows: pa.Table, by: str, after: Mapping[bytes, int]) -> pa.Table:
    """The rows later than the time that belongs to the value of their column `by`."""
    encoded = rows[by].combine_chunks() if rows.num_rows else rows[by]
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    limits: Sequence[int] = [after.get(key, NO_TIME - 1) for key in encoded.dictionary.to_pylist()]
    of_row = np.array(limits, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
    ts = rows["ts"].cast(pa.int64()).fill_null(NO_TIME).to_numpy()
    return rows.filter(pa.array(ts > of_row))
