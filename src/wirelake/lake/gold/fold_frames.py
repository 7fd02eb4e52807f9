"""Build `exchanges`, `violations` and `sessions` from DataFrames: the same fold as in a lake, behind a shuffle.

Rows of every session come together in one partition: first what the index, `connections` and `quarantine` say of it, then its messages in
order. Rows of messages cross into Python here, which costs several times what the tasks of a lake need: they read Parquet themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake import protocols
from wirelake.lake.gold.fold.facts import CONNECTION_COLUMNS, INDEX_COLUMNS, IS_PRIMARY, QUARANTINE_COLUMNS, VIEW_LINK, session_facts
from wirelake.lake.gold.fold.rows import unclaimed_rows
from wirelake.lake.gold.fold.seen import analyzer_of, columns_of, table_of
from wirelake.lake.gold.fold.sessions import Emit, SessionFacts, SessionFold
from wirelake.lake.gold.view_frames import apart_frame, link_frame, view_frame, views_of
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables import violations
from wirelake.lake.tables.catalog import table as table_named
from wirelake.lake.tables.exchanges import LATE_SECONDS
from wirelake.lake.tables.protocols import LINKS, NODES
from wirelake.protocols.analyzer import NO_TIME

__all__ = ["INPUTS", "fold_frames"]

INPUTS: Final = ("messages", "connections", "quarantine", "connection_index", *protocols.names())
"""What the three tables are built from."""

_INDEX, _EVENT, _UNREADABLE, _MESSAGE = range(4)
"""Where a row comes from; rows of a session are sorted by it."""
_KEY: Final = ("key", "protocol", "origin", "rank", "ts", "message_id")
"""Columns that rows are dealt and sorted by."""
_RANK: Final = "struct<ts:timestamp,message_id:binary>"
"""By what the connections of a session are sorted, where its protocol wants it."""


def fold_frames(name: str, *, late_seconds: float = LATE_SECONDS, **inputs: DataFrame) -> DataFrame:
    """The table of this name, from DataFrames with the schemas of the tables they are named after."""
    index = inputs["connection_index"].localCheckpoint()  # used a dozen times; else Spark builds it each time, and decodes captures for it
    seen = views_of(index)
    links = link_frame(index, seen)
    inputs = {one: apart_frame(rows, seen) if "observer" in rows.columns else rows for one, rows in inputs.items()}
    tables = index.select("connection_id", "observer").distinct()
    tables = apart_frame(tables.withColumn("former", sql.col("connection_id")), seen)
    index = apart_frame(index, seen)
    users = _users(index, links)
    index = index.join(links, "connection_id", "left").withColumn("key", sql.coalesce("link", "session_id"))
    index = index.join(view_frame(index, seen), "key", "left").join(tables, ["connection_id", "observer"], "left")
    index = index.withColumn("is_primary", sql.coalesce("is_counted", sql.lit(True)))
    known = [
        _part(index, _INDEX, "index", [*INDEX_COLUMNS, "observer", "former", VIEW_LINK, IS_PRIMARY]),
        _part(
            inputs["connections"].join(users, ["connection_id", "protocol"], "left").where("key IS NOT NULL"),
            _EVENT,
            "event",
            CONNECTION_COLUMNS,
        ),
        _part(
            inputs["quarantine"].join(links, "connection_id", "left").withColumn("key", sql.coalesce("link", "session_id", sql.lit(b""))),
            _UNREADABLE,
            "unreadable",
            QUARANTINE_COLUMNS,
        ),
    ]
    said = [_messages(protocol, inputs, links) for protocol in protocols.names()]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), [*known, *said])
    newest = {
        row["protocol"]: row["at"]
        for row in index.where("direction IS NOT NULL").groupBy("protocol").agg(sql.unix_micros(sql.max("last_seen")).alias("at")).collect()
        if row["at"] is not None
    }
    task = _Task(name, late_seconds, newest)
    return rows.repartition("key").sortWithinPartitions(*_KEY).mapInArrow(task, spark_schema(table_named(name)))


def _users(index: DataFrame, links: DataFrame) -> DataFrame:
    """The sessions that use a connection. One without a message is a session of its own, unless its sessions are nodes."""
    of_node = sql.col("protocol").isin(*NODES)
    used = index.where(sql.col("direction").isNotNull() | ~of_node).join(links, "connection_id", "left")
    return used.select("connection_id", "protocol", sql.coalesce("link", "session_id").alias("key")).distinct()


def _part(rows: DataFrame, origin: int, name: str, columns: Iterable[str]) -> DataFrame:
    """Rows of one origin, with their columns in a struct of this name."""
    missing = {} if "message_id" in rows.columns else {"message_id": sql.lit(None).cast("binary")}
    missing |= {} if "ts" in rows.columns else {"ts": sql.lit(None).cast("timestamp")}
    missing |= {} if "rank" in rows.columns else {"rank": sql.lit(None).cast(_RANK)}
    return rows.withColumns(missing | {"origin": sql.lit(origin)}).select(*_KEY, sql.struct(*columns).alias(name))


def _messages(protocol: str, inputs: Mapping[str, DataFrame], links: DataFrame) -> DataFrame:
    own = table_of(protocol)
    rows = inputs[own] if own == protocol else inputs[own].where(sql.col("protocol") == protocol)
    columns = dict.fromkeys([*columns_of(analyzer_of(protocol).MESSAGE), "session_id", "connection_id", "ts", "message_id"])
    rows = rows.join(links, "connection_id", "left").withColumn("key", sql.coalesce("link", "session_id"))
    ranked_by = analyzer_of(protocol).RANKED_BY
    if ranked_by is not None:
        at = sql.struct("ts", "message_id")
        first = sql.coalesce(sql.min(sql.when(sql.col("type_name") == ranked_by, at)), sql.min(at))
        rows = rows.join(rows.groupBy("connection_id").agg(first.cast(_RANK).alias("rank")), "connection_id")
    return _part(rows.withColumn("protocol", sql.lit(protocol)), _MESSAGE, f"{protocol}_message", columns)


class _Task:
    """What runs in a Python worker: folds the sessions of one partition."""

    def __init__(self, name: str, late_seconds: float, newest: Mapping[str, int]) -> None:
        self._name = name
        self._late_seconds = late_seconds
        self._newest = dict(newest)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of the table. Rows of a session may be divided between batches."""
        found: list[pa.Table] = []

        def emit(name: str, table: pa.Table) -> None:
            if name == self._name:
                found.append(table)

        session: _Session | None = None
        for batch in batches:
            for rows in _runs(batch):
                key, protocol = rows["key"][0].as_py(), rows["protocol"][0].as_py()
                if session is None or (session.key, session.protocol) != (key, protocol):
                    unclaimed = None if session is None else session.finish(key)
                    session = _Session(key, protocol, unclaimed, emit, partial(self._fold, protocol, emit))
                session.add(rows)
            yield from _given(found, self._name)
        if session is not None:
            session.finish(None)
        yield from _given(found, self._name)

    def _fold(self, protocol: str, emit: Emit, facts: dict[bytes, SessionFacts], links: Mapping[bytes, bytes] | None) -> SessionFold:
        newest = self._newest.get(protocol, NO_TIME)
        return SessionFold(protocol, facts, emit, late_seconds=self._late_seconds, newest=newest, links=links)


