"""Rebuild `exchanges`, `violations` and `sessions`: one Spark job, whose tasks fold affected sessions.

The driver plans the work from the connection index and collects names of files. Rows of messages never enter the JVM.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from wirelake.lake.gold.fold import work
from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.lake.gold.fold.security_work import Judged, is_threatened
from wirelake.lake.gold.fold.work import FOLDED, Work, Written
from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.incremental.judge_security import Judgement, JudgeTask
from wirelake.lake.gold.incremental.key_ranges import KEY_RANGE_ROWS
from wirelake.lake.gold.incremental.plan_items import ItemPlan, plan_items
from wirelake.lake.session.tasks import run_tasks
from wirelake.lake.store import delta, settings
from wirelake.lake.store.gold_commit import Change
from wirelake.lake.tables import exchanges, violations
from wirelake.lake.tables.checkpoints import CHECKPOINTS

__all__ = ["CHECKPOINT_RULES", "FoldResult", "SecurityNeed", "fold_sessions"]

_LOG: Final = logging.getLogger("wirelake.lake")


CHECKPOINT_RULES: Final = CheckpointRules()
"""When long sessions that are open get a checkpoint."""
_SETTLED: Final = (exchanges.TABLE, violations.TABLE, CHECKPOINTS)
"""Tables with files for single sessions."""


class FoldResult(msgspec.Struct, frozen=True):
    """What a task did."""

    folded: list[Written]
    judged: list[Judged] | None = None
    """Rows of `security`; None: the task did not judge, or found nothing to judge."""


class SecurityNeed(msgspec.Struct, frozen=True):
    """What is to be done about `security`."""

    plan: Callable[[ItemPlan | None], Judgement]
    """Plans how it is rebuilt: by tasks of its own, or by those that fold."""
    is_all: bool
    """Whether all sessions are judged."""
    is_certain: bool
    """Whether it is rebuilt in any case. If not, it is where one of the sessions is or was a threat."""
    sessions: pa.Array


def fold_sessions(
    spark: SparkSession, lake: Path, what: Affected, newest: int, scratch: Path, need: SecurityNeed
) -> tuple[list[Change], bool]:
    """Fold affected sessions, and return which files of each table go and come. Nothing is committed here.

    `newest` is the newest batch. A task also judges the sessions that it folds, if it has all that are judged: if all sessions are, or if
    one task folds all and could judge all. Says whether that happened; then there is a change of `security` if there was anything to judge.
    """
    started = time.monotonic()
    planned = plan_items(spark, lake, FOLDED, what, scratch, index=what.index, most=KEY_RANGE_ROWS, settled=_SETTLED)
    count = len(planned.tasks)
    given = msgspec.msgpack.encode(Work(planned.plan, settings.of(lake).late_seconds, what.newest, newest, CHECKPOINT_RULES))
    judgement = need.plan(planned) if what.is_all and need.is_all else need.plan(None) if count == 1 else None
    judge = None
    if judgement is not None and len(judgement.planned.tasks) == count:
        gone = planned.removed.get(violations.TABLE.name, ())
        kept = [file for file in delta.entries(lake, violations.TABLE) if file not in gone]
        judge = ThreatTask(judgement.task(kept), str(lake), [file.path for file in gone], need.sessions, need.is_certain)
    told = run_tasks(spark, partial(_run, given, planned.tasks, judge), count)
    tasks = [msgspec.msgpack.decode(result, type=FoldResult) for result in told]
    results = [one for task in tasks for one in task.folded]
    _LOG.info(
        "%s messages of %s sessions folded by %d tasks, %.1f s",
        f"{sum(one.messages for one in results):,}",
        f"{pc.count_distinct(what.index['session_id']).as_py():,}",
        count,
        time.monotonic() - started,
    )
    changes = []
    for table in {table.name: table for table in (*FOLDED, *_SETTLED)}.values():
        gone_paths = {path for one in results for path in one.removed.get(table.name, ())}
        dropped = [file for file in delta.entries(lake, table) if file.path in gone_paths]
        added = sorted((file for one in results for file in one.files.get(table.name, ())), key=lambda file: file.path)
        removed = [*planned.removed.get(table.name, ()), *dropped]
        if table is not CHECKPOINTS or removed or added:  # few lakes have any
            changes.append(Change(table.name, removed, added))
    if judge is not None and judgement is not None:
        judged = [one for task in tasks for one in task.judged or ()]
        changes += [judgement.change(judged)] if any(task.judged is not None for task in tasks) else []
    return changes, judge is not None


class ThreatTask:
    """In a task that has folded its sessions: judge packets, if that is certain, or if a session is or was a threat."""

    def __init__(self, judge: JudgeTask, lake: str, gone: list[str], sessions: pa.Array, is_certain: bool) -> None:
        self._judge = judge
        self._lake = lake
        self._gone = gone
        self._sessions = sessions
        self._is_certain = is_certain

    def __call__(self, number: int, folded: list[Written]) -> list[Judged] | None:
        name = violations.TABLE.name
        removed = {path for one in folded for path in one.removed.get(name, ())}
        added = [file for one in folded for file in one.files.get(name, ())]
        at = delta.folder(Path(self._lake), violations.TABLE)
        changed = [at / path for path in (*self._gone, *removed, *(file.path for file in added))]
        if not self._is_certain and not is_threatened(changed, self._sessions):
            return None
        return self._judge.judge(number, removed, added)


def _run(given: bytes, tasks: list[list[int]], judge: ThreatTask | None, number: int) -> bytes:
    """In a task: fold its items, one after the other."""
    todo = msgspec.msgpack.decode(given, type=Work)
    folded = [work.run(todo, item) for item in tasks[number]]
    return msgspec.msgpack.encode(FoldResult(folded, judge(number, folded) if judge is not None else None))
