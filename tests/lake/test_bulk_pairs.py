"""Pairing in bulk tells what analyzers tell message by message: random histories that break rules, with and without it."""

from __future__ import annotations

import pytest
from tests.lake import in_process
from tests.lake.test_histories import WRITERS, decoded

from wirelake.lake.gold.fold import bulk, sessions
from wirelake.lake.gold.fold.checkpoints import CheckpointRules
from wirelake.protocols import bulk_pairs

SEEDS = range(200, 206)
RULES = CheckpointRules(messages=1 << 60)
NEVER = 1 << 60

pytestmark = pytest.mark.slow  # six histories of each protocol, folded four times
without_spark = in_process.without_spark


@pytest.fixture(scope="module", params=["emp", "yamp"])
def rows(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return decoded(sorted(path for seed in SEEDS for path in WRITERS[request.param](folder, seed)), request.param)


def built(lake, rows, monkeypatch, shortest, stretch):
    pairs = 0

    def counted(*arguments):
        nonlocal pairs
        found = bulk_pairs.pair_in_bulk(*arguments)
        pairs += len(found.requests)
        return found

    monkeypatch.setattr(sessions, "BULK_MESSAGES", shortest)
    monkeypatch.setattr(bulk, "MAX_STRETCH", stretch)
    monkeypatch.setattr(bulk, "pair_in_bulk", counted)
    in_process.create(lake)
    in_process.add(lake, rows)
    in_process.refreshed(lake, RULES)
    return in_process.gold(lake), pairs


@pytest.mark.parametrize(("single", "stretch"), [(1, 1 << 15), (3, 40)])
def test_bulk_and_single_messages_tell_the_same(rows, tmp_path, monkeypatch, without_spark, single, stretch):
    monkeypatch.setattr(bulk_pairs, "SINGLE", single)
    alone, none = built(tmp_path / "alone", rows, monkeypatch, NEVER, stretch)
    paired, some = built(tmp_path / "paired", rows, monkeypatch, 1, stretch)
    assert none == 0
    assert some
    for table, found in paired.items():
        assert found == alone[table], table
    assert len(alone["violations"]) > 100
