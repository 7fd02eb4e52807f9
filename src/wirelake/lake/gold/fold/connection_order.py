"""Put the connections of a session in order, where they overlap in time.

One side may still send on a connection while the other is on the next already. Where a protocol says so, all messages of the older one come
first. Sessions whose connections follow each other are in that order anyway, and are read as any other. Only sessions with connections that
overlap are read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.gold.fold.seen import values

__all__ = ["Read", "overlapping", "ranked_windows", "ranks_of"]

Read = Callable[[pa.Array], Iterator[pa.Table]]
"""Reads the rows of these connections, in windows that follow each other in time."""


def ranked_windows(read: Read, index: pa.Table, ranked_by: str) -> Iterator[tuple[pa.Table, dict[bytes, int] | None]]:
    """Windows, and the ranks of their connections where these overlap. `index` has rows of the connection index, with a direction."""
    connections = pc.unique(index["connection_id"])
    apart = overlapping(index)
    together = connections.filter(pc.invert(pc.is_in(connections, value_set=apart)))
    if len(together):
        for window in read(together):
            yield window, None
    if len(apart):
        rows = list(read(apart))
        if rows:
            whole = pa.concat_tables(rows).unify_dictionaries()
            yield whole, ranks_of(whole, ranked_by)


def overlapping(index: pa.Table) -> pa.Array:
    """The connections of sessions in which one connection begins before another one ends."""
    spans = index.group_by(["session_id", "connection_id"]).aggregate([("first_seen", "min"), ("last_seen", "max")])
    spans = spans.sort_by([("session_id", "ascending"), ("first_seen_min", "ascending")])
    sessions, first, last = (values(spans[name]) for name in ("session_id", "first_seen_min", "last_seen_max"))
    found: set[bytes] = set()
    latest = -1
    for at, session_id in enumerate(sessions):
        if at and sessions[at - 1] == session_id:
            if first[at] <= latest:
                found.add(session_id)
            latest = max(latest, last[at])
        else:
            latest = last[at]
    chosen = spans["connection_id"].filter(pa.array([session_id in found for session_id in sessions], pa.bool_()))
    return pc.unique(chosen)


def ranks_of(rows: pa.Table, ranked_by: str) -> dict[bytes, int]:
    """Connection -> its place among those in these rows: by its first message of this name, or else by its first message."""
    is_mark = pc.equal(rows["type_name"].cast(pa.string()), ranked_by).fill_null(False)
    first: dict[bytes, tuple[int, bytes]] = {}
    for chosen in (rows.filter(is_mark), rows):
        seen: dict[bytes, tuple[int, bytes]] = {}
        for connection_id, ts, message_id in zip(*(values(chosen[name]) for name in ("connection_id", "ts", "message_id")), strict=True):
            if connection_id not in first:
                seen[connection_id] = min((ts, message_id), seen.get(connection_id, (ts, message_id)))
        first |= seen
    ordered = sorted(first, key=lambda one: first[one])
    return dict(zip(ordered, np.arange(len(ordered)).tolist(), strict=True))
