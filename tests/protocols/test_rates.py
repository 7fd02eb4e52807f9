"""Token buckets: a burst, then a rate; bounded, and fair to who was there before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import UsageError
from wirelake.protocols.rates import Buckets


def test_a_burst_then_a_rate():
    buckets = Buckets(10, 5, 100)
    assert [buckets.take("a", 0.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert buckets.take("b", 0.0)
    assert [buckets.take("a", 0.2) for _ in range(3)] == [True, True, False]
    assert [buckets.take("a", 100.0) for _ in range(6)] == [True] * 5 + [False]


@given(st.lists(st.floats(0, 3), max_size=60))
def test_no_more_than_burst_and_rate_in_any_time(gaps):
    buckets, now, taken = Buckets(10, 5, 4), 0.0, []
    for gap in gaps:
        now += gap
        if buckets.take("a", now):
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= 5 + 10 * (taken[last] - taken[first]) + 1e-6


def test_who_asks_while_it_may_not_does_not_wait_longer():
    buckets = Buckets(1, 1, 4)
    assert buckets.take("a", 0.0)
    assert not any(buckets.take("a", step / 10) for step in range(1, 10))
    assert buckets.take("a", 1.0 + 1e-9)


def test_many_sources_share_one_bucket_and_the_first_do_not_notice():
    buckets = Buckets(1, 4, 8)
    for number in range(8):
        assert buckets.take(number, 0.0)
    strangers = sum(buckets.take(f"stranger {number}", 0.0) for number in range(1000))
    assert strangers == 4
    assert buckets.shared == 1000
    assert len(buckets) <= 9
    assert all(buckets.take(number, 0.0) for number in range(8))


def test_a_bucket_that_is_full_again_makes_room():
    buckets = Buckets(1, 4, 8)
    for number in range(8):
        buckets.take(number, 0.0)
    assert buckets.take("late", 10.0)
    assert len(buckets) == 1
    assert buckets.shared == 0


def test_a_bucket_that_is_not_full_is_kept():
    buckets = Buckets(1, 4, 2)
    for _ in range(4):
        buckets.take("spent", 0.0)
    buckets.take("other", 0.0)
    buckets.take("third", 1.5)
    assert buckets.take("spent", 1.5)
    assert not buckets.take("spent", 1.5)


@pytest.mark.parametrize(("rate", "burst", "capacity"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_what_lets_nothing_through_is_refused(rate, burst, capacity):
    with pytest.raises(UsageError):
        Buckets(rate, burst, capacity)
