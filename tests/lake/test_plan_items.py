"""Work items: ranges of slots with about equal work, and how many jobs a refresh takes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.lake import in_process
from tests.lake.test_histories import WRITERS, decoded

from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.lake.gold.incremental import judge_security, plan_items
from wirelake.lake.gold.incremental.key_ranges import KeyRange
from wirelake.lake.gold.incremental.plan_items import balanced
from wirelake.lake.store import delta
from wirelake.lake.store.slots import SLOTS
from wirelake.lake.tables import security

NEVER = CheckpointRules(messages=1 << 60)
without_spark = in_process.without_spark


def messages_of(**slots):
    found = np.zeros(SLOTS)
    for name, count in slots.items():
        found[int(name[1:])] = count
    return found


def test_no_messages_are_one_range():
    assert balanced(np.zeros(SLOTS), 10) == [KeyRange(0, SLOTS - 1)]


def test_ranges_are_cut_where_the_messages_are():
    assert balanced(messages_of(s5=50, s900=25, s1000=25), 50) == [KeyRange(0, 5), KeyRange(6, SLOTS - 1)]
    assert balanced(messages_of(s5=25, s6=25, s1000=50), 50) == [KeyRange(0, 6), KeyRange(7, SLOTS - 1)]


def test_one_long_session_is_one_range_and_never_an_empty_one():
    assert balanced(messages_of(s0=1000), 10) == [KeyRange(0, 0), KeyRange(1, SLOTS - 1)]
    assert balanced(messages_of(s1023=1000), 10) == [KeyRange(0, 1022), KeyRange(1023, 1023)]


def test_ranges_cover_every_slot_once_and_are_about_equal():
    chance = random.Random(3)
    for _ in range(50):
        messages = np.array([chance.choice((0, 0, 1, 7, 30)) for _ in range(SLOTS)], np.float64)
        most = chance.choice((50, 500, 3_000))
        ranges = balanced(messages, most)
        assert [slot for one in ranges for slot in one.slots] == list(range(SLOTS))
        assert max(messages[one.first : one.last + 1].sum() for one in ranges) <= most + 30


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mesh")
    return decoded(sorted(WRITERS["event_mesh"](folder, 100)), "event_mesh")


def test_a_small_refresh_is_one_job(history, without_spark, tmp_path, monkeypatch):
    """The task that folds judges packets, too."""

    def second_job(spark, work, count):
        raise AssertionError("a second job")

    in_process.create(tmp_path)
    monkeypatch.setattr(judge_security, "run_tasks", second_job)
    in_process.add(tmp_path, history)
    in_process.refreshed(tmp_path, NEVER)
    assert delta.dataset(tmp_path, security.TABLE).count_rows() > 0


@pytest.mark.parametrize("parts", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 5))])
def test_packets_are_judged_alike_by_any_number_of_tasks(history, without_spark, tmp_path, monkeypatch, parts):
    """All sessions of a new lake are judged by the tasks that fold them; later ones by one of its own if several fold."""
    alone = tmp_path / "alone"
    in_process.create(alone)
    in_process.add(alone, history)
    in_process.refreshed(alone, NEVER)
    monkeypatch.setattr(plan_items, "_SMALL_ROWS", 10)
    monkeypatch.setattr(plan_items, "_tasks", lambda spark: parts)
    half = {name: rows.slice(0, rows.num_rows // 2) for name, rows in history.items()}
    rest = {name: rows.slice(rows.num_rows // 2) for name, rows in history.items()}
    for number, batches in enumerate(([history], [half, rest])):
        lake = tmp_path / f"apart-{number}"
        in_process.create(lake)
        for rows in batches:
            in_process.add(lake, rows)
            in_process.refreshed(lake, NEVER)
        assert in_process.gold(lake) == in_process.gold(alone)
