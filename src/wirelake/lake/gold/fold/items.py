"""Work items: each has the sessions of a range of hash slots, and the files that have their rows.

The driver makes them from the connection index and writes them to one scratch file. A task reads its own row group of it and writes one
file per gold table, with the rows of other sessions that stood in the files it replaces.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from wirelake.lake.gold.fold.facts import INDEX_COLUMNS, IS_PRIMARY, NO_VIEW, VIEW_LINK
from wirelake.lake.store import delta, durable
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_names import leaf_name, session_of, settled_name
from wirelake.lake.store.parquet import GoldFile
from wirelake.lake.store.slots import slot
from wirelake.lake.tables import messages, quarantine
from wirelake.lake.tables.catalog import gold_table
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.schema import Table
from wirelake.lake.views import Views, apart

__all__ = ["Item", "ItemFiles", "Plan", "links_in", "write_plan"]

_LINK: Final = "link"
_LARGE_ROWS: Final = 500_000
"""A file with settled rows that has as many is not merged any more."""


class Item(msgspec.Struct, frozen=True):
    """A range of slots, and the files of each table that its new files replace."""

    first: int
    last: int
    replaced: dict[str, list[str]]
    settled: dict[str, list[str]] = {}
    """Table -> files with settled rows of the item's sessions."""


class Plan(msgspec.Struct, frozen=True):
    """The items of a job, and where its tasks find what they are about."""

    lake: str
    index: str
    """The scratch file: rows of the connection index, a row group for each item."""
    keys: str | None
    """The scratch file with all keys whose rows are replaced; None: all rows are."""
    items: list[Item]
    apart: list[tuple[bytes, str, bytes]] = []
    """Connection, observer, and the id of the connection as this observer saw it; see `Views.apart`."""


def write_plan(index: pa.Table, known: Views, slots: Sequence[int], items: Sequence[Item], path: Path) -> None:
    """Write the rows of the index, item by item. `slots` has the slot of each row."""
    of_slot = np.zeros(max(item.last for item in items) + 1, np.int64)
    for number, item in enumerate(items):
        of_slot[item.first : item.last + 1] = number
    chosen = index.select(["batch", "protocol", "file", "last_seen", "observer", *INDEX_COLUMNS])
    of_item = of_slot[np.asarray(slots, np.int64)]
    order = np.argsort(of_item, kind="stable")
    chosen = chosen.append_column(_LINK, pa.array([known.sessions.get(one) for one in index["connection_id"].to_pylist()], pa.binary()))
    seen = [known.of_session.get(one, NO_VIEW) for one in index["session_id"].to_pylist()]
    chosen = chosen.append_column(VIEW_LINK, pa.array([one.link or None for one in seen], pa.binary()))
    chosen = chosen.append_column(IS_PRIMARY, pa.array([one.is_primary for one in seen], pa.bool_()))
    chosen, of_item = chosen.take(pa.array(order)), of_item[order]
    edges = np.searchsorted(of_item, np.arange(len(items) + 1))
    with pq.ParquetWriter(path, chosen.schema) as writer:
        for number in range(len(items)):
            part = chosen.slice(edges[number], edges[number + 1] - edges[number])
            writer.write_table(part, row_group_size=max(part.num_rows, 1))


def links_in(index: pa.Table) -> dict[bytes, bytes]:
    """Connection -> the link that it carried, from rows of a plan."""
    named = zip(index["connection_id"].to_pylist(), index[_LINK].to_pylist(), strict=True)
    return {connection_id: link for connection_id, link in named if link is not None}


