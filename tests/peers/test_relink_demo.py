"""The conversation of the demo: it ends, and its recording holds what it is meant to show."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.lake.test_gaps import decoded
from tests.peers.world import log_of, run

from wirelake.peers.demo import relink


@pytest.mark.slow
def test_the_show_is_recorded_with_a_line_that_breaks_transactions_and_trouble(tmp_path):
    steps = []

    async def main():
        return await relink.record(tmp_path, 400, lambda done, total: steps.append((done, total)))

    with log_of("wirelake.relink"):
        (path,) = run(main)
    assert steps[-1] == (400, 400)
    rows = decoded(path)
    said = Counter(row["name"] for row in rows["messages"])
    assert {"message", "resume", "commit", "rollback", "close", "shutdown"} <= said.keys(), said
    links = Counter(row["connection_id"] for row in rows["messages"])
    assert len(links) >= 3 + 1 + len(relink.TROUBLE) - 1, "orders over three connections, the till, and trouble"
    assert {row["reason"] for row in rows["quarantine"]} >= {"FORMAT_UNKNOWN"}
