"""The work of a task that folds sessions: rows of `exchanges`, `violations` and `sessions` of one work item."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from wirelake.lake.gold.fold.connection_order import ranked_windows
from wirelake.lake.gold.fold.facts import CONNECTION_COLUMNS, QUARANTINE_COLUMNS, session_facts
from wirelake.lake.gold.fold.items import ItemFiles, Plan, links_in
from wirelake.lake.gold.fold.rows import unclaimed_rows
from wirelake.lake.gold.fold.seen import analyzer_of, columns_of, table_of
from wirelake.lake.gold.fold.sessions import SessionFold
from wirelake.lake.gold.fold.windows import read_windows
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.tables import connections, exchanges, sessions, violations
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.protocols import LINKS
from wirelake.protocols.analyzer import NO_TIME

__all__ = ["FOLDED", "Work", "Written", "run"]

FOLDED: Final = (exchanges.TABLE, violations.TABLE, sessions.TABLE)
"""The tables that a fold writes."""


class Work(msgspec.Struct, frozen=True):
    """All that tasks need to know."""

    plan: Plan
    late_seconds: float
    newest: dict[str, int]
    """Protocol -> time of its last message."""


class Written(msgspec.Struct, frozen=True):
    """What a task wrote: table -> its file."""

    item: int
    files: dict[str, File]
    messages: int


def run(work: Work, number: int) -> Written:
    """Fold one item, and write its files."""
    return _ItemFold(work, number).run()


class _ItemFold:
    """The fold of one work item."""

    def __init__(self, work: Work, number: int) -> None:
        self._work = work
        self._number = number
        self._files = ItemFiles(work.plan, number, FOLDED)
        self._messages = 0

    def run(self) -> Written:
        try:
            index = self._files.index()
            self._files.keep_others()
            unclaimed = self._files.unreadable(index, ["protocol", *QUARANTINE_COLUMNS])
            for protocol in sorted(name for name in pc.unique(index["protocol"]).to_pylist() if name is not None):
                unclaimed = self._fold(protocol, index.filter(pc.equal(index["protocol"], protocol)), unclaimed)
            self._files.emit(violations.TABLE.name, unclaimed_rows(unclaimed))
            return Written(self._number, self._files.close(), self._messages)
        except BaseException:
            self._files.discard()
            raise

    def _fold(self, protocol: str, index: pa.Table, unclaimed: pa.Table) -> pa.Table:
        """Fold the sessions of one protocol. Returns the unreadable ranges that belong to none of them."""
        is_link = protocol in LINKS
        ids, of_connections = pc.unique(index["session_id"]), pc.unique(index["connection_id"])
        links = links_in(index) if is_link else None
        happened = self._connections(protocol, index, of_connections)
        said = index.filter(pc.is_valid(index["direction"]))
        mine = pc.is_in(unclaimed["session_id"], value_set=pc.unique(said["session_id"] if not happened.num_rows else ids))
        mine = pc.and_(mine, pc.not_equal(unclaimed["session_id"], b""))
        facts = session_facts(protocol, index, happened, unclaimed.filter(mine), links)
        fold = SessionFold(
            protocol,
            facts,
            self._files.emit,
            late_seconds=self._work.late_seconds,
            newest=self._work.newest.get(protocol, NO_TIME),
            links=links,
        )
        if said.num_rows:
            own = table_of(protocol)
            read = partial(
                read_windows,
                self._files.paths(table_named(own), said),
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

    def _connections(self, protocol: str, index: pa.Table, chosen: pa.Array) -> pa.Table:
        paths = self._files.paths(connections.TABLE, index)
        columns = ["protocol", *CONNECTION_COLUMNS]
        if not paths:
            return connections.TABLE.schema.empty_table().select(columns)
        is_mine = (pads.field("protocol") == protocol) & pads.field("connection_id").isin(chosen)
        return delta.dataset(self._files.lake, connections.TABLE, paths).to_table(columns=columns, filter=is_mine)
