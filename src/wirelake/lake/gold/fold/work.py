"""Work items of a fold: each has the sessions of a range of hash slots, and the files that have their rows.

The driver makes them from the connection index and writes them to one scratch file; a task reads its own row groups of it, folds its
sessions, and writes one file per gold table, with the rows of other sessions that stood in the files it replaces.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from wirelake.lake.gold.fold.connection_order import ranked_windows
from wirelake.lake.gold.fold.facts import CONNECTION_COLUMNS, INDEX_COLUMNS, QUARANTINE_COLUMNS, session_facts
from wirelake.lake.gold.fold.rows import unclaimed_rows
from wirelake.lake.gold.fold.seen import analyzer_of, columns_of, table_of
from wirelake.lake.gold.fold.sessions import SessionFold
from wirelake.lake.gold.fold.windows import read_windows
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import GoldFile
from wirelake.lake.store.slots import slot
from wirelake.lake.tables import connections, exchanges, quarantine, sessions, violations
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.protocols import LINKS
from wirelake.lake.tables.schema import Table
from wirelake.protocols.analyzer import NO_TIME

__all__ = ["FOLDED", "Work", "WorkItem", "Written", "run", "write_plan"]

FOLDED: Final = (exchanges.TABLE, violations.TABLE, sessions.TABLE)
"""The tables that a fold writes."""

_LINK: Final = "link"


class WorkItem(msgspec.Struct, frozen=True):
    """A range of slots, and the files of each table that its new files replace."""

    first: int
    last: int
    replaced: dict[str, list[str]]


class Work(msgspec.Struct, frozen=True):
    """All that tasks need to know."""

    lake: str
    plan: str
    """The scratch file: rows of the connection index, a row group for each item."""
    keys: str
    """The scratch file with all keys whose rows are replaced."""
    items: list[WorkItem]
    late_seconds: float
    newest: dict[str, int]
    """Protocol -> time of its last message."""


class Written(msgspec.Struct, frozen=True):
    """What a task wrote: table -> its file."""

    item: int
    files: dict[str, File]
    messages: int


def write_plan(index: pa.Table, links: Mapping[bytes, bytes], slots: Sequence[int], items: Sequence[WorkItem], path: Path) -> None:
    """Write the rows of the index, item by item. `slots` has the slot of each row."""
    of_slot = np.zeros(max(item.last for item in items) + 1, np.int64)
    for number, item in enumerate(items):
        of_slot[item.first : item.last + 1] = number
    chosen = index.select(["batch", "protocol", "file", "last_seen", *INDEX_COLUMNS])
    of_item = of_slot[np.asarray(slots, np.int64)]
    order = np.argsort(of_item, kind="stable")
    chosen = chosen.append_column(_LINK, pa.array([links.get(one) for one in index["connection_id"].to_pylist()], pa.binary()))
    chosen, of_item = chosen.take(pa.array(order)), of_item[order]
    edges = np.searchsorted(of_item, np.arange(len(items) + 1))
    with pq.ParquetWriter(path, chosen.schema) as writer:
        for number in range(len(items)):
            part = chosen.slice(edges[number], edges[number + 1] - edges[number])
            writer.write_table(part, row_group_size=max(part.num_rows, 1))


def run(work: Work, number: int) -> Written:
    """Fold one item, and write its files."""
    return _ItemFold(work, number).run()


class _ItemFold:
    """The fold of one work item."""

    def __init__(self, work: Work, number: int) -> None:
        self._work = work
        self._number = number
        self._item = work.items[number]
        self._lake = Path(work.lake)
        self._messages = 0
        name = f"leaf-{self._item.first:04d}-{self._item.last:04d}-{uuid.uuid4().hex}.parquet"
        folder = f"batch-{uuid.uuid4().hex}"
        self._files = {table.name: GoldFile(delta.folder(self._lake, table), f"{folder}/{name}", table) for table in FOLDED}

    def run(self) -> Written:
        try:
            plan = self._plan()
            self._kept()
            unclaimed = self._unreadable(plan)
            for protocol in sorted(name for name in pc.unique(plan["protocol"]).to_pylist() if name is not None):
                unclaimed = self._fold(protocol, plan.filter(pc.equal(plan["protocol"], protocol)), unclaimed)
            self._emit(violations.TABLE.name, unclaimed_rows(unclaimed))
            written = {name: file.close() for name, file in self._files.items()}
        except BaseException:
            for file in self._files.values():
                file.discard()
            raise
        return Written(self._number, {name: file for name, file in written.items() if file is not None}, self._messages)

    def _plan(self) -> pa.Table:
        file = pq.ParquetFile(self._work.plan)
        parts = [number for number in range(file.num_row_groups) if number == self._number]
        return file.read_row_groups(parts) if parts else file.schema_arrow.empty_table()

    def _kept(self) -> None:
        """Copy the rows of other sessions out of the files that are replaced."""
        keys = pq.read_table(self._work.keys)["session_id"].combine_chunks()
        for name, paths in self._item.replaced.items():
            table = table_named(name)
            for path in paths:
                rows = pads.dataset(delta.folder(self._lake, table) / path, schema=table.schema, format="parquet")
                for batch in rows.to_batches():
                    named = pc.coalesce(batch["session_id"], b"")
                    stays = pc.and_(pc.invert(pc.is_in(named, value_set=keys)), self._is_mine(named))
                    self._files[name].add(pa.Table.from_batches([batch]).filter(stays))

    def _is_mine(self, session_ids: pa.Array) -> pa.Array:
        """Which ids have a slot of this item: a file that is split has others, too."""
        encoded = session_ids.dictionary_encode()
        is_mine = [self._item.first <= slot(key) <= self._item.last for key in encoded.dictionary.to_pylist()]
        return pa.array(is_mine, pa.bool_()).take(encoded.indices)

    def _paths(self, table: Table, plan: pa.Table) -> list[Path]:
        """The files of a table that have rows of these index rows."""
        names = plan["file"].to_pylist() if "file" in plan.column_names else [None] * plan.num_rows
        wanted = set(zip(plan["batch"].to_pylist(), names, strict=True))
        found: dict[str, None] = {}
        by_batch = delta.files_by_batch(self._lake, table)
        for batch, name in sorted(wanted, key=lambda one: (one[0], one[1] or "")):
            of_batch = [file.path for file in by_batch.get(batch, ())]
            found.update(dict.fromkeys([name] if name in of_batch else of_batch))
        return [delta.folder(self._lake, table) / path for path in found]

    def _unreadable(self, plan: pa.Table) -> pa.Table:
        """Rows of `quarantine` of the item's sessions and connections, and of no session if they are the item's."""
        paths = self._paths(quarantine.TABLE, plan.filter(pc.is_null(plan["direction"])))
        columns = ["protocol", *QUARANTINE_COLUMNS]
        if not paths:
            return quarantine.TABLE.schema.empty_table().select(columns)
        rows = delta.dataset(self._lake, quarantine.TABLE, paths).to_table(columns=columns)
        links = {
            one: link for one, link in zip(plan["connection_id"].to_pylist(), plan[_LINK].to_pylist(), strict=True) if link is not None
        }
        named = [
            links.get(connection_id or b"", session_id or b"")
            for session_id, connection_id in zip(rows["session_id"].to_pylist(), rows["connection_id"].to_pylist(), strict=True)
        ]
        rows = rows.set_column(rows.schema.get_field_index("session_id"), "session_id", pa.array(named, pa.binary()))
        return rows.filter(pc.is_in(rows["session_id"], value_set=pc.unique(plan["session_id"])))

    def _fold(self, protocol: str, plan: pa.Table, unclaimed: pa.Table) -> pa.Table:
        """Fold the sessions of one protocol. Returns the unreadable ranges that belong to none of them."""
        is_link = protocol in LINKS
        ids, of_connections = pc.unique(plan["session_id"]), pc.unique(plan["connection_id"])
        links = None
        if is_link:
            links = {
                one: link for one, link in zip(plan["connection_id"].to_pylist(), plan[_LINK].to_pylist(), strict=True) if link is not None
            }
        happened = self._connections(protocol, plan, of_connections)
        said = plan.filter(pc.is_valid(plan["direction"]))
        mine = pc.is_in(unclaimed["session_id"], value_set=pc.unique(said["session_id"] if not happened.num_rows else ids))
        mine = pc.and_(mine, pc.not_equal(unclaimed["session_id"], b""))
        facts = session_facts(protocol, plan, happened, unclaimed.filter(mine), links)
        fold = SessionFold(
            protocol,
            facts,
            self._emit,
            late_seconds=self._work.late_seconds,
            newest=self._work.newest.get(protocol, NO_TIME),
            links=links,
        )
        if said.num_rows:
            own = table_of(protocol)
            read = partial(
                read_windows,
                self._paths(table_named(own), said),
                columns_of(analyzer_of(protocol).MESSAGE),
                None if own == protocol else protocol,
                "connection_id" if is_link else "session_id",
            )
            ranked_by = analyzer_of(protocol).RANKED_BY
            chosen = of_connections if is_link else ids
            windows = ((window, None) for window in read(chosen)) if ranked_by is None else ranked_windows(read, said, ranked_by)
            for window, ranks in windows:
                self._messages += window.num_rows
                fold.feed(window, ranks)
        fold.finish()
        return unclaimed.filter(pc.invert(mine))

    def _connections(self, protocol: str, plan: pa.Table, chosen: pa.Array) -> pa.Table:
        paths = self._paths(connections.TABLE, plan)
        columns = ["protocol", *CONNECTION_COLUMNS]
        if not paths:
            return connections.TABLE.schema.empty_table().select(columns)
        is_mine = (pads.field("protocol") == protocol) & pads.field("connection_id").isin(chosen)
        return delta.dataset(self._lake, connections.TABLE, paths).to_table(columns=columns, filter=is_mine)

    def _emit(self, name: str, rows: pa.Table) -> None:
        self._files[name].add(rows)
