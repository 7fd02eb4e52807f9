"""The work of a task that folds sessions: rows of `exchanges`, `violations` and `sessions` of one work item."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from wirelake.lake.gold.fold.checkpoints import CheckpointRules, read_checkpoints, resumed, rows_after
from wirelake.lake.gold.fold.connection_order import ranked_windows
from wirelake.lake.gold.fold.facts import CONNECTION_COLUMNS, IS_PRIMARY, QUARANTINE_COLUMNS, session_facts
from wirelake.lake.gold.fold.items import ItemFiles, Plan, links_in
from wirelake.lake.gold.fold.rows import unclaimed_rows
from wirelake.lake.gold.fold.seen import analyzer_of, columns_of, table_of, values
from wirelake.lake.gold.fold.sessions import SessionFacts, SessionFold
from wirelake.lake.gold.fold.windows import read_windows
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.tables import connections, exchanges, sessions, violations
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.protocols import LINKS, NODES
from wirelake.protocols.connections import ENDS, NO_TIME, ConnectionEvent

__all__ = ["FOLDED", "Work", "Written", "run"]

FOLDED: Final = (exchanges.TABLE, violations.TABLE, sessions.TABLE)
"""The tables that a fold writes."""


class Work(msgspec.Struct, frozen=True):
    """All that tasks need to know."""

    plan: Plan
    late_seconds: float
    newest: dict[str, int]
    """Protocol -> time of its last message."""
    batch: int
    """The newest batch."""
    checkpoints: CheckpointRules


class Written(msgspec.Struct, frozen=True):
    """What a task wrote: table -> its files."""

    item: int
    files: dict[str, list[File]]
    removed: dict[str, list[str]]
    """Table -> files with settled rows that count no more."""
    messages: int
    """Messages that were read."""


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
        self._continued: set[bytes] = set()
        """Sessions that went on from their checkpoint."""

    def run(self) -> Written:
        try:
            index = self._files.index()
            self._files.keep_others()
            unclaimed = self._files.unreadable(index, ["protocol", *QUARANTINE_COLUMNS])
            for protocol in sorted(name for name in pc.unique(index["protocol"]).to_pylist() if name is not None):
                unclaimed = self._fold(protocol, index.filter(pc.equal(index["protocol"], protocol)), unclaimed)
            self._files.emit(violations.TABLE.name, unclaimed_rows(unclaimed))
            self._files.drop_settled(self._continued, self._work.checkpoints.files)
            return Written(self._number, self._files.close(), self._files.removed(), self._messages)
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
        self._leave_out(index, facts)
        analyzed = self._resume(protocol, index, facts)
        self._mark(said, facts)
        fold = SessionFold(
            protocol,
            facts,
            self._files.emit,
            late_seconds=self._work.late_seconds,
            newest=self._work.newest.get(protocol, NO_TIME),
            links=links,
            settle=self._files.settle,
            batch=self._work.batch,
        )
        if said.num_rows:
            after = [analyzed.get(session_id, NO_TIME - 1) for session_id in values(said["session_id"])]
            is_resumed = pc.is_in(said["session_id"], value_set=pa.array(analyzed, pa.binary()))
            self._feed(fold, protocol, said.filter(pc.invert(is_resumed)), {})
            is_later = pc.greater(said["last_seen"].cast(pa.int64()), pa.array(after, pa.int64()))
            self._feed(fold, protocol, said.filter(pc.and_(is_resumed, is_later)), analyzed)
        fold.finish()
        return unclaimed.filter(pc.invert(mine))

    def _leave_out(self, index: pa.Table, facts: Mapping[bytes, SessionFacts]) -> None:
        """Note which messages belong to sessions that are not primary."""
        rows = index.filter(pc.and_(pc.is_valid(index["direction"]), pc.invert(index[IS_PRIMARY])))
        used = sorted(set(zip(*(values(rows[name]) for name in ("session_id", "connection_id", "observer")), strict=True)), key=str)
        for session_id, connection_id, observer in used:
            facts[session_id].uncounted.append((self._files.former(connection_id, observer), observer))

    def _resume(self, protocol: str, index: pa.Table, facts: Mapping[bytes, SessionFacts]) -> dict[bytes, int]:
        """Let sessions go on from their checkpoints, where these still hold. Returns until when their messages are analyzed."""
        after = {}
        for session_id, one in read_checkpoints(self._files.settled(CHECKPOINTS)).items():
            known = facts.get(session_id)
            if known is None or one.protocol != protocol:
                continue
            of_session = index.filter(pc.equal(index["session_id"], session_id))
            known.analyzer = resumed(one, of_session, known.events, known.unreadable, is_primary=known.observed.is_primary)
            if known.analyzer is not None:
                known.resume = one
                after[session_id] = one.ts
        self._continued.update(after)
        return after

    def _mark(self, said: pa.Table, facts: Mapping[bytes, SessionFacts]) -> None:
        """Plan checkpoints for long sessions that are open."""
        rules = self._work.checkpoints
        last: dict[bytes, int] = {}
        for session_id, seen in zip(values(said["session_id"]), values(said["last_seen"]), strict=True):
            last[session_id] = max(seen, last.get(session_id, NO_TIME))
        for session_id, known in facts.items():
            resume = known.resume
            if known.messages - (0 if resume is None else resume.messages) < rules.messages:
                continue
            mark = last.get(session_id, NO_TIME) - round(rules.slack_seconds * 1_000_000)
            if mark > (NO_TIME if resume is None else resume.ts) and _is_open(known.events):
                known.mark = mark

    def _feed(self, fold: SessionFold, protocol: str, said: pa.Table, after: Mapping[bytes, int]) -> None:
        """Read the messages of these rows of the index, window by window. `after`: session -> until when they are analyzed already."""
        if not said.num_rows:
            return
        own, is_link = table_of(protocol), protocol in LINKS
        by = "connection_id" if is_link else "session_id"
        read = partial(
            self._windows,
            self._files.paths(table_named(own), said),
            [*columns_of(analyzer_of(protocol).MESSAGE), *(["observer"] if self._files.needs_observer else [])],
            None if own == protocol else protocol,
            by,
            after=min(after.values(), default=None),
        )
        ranked_by = analyzer_of(protocol).RANKED_BY
        chosen = pc.unique(said[by])
        if ranked_by is None or after:  # a checkpoint only holds if connections follow each other from there
            windows: Iterator[tuple[pa.Table, dict[bytes, int] | None]] = ((window, None) for window in read(chosen))
        else:
            windows = ranked_windows(read, said, ranked_by)
        limits = dict(zip(values(said[by]), (after[one] for one in values(said["session_id"])), strict=True)) if after else {}
        for window, ranks in windows:
            rows = rows_after(window, by, limits) if after else window
            self._messages += rows.num_rows
            fold.feed(rows, ranks)

    def _windows(
        self, paths: Sequence[Path], columns: Sequence[str], protocol: str | None, by: str, chosen: pa.Array, after: int | None
    ) -> Iterator[pa.Table]:
        """As `read_windows`, where two captures may have a connection under one id."""
        if not self._files.needs_observer:
            yield from read_windows(paths, columns, protocol, by, chosen, after)
            return
        for window in read_windows(paths, columns, protocol, by, self._files.in_tables(chosen), after):
            rows = self._files.apart(window)
            yield rows.filter(pc.is_in(rows[by].cast(pa.binary()), value_set=chosen))

    def _connections(self, protocol: str, index: pa.Table, chosen: pa.Array) -> pa.Table:
        # Only nodes have no row in the index for the events of their connections.
        paths = self._files.paths(connections.TABLE, index if protocol in NODES else index.filter(pc.is_null(index["direction"])))
        columns = ["protocol", *CONNECTION_COLUMNS]
        if not paths:
            return connections.TABLE.schema.empty_table().select(columns)
        is_mine = (pads.field("protocol") == protocol) & pads.field("connection_id").isin(self._files.in_tables(chosen))
        rows = self._files.apart(delta.dataset(self._files.lake, connections.TABLE, paths).to_table(columns=columns, filter=is_mine))
        return rows.filter(pc.is_in(rows["connection_id"], value_set=chosen)) if self._files.needs_observer else rows


def _is_open(events: Collection[ConnectionEvent]) -> bool:
    """Whether a connection of the session has not ended, as far as is known."""
    ended = {event.connection_id for event in events if event.what in ENDS}
    return not events or any(event.connection_id not in ended for event in events)
