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
