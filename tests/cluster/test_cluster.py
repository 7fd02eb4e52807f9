"""On a cluster as on one machine: the same tables, whatever fails meanwhile. Driver, master and workers each have a folder of their own."""

import time
from pathlib import Path

import pytest
from tests.cluster.conftest import SECONDS, SMALL, driver, finish
from tests.lake.hashing import hashes

HOSTILE = str(Path(__file__).with_name("hostile.py"))
pytestmark = pytest.mark.timeout(900)  # every test starts Spark


@pytest.mark.long
def test_a_cluster_makes_the_same_tables(cluster, captures, local, tmp_path):
    words = ("ingest", (tmp_path / "lake").as_uri(), f"file://{captures}", "--master", cluster.url, *SMALL)
    _, talk = finish(driver(tmp_path / "cwd", "-m", "wirelake.cli.main", *words))
    assert f"starting Spark ({cluster.url}): done" in talk
    assert hashes(tmp_path / "lake") == local
    assert list((tmp_path / "cwd").iterdir()) == []


# A minute and a half. tests/lake/test_failures.py has the same commits after failed tasks, and test_kills.py after dead processes.
@pytest.mark.long
def test_a_task_that_fails_and_a_worker_that_dies_change_nothing(cluster, captures, local, tmp_path):
    """The worker dies with what it shuffled, so that a stage that was done is done again."""
    gate = tmp_path / "gate"
    gate.mkdir()
    process = driver(tmp_path / "cwd", HOSTILE, cluster.url, str(tmp_path / "lake"), str(captures), str(gate), "fails", "waits")
    victim = _pid(gate / "waits", process)
    name = cluster.worker_of(victim)
    cluster.kill(name)
    (gate / "go").touch()
    finish(process)
    assert (gate / "fails").exists()
    assert hashes(tmp_path / "lake") == local
    cluster.add_worker(name)


@pytest.mark.long
def test_an_attempt_that_is_made_twice_at_once_counts_once(cluster, captures, local, tmp_path):
    gate = tmp_path / "gate"
    gate.mkdir()
    finish(driver(tmp_path / "cwd", HOSTILE, cluster.url, str(tmp_path / "lake"), str(captures), str(gate), "twin"))
    assert (gate / "go").exists()
    assert hashes(tmp_path / "lake") == local


def _pid(note: Path, process) -> int:
    """Who left a note, when it is whole."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if note.exists() and (said := note.read_text()).endswith("\n"):
            return int(said)
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise TimeoutError(f"nobody came to {note}")
