"""Rebuild `security`: tasks judge the packets of affected sessions.

The driver plans the work from the connection index and collects names of files. Keys travel in the function that tasks run: they are in no
file, plan or log. A small refresh judges in the task that folds (`fold_sessions.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from wirelake.lake.gold.fold import security_work
from wirelake.lake.gold.fold.security import PROTOCOL
from wirelake.lake.gold.fold.security_work import PASS_ROWS, Judged, SecurityWork
from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.incremental.key_ranges import KEY_RANGE_ROWS
from wirelake.lake.gold.incremental.plan_items import ItemPlan, covers, plan_items
from wirelake.lake.session.tasks import run_tasks
from wirelake.lake.store import delta, settings
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_commit import Change
from wirelake.lake.tables import security, violations
from wirelake.lake.tables.index import CONNECTION_INDEX

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore

__all__ = ["JudgeTask", "Judgement", "judge_security", "plan_judgement"]

_LOG: Final = logging.getLogger("wirelake.lake")


class Judgement:
    """Judging the packets of some sessions, as planned."""

    def __init__(self, planned: ItemPlan, work: SecurityWork, keys: TrustStore | None) -> None:
        self.planned: Final = planned
        self._work = work
        self._keys = keys

    def task(self, known: Sequence[File]) -> JudgeTask:
        """What tasks run. `known` has files of `violations` as that table will be, those of the task itself excepted."""
        return JudgeTask(msgspec.msgpack.encode(self._work), self._keys, self.planned.tasks, list(known))

    def change(self, results: Sequence[Judged]) -> Change:
        """Which files of the table go and come, if tasks say so."""
        added = sorted((one.file for one in results if one.file is not None), key=lambda file: file.path)
        _LOG.info("%s packets judged: %s rows", f"{sum(one.packets for one in results):,}", f"{sum(file.rows for file in added):,}")
        return Change(security.TABLE.name, self.planned.removed[security.TABLE.name], added)


class JudgeTask:
    """Runs in tasks. Keys are in it: it is pickled, and never written down."""

    def __init__(self, given: bytes, keys: TrustStore | None, tasks: list[list[int]], known: list[File]) -> None:
        self._given = given
        self._keys = keys
        self._tasks = tasks
        self._known = known

    def __call__(self, number: int) -> bytes:
        """Judge the items of a task."""
        return msgspec.msgpack.encode(self.judge(number))

    def judge(self, number: int, removed: Collection[str] = (), added: Sequence[File] = ()) -> list[Judged]:
        """The same, if the task removed and added these files of `violations` before."""
        work = msgspec.msgpack.decode(self._given, type=SecurityWork)
        broken = [*(file for file in self._known if file.path not in removed), *added]
        return [security_work.run(work, self._keys, item, _broken(work, item, broken)) for item in self._tasks[number]]


def _broken(work: SecurityWork, item: int, files: Sequence[File]) -> list[Path]:
    """The files of `violations` that may have sessions of an item."""
    at = delta.folder(Path(work.plan.lake), violations.TABLE)
    return [at / file.path for file in files if covers(work.plan.items[item], file)]


def plan_judgement(
    spark: SparkSession, lake: Path, what: Affected, scratch: Path, keys: TrustStore | None, like: ItemPlan | None = None
) -> Judgement:
    """Plan how tasks judge affected sessions. With `like`, they are the tasks of that plan; all sessions are affected then."""
    index = what.index.filter(pc.equal(what.index["protocol"], PROTOCOL))
    planned = plan_items(spark, lake, [security.TABLE], what, scratch, index=index, most=KEY_RANGE_ROWS, like=like)
    events = _events(lake, index, scratch / "security-events.parquet")
    return Judgement(planned, SecurityWork(planned.plan, str(events), PASS_ROWS, settings.of(lake).freshness), keys)


def judge_security(spark: SparkSession, judgement: Judgement, broken: Sequence[File]) -> Change:
    """Judge sessions, and return which files of the table go and come. Nothing is committed here.

    `broken` has the files of `violations`, as that table will be.
    """
    started = time.monotonic()
    count = len(judgement.planned.tasks)
    results = run_tasks(spark, judgement.task(broken), count)
    _LOG.info("security: %d tasks, %.1f s", count, time.monotonic() - started)
    return judgement.change([one for result in results for one in msgspec.msgpack.decode(result, type=list[Judged])])


def _events(lake: Path, index: pa.Table, path: Path) -> Path:
    """Write which files have events of the connections in these rows, from all of the connection index.

    The endpoints of a connection must not depend on which of its sessions are affected.
    """
    is_event = (pads.field("protocol") == PROTOCOL) & pads.field("direction").is_null()
    events = delta.dataset(lake, CONNECTION_INDEX).to_table(columns=["connection_id", "batch", "file"], filter=is_event)
    pq.write_table(events.filter(pc.is_in(events["connection_id"], value_set=pc.unique(index["connection_id"]))), path)
    return path
