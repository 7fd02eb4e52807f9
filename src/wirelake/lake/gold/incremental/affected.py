"""Find the sessions that new batches affect, in the connection index.

A session is affected by anything new of it, or of a connection it uses. Where sessions are links over several connections, all messages on
an affected connection belong to its link, also those before the link was agreed on. A session without new messages is affected when later
messages of others make it count as silent.

It reads the index with Arrow, on the driver: a row for each batch, session, connection and direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from wirelake import protocols
from wirelake.lake.gold.fold.seen import analyzer_of
from wirelake.lake.store import delta
from wirelake.lake.store.slots import slot
from wirelake.lake.tables.index import CONNECTION_INDEX, MINUTE_INDEX
from wirelake.lake.views import NO_VIEWS, Views, resolved, views

__all__ = ["Affected", "affected", "minutes"]

_MINUTE_US: Final = 60_000_000
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class Affected(msgspec.Struct, frozen=True):
    """What a refresh must rebuild."""

    index: pa.Table
    """The rows of the connection index of affected sessions. Their `session_id` is the link's, where there is one."""
    views: Views
    """The sessions of connections, and which of them are views of the same."""
    keys: pa.Array
    """All values of `session_id` whose gold rows are replaced: affected sessions, and connections that turned out to carry a link.

    An empty one stands for rows of no session.
    """
    slots: frozenset[int]
    """Hash slots of these keys."""
    protocols: tuple[str, ...]
    """Their protocols."""
    fresh: tuple[int, ...]
    """New batches: all their rows are affected."""
    older: tuple[int, ...]
    """Older batches with rows of affected sessions, among others."""
    newest: dict[str, int]
    """Protocol -> time of its last message, for protocols that detect silence by it."""
    changed: frozenset[bytes] = frozenset()
    """Sessions that became views of others, or are no more: their messages count otherwise than before."""
    is_all: bool = False
    """Whether every session is affected."""


def affected(lake: Path, built: int, newest: int) -> Affected:
    """Return what batches after `built`, up to `newest`, affect. With `built` 0 it is everything."""
    index = delta.dataset(lake, CONNECTION_INDEX).to_table(filter=pads.field("batch") <= newest)
    named = index["session_id"]
    now = views(index)
    before = views(index.filter(pc.less_equal(index["batch"], built))) if built else NO_VIEWS
    index = resolved(index, now)
    changed, gone = _changed(before, now) if built else (set(), set())
    sessions, connections = (_codes(index[name]) for name in ("session_id", "connection_id"))
    batches = index["batch"].to_numpy()
    is_new = batches > built
    is_hit = np.zeros(sessions.max(initial=-1) + 1, bool)
    touched = np.zeros(connections.max(initial=-1) + 1, bool)
    touched[connections[is_new]] = True
    is_hit[sessions[is_new | touched[connections]]] = True
    if changed:
        is_hit[sessions[pc.is_in(index["session_id"], value_set=pa.array(changed, pa.binary())).to_numpy()]] = True
    heard = _silenced(index, sessions, is_hit, built)
    # A session that another one was divided from has its id in silver tables: its rows are replaced, too.
    former_ids = pc.unique(named.filter(pa.array(is_hit[sessions])))
    is_hit[sessions[pc.is_in(index["session_id"], value_set=former_ids).to_numpy()]] = True
    is_chosen = pa.array(is_hit[sessions] | (built == 0))
    chosen = index.filter(is_chosen)
    former = pa.array(gone, pa.binary())
    keys = pc.unique(pa.chunked_array([*chosen["session_id"].chunks, *named.filter(is_chosen).chunks, former], pa.binary()))
    hit_batches = np.unique(chosen["batch"].to_numpy()).tolist()
    spoken = [name for name in pc.unique(chosen["protocol"]).to_pylist() if name is not None]
    return Affected(
        chosen,
        now,
        keys,
        frozenset(map(slot, keys.to_pylist())),
        tuple(sorted(spoken)),
        tuple(batch for batch in hit_batches if batch > built),
        tuple(batch for batch in hit_batches if batch <= built),
        heard,
        frozenset(changed),
        is_all=not built,
    )


def _codes(column: pa.ChunkedArray) -> Ints:
    """Equal values as equal numbers."""
    encoded = pc.dictionary_encode(column).combine_chunks() if column.num_chunks != 1 else column.chunk(0).dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    codes: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _changed(before: Views, now: Views) -> tuple[set[bytes], set[bytes]]:
    """Sessions that are views of others now, or are no more, and ids of sessions that are gone."""
    both = before.of_session.keys() | now.of_session.keys()
    changed = {session_id for session_id in both if before.of_session.get(session_id) != now.of_session.get(session_id)}
    gone = {session_id for key, session_id in before.sessions.items() if now.sessions.get(key) != session_id}
    gone |= {other for key, other in before.apart.items() if now.apart.get(key) != other}
    changed |= {session_id for key, session_id in now.sessions.items() if before.sessions.get(key) != session_id}
    changed |= {other for key, other in now.apart.items() if before.apart.get(key) != other}
    return changed | gone, gone


def _silenced(index: pa.Table, sessions: Ints, is_hit: Flags, built: int) -> dict[str, int]:
    """Mark sessions that became silent.

    Returns the time of the last message of each protocol that detects silence.
    """
    heard: dict[str, int] = {}
    for protocol in protocols.names():
        seconds = analyzer_of(protocol).SILENCE_SECONDS
        if seconds is None:
            continue
        is_said = pc.and_(pc.equal(index["protocol"], protocol), pc.is_valid(index["direction"])).fill_null(False).to_numpy()
        if not is_said.any():
            continue
        seen = index["last_seen"].cast(pa.int64()).fill_null(-1).to_numpy()
        heard[protocol] = int(seen[is_said].max())
        was_said = is_said & (index["batch"].to_numpy() <= built)
        before = int(seen[was_said].max(initial=-1))
        if 0 <= before < heard[protocol]:
            last = np.full(len(is_hit), -1, np.int64)
            np.maximum.at(last, sessions[is_said], seen[is_said])
            silent_at = last + round(seconds * 1_000_000)
            is_hit |= (last >= 0) & (before <= silent_at) & (silent_at <= heard[protocol])
    return heard


def minutes(lake: Path, what: Affected, changed_files: Mapping[str, Sequence[Path]]) -> list[int]:
    """Return the minutes with new or changed rows, as microseconds.

    `changed_files` has, by time column, the old and new files of gold tables with rows of affected sessions.
    """
    fresh = min(what.fresh, default=1 << 62)
    rows = delta.dataset(lake, MINUTE_INDEX).to_table(columns=["minute"], filter=pads.field("batch") >= fresh)
    found = set(rows["minute"].cast(pa.int64()).to_pylist())
    for column, files in changed_files.items():
        for file in files:
            table: Any = pads.dataset(file, format="parquet").to_table(columns=["session_id", column])
            key = pc.coalesce(table["session_id"], b"")
            times = table.filter(pc.is_in(key, value_set=what.keys))[column].drop_null().cast(pa.int64()).to_numpy()
            found |= set((times - times % _MINUTE_US).tolist())
    found.discard(None)
    return sorted(found)