def _given(found: list[pa.Table], name: str) -> Iterator[pa.RecordBatch]:
    for table in found:
        yield from table.cast(table_named(name).schema).to_batches()
    found.clear()


class _Session:
    """One session, of one protocol. Its messages are fed as they come; what is known of it comes before them."""

    def __init__(self, key: bytes, protocol: str | None, unclaimed: pa.Table | None, emit: Emit, fold: Callable[..., SessionFold]) -> None:
        self.key = key
        self.protocol = protocol
        self._emit = emit
        self._make = fold
        self._held: list[pa.RecordBatch] = []
        self._unclaimed = unclaimed
        """Unreadable bytes of the session, found in no protocol of it yet."""
        self._fold: SessionFold | None = None
        is_ranked = protocol is not None and analyzer_of(protocol).RANKED_BY is not None
        self._ranks: dict[bytes, int] | None = {} if is_ranked else None
        """Connection -> its place, in the order in which they come."""

    def add(self, rows: pa.RecordBatch) -> None:
        """More rows of the session: first what is known of it, then messages."""
        is_message = pc.equal(rows["origin"], _MESSAGE)
        self._held.append(rows.filter(pc.invert(is_message)))
        said = rows.filter(is_message)
        if said.num_rows:
            if self._fold is None:
                self._begin(has_messages=True)
            assert self._fold is not None  # noqa: S101
            messages = _struct(pa.Table.from_batches([said]), f"{self.protocol}_message")
            if self._ranks is not None:
                for connection_id in pc.unique(messages["connection_id"]).to_pylist():
                    self._ranks.setdefault(connection_id, len(self._ranks))
            self._fold.feed(messages, self._ranks)

    def finish(self, key: bytes | None) -> pa.Table | None:
        """The session has no more rows of this protocol; rows of the session `key` follow. Returns what that session may claim."""
        if self._fold is None:
            self._begin(has_messages=False)
        if self._fold is not None:
            self._fold.finish()
        if self._unclaimed is not None and key == self.key:
            return self._unclaimed
        if self._unclaimed is not None:
            self._emit(violations.TABLE.name, unclaimed_rows(self._unclaimed))
        return None

    def _begin(self, *, has_messages: bool) -> None:
        """All that is known of the session came: begin the fold, unless it only has unreadable bytes."""
        known = pa.Table.from_batches(self._held)
        parts = [known.filter(pc.equal(known["origin"], origin)) for origin in range(_MESSAGE)]
        unread = _struct(parts[_UNREADABLE], "unreadable").append_column("protocol", parts[_UNREADABLE]["protocol"])
        unread = unread.set_column(0, "session_id", pa.array([self.key] * unread.num_rows, pa.binary()))
        if self._unclaimed is not None:
            unread = pa.concat_tables([self._unclaimed, unread])
        if self.protocol is None or not self.key or not (has_messages or parts[_EVENT].num_rows):
            self._unclaimed = unread if unread.num_rows else None
            return
        self._unclaimed = None
        index = _struct(parts[_INDEX], "index")
        index = index.set_column(
            index.schema.get_field_index("session_id"), "session_id", pa.array([self.key] * index.num_rows, pa.binary())
        )
        links = dict.fromkeys(index["connection_id"].to_pylist(), self.key) if self.protocol in LINKS else None
        facts = session_facts(self.protocol, index, _struct(parts[_EVENT], "event"), unread, links)
        if (known_facts := facts.get(self.key)) is not None:
            left_out = index.filter(pc.and_(pc.is_valid(index["direction"]), pc.invert(index[IS_PRIMARY])))
            known_facts.uncounted = sorted(set(zip(*(left_out[one].to_pylist() for one in ("former", "observer")), strict=True)), key=str)
        self._fold = self._make(facts, links)


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows of the same session and protocol, which are together."""
    is_new = np.zeros(batch.num_rows, bool)
    for name in ("key", "protocol"):
        codes = batch[name].dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        is_new[1:] |= codes[1:] != codes[:-1]
    for first, end in pairwise([0, *np.flatnonzero(is_new).tolist(), batch.num_rows]):
        if first < end:
            yield batch.slice(first, end - first)


def _struct(rows: pa.Table, name: str) -> pa.Table:
    """The struct column of this name as a table."""
    column = rows[name].combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    return pa.table(array.flatten(), names=[field.name for field in array.type])
