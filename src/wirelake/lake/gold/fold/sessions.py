"""Fold the sessions of one protocol: messages go in, window by window; rows of three gold tables come out.

All that happened to the connections of the sessions, and all bytes that could not be read, are known before the first message. So a
finding is certain as soon as a later message shows that the session did not end on it; what the last messages broke waits for the end.

A long session may go on from a checkpoint, and may get one (`checkpoints.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wirelake.errors import LakeError
from wirelake.lake.gold.fold.bulk import BULK_MESSAGES, can_pair, paired_exchanges
from wirelake.lake.gold.fold.checkpoints import Checkpoint, checkpoint_rows
from wirelake.lake.gold.fold.rows import (
    Endpoints,
    Judged,
    Observed,
    Sums,
    ends,
    exchange_rows,
    is_counted,
    paired_rows,
    session_row,
    session_rows,
    violation_rows,
)
from wirelake.lake.gold.fold.seen import analyzer_of, seen_messages
from wirelake.lake.tables import exchanges, sessions, violations
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.views import View
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent, Exchange, SeenMessage, SessionAnalyzer, Unreadable
from wirelake.protocols.request_pairs import PairColumns

__all__ = ["Emit", "SessionFacts", "SessionFold", "Settle", "in_order"]

Ints = npt.NDArray[np.int64]
Emit = Callable[[str, pa.Table], None]
"""Takes rows of the table of this name."""
Settle = Callable[[bytes, str, pa.Table], None]
"""Takes rows of one session that will not change: session, name of the table, rows."""

_ROWS: Final = 65_536
"""Rows that are collected before they are handed on."""


class SessionFacts:
    """What the lake knows of a session before its messages are read."""

    __slots__ = ("analyzer", "events", "first", "mark", "resume", "sums", "uncounted", "unreadable", "view")

    def __init__(self) -> None:
        self.events: list[ConnectionEvent] = []
        self.unreadable: list[Unreadable] = []
        self.first: Endpoints | None = None
        """Where it was seen first; None: only unreadable bytes are known, and it has no row."""
        self.sums = Sums()
        self.resume: Checkpoint | None = None
        """Where its analysis goes on; None: at its first message."""
        self.analyzer: SessionAnalyzer | None = None
        """The analyzer that goes on from there, with all events and ranges."""
        self.mark: int | None = None
        """Take a checkpoint after the messages up to this time; None: take none."""
        self.view: View | None = None
        """What it is, if several observers saw the same; None: only one did."""
        self.uncounted: list[tuple[bytes, str | None]] = []
        """Connection and observer of its messages, if it is not primary."""

    @property
    def observed(self) -> Observed:
        """Who saw it, and whether it counts in sums."""
        observer = None if self.first is None else self.first.observer or self.first.observer_kind
        return Observed(observer, self.view is None or self.view.is_primary)

    @property
    def messages(self) -> int:
        """Number of its messages."""
        return self.sums.messages_to_server + self.sums.messages_to_client


class _Rows:
    """Collects rows of `exchanges` and `violations`, and hands them on when there are enough."""

    __slots__ = ("_emit", "_exchanges", "_late_seconds", "_observed", "_paired", "_protocol", "_sessions_of", "_violations")

    def __init__(self, protocol: str, late_seconds: float, emit: Emit) -> None:
        self._protocol = protocol
        self._late_seconds = late_seconds
        self._emit = emit
        self._exchanges: list[Exchange] = []
        self._paired: list[pa.Table] = []
        """Rows of `exchanges` of requests that were paired in bulk."""
        self._sessions_of: list[bytes] = []
        self._observed: dict[bytes, Observed] = {}
        self._violations: list[Judged] = []

    def add_exchanges(self, session_id: bytes, added: list[Exchange], observed: Observed) -> None:
        self._exchanges += added
        self._observed[session_id] = observed
        self._sessions_of += [session_id] * len(added)
        if len(self._exchanges) >= _ROWS:
            self.flush()

    def add_pairs(self, session_id: bytes, requests: pa.Table, answers: pa.Table, columns: PairColumns, observed: Observed) -> None:
        self._paired.append(paired_rows(self._protocol, session_id, requests, answers, columns, self._late_seconds, observed))
        if sum(rows.num_rows for rows in self._paired) >= _ROWS:
            self.flush()

    def add_violation(self, added: Judged) -> None:
        self._violations.append(added)
        if len(self._violations) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        for rows in self._paired:
            self._emit(exchanges.TABLE.name, rows)
        self._paired = []
        if self._exchanges:
            self._emit(
                exchanges.TABLE.name, exchange_rows(self._protocol, self._sessions_of, self._exchanges, self._late_seconds, self._observed)
            )
            self._exchanges, self._sessions_of, self._observed = [], [], {}
        if self._violations:
            self._emit(violations.TABLE.name, violation_rows(self._violations))
            self._violations = []


class _Marked:
    """A session that gets a checkpoint: rows from before it are kept apart."""

    __slots__ = ("at", "connection_id", "messages", "rows")

    def __init__(self, at: int, rows: _Rows) -> None:
        self.at = at
        self.rows = rows
        self.messages = 0
        """Messages since it began, or went on."""
        self.connection_id = b""
        """The connection of the last of them."""


class SessionFold:
    """Sessions of one protocol. `emit` gets rows as they become certain."""

    def __init__(
        self,
        protocol: str,
        facts: dict[bytes, SessionFacts],
        emit: Emit,
        *,
        late_seconds: float,
        newest: int = NO_TIME,
        links: Mapping[bytes, bytes] | None = None,
        settle: Settle | None = None,
        batch: int = 0,
    ) -> None:
        """For the sessions in `facts`, which is emptied on the way.

        `newest` is the time of the protocol's last message. `links` has the sessions of connections whose first messages do not name them.
        `settle` gets the checkpoints of sessions, and their rows from before it; without it none are taken. `batch` is the newest batch of
        the lake.
        """
        self._protocol = protocol
        self._analyzer = analyzer_of(protocol)
        self._in_bulk = can_pair(self._analyzer)
        self._facts = facts
        self._emit = emit
        self._late_seconds = late_seconds
        self._newest = newest
        self._links = links
        self._settle = settle
        self._batch = batch
        self._open: dict[bytes, SessionAnalyzer] = {}
        self._left: dict[bytes, int] = {}
        """Messages of open sessions that are still to come."""
        self._broken: dict[bytes, int] = defaultdict(int)
        """Session -> violations so far."""
        self._marked: dict[bytes, _Marked] = {}
        """Open sessions whose checkpoint is still to come."""
        self._told = _Rows(protocol, late_seconds, emit)
        self._rows: list[dict[str, object]] = []

    def feed(self, window: pa.Table, ranks: Mapping[bytes, int] | None = None) -> None:
        """Rows of the protocol's table. Rows of a session are later than those of the windows before, but within a window in any order.

        `ranks` puts connections in order: of a session, all rows of one come before those of the next.
        """
        if not window.num_rows:
            return
        window, codes, names = in_order(window, self._session_column(window), ranks)
        edges = np.flatnonzero(np.diff(codes, prepend=-1))
        counts = np.diff(np.append(edges, len(codes)))
        runs = list(zip(edges.tolist(), (names[code] for code in codes[edges].tolist()), counts.tolist(), strict=True))
        for is_long, some in groupby(runs, lambda run: self._in_bulk and run[2] >= BULK_MESSAGES):
            if is_long:
                for start, session_id, count in some:
                    self._feed_run(session_id, window.slice(start, count), None)
            else:
                self._feed_short(window, list(some))

    def _feed_short(self, window: pa.Table, runs: Sequence[tuple[int, bytes, int]]) -> None:
        """Feed runs that follow each other, message by message."""
        first, (last, _, count) = runs[0][0], runs[-1]
        coming = seen_messages(window.slice(first, last + count - first), self._analyzer.MESSAGE)
        for start, session_id, count in runs:
            self._feed_run(session_id, window.slice(start, count), coming)

    def _feed_run(self, session_id: bytes, rows: pa.Table, coming: Iterator[SeenMessage] | None) -> None:
        """Feed rows of one session, which `coming` has as messages; None: pair them in bulk."""
        analyzer = self._open.get(session_id) or self._begin(session_id)
        if session_id in self._marked:
            self._feed_marked(session_id, analyzer, rows, coming)
        else:
            self._watch(session_id, analyzer, rows, coming)
        self._left[session_id] -= rows.num_rows
        if self._left[session_id]:
            self._collect(session_id, analyzer, self._facts[session_id])
        else:
            self._end(session_id)

    def _watch(self, session_id: bytes, analyzer: SessionAnalyzer, rows: pa.Table, coming: Iterator[SeenMessage] | None) -> None:
        """Let the analyzer see rows of its session."""
        if coming is None and analyzer.unconfirmed:
            coming = seen_messages(rows, self._analyzer.MESSAGE)
        if coming is None:
            columns = analyzer.PAIRS  # type: ignore[attr-defined]  # see `can_pair`
            for requests, answers in paired_exchanges(analyzer, rows):
                self._rows_of(session_id).add_pairs(session_id, requests, answers, columns, self._facts[session_id].observed)
            return
        watch = analyzer.watch if analyzer.unconfirmed else analyzer.message
        for message in islice(coming, rows.num_rows):
            watch(message)

    def _rows_of(self, session_id: bytes) -> _Rows:
        """Where rows of a session go now: apart, before its checkpoint is taken."""
        marked = self._marked.get(session_id)
        return self._told if marked is None else marked.rows

    def finish(self) -> None:
        """Nothing more comes: all sessions end here, as far as is known."""
        for session_id in list(self._facts):
            if session_id not in self._open:
                self._begin(session_id)
            self._end(session_id)
        self._flush()

    def _feed_marked(self, session_id: bytes, analyzer: SessionAnalyzer, rows: pa.Table, coming: Iterator[SeenMessage] | None) -> None:
        """Feed messages of one session, with a checkpoint among them if its time comes."""
        marked = self._marked[session_id]
        is_before = _times(rows["ts"]) <= marked.at
        before = int(is_before.sum())
        if not is_before[:before].all():  # connections overlap at that time: no messages are all before it
            del self._marked[session_id]
            self._watch(session_id, analyzer, rows, coming)
            return
        self._watch(session_id, analyzer, rows.slice(0, before), coming)
        if before:
            marked.connection_id = rows["connection_id"][before - 1].as_py()
        marked.messages += before
        if before < rows.num_rows:
            self._save(session_id, analyzer, marked)
            self._watch(session_id, analyzer, rows.slice(before), coming)

    def _save(self, session_id: bytes, analyzer: SessionAnalyzer, marked: _Marked) -> None:
        """Take the checkpoint of a session. What it tells from now on may change again."""
        known = self._facts[session_id]
        if marked.messages and self._settle is not None:
            self._collect(session_id, analyzer, known)
            marked.rows.flush()
            one = Checkpoint(
                session_id=session_id,
                protocol=self._protocol,
                ts=marked.at,
                connection_id=marked.connection_id,
                messages=marked.messages + (known.resume.messages if known.resume is not None else 0),
                violations=self._broken[session_id],
                batch=self._batch,
                known=known.messages,
                events=sum(event.ts <= marked.at for event in known.events),
                unreadable=sum(found.ts <= marked.at for found in known.unreadable),
                later=[(found.source, found.offset) for found in known.unreadable if found.ts > marked.at],
                is_whole=analyzer.is_whole,
                is_primary=known.observed.is_primary,
                state=analyzer.encode(),
            )
            self._settle(session_id, CHECKPOINTS.name, checkpoint_rows(one))
        del self._marked[session_id]

    def _session_column(self, window: pa.Table) -> pa.Array:
        """The session of each row."""
        if self._links is None:
            return window["session_id"]
        connection = _encoded(window["connection_id"])
        known = connection.dictionary.to_pylist()
        own = _encoded(window["session_id"])
        if not any(one in self._links for one in known):
            return own
        by_connection = pa.DictionaryArray.from_arrays(connection.indices, pa.array([self._links.get(one) for one in known], pa.binary()))
        return pa.compute.coalesce(by_connection.cast(pa.binary()), own.cast(pa.binary())).dictionary_encode()

    def _begin(self, session_id: bytes) -> SessionAnalyzer:
        known = self._facts.get(session_id)
        if known is None:
            raise LakeError(
                f"internal error: the index does not know session {session_id.hex()} of {self._protocol}, or not all its messages"
            )
        self._left[session_id] = known.messages
        if known.resume is not None and known.analyzer is not None:
            analyzer = known.analyzer
            self._left[session_id] -= known.resume.messages
            self._broken[session_id] = known.resume.violations
        else:
            analyzer = self._analyzer()
            for event in known.events:
                analyzer.event(event)
            for found in known.unreadable:
                analyzer.unreadable(found)
        self._open[session_id] = analyzer
        if known.mark is not None and self._settle is not None:
            rows = _Rows(self._protocol, self._late_seconds, partial(self._settle, session_id))
            self._marked[session_id] = _Marked(known.mark, rows)
        return analyzer

    def _end(self, session_id: bytes) -> None:
        """The session has no more messages: tell what is left, and forget it."""
        if (marked := self._marked.pop(session_id, None)) is not None:
            marked.rows.flush()
        analyzer, known = self._open.pop(session_id), self._facts.pop(session_id)
        del self._left[session_id]
        analyzer.end()
        self._collect(session_id, analyzer, known, is_end=True)
        broken = self._broken.pop(session_id, 0)
        if known.first is not None:
            more = (known.observed, known.view, known.uncounted)
            self._rows.append(session_row(session_id, self._protocol, analyzer, known.first, known.sums, broken, self._newest, *more))
            if len(self._rows) >= _ROWS:
                self._flush()

    def _collect(self, session_id: bytes, analyzer: SessionAnalyzer, known: SessionFacts, *, is_end: bool = False) -> None:
        """Take out what the analyzer told, as far as it is certain."""
        if not analyzer.exchanges and not analyzer.findings:
            return
        rows = self._rows_of(session_id)
        if analyzer.exchanges:
            rows.add_exchanges(session_id, analyzer.exchanges, known.observed)
            analyzer.exchanges = []
        if analyzer.findings:
            self._judge(session_id, analyzer, rows, known.observed, is_end=is_end)

    def _judge(self, session_id: bytes, analyzer: SessionAnalyzer, rows: _Rows, observed: Observed, *, is_end: bool) -> None:
        waiting = []
        is_whole, last_word = analyzer.is_whole, analyzer.last_word
        for finding in analyzer.findings:
            if not is_end and (finding.ts == NO_TIME or finding.ts >= last_word):
                waiting.append(finding)
            elif is_whole or not finding.needs_whole:
                ended = is_end and ends(self._protocol, finding.rule) and analyzer.ended_on(finding)
                rows.add_violation(Judged(session_id, self._protocol, finding, ended, observed))
                self._broken[session_id] += is_counted(self._protocol, finding.rule)
        analyzer.findings = waiting

    def _flush(self) -> None:
        self._told.flush()
        if self._rows:
            self._emit(sessions.TABLE.name, session_rows(self._rows))
            self._rows = []


def in_order(
    window: pa.Table, session: pa.ChunkedArray | pa.Array, ranks: Mapping[bytes, int] | None = None
) -> tuple[pa.Table, Ints, Sequence[bytes]]:
    """The rows by session, and within a session by rank of the connection, time and message id.

    Also the session of each row as a number, and the names of these numbers.
    """
    encoded = _encoded(session)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ts = _times(window["ts"])
    ids = _halves(window["message_id"])
    if ranks is not None:
        connection = _encoded(window["connection_id"])
        of_word = np.array([ranks.get(one, -1) for one in connection.dictionary.to_pylist()], np.int64)
        order = np.lexsort((ids[1], ids[0], ts, of_word[connection.indices.to_numpy(zero_copy_only=False)], codes))
        window, codes = window.take(pa.array(order)), codes[order]
    elif not _is_sorted(codes, ts, *ids):
        order = np.argsort(codes, kind="stable")
        if not _is_sorted(codes[order], ts[order], ids[0][order], ids[1][order]):
            order = np.lexsort((ids[1], ids[0], ts, codes))
        window, codes = window.take(pa.array(order)), codes[order]
    return window, codes, encoded.dictionary.to_pylist()


def _encoded(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks() if pa.types.is_dictionary(column.type) else column.combine_chunks()
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _times(column: pa.ChunkedArray) -> Ints:
    times: Ints = column.cast(pa.int64()).fill_null(NO_TIME).to_numpy()
    return times


def _halves(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Message ids, 16 bytes each, as two numbers that compare the same way."""
    array: Any = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], pa.binary())
    start = np.frombuffer(array.buffers()[1], np.int32)[array.offset]
    numbers = np.frombuffer(array.buffers()[2], np.uint8, len(array) * 16, start).view(">u8").reshape(-1, 2).astype(np.uint64)
    return numbers[:, 0], numbers[:, 1]


def _is_sorted(codes: Ints, ts: Ints, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> bool:
    before, after = slice(None, -1), slice(1, None)
    is_later = (ts[before] < ts[after]) | (
        (ts[before] == ts[after]) & ((high[before] < high[after]) | ((high[before] == high[after]) & (low[before] <= low[after])))
    )
    return bool(((codes[before] < codes[after]) | ((codes[before] == codes[after]) & is_later)).all())
