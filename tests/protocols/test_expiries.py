"""Deadlines of many things, against a dictionary that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples

from wirelake.protocols.expiries import SLACK, Expiries

STEP = st.tuples(st.sampled_from(("set", "set", "drop", "take")), st.integers(0, 2), st.integers(0, 5))


@examples(400)
@given(st.lists(STEP, min_size=4, max_size=30))
def test_what_is_due_is_found_whatever_was_set_moved_and_dropped(steps):
    expiries, model = Expiries(), {}
    for what, key, when in steps:
        if what == "set":
            expiries.set(key, float(when))
            model[key] = float(when)
        elif what == "drop":
            expiries.drop(key)
            model.pop(key, None)
        else:
            due = sorted((at, one) for one, at in model.items() if at <= when)
            assert expiries.take(when) == [one for _, one in due]
            model = {one: at for one, at in model.items() if at > when}
        assert expiries.first == min(model.values(), default=None)


def test_what_was_moved_or_dropped_does_not_pile_up():
    expiries = Expiries()
    expiries.set("never", 1e9)
    for number in range(10 * SLACK):
        expiries.set("moved", float(number))
        expiries.set(str(number), 1e6)
        expiries.drop(str(number))
        assert len(expiries) <= 2 * 3 + SLACK + 2
    assert expiries.take(1e5) == ["moved"]
    expiries.clear()
    assert (expiries.first, len(expiries)) == (None, 0)


def test_what_is_moved_is_due_when_it_was_moved_to():
    expiries = Expiries()
    for first, second in ((5.0, 10.0), (10.0, 5.0), (5.0, 5.0)):
        expiries.set("a", first)
        expiries.set("a", second)
        assert expiries.first == second
        assert expiries.take(second - 1) == []
        assert expiries.take(second) == ["a"]
        assert expiries.take(99) == []
