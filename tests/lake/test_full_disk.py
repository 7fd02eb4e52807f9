"""A full disk is one sentence, wherever it is noticed: on the driver, in a task, by the JVM, by delta-rs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lake.following import PORTS, files, story

from wirelake.errors import ErrorCode, LakeError
from wirelake.lake.gold.incremental import refresh
from wirelake.lake.jobs.ingest import ingest, refresh_gold
from wirelake.lake.session.errors import one_line_if_full
from wirelake.lake.session.tasks import run_tasks


def fill(_number: int = 0) -> bytes:
    """Write to a disk that is full."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")
    return b""


def test_a_full_disk_on_the_driver_is_one_sentence(tmp_path):
    with pytest.raises(LakeError, match=f"^{tmp_path}: no space left on a disk: make room") as caught, one_line_if_full(tmp_path):
        fill()
    assert caught.value.code is ErrorCode.DISK_FULL


@pytest.mark.parametrize("error", [LakeError("another"), OSError(2, "No such file"), ValueError("No space left on device")])
def test_other_errors_stay_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as caught, one_line_if_full(tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.timeout(300)
def test_a_disk_that_is_full_while_gold_tables_are_built_is_one_sentence(spark, tmp_path, monkeypatch):
    (tmp_path / "a.pcap").write_bytes(files(story(2, 1), 1)[0])
    lake, whole = tmp_path / "lake", refresh.refresh

    def full(session, *_more):
        run_tasks(session, fill, 1)

    monkeypatch.setattr(refresh, "refresh", full)
    with pytest.raises(LakeError) as caught:
        ingest(spark, lake, [tmp_path / "a.pcap"], ports=PORTS)
    assert str(caught.value) == (
        f"{lake}: no space left on a disk: make room, and run the command again; the lake is as of its last whole batch"
    )
    assert caught.value.code is ErrorCode.DISK_FULL
    monkeypatch.setattr(refresh, "refresh", whole)
    assert "exchanges" in refresh_gold(spark, lake).built
