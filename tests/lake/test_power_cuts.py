"""Whole after any death, power cuts included: on a real disk that loses what is not synced. `make soak` runs more schedules."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.lake.power_cuts import what_is_missing

pytestmark = pytest.mark.slow

SCHEDULES = 2
"""Three cuts, in twelve seconds of CPU."""


@pytest.mark.timeout(300)
def test_a_lake_whose_disk_loses_power_is_whole_and_has_what_was_committed(tmp_path):
    if missing := what_is_missing(tmp_path):
        pytest.skip(missing)
    words = [sys.executable, "-m", "tests.lake.power_cuts", str(SCHEDULES)]
    ran = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    print(ran.stdout)
