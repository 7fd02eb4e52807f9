"""The replay cache: what it keeps how long, how much of it, under every clock; and the sender's own memory."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import UsageError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.security.replay import RecentIds, ReplayCache


@pytest.mark.parametrize(("time", "until"), [(1000, 1300), (900, 1300), (1120, 1420), (1119.5, 1419.5), (10**19, 1420)])
def test_an_entry_is_kept_until_the_later_of_arrival_and_its_time_and_300_seconds(time, until):
    for after, fault in ((until, Fault.REPLAY), (until + 0.5, None)):
        cache = ReplayCache()
        assert cache.admit(b"a", time, 1000) is None
        assert cache.admit(b"a", time, after) is fault


def test_the_cache_is_never_larger_than_its_capacity_and_counts_what_it_forgets():
    cache = ReplayCache(100)
    for number in range(1000):
        assert cache.admit(b"%d" % number, 1000, 1000) is None
        assert len(cache) == min(number + 1, 100)
    assert cache.evicted == 900
    assert cache.admit(b"999", 1000, 1000) is Fault.REPLAY
    assert cache.admit(b"899", 1000, 1000) is None


def test_the_expired_go_before_the_living():
    cache = ReplayCache(10)
    for number in range(10):
        cache.admit(b"old%d" % number, 0, 0)
    for number in range(10):
        assert cache.admit(b"new%d" % number, 301, 301) is None
    assert (cache.evicted, len(cache)) == (0, 10)
    assert cache.admit(b"new0", 301, 301) is Fault.REPLAY


def test_an_expired_entry_behind_a_living_one_makes_room_too():
    cache = ReplayCache(3, fail_closed=True)
    cache.admit(b"future edge", 120, 0)
    cache.admit(b"one", 0, 0)
    cache.admit(b"two", 0, 0)
    assert cache.admit(b"three", 310, 310) is None
    assert cache.evicted == 0


def test_a_cache_that_fails_closed_forgets_nothing_and_hears_again_when_it_may():
    cache = ReplayCache(32, fail_closed=True)
    for number in range(32):
        assert cache.admit(b"%d" % number, 0, 0) is None
    for _ in range(100):
        assert cache.admit(b"more", 1, 1) is Fault.REPLAY_CACHE_FULL
    assert all(cache.admit(b"%d" % number, 0, 2) is Fault.REPLAY for number in range(32))
    assert cache.admit(b"more", 301, 301) is None
    assert cache.evicted == 0


def test_a_clock_that_steps_back_lets_nothing_in_twice():
    cache = ReplayCache()
    cache.admit(b"a", 1000, 1000)
    for now in (999, 500, 0, 1000, 1300):
        assert cache.admit(b"a", 1000, now) is Fault.REPLAY
    assert cache.admit(b"b", 500, 500) is None
    assert cache.admit(b"b", 500, 800) is Fault.REPLAY


def test_a_clock_that_leaps_ahead_and_comes_back_lets_nothing_in_twice():
    cache = ReplayCache()
    cache.admit(b"a", 1000, 1000)
    cache.admit(b"b", 10**9, 10**9)
    assert cache.admit(b"a", 1000, 1010) is Fault.REPLAY


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-150, 400), st.integers(0, 2000)), max_size=40), st.integers(1, 4))
def test_under_any_clock_it_is_bounded_and_right_about_what_it_still_holds(steps, capacity):
    cache, model = ReplayCache(capacity), {}
    for key, ahead, now in steps:
        name = b"%d" % key
        before = cache.evicted
        said = cache.admit(name, now + ahead, now)
        if said is Fault.REPLAY:
            assert now <= model[key]
        elif cache.evicted == 0 and key in model:
            assert now > model[key], "an entry was forgotten before its time"
        if said is None:
            model[key] = max(now, min(now + ahead, now + 120)) + 300
        assert len(cache) <= capacity
        assert cache.evicted - before <= 1


def test_what_is_exported_survives_a_restart():
    cache = ReplayCache(10)
    for number in range(12):
        cache.admit(b"%d" % number, 1000, 1000)
    again = ReplayCache(10)
    again.restore(cache.export())
    assert again.admit(b"11", 1000, 1300) is Fault.REPLAY
    assert again.admit(b"11", 1000, 1301) is None
    assert (len(again), again.evicted) == (10, 2)
    small = ReplayCache(3)
    small.admit(b"living", 1120, 1000)
    small.restore(cache.export())
    assert (len(small), small.admit(b"living", 1120, 1000)) == (3, Fault.REPLAY)


@pytest.mark.parametrize(
    "state",
    [b"", b"x", b"\xff" * 40, msgspec.msgpack.encode(["other", 0, []]), msgspec.msgpack.encode(["wirelake-replay-1", 0, [["a", 1]]])],
)
def test_what_was_never_exported_is_refused_and_changes_nothing(state):
    cache = ReplayCache()
    cache.admit(b"a", 0, 0)
    with pytest.raises(UsageError, match="no exported replay cache"):
        cache.restore(state)
    assert len(cache) == 1


@given(st.binary(max_size=60))
def test_whatever_is_restored(state):
    cache = ReplayCache()
    try:
        cache.restore(state)
    except UsageError:
        assert len(cache) == 0


def test_a_cache_of_nothing_is_no_cache():
    with pytest.raises(UsageError):
        ReplayCache(0)


def test_a_sender_uses_no_id_twice_in_420_seconds():
    """EMM-22."""
    ids = RecentIds()
    assert ids.take(7, 0)
    assert not ids.take(7, 420)
    assert ids.take(8, 420)
    assert ids.take(7, 421)
    assert not ids.take(7, 421)
    assert ids.take(9, 10_000)
    assert len(ids) == 1
