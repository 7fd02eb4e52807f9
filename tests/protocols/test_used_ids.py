"""What is remembered of identifiers: all of them, however many at once, until there are too many."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wirelake.protocols import used_ids
from wirelake.protocols.bulk_ids import take_all
from wirelake.protocols.used_ids import UsedKeys, UsedNumbers

LARGEST = 2**64 - 1


def test_a_counter_is_one_run_however_far_it_goes():
    ids = UsedNumbers()
    for start in range(1, 1_000_001, 100_000):
        assert take_all(ids, np.arange(start, start + 100_000, dtype=np.uint64)) == []
    assert (ids.young.firsts, ids.young.lasts) == ([1], [1_000_000])
    assert take_all(ids, np.array([1_000_001, 1, 1_000_000, 1_000_002], np.uint64)) == [1, 2]


def test_the_largest_numbers_are_kept_in_a_stored_state():
    ids = UsedNumbers()
    assert take_all(ids, np.array([LARGEST - 1, LARGEST, 0], np.uint64)) == []
    assert take_all(ids, np.array([LARGEST, LARGEST - 1, 0, 1], np.uint64)) == [0, 1, 2]


def test_numbers_that_come_out_of_order_are_one_run_in_the_end():
    ids, numbers = UsedNumbers(), list(range(1, 2001))
    random.Random(1).shuffle(numbers)
    assert not any(ids.take(number) for number in numbers)
    assert (ids.young.firsts, ids.young.lasts) == ([1], [2000])


@pytest.mark.parametrize(("kind", "limit"), [(UsedNumbers, "MAX_RUNS"), (UsedKeys, "MAX_KEYS")])
def test_at_least_so_many_are_remembered_and_at_most_twice_as_many(monkeypatch, kind, limit):
    monkeypatch.setattr(used_ids, limit, 10)
    make = (lambda number: 2 * number) if kind is UsedNumbers else (lambda number: b"%d" % number)
    ids, seen = kind(), []
    for number in range(1000):
        assert not ids.take(make(number)), "never used, and never accused"
        seen.append(make(number))
        assert all(ids.has(one) for one in seen[-10:])
        assert sum(ids.has(one) for one in seen) <= 20


@pytest.mark.parametrize("kind", [UsedNumbers, UsedKeys])
def test_many_at_once_are_used_as_one_by_one(monkeypatch, kind):
    """Batches of any size, mostly new; then with identifiers that are used again."""
    monkeypatch.setattr(used_ids, "MAX_RUNS", 10)
    monkeypatch.setattr(used_ids, "MAX_KEYS", 10)
    for seed in range(40):
        dice, single, many = random.Random(seed), kind(), kind()
        fresh, again = 0, 0
        for _ in range(20):
            batch = []
            for _ in range(dice.randrange(35)):
                fresh += dice.choice((1, 1, 1, 2))
                batch.append(fresh if seed % 2 or dice.random() < 0.97 else dice.randrange(max(0, fresh - 15), fresh + 1))
            ids = batch if kind is UsedNumbers else [number.to_bytes(16) for number in batch]
            found = take_all(many, np.array(ids, np.uint64 if kind is UsedNumbers else "V16"))
            assert found == [place for place, one in enumerate(ids) if single.take(one)]
            assert many == single
            again += len(found)
        assert (again > 0) == (seed % 2 == 0)
