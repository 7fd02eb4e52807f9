"""Scratch folders: a process that was killed leaves one, and the next one deletes it, but no other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from wirelake import scratch

KINDS = ["spark", "follow", "decode", "read", "export"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    leaving = []
    monkeypatch.setattr(scratch.atexit, "register", lambda *what: leaving.append(what))
    yield tmp_path
    for leave, *what in leaving:
        leave(*what)


def left(home, name, machine=""):
    """What a killed process leaves."""
    folder = home / f"wirelake-{name}"
    (folder / "local").mkdir(parents=True)
    (folder / "local" / "shuffled").write_bytes(bytes(1000))
    (folder / "file").touch()
    (folder / "held").write_text(machine or os.uname().nodename)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_a_dead_process_is_deleted_at_once(home, kind):
    old = left(home, f"{kind}-old")
    made = scratch.folder("spark")
    assert made.is_dir()
    assert not old.exists()


def test_folders_that_are_locked_or_of_others_stay(home, monkeypatch):
    held, other, user = left(home, "spark-held"), left(home, "spark-other", "another machine"), left(home, "spark-user")
    bare, file = left(home, "mine"), home / "wirelake-file"
    (bare / "held").unlink()
    file.touch()
    linked = left(home, "spark-linked").rename(home / "elsewhere")
    (home / "wirelake-spark-link").symlink_to(linked)
    lstat = Path.lstat

    def of_another_user(path):
        status = lstat(path)
        return os.stat_result((*status[:4], status.st_uid + 1, *status[5:])) if path == user else status

    monkeypatch.setattr(Path, "lstat", of_another_user)
    with (held / "held").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch.folder("spark")
    assert all((one / "local" / "shuffled").exists() for one in (held, other, user, bare, linked))
    assert file.exists()


def test_links_in_a_folder_are_deleted_and_not_followed(home):
    old = left(home, "spark-old")
    (home / "precious").mkdir()
    (home / "precious" / "file").touch()
    (old / "link").symlink_to(home / "precious")
    (old / "local" / "link").symlink_to(home / "precious" / "file")
    scratch.folder("spark")
    assert not old.exists()
    assert (home / "precious" / "file").exists()


def test_a_folder_for_a_block_is_deleted_after_it(home):
    with scratch.temporary("decode") as folder:
        (folder / "file").touch()
        with scratch.temporary("decode") as other:
            assert other != folder
        assert (folder / "file").exists()
    assert list(home.iterdir()) == []


def test_a_folder_goes_with_its_process(tmp_path):
    code = "from wirelake import scratch; print(scratch.folder('spark'))"
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_runs_keeps_its_folder_and_a_killed_one_does_not(home):
    code = "from wirelake import scratch; print(scratch.folder('follow'), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(home)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        folder = Path(process.stdout.readline().strip())
        scratch.folder("spark")
        assert folder.is_dir()
        process.send_signal(signal.SIGKILL)
        process.wait()
        scratch.folder("spark")
        assert not folder.exists()
