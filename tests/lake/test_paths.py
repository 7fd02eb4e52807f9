"""Which files are meant by paths: odd ones are refused in one line, and nothing in a folder is left out in silence."""

from __future__ import annotations

import os

import pytest

from wirelake.capture.files.source_file import measure
from wirelake.cli import ingest as command
from wirelake.cli.main import run
from wirelake.errors import CaptureError, CapturesMissing
from wirelake.lake.jobs.ingest import IngestResult
from wirelake.lake.sources.paths import expand

NOT_UTF8 = os.fsdecode(b"\xff.pcapng")


def test_a_fifo_is_refused_and_never_opened(tmp_path):
    fifo = tmp_path / "pipe.pcapng"
    os.mkfifo(fifo)
    with pytest.raises(CapturesMissing, match=r"pipe\.pcapng: a FIFO"):
        expand([fifo])
    with pytest.raises(CaptureError, match="not a regular file"):
        measure(fifo)


def test_a_device_is_refused():
    with pytest.raises(CapturesMissing, match="device"):
        expand(["/dev/null"])


def test_a_name_that_is_not_utf8_is_refused_in_one_line(tmp_path):
    (tmp_path / NOT_UTF8).write_bytes(b"")
    with pytest.raises(CapturesMissing, match="the name is not UTF-8") as refused:
        expand([tmp_path / NOT_UTF8])
    assert len(str(refused.value).splitlines()) == 1


def test_a_folder_is_read_without_the_file_whose_name_is_not_utf8_and_that_is_told(tmp_path):
    (tmp_path / NOT_UTF8).write_bytes(b"")
    (tmp_path / "good.pcapng").write_bytes(b"")
    unreadable: list[str] = []
    assert expand([tmp_path], unreadable) == [str(tmp_path / "good.pcapng")]
    assert len(unreadable) == 1
    assert "not UTF-8" in unreadable[0]
    with pytest.raises(CapturesMissing, match="not UTF-8"):
        expand([tmp_path])


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """A folder that cannot be listed, whoever asks: the superuser could read it whatever its mode."""
    folder = tmp_path / "in" / "locked"
    folder.mkdir(parents=True)
    (tmp_path / "in" / "good.pcapng").write_bytes(b"")
    scandir = os.scandir

    def refusing(path):
        if os.fspath(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    return folder


def test_a_folder_that_cannot_be_listed_is_told_and_the_others_are_read(locked):
    unreadable: list[str] = []
    assert expand([locked.parent], unreadable) == [str(locked.parent / "good.pcapng")]
    assert unreadable == [f"{locked}: cannot read this folder: Permission denied"]


def test_a_folder_that_cannot_be_listed_is_an_error_where_nobody_is_told(locked):
    for path in (locked, locked.parent):
        with pytest.raises(CapturesMissing, match=r"locked: cannot read this folder: Permission denied"):
            expand([path])


def test_an_ingest_that_left_something_out_says_so_and_exits_with_1(tmp_path, monkeypatch, capsys):
    reason = "in/locked: cannot read this folder: Permission denied"
    counts = {"batch": 1, "files": 1, "bytes": 100, "messages": 2, "quarantined": 0, "resumed": False, "seconds": 0.1}
    lists = dict.fromkeys(("skipped", "differently", "changed", "removed", "reread", "built"), ())
    result = IngestResult(**counts, **lists, unreadable=(reason,))
    monkeypatch.setattr(command, "run_ingest", lambda *_, **__: result)
    assert run(["ingest", str(tmp_path / "lake"), str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines()[0] == f"not read: {reason}"