class ItemFiles:
    """What a task reads and writes for one work item."""

    def __init__(self, plan: Plan, number: int, tables: Sequence[Table]) -> None:
        self.lake = Path(plan.lake)
        self._plan = plan
        self._number = number
        self._item = plan.items[number]
        self._folder = f"batch-{uuid.uuid4().hex}"
        name = f"{self._folder}/{leaf_name(self._item.first, self._item.last)}"
        self._files = {table.name: GoldFile(delta.folder(self.lake, table), name, table) for table in tables}
        self._settled: dict[tuple[str, bytes], GoldFile] = {}
        self._removed: dict[str, set[str]] = {}
        self._of_batches: dict[str, dict[int, list[File]]] = {}

    def index(self) -> pa.Table:
        """The rows of the connection index of the item's sessions."""
        file = pq.ParquetFile(self._plan.index)
        parts = [number for number in range(file.num_row_groups) if number == self._number]
        return file.read_row_groups(parts) if parts else file.schema_arrow.empty_table()

    @cached_property
    def _apart(self) -> dict[tuple[bytes, str], bytes]:
        """The connections of the item that two captures have under one id."""
        mine = set(self.index()["connection_id"].to_pylist()) if self._plan.apart else ()
        known = {(connection_id, observer): other for connection_id, observer, other in self._plan.apart}
        several = {connection_id for (connection_id, _), other in known.items() if other in mine or connection_id in mine}
        return {key: other for key, other in known.items() if key[0] in several}

    @property
    def needs_observer(self) -> bool:
        """Whether `apart` needs the observer of each row."""
        return bool(self._apart)

    def in_tables(self, ids: pa.Array) -> pa.Array:
        """The ids of connections, or of their sessions, and those that tables have in their place."""
        former = {other: connection_id for (connection_id, _), other in self._apart.items()}
        chosen = set(ids.to_pylist()) if former else set()
        more = [connection_id for other, connection_id in former.items() if other in chosen]
        return pa.concat_arrays([pa.array(ids.to_pylist(), pa.binary()), pa.array(more, pa.binary())]) if more else ids

    def apart(self, rows: pa.Table) -> pa.Table:
        """Rows with the ids that each observer's connections have."""
        return apart(rows, self._apart)

    def former(self, connection_id: bytes, observer: str | None) -> bytes:
        """The id that tables have of a connection."""
        return next((old for (old, by), other in self._apart.items() if (other, by) == (connection_id, observer)), connection_id)

    def emit(self, name: str, rows: pa.Table) -> None:
        """Write rows of the table of this name."""
        self._files[name].add(rows)

    def settle(self, session_id: bytes, name: str, rows: pa.Table) -> None:
        """Write rows of one session that will not change, to a file of their own."""
        file = self._settled.get((name, session_id))
        if file is None:
            table = gold_table(name)
            path = f"{self._folder}/{settled_name(session_id)}"
            file = self._settled[name, session_id] = GoldFile(delta.folder(self.lake, table), path, table)
        file.add(rows)

    def settled(self, table: Table, session_id: bytes | None = None) -> list[Path]:
        """The files with settled rows of the item's sessions, or of one of them."""
        return [
            delta.folder(self.lake, table) / path
            for path in self._item.settled.get(table.name, ())
            if session_id is None or session_of(path) == session_id
        ]

    def drop_settled(self, continued: Collection[bytes], most: int) -> None:
        """Remove the settled rows of sessions that did not go on from their checkpoint, and merge files where a session has many."""
        for name, paths in self._item.settled.items():
            table = gold_table(name)
            by_session: dict[bytes, list[str]] = {}
            for path in paths:
                by_session.setdefault(session_of(path) or b"", []).append(path)
            for session_id, of_session in by_session.items():
                is_replaced = session_id not in continued or (table is CHECKPOINTS and (name, session_id) in self._settled)
                if is_replaced:
                    self._removed.setdefault(name, set()).update(of_session)
                elif len(of_session) >= most and (name, session_id) in self._settled:
                    self._merge(table, session_id, of_session)

    def _merge(self, table: Table, session_id: bytes, paths: Sequence[str]) -> None:
        """Copy the rows of small files with settled rows into the new one."""
        at = delta.folder(self.lake, table)
        for path in paths:
            if pq.read_metadata(at / path).num_rows < _LARGE_ROWS:
                self.settle(session_id, table.name, pq.read_table(at / path, schema=table.schema))
                self._removed.setdefault(table.name, set()).add(path)

    def removed(self) -> dict[str, list[str]]:
        """Table -> files with settled rows that count no more."""
        return {name: sorted(paths) for name, paths in self._removed.items()}

    def close(self) -> dict[str, list[File]]:
        """Close all files, and make them durable; tables without rows have none."""
        written: dict[str, list[File]] = {}
        for name, file in [*self._files.items(), *((name, file) for (name, _), file in self._settled.items())]:
            if (closed := file.close()) is not None:
                written.setdefault(name, []).append(closed)
        paths = (self.lake / name / file.path for name, files in written.items() for file in files)
        durable.sync(paths, above=3)  # the table of checkpoints may not exist yet
        return written

    def discard(self) -> None:
        """Delete all files."""
        for file in (*self._files.values(), *self._settled.values()):
            file.discard()

    def keep_others(self) -> None:
        """Copy the rows of other sessions out of the files that are replaced."""
        if self._plan.keys is None:
            return
        for name, paths in self._item.replaced.items():
            table = gold_table(name)
            for path in paths:
                rows = pads.dataset(delta.folder(self.lake, table) / path, schema=table.schema, format="parquet")
                for batch in rows.to_batches():
                    named = pc.coalesce(batch["session_id"], b"")
                    stays = pc.and_(pc.invert(pc.is_in(named, value_set=self._keys)), self.is_mine(named))
                    self._files[name].add(pa.Table.from_batches([batch]).filter(stays))

    def replaced(self, table: Table) -> list[Path]:
        """The files of a table that are replaced."""
        return [delta.folder(self.lake, table) / path for path in self._item.replaced.get(table.name, ())]

    def is_replaced(self, session_ids: pa.Array) -> pa.Array:
        """Which sessions are the item's, and have rows that are replaced."""
        named = pc.coalesce(session_ids, b"")
        mine = self.is_mine(named)
        return mine if self._plan.keys is None else pc.and_(mine, pc.is_in(named, value_set=self._keys))

    def is_mine(self, session_ids: pa.Array) -> pa.Array:
        """Which ids have a slot of this item: a file that is split has others, too."""
        encoded = session_ids.dictionary_encode()
        is_mine = [self._item.first <= slot(key) <= self._item.last for key in encoded.dictionary.to_pylist()]
        return pa.array(is_mine, pa.bool_()).take(encoded.indices)

    @cached_property
    def _keys(self) -> pa.Array:
        return pq.read_table(self._plan.keys)["session_id"].combine_chunks()

    def paths(self, table: Table, index: pa.Table) -> list[Path]:
        """The files of a table that have rows of these index rows.

        All files of one task have the same name, which the index has. Where a table has no file of that name, the task wrote no rows of
        it, or compaction merged it, or an older wirelake gave each table other names: only files of other tasks are left out then.
        """
        found: dict[str, None] = {}
        by_batch, of_messages = (self._by_batch(one) for one in (table, messages.TABLE))
        for batch, name in sorted(set(zip(index["batch"].to_pylist(), index["file"].to_pylist(), strict=True)), key=str):
            of_batch = [file.path for file in by_batch.get(batch, ())]
            if name in of_batch:
                of_batch = [name]
            elif table is not messages.TABLE:
                others = {file.path for file in of_messages.get(batch, ())}
                of_batch = [path for path in of_batch if path not in others]
            found.update(dict.fromkeys(of_batch))
        return [delta.folder(self.lake, table) / path for path in found]

    def _by_batch(self, table: Table) -> dict[int, list[File]]:
        """Batch -> files. New batches do not matter to a task: its index has none of them."""
        known = self._of_batches.get(table.name)
        if known is None:
            known = self._of_batches[table.name] = delta.files_by_batch(self.lake, table)
        return known

    def unreadable(self, index: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Rows of `quarantine` of these sessions and connections, and of no session if they are the item's."""
        paths = self.paths(quarantine.TABLE, index.filter(pc.is_null(index["direction"])))
        if not paths:
            return quarantine.TABLE.schema.empty_table().select(list(columns))
        rows = self.apart(delta.dataset(self.lake, quarantine.TABLE, paths).to_table(columns=list(columns)))
        links = links_in(index)
        named = [
            links.get(connection_id or b"", session_id or b"")
            for session_id, connection_id in zip(rows["session_id"].to_pylist(), rows["connection_id"].to_pylist(), strict=True)
        ]
        rows = rows.set_column(rows.schema.get_field_index("session_id"), "session_id", pa.array(named, pa.binary()))
        return rows.filter(pc.is_in(rows["session_id"], value_set=pc.unique(index["session_id"])))
