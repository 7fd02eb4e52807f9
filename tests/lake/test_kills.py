"""Exactly once: an ingest that is killed anywhere and done again leaves what one quiet ingest leaves. `make soak` runs more schedules."""

import pytest
from tests.lake.kills import run, scene

from wirelake.lake.jobs.ingest import ingest

pytestmark = pytest.mark.timeout(900)  # every schedule starts Spark two or three times


@pytest.fixture(scope="module")
def quiet(spark, tmp_path_factory):
    return scene(tmp_path_factory.mktemp("kills"), lambda lake, paths: ingest(spark, lake, paths))


# Between them: Spark dies with its driver or lives on, while it decodes and while it builds, once and twice. Each takes most of a minute;
# `make test` has the same crashes without Spark (test_micro_batches.py, test_gold_commit.py), and a follower that is killed.
@pytest.mark.long
@pytest.mark.parametrize("seed", [7, 3, 21])
def test_whatever_is_killed_when_the_lake_comes_out_the_same(quiet, tmp_path, seed):
    print(run(quiet, seed, tmp_path))
