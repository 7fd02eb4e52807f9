"""A lake in this process: batches of decoded rows are committed, and gold tables are refreshed, without Spark.

Tasks run one after the other. All else is the product's code: files, index, plan, fold, commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.lake.gold.incremental import fold_sessions, judge_security, plan_items, refresh, sum_minutes
from wirelake.lake.jobs.task_files import TaskFiles
from wirelake.lake.store import commit, delta, gold_commit, journal, settings
from wirelake.lake.tables import ledger
from wirelake.lake.tables.catalog import GOLD, SILVER


class TaskLog:
    """What tasks said that folded sessions."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        """Messages that each refresh read."""


@pytest.fixture
def without_spark(monkeypatch):
    """Tasks run in this process, one after the other."""
    log = TaskLog()

    def run_fold(spark, work, count):
        results = [work(number) for number in range(count)]
        told = (msgspec.msgpack.decode(one, type=fold_sessions.FoldResult) for one in results)
        log.messages.append(sum(item.messages for one in told for item in one.folded))
        return results

    monkeypatch.setattr(fold_sessions, "run_tasks", run_fold)
    for module in (judge_security, sum_minutes):
        monkeypatch.setattr(module, "run_tasks", lambda spark, work, count: [work(number) for number in range(count)])
    monkeypatch.setattr(plan_items, "_tasks", lambda spark: 2)
    return log


def create(lake: Path) -> None:
    """An empty lake."""
    journal.initialise(lake)
    settings.hold(lake)
    commit.prepare(lake)


def add(lake: Path, tables: Mapping[str, pa.Table]) -> None:
    """Commit rows as the next batch."""
    batch = (delta.batch(lake, ledger.TABLE) or 0) + 1
    files = TaskFiles(lake, batch)
    files.add({table.name: tables[table.name].to_batches() for table in SILVER if table.name in tables and tables[table.name].num_rows})
    written = files.close()
    commit.publish(lake, journal.Pending(batch, [], files={name: [file] for name, file in written.items()}))
    delta.append(lake, ledger.TABLE, [], batch)


def refreshed(lake: Path, rules: CheckpointRules) -> None:
    """Refresh gold tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_sessions, "CHECKPOINT_RULES", rules)
        refresh.refresh(None, lake)


def gold(lake: Path) -> dict[str, list[str]]:
    """Table -> its rows, whatever their order."""
    return {table.name: sorted(map(repr, delta.dataset(lake, table).to_table().to_pylist())) for table in GOLD}


def forget_rules(lake: Path) -> None:
    """As if another version of the rules had built the gold tables."""
    gold_commit.mark_stale(lake)


def overwrite(path: Path, rows: pa.Table) -> None:
    """Replace the rows of a file, whatever the Delta log says of it."""
    pq.write_table(rows, path)
