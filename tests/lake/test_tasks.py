"""Work items as Spark tasks: every number is taken once, and a job beside a stream leaves slots free."""

from __future__ import annotations

import gc

import pytest
from pyspark import TaskContext
from tests.lake.conftest import CASES

from wirelake.capture.files.identity import identify
from wirelake.capture.files.split import divide
from wirelake.lake.session import memory
from wirelake.lake.session.tasks import at_most, run_tasks
from wirelake.lake.sources.plan import Cut, guess_here, guess_in_tasks


def partition_of(number: int) -> bytes:
    """In a task: the number, and the task that has it."""
    return f"{number} {TaskContext.get().partitionId()}".encode()


def taken(spark, count: int) -> tuple[list[int], int]:
    """The numbers that tasks took, and how many tasks there were."""
    results = [result.decode().split() for result in run_tasks(spark, partition_of, count)]
    return sorted(int(number) for number, _ in results), len({task for _, task in results})


def test_each_number_has_a_task_of_its_own(spark):
    assert taken(spark, 5) == (list(range(5)), 5)
    assert taken(spark, 0) == ([], 0)


def test_a_job_beside_a_stream_has_fewer_tasks(spark):
    with at_most(2):
        assert taken(spark, 5) == (list(range(5)), 2)
        assert taken(spark, 1) == ([0], 1)
    assert taken(spark, 3) == (list(range(3)), 3)


@pytest.mark.parametrize("plain", [True, False])
def test_byte_ranges_are_walked_by_tasks_in_their_order(spark, recorded, tmp_path, plain):
    source = identify(recorded(tmp_path / "a.pcapng", CASES))
    cuts = [Cut(source, byte_range) for byte_range in divide(source, source.size // 5)]
    with at_most(2):
        assert guess_in_tasks(spark, cuts, plain=plain) == [guess_here(cut) for cut in cuts]
    assert len(cuts) == 5


def test_only_a_task_hides_what_was_there_from_the_garbage_collector(monkeypatch):
    """A driver, or a program that imports the package, goes on collecting all of its garbage."""
    before = gc.get_freeze_count()
    memory.freeze_before_task()
    assert gc.get_freeze_count() == before
    monkeypatch.setattr(memory.TaskContext, "get", classmethod(lambda _: object()))
    try:
        memory.freeze_before_task()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
