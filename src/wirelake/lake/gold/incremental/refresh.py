"""Refresh gold tables incrementally, at a cost that depends on what is new.

A new batch affects some sessions. Their rows in silver tables are read, wherever in history they are. Their rows in gold tables are
rebuilt, and the files with these rows are replaced. Minutes and pairs of peers add up sums of batches, so only affected ones are added up
again. The result is the same however history was divided into batches, and in whatever order they came.

All tables are committed together, after all files are written. A refresh that died is simply repeated.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from wirelake.lake.gold import metrics, topology
from wirelake.lake.gold.arrow_metrics import metrics_of
from wirelake.lake.gold.arrow_topology import topology_of
from wirelake.lake.gold.fold.security import PROTOCOL
from wirelake.lake.gold.fold.security_work import is_threatened
from wirelake.lake.gold.fold.work import FOLDED
from wirelake.lake.gold.incremental import index, minute_index
from wirelake.lake.gold.incremental.affected import Affected, affected, minutes
from wirelake.lake.gold.incremental.fold_sessions import SecurityNeed, fold_sessions
from wirelake.lake.gold.incremental.judge_security import judge_security, plan_judgement
from wirelake.lake.gold.incremental.rewrite import Rebuilding
from wirelake.lake.gold.incremental.sum_minutes import sums_in_tasks
from wirelake.lake.gold.incremental.unconfirmed import connection_rows, minute_rows, unconfirmed_messages
from wirelake.lake.gold.uncounted import UNCOUNTED, uncounted_minutes
from wirelake.lake.session.start import set_for_now
from wirelake.lake.sources.tables import frame, spark_schema
from wirelake.lake.store import delta, gold_commit, journal, settings
from wirelake.lake.store.slots import SLOTS, slot
from wirelake.lake.tables import ledger, security, violations
from wirelake.lake.tables.catalog import GOLD
from wirelake.lake.tables.index import CONNECTION_INDEX, MINUTE_INDEX
from wirelake.lake.tables.schema import TIME, Table
from wirelake.lake.views import counted, resolved

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore

__all__ = ["refresh"]

_MINUTE_US: Final = 60_000_000
_LOG: Final = logging.getLogger("wirelake.lake")
_EVERY_SLOT: Final = frozenset(range(SLOTS))
_UTC: Final = {"spark.sql.session.timeZone": "UTC"}

DRIVER_ROWS: Final = 2_000_000
"""Sums of up to this many rows are added up on the driver: planning a Spark job takes longer. Beyond, Spark SQL does it."""
TASK_ROWS: Final = 500_000
"""Tables with more rows are added up in tasks before."""


def refresh(
    spark: SparkSession,
    lake: Path,
    keys: TrustStore | None = None,
    tell: Callable[[str], None] = lambda _: None,
    *,
    judge_all: bool = True,
) -> list[str]:
    """Refresh stale gold tables; with keys, check all of history by them.

    Returns the names of the tables that were built.

    `tell` is called with the name of each table before it is built, and with `index` before all of them.

    Without `judge_all` keys are only used for sessions that new batches affect, for callers that refresh often with the same keys.
    It is idempotent, and may be interrupted at any point. The caller holds the lake's lock.
    """
    gold_commit.finish(lake)
    gold_commit.sweep(lake)
    newest = delta.batch(lake, ledger.TABLE)
    old = gold_commit.stale(lake, keys if judge_all else None)
    if newest is None or not old:
        return []
    judging = settings.of(lake).keys(keys)
    built = 0 if gold_commit.has_other_rules(lake) else min(delta.batch(lake, table) or 0 for table in GOLD)
    with _scratch(lake) as scratch:
        work = _Refresh(spark, lake, built, newest, scratch, tell)
        if built < newest:
            work.catch_up(judging, judge_all)
        else:
            work.judge(judging)
        gold_commit.publish(lake, newest, list(work.tables.changes.values()))
    return [table.name for table in old]


@contextmanager
def _scratch(lake: Path) -> Iterator[Path]:
    """Create a scratch folder for one refresh; delete those of refreshes that died."""
    home = lake / journal.FOLDER / "scratch"
    shutil.rmtree(home, ignore_errors=True)
    at = home / uuid.uuid4().hex
    at.mkdir(parents=True)
    try:
        yield at
    finally:
        shutil.rmtree(home, ignore_errors=True)


class _Refresh:
    """One refresh: gold tables have batches up to `built`, and get those up to `newest`.

    With `built` 0 all rows are replaced.
    """

    def __init__(self, spark: SparkSession, lake: Path, built: int, newest: int, scratch: Path, tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._lake = lake
        self._built = built
        self._newest = newest
        self._scratch = scratch
        self._tell = tell
        self.tables = Rebuilding(lake)
        self._unconfirmed = unconfirmed_messages(lake)

    def judge(self, keys: TrustStore | None) -> None:
        """Check all of history by these keys."""
        self._tell(security.TABLE.name)
        self._security(affected(self._lake, 0, self._newest), keys)

    def catch_up(self, keys: TrustStore | None, judge_all: bool) -> None:
        """Rebuild what new batches affect."""
        self._tell("index")
        index.extend(self._spark, self._lake, self._newest)
        what = affected(self._lake, self._built, self._newest)
        _LOG.info(
            "batches %s affect sessions in %d older ones; protocols: %s", list(what.fresh), len(what.older), ", ".join(what.protocols)
        )
        is_judged = keys is not None and judge_all
        self._by_session(what, affected(self._lake, 0, self._newest) if is_judged and self._built else what, keys)
        self._tell(metrics.TABLE.name)
        self._metrics(what)
        self._tell(topology.TABLE.name)
        if self._rows_in(CONNECTION_INDEX) <= DRIVER_ROWS:
            self._small_topology()
        else:
            with set_for_now(self._spark, _UTC):
                self._topology(is_all=not self._built or bool(what.changed))

    def _rows_in(self, *tables: Table) -> int:
        return sum(file.rows for table in tables for file in delta.entries(self._lake, table))

    def _by_session(self, what: Affected, judged: Affected, keys: TrustStore | None) -> None:
        """Rebuild `exchanges`, `violations` and `sessions`: fold affected sessions. Rebuild `security`: judge sessions."""
        for table in (*FOLDED, security.TABLE):
            self._tell(table.name)
        plan = partial(plan_judgement, self._spark, self._lake, judged, self._scratch, keys)
        need = SecurityNeed(plan, judged.is_all, self._has_packets(judged), judged.keys)
        changes, is_judged = fold_sessions(self._spark, self._lake, what, self._newest, self._scratch, need)
        self.tables.changes.update({change.table: change for change in changes})
        if not is_judged:
            self._security(judged, keys)
        elif security.TABLE.name not in self.tables.changes:
            self.tables.leave(security.TABLE)

    def _security(self, what: Affected, keys: TrustStore | None) -> None:
        """Rebuild `security`: judge affected sessions."""
        if not self._has_packets(what) and not self._threatened(what):
            self.tables.leave(security.TABLE)
            return
        broken = self.tables.entries_afterwards(violations.TABLE)
        planned = plan_judgement(self._spark, self._lake, what, self._scratch, keys)
        self.tables.changes[security.TABLE.name] = judge_security(self._spark, planned, broken)

    def _has_packets(self, what: Affected) -> bool:
        """Whether packets of affected sessions are judged, or rows of sources that are gone may be left."""
        return PROTOCOL in what.protocols or (not self._built and self._rows_in(security.TABLE) > 0)

    def _threatened(self, what: Affected) -> bool:
        """Whether a violation of an affected session is, or was, a threat."""
        change = self.tables.changes[violations.TABLE.name]
        at = delta.folder(self._lake, violations.TABLE)
        return is_threatened([at / file.path for file in (*change.removed, *change.added)], what.keys)

    def _minutes(self, what: Affected) -> list[int]:
        """The minutes that change."""
        changed: dict[str, list[Path]] = {}
        for table, column in metrics.TOLD:
            change = self.tables.changes[table.name]
            changed[column] = [delta.folder(self._lake, table) / file.path for file in (*change.removed, *change.added)]
        found = set(minutes(self._lake, what, changed))
        if what.changed:
            found |= set(self._uncounted(what, what.changed)["minute"].cast(pa.int64()).to_pylist())
        is_affected = pc.is_in(self._unconfirmed["connection_id"], value_set=pc.unique(what.index["connection_id"]))
        found |= set(minute_rows(self._unconfirmed.filter(is_affected))["minute"].cast(pa.int64()).to_pylist())
        return sorted(found)

    def _uncounted(self, what: Affected, sessions: Collection[bytes], chosen: Sequence[int] = ()) -> pa.Table:
        """Sums of the messages of these sessions, by minute; near these minutes only, if there are any."""
        index = delta.dataset(self._lake, CONNECTION_INDEX).to_table(filter=pads.field("batch") <= self._newest)
        edges = (chosen[0], chosen[-1] + _MINUTE_US) if chosen else None
        return uncounted_minutes(self._lake, resolved(index, what.views), what.views, sessions, edges)

    def _metrics(self, what: Affected) -> None:
        """Rebuild the minutes with new messages, or with changed rows in other gold tables.

        Large tables are added up in tasks first. If even their sums are many, Spark SQL does the rest.
        """
        chosen = self._minutes(what) if self._built else []
        told = sum(file.rows for table, _ in metrics.TOLD for file in self.tables.entries_afterwards(table))
        if told <= TASK_ROWS:
            parts = [self._told(table, column, chosen) for table, column in metrics.TOLD]
        else:
            parts = [self._summed(table, column, chosen) for table, column in metrics.TOLD]
        others = [session_id for session_id, view in what.views.of_session.items() if not view.is_primary]
        uncounted = self._uncounted(what, others, chosen) if others else MINUTE_INDEX.schema.empty_table().select(UNCOUNTED)
        lost = counted(resolved(self._unconfirmed, what.views), what.views)  # all messages of other views are among the others
        uncounted = pa.concat_tables([uncounted, minute_rows(lost)])
        if self._rows_in(MINUTE_INDEX) + sum(rows.num_rows for rows in parts) <= DRIVER_ROWS:
            self._small_metrics(chosen, parts, uncounted)
        else:
            with set_for_now(self._spark, _UTC):
                self._large_metrics(chosen, uncounted)

    def _told(self, table: Table, column: str, chosen: Sequence[int]) -> pa.Table:
        """Rows of these minutes of a gold table, with all that metrics need."""
        is_near = pads.field("is_primary") & _is_near(column, chosen) if chosen else pads.field("is_primary")
        columns = [name for name in metrics.COLUMNS if name in table.schema.names]
        return delta.dataset(self._lake, table, self.tables.files_afterwards(table)).to_table(columns=columns, filter=is_near)

    def _summed(self, table: Table, column: str, chosen: Sequence[int]) -> pa.Table:
        """The same, added up in tasks."""
        edges = (chosen[0], chosen[-1] + _MINUTE_US) if chosen else None
        return sums_in_tasks(self._spark, self.tables.files_afterwards(table), table, column, edges, self._scratch)

    def _small_metrics(self, chosen: Sequence[int], told: Sequence[pa.Table], uncounted: pa.Table) -> None:
        """Rebuild these minutes in this process; all of them, if gold tables are built anew."""
        within = pa.array(chosen, pa.int64())

        def in_minutes(column: str, rows: pa.Table) -> pa.Table:
            times = rows[column].cast(pa.int64())
            return rows.filter(pc.is_in(pc.subtract(times, _remainder(times)), value_set=within)) if self._built else rows

        said = delta.dataset(self._lake, MINUTE_INDEX).to_table(filter=pads.field("batch") <= self._newest)
        told_exchanges, told_violations = (in_minutes(column, rows) for (_, column), rows in zip(metrics.TOLD, told, strict=True))
        built = metrics_of(in_minutes("minute", said), told_exchanges, told_violations, in_minutes("minute", uncounted))

        def stays(before: pa.Table) -> tuple[pa.Table, list[bytes]]:
            kept = before.filter(pc.invert(pc.is_in(before["minute"].cast(pa.int64()), value_set=within)))
            return kept, _minute_keys(kept)

        slots = frozenset(slot(str(minute).encode()) for minute in chosen) if self._built else _EVERY_SLOT
        self.tables.replace_rows(metrics.TABLE, built, _minute_keys(built), slots, stays if self._built else None)

    def _small_topology(self) -> None:
        """Rebuild all pairs of peers in this process."""
        index = delta.dataset(self._lake, CONNECTION_INDEX).to_table(filter=pads.field("batch") <= self._newest)
        rows = topology_of(index, connection_rows(self._unconfirmed, self._newest))
        keys = ["/".join(pair).encode() for pair in zip(*(rows[name].to_pylist() for name in topology.TABLE.grain), strict=True)]
        self.tables.replace_rows(topology.TABLE, rows, keys, _EVERY_SLOT, None)

    def _large_metrics(self, changed: Sequence[int], uncounted: pa.Table) -> None:
        """Rebuild these minutes by Spark SQL; all of them, if gold tables are built anew."""
        said = [frame(self._spark, self._lake, MINUTE_INDEX).where(sql.col("batch") <= self._newest)]
        said += [self.tables.afterwards(self._spark, table) for table, _ in metrics.TOLD]
        less = self._scratch / "uncounted.parquet"
        pq.write_table(uncounted.select(UNCOUNTED), less)
        said.append(self._spark.read.parquet(f"file://{less.absolute()}"))
        times = ("minute", *(column for _, column in metrics.TOLD), "minute")
        slots = frozenset(slot(str(minute).encode()) for minute in changed)
        at = self._scratch / "minutes.parquet"
        pq.write_table(pa.table({"minute_us": pa.array(changed, pa.int64())}), at)
        chosen = sql.broadcast(self._spark.read.schema("minute_us bigint").parquet(f"file://{at.absolute()}"))

        def within(rows: DataFrame, column: str, how: str = "left_semi") -> DataFrame:
            named = rows.withColumn("minute_us", sql.unix_micros(minute_index.minute(column)))
            return named.join(chosen, "minute_us", how).drop("minute_us")

        if self._built:  # else all there is, is new
            said = [within(rows, column) for rows, column in zip(said, times, strict=True)]
        self.tables.replace(
            self._spark,
            metrics.TABLE,
            metrics.build(*said),
            key=sql.unix_micros("minute").cast("string"),
            slots=slots if self._built else _EVERY_SLOT,
            more=self._rows_in(MINUTE_INDEX),
            others=(lambda before: within(before, "minute", "left_anti")) if self._built else None,
        )

    def _topology(self, *, is_all: bool) -> None:
        """Rebuild the pairs of peers with new traffic, by Spark SQL."""
        index = frame(self._spark, self._lake, CONNECTION_INDEX).where(sql.col("batch") <= self._newest)
        less = self._scratch / "unconfirmed.parquet"
        pq.write_table(connection_rows(self._unconfirmed, self._newest), less)
        left = index.unionByName(self._spark.read.schema(spark_schema(CONNECTION_INDEX)).parquet(f"file://{less.absolute()}"))
        rows = topology.pairs(index, left)
        grain = list(topology.TABLE.grain)
        slots: Collection[int] = _EVERY_SLOT
        others: Callable[[DataFrame], DataFrame] | None = None
        if not is_all:
            at = self._scratch / "pairs"
            rows.where(sql.col("batch") > self._built).select(grain).distinct().write.parquet(f"file://{at.absolute()}")
            slots = {slot("/".join(pair.values()).encode()) for pair in pads.dataset(at, format="parquet").to_table().to_pylist()}
            kinds = spark_schema(topology.TABLE)
            chosen = self._spark.read.schema(kinds).parquet(f"file://{at.absolute()}").select(grain)
            rows = rows.join(chosen, grain, "left_semi")

            def others(before: DataFrame) -> DataFrame:
                return before.join(chosen, grain, "left_anti")

        self.tables.replace(
            self._spark,
            topology.TABLE,
            topology.build(rows),
            key=sql.concat_ws("/", *grain),
            slots=slots,
            more=self._rows_in(CONNECTION_INDEX),
            others=others,
        )


def _is_near(column: str, minutes: Sequence[int]) -> pads.Expression:
    """Whether a time lies between the first and the last of some minutes: readers skip row groups without any."""
    first, last = (pa.scalar(edge, pa.int64()).cast(TIME) for edge in (minutes[0], minutes[-1] + _MINUTE_US))
    return (pads.field(column) >= first) & (pads.field(column) < last)


def _remainder(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Microseconds since the minute began."""
    return pc.subtract(times, pc.multiply(pc.floor(pc.divide(times.cast(pa.float64()), float(_MINUTE_US))).cast(pa.int64()), _MINUTE_US))


def _minute_keys(rows: pa.Table) -> list[bytes]:
    return [str(minute).encode() for minute in rows["minute"].cast(pa.int64()).to_pylist()]
