"""Rows of the index tables, summed up by the task that writes the rows they are about.

The task passes on every batch of `messages`, `connections` and `quarantine` that it writes. At the end it gets the rows of both index
tables for its files. Memory is bounded by the number of groups. Needs no Spark.

`gold/incremental/connection_index.py` and `minute_index.py` compute the same in SQL; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.decode import index_sums
from wirelake.lake.decode.index_sums import EMPTY, Columns, FlowIds, Ids, NumberSums, Sums, encoded, first_rows, integers
from wirelake.lake.tables import connections, messages, quarantine
from wirelake.lake.tables.index import CONNECTION_INDEX, MINUTE_INDEX, PARTING
from wirelake.lake.tables.schema import TIME, Table

__all__ = ["COLUMNS", "INPUTS", "IndexRows"]

IntArray = npt.NDArray[np.int64]
INPUTS: Final = (messages.TABLE, connections.TABLE, quarantine.TABLE)
"""Tables whose rows are summed up."""

_MINUTE_US: Final = 60_000_000
_NO_TIME: Final = np.iinfo(np.int64).min
"""Sorts before all times, as null does in SQL."""
_ENDS: Final = ("observer_kind", "client_address", "client_port", "server_address", "server_port")
_SAID: Final = ["session_id", "connection_id", "ts", "protocol", "direction", "kind", "subject", "size", "status", "message_id", "observer"]
_HAPPENED: Final = ("protocol", "connection_id", "ts", "observer", *_ENDS)
_UNREAD: Final = ("protocol", "session_id", "connection_id", "ts", "clause", "observer")
_SAID_BY: Final = ("flow", "what", "observer")
_PARTING_ORDER: Final = ["ts", "message_id", "is_error"]
COLUMNS: Final = {messages.TABLE.name: _SAID, connections.TABLE.name: _HAPPENED, quarantine.TABLE.name: _UNREAD}
"""Table -> the columns that are needed of it."""


def _column(batches: Sequence[pa.RecordBatch], name: str) -> pa.ChunkedArray:
    """One column of batches, some of which may have it dictionary-encoded."""
    chunks = [batch.column(name) for batch in batches]
    if any(chunk.type != chunks[0].type for chunk in chunks):
        chunks = [chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk for chunk in chunks]
    return pa.chunked_array(chunks)


class IndexRows:
    """Sums up what one task writes to its files."""

    def __init__(self, batch: int, file: str) -> None:
        """`file` is the name that the files of the task have in all tables."""
        self._batch, self._file = batch, file
        self._protocols, self._directions, self._kinds, self._statuses = Ids(), Ids(), Ids(), Ids()
        self._flows, self._subjects, self._observers = (
            FlowIds(),
            Ids(),
            Ids(),
        )  # sessions and connections share numbers: often they are the same
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        times = {"first_seen": "min", "last_seen": "max"}
        self._said = NumberSums(_SAID_BY, {"messages": "sum", "bytes": "sum", **times})
        self._happened: list[pa.Table] = []
        self._happened_most = index_sums.BUFFER_ROWS
        self._unread = Sums(("protocol", "session_id", "connection_id", "observer"), {"first_seen": "min"})
        self._minutes = NumberSums(("minute", "what"), {"messages": "sum", "bytes": "sum"})
        self._unread_minutes = Sums(("minute", "protocol"), {"quarantined": "sum"})
        self._partings: pa.Table | None = None

    def add(self, decoded: Mapping[str, Iterable[pa.RecordBatch]]) -> None:
        """Add decoded rows: table name -> batches. Other tables than `INPUTS` are ignored."""
        for batch in decoded.get(messages.TABLE.name, ()):
            if batch.num_rows:
                self._held.append(batch.select(_SAID))  # bodies are not held
                self._held_rows += batch.num_rows
                if self._held_rows >= index_sums.BUFFER_ROWS:
                    self._sum_messages()
        for batch in decoded.get(connections.TABLE.name, ()):
            if batch.num_rows:
                self._sum_connections(batch)
        for batch in decoded.get(quarantine.TABLE.name, ()):
            self._sum_quarantine(pa.table(_plain(batch, _UNREAD)))

    def _sum_messages(self) -> None:
        if not self._held:
            return
        held, self._held, self._held_rows = self._held, [], 0
        columns = {name: _column(held, name) for name in _SAID}
        connection = self._flows.codes(columns["connection_id"])
        is_same = all(batch.column("session_id").equals(batch.column("connection_id")) for batch in held)
        session = connection if is_same else self._flows.codes(columns["session_id"])
        flow = session << 32 | connection
        protocol, direction = self._protocols.codes(columns["protocol"]), self._directions.codes(columns["direction"])
        kind, status = self._kinds.codes(columns["kind"]), self._statuses.codes(columns["status"])
        observer = self._observers.codes(columns["observer"])
        ts, ones = columns["ts"].cast(pa.int64()), np.ones(len(flow), np.int64)
        what = protocol << 48 | direction << 32 | kind << 16 | status
        self._said.add(
            {
                "flow": flow,
                "what": what,
                "observer": observer,
                "messages": ones,
                "bytes": columns["size"],
                "first_seen": ts,
                "last_seen": ts,
            },
        )
        self._add_partings(columns, flow, what >> 32, observer, kind)
        subject = self._subjects.codes(columns["subject"]) << 32 | protocol << 16 | status
        by_minute = pa.table({"minute": ts, "what": subject, "messages": ones, "bytes": columns["size"]})
        if ts.null_count:
            by_minute = by_minute.filter(pc.is_valid(by_minute["minute"]))
        self._minutes.add({name: by_minute[name] for name in by_minute.column_names} | {"minute": _minutes(by_minute["minute"])})
        if self._minutes.is_full:
            self._minutes.total()
        if self._said.is_full or self._flows.is_untidy:
            self._settle()
            self._said.total()

    def _settle(self) -> None:
        """Give each session and each connection one number."""
        numbers = self._flows.settle()

        def settled(flow: IntArray) -> IntArray:
            both: IntArray = numbers[flow >> 32] << 32 | numbers[flow & 0xFFFF_FFFF]
            return both

        self._said.renumber("flow", settled)
        if self._partings is not None:
            flows = pa.array(settled(self._partings["flow"].to_numpy()))
            renumbered = self._partings.set_column(self._partings.column_names.index("flow"), "flow", flows)
            self._partings = first_rows(renumbered, list(_SAID_BY), _PARTING_ORDER)

    def _sum_connections(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch of `connections`: one for each connection, if its rows agree on its ends."""
        connections_of = encoded(pa.chunked_array([batch.column("connection_id")]))
        numbers = connections_of.indices.fill_null(len(connections_of.dictionary)).to_numpy(zero_copy_only=False)
        order = np.argsort(numbers, kind="stable")
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = numbers[order][1:] != numbers[order][:-1]
        starts = np.flatnonzero(is_first)
        firsts = order[starts]
        first_of = np.empty(len(order), np.int64)
        first_of[order] = np.repeat(firsts, np.diff(np.append(starts, len(order))))
        is_alike = all(_is_alike(batch.column(name), first_of) for name in ("protocol", "observer", *_ENDS))
        ts = batch.column("ts").cast(pa.int64())
        if is_alike:
            early, late = (integers(ts, how)[order] for how in ("min", "max"))
            first, last = np.minimum.reduceat(early, starts), np.maximum.reduceat(late, starts)
            batch = batch.take(pa.array(firsts))
            seen = [pa.array(first, mask=first == EMPTY["min"]), pa.array(last, mask=last == EMPTY["max"])]
        else:
            seen = [ts, ts]
        columns = _plain(batch, [name for name in _HAPPENED if name != "ts"])
        self._happened.append(pa.table({**columns, "first_seen": seen[0].cast(TIME), "last_seen": seen[1].cast(TIME)}))
        if sum(part.num_rows for part in self._happened) > self._happened_most:
            self._happened = [self._connections()]
            self._happened_most = max(index_sums.BUFFER_ROWS, 2 * self._happened[0].num_rows)

    def _connections(self) -> pa.Table:
        """Sum up rows of the same connection and ends; most have no other."""
        rows = pa.concat_tables(self._happened).combine_chunks()
        connections_of = encoded(rows["connection_id"])
        numbers = connections_of.indices.fill_null(len(connections_of.dictionary)).to_numpy(zero_copy_only=False)
        is_alone = np.bincount(numbers, minlength=1)[numbers] == 1
        if is_alone.all():
            return rows
        sums = Sums(("protocol", "connection_id", "observer", *_ENDS), {"first_seen": "min", "last_seen": "max"})
        several = rows.filter(pa.array(~is_alone))
        sums.add({name: several[name] for name in several.column_names})
        total = sums.total()
        assert total is not None  # noqa: S101 - it has at least the rows of `several`
        return pa.concat_tables([rows.filter(pa.array(is_alone)), total.select(rows.column_names)])

    def _add_partings(
        self, columns: Mapping[str, pa.ChunkedArray], flow: IntArray, what: IntArray, observer: IntArray, kind: IntArray
    ) -> None:
        """Keep the first close or error of each group: by time, then by id."""
        places = np.flatnonzero((kind == self._kinds["close"]) | (kind == self._kinds["error"]))
        if not len(places):
            return
        ids = columns["message_id"]
        found = pa.table(
            {
                "flow": flow[places],
                "what": what[places],
                "observer": observer[places],
                "ts": columns["ts"].take(pa.array(places)).cast(pa.int64()).fill_null(_NO_TIME),
                "message_id": ids.take(pa.array(places)).cast(pa.binary()),
                "is_error": kind[places] == self._kinds["error"],
            }
        )
        both = [found] if self._partings is None else [self._partings, found]
        self._partings = first_rows(pa.concat_tables(both), list(_SAID_BY), _PARTING_ORDER)

    def _sum_quarantine(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        known = rows.filter(pc.or_(pc.is_valid(rows["session_id"]), pc.is_valid(rows["clause"])))
        ids = {name: pc.fill_null(known[name], b"") for name in ("session_id", "connection_id")}
        self._unread.add({"protocol": known["protocol"], **ids, "observer": known["observer"], "first_seen": known["ts"]})
        timed = rows.filter(pc.and_(pc.is_valid(rows["protocol"]), pc.is_valid(rows["ts"])))
        counts = np.ones(timed.num_rows, np.int64)
        self._unread_minutes.add({"minute": _minutes(timed["ts"]), "protocol": timed["protocol"], "quarantined": counts})

    def rows(self) -> dict[str, list[pa.RecordBatch]]:
        """Return the rows of both index tables: table name -> batches."""
        self._sum_messages()
        self._settle()
        flows = (self._said_rows(), self._happened_rows(), self._unread_rows())
        minutes = (self._minute_rows(), self._unread_minute_rows())
        parts = ((CONNECTION_INDEX, flows), (MINUTE_INDEX, minutes))
        return {table.name: [self._fitted(table, part) for part in those if part] for table, those in parts}

    def _fitted(self, table: Table, columns: Columns) -> pa.RecordBatch:
        """The columns of a table in their order; those that are missing are null."""
        count = len(next(iter(columns.values())))
        known = dict(columns) | {"batch": pa.repeat(self._batch, count), "file": pa.repeat(self._file, count)}
        arrays = []
        for field in table.schema:
            values = known.get(field.name)
            if isinstance(values, np.ndarray):
                values = pa.array(values)
            elif isinstance(values, pa.ChunkedArray):
                values = values.combine_chunks()
            arrays.append(pa.nulls(count, field.type) if values is None else values.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=table.schema)

    def _said_rows(self) -> Columns | None:
        total = self._said.total()
        if total is None:
            return None
        what, count = total["what"].to_numpy(), total["messages"].to_numpy()
        kind, status = what >> 16 & 0xFFFF, what & 0xFFFF
        is_word = ~np.isin(kind, [0, *(self._kinds[name] for name in ("error", "close", "ack"))])
        sums = NumberSums(
            _SAID_BY,
            {
                "messages": "sum",
                "bytes": "sum",
                "keepalives": "sum",
                "errors": "sum",
                "first_seen": "min",
                "last_seen": "max",
                "last_word": "max",
                "greeted": "min",
            },
        )
        sums.add(
            {
                "flow": total["flow"],
                "what": what >> 32,
                "observer": total["observer"],
                "messages": count,
                "bytes": total["bytes"],
                "keepalives": np.where(kind == self._kinds["keepalive"], count, 0),
                "errors": np.where(np.isin(status, [0, self._statuses["ok"]]), 0, count),
                "first_seen": total["first_seen"],
                "last_seen": total["last_seen"],
                "last_word": pc.if_else(pa.array(is_word), total["last_seen"], pa.scalar(None, pa.int64())),
                "greeted": pc.if_else(pa.array(kind == self._kinds["handshake"]), total["first_seen"], pa.scalar(None, pa.int64())),
            }
        )
        rows = sums.total()
        assert rows is not None  # noqa: S101 - it has at least the rows of `total`
        if self._partings is not None:
            rows = rows.join(self._partings, list(_SAID_BY), use_threads=False).combine_chunks()
        flow, what = rows["flow"].to_numpy(), rows["what"].to_numpy()
        return {name: rows[name] for name in rows.column_names if name in CONNECTION_INDEX.schema.names} | {
            "protocol": self._protocols.values(what >> 16, pa.string()),
            "session_id": self._flows.values(flow >> 32),
            "connection_id": self._flows.values(flow & 0xFFFF_FFFF),
            "direction": self._directions.values(what & 0xFFFF, pa.string()),
            "observer": self._observers.values(rows["observer"].to_numpy(), pa.string()),
            "parting": None if self._partings is None else _partings(rows),
        }

    def _happened_rows(self) -> Columns | None:
        if not self._happened:
            return None
        total = self._connections()
        keys = ["protocol", "connection_id", "observer"]
        if len(pc.unique(total["connection_id"])) == total.num_rows:
            return {name: total[name] for name in total.column_names} | {"session_id": total["connection_id"]}
        sums = total.group_by(keys, use_threads=False).aggregate([("first_seen", "min"), ("last_seen", "max")])
        ends = first_rows(total, keys, list(_ENDS))
        # Both have each key once; equal order puts them side by side.
        sums, ends = (rows.take(pc.sort_indices(rows, [(key, "ascending") for key in keys])) for rows in (sums, ends))
        return {
            **{name: ends[name] for name in (*keys, *_ENDS)},
            "session_id": ends["connection_id"],
            "first_seen": sums["first_seen_min"],
            "last_seen": sums["last_seen_max"],
        }

    def _unread_rows(self) -> Columns | None:
        total = self._unread.total()
        return None if total is None else {name: total[name] for name in total.column_names}

    def _minute_rows(self) -> Columns | None:
        total = self._minutes.total()
        if total is None:
            return None
        what, count = total["what"].to_numpy(), total["messages"].to_numpy()
        sums = NumberSums(("minute", "what"), {"messages": "sum", "bytes": "sum", "errors": "sum"})
        errors = np.where(np.isin(what & 0xFFFF, [0, self._statuses["ok"]]), 0, count)
        sums.add({"minute": total["minute"], "what": what >> 16, "messages": count, "bytes": total["bytes"], "errors": errors})
        rows = sums.total()
        assert rows is not None  # noqa: S101 - it has at least the rows of `total`
        what = rows["what"].to_numpy()
        return {name: rows[name] for name in ("minute", "messages", "bytes", "errors")} | {
            "protocol": self._protocols.values(what & 0xFFFF, pa.string()),
            "subject": self._subjects.values(what >> 16, pa.string()),
            "quarantined": pa.array(np.zeros(len(what), np.int64)),
        }

    def _unread_minute_rows(self) -> Columns | None:
        total = self._unread_minutes.total()
        if total is None:
            return None
        nothing = pa.array(np.zeros(total.num_rows, np.int64))
        return {name: total[name] for name in total.column_names} | dict.fromkeys(("messages", "bytes", "errors"), nothing)


def _is_alike(column: pa.Array, others: IntArray) -> bool:
    """Whether each value is that of another row."""
    codes = column.indices if pa.types.is_dictionary(column.type) else column.dictionary_encode().indices
    numbers = codes.fill_null(-1).to_numpy(zero_copy_only=False)
    return bool((numbers == numbers[others]).all())


def _plain(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, pa.Array]:
    """Columns of a batch, without dictionaries."""
    columns = {name: batch.column(name) for name in names}
    return {name: each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for name, each in columns.items()}


def _minutes(times: pa.ChunkedArray) -> pa.Array:
    """Return when the minute of each time begins, in microseconds since 1970. No time is null."""
    micros = times.cast(pa.int64()).to_numpy()
    return pa.array(micros - micros % _MINUTE_US)


def _partings(rows: pa.Table) -> pa.Array:
    """Put the columns of partings together; null where there is none."""
    ts, ids, is_error = (rows[name].combine_chunks() for name in ("ts", "message_id", "is_error"))
    times = pc.if_else(pc.equal(ts, _NO_TIME), pa.scalar(None, pa.int64()), ts).cast(TIME)
    how = pc.if_else(is_error, "error", "bye")
    fields = [PARTING.field(place) for place in range(PARTING.num_fields)]
    return pa.StructArray.from_arrays([times, ids, how], fields=fields, mask=pc.is_null(is_error))
