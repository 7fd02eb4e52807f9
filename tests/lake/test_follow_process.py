"""Following in a process of its own: Ctrl-C ends it well."""

from __future__ import annotations

import signal

import pytest
from tests.lake.follow_process import Process, micro_batches, until
from tests.lake.following import files, story

from wirelake.lake.store import delta, journal
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.tables.catalog import GOLD

pytestmark = pytest.mark.timeout(900)  # every process starts Spark


def test_sigterm_in_the_first_micro_batch_finishes_it(spark_process, tmp_path, monkeypatch):
    """Also while Spark still plans it."""
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    part = files(story(5, 1), 1)[0]
    (folder / "a.pcap").write_bytes(part)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    following = Process(lake, folder, "--gold-every", "0")
    until(lambda: any("Ctrl-C stops" in line for line in following.said), following)
    # Planning takes seconds from here on: a Python process for the stream is started first.
    until(lambda: list(tmp_path.glob("wirelake-follow-*/*/begin.json")), following)
    assert following.end(signal.SIGTERM) == 0, "".join(following.said)
    assert micro_batches(lake) == 1, "".join(following.said)
    assert f"({len(part):,} bytes) in 1 micro-batches" in "".join(following.said)


def test_ctrl_c_ends_following_with_all_tables_up_to_date(spark_process, tmp_path):
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    first, second = files(story(5, 1), 2)
    (folder / "a.pcap").write_bytes(first)
    following = Process(lake, folder, "--gold-every", "0")
    until(lambda: micro_batches(lake) >= 1, following)
    (folder / "b.pcap").write_bytes(second)
    before = micro_batches(lake)
    until(lambda: micro_batches(lake) > before, following)
    assert following.end(signal.SIGINT) == 0, "".join(following.said)
    said = "".join(following.said)
    assert "stopping after the current micro-batch" in said
    assert "Traceback" not in said
    assert journal.pending(lake) is None
    assert {delta.batch(lake, each) for each in GOLD} == {micro_batches(lake)}
    assert check_ledger(lake).problems == ()
