"""Following in a process of its own: `kill -9` costs nothing."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from tests.lake.follow_process import Process, micro_batches, until
from tests.lake.following import contents, files, record_ends, story

from wirelake.lake.store.check_ledger import check_ledger

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # every process starts Spark


def killed(tmp_path: Path, seed: int, kills: int) -> None:
    """Follow a folder that grows, kill it now and then, and compare with one ingest of what it has become."""
    from wirelake.lake.jobs.ingest import ingest
    from wirelake.lake.session.start import spark_session

    dice, folder, lake = random.Random(seed), tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    parts = files(story(seed, 1), 2)
    whole = b"".join(parts)
    ends = record_ends(parts)
    chosen = sorted(dice.sample(range(len(ends) - 1), 3 * kills))
    steps = [dice.randrange(ends[number], ends[number + 1]) for number in chosen]  # each has one more whole record, and some of the next
    at = [0]

    def grow() -> None:
        """Write on, in the order of the files."""
        stop = steps.pop(0) if steps else len(whole)
        begin = 0
        for number, part in enumerate(parts):
            fresh = part[max(0, at[0] - begin) : max(0, stop - begin)]
            if fresh:
                with (folder / f"{number}.pcap").open("ab") as file:
                    file.write(fresh)
            begin += len(part)
        at[0] = stop

    for _ in range(kills):
        grow()
        before = micro_batches(lake)
        # However long it takes to start, the files are not over.
        following = Process(lake, folder, "--gold-every", str(dice.choice([0, 1])), "--complete-after", "3600")
        try:
            until(lambda: micro_batches(lake) > before, following)  # noqa: B023 - it is done before the next
            for _ in range(dice.randint(0, 2)):
                grow()
                time.sleep(dice.random())
        finally:
            following.end(signal.SIGKILL)
    while at[0] < len(whole):
        grow()
    last = Process(lake, folder, "--once")
    assert last.wait() == 0, "".join(last.said)
    ports = {5040: "emp", 5041: "yamp", 5042: "relink", 5043: "event_mesh"}
    ingest(spark_session(), tmp_path / "other", [folder], ports=ports)
    assert contents(lake) == contents(tmp_path / "other")
    assert check_ledger(lake).problems == ()


def test_a_follower_that_is_killed_goes_on_as_if_nothing_had_happened(spark, tmp_path):
    killed(tmp_path, 7, 1)


@pytest.mark.parametrize("seed", range(100, 105))
def test_followers_that_are_killed_often_go_on_as_if_nothing_had_happened(spark, tmp_path, seed):
    killed(tmp_path, seed, 4)
