"""Folders of Spark sessions: whoever was killed leaves one, and the next one clears it away, but nobody else's."""

import fcntl
import os
import subprocess
import sys
import tempfile
import time

import pytest

from wirelake.lake.session import scratch


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    leaving = []
    monkeypatch.setattr(scratch.atexit, "register", lambda *what: leaving.append(what))
    yield tmp_path
    for leave, *what in leaving:
        leave(*what)


def left(home, name, *, age=2 * scratch.IDLE_SECONDS):
    """What a killed process leaves."""
    folder = home / f"wirelake-spark-{name}"
    (folder / "local").mkdir(parents=True)
    (folder / "local" / "shuffled").write_bytes(bytes(1000))
    (folder / "held").touch()
    for one in (folder / "held", folder / "local", folder):
        os.utime(one, (time.time() - age,) * 2)
    return folder


def test_what_a_killed_process_left_goes(home):
    old = left(home, "old")
    made = scratch.folder()
    assert made.is_dir()
    assert not old.exists()


def test_what_is_held_or_fresh_or_nobody_s_stays(home):
    held, fresh, nobody = left(home, "held"), left(home, "fresh", age=60), left(home, "nobody")
    (nobody / "held").unlink()
    os.utime(nobody, (0, 0))
    linked = left(home, "linked").rename(home / "elsewhere")
    (home / "wirelake-spark-link").symlink_to(linked)
    with (held / "held").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch.folder()
    assert held.is_dir()
    assert fresh.is_dir()
    assert nobody.is_dir()
    assert (linked / "local" / "shuffled").exists()


def test_it_goes_with_its_process(tmp_path):
    code = "from wirelake.lake.session import scratch; print(scratch.folder())"
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
