"""Deadlines of many things, against a dictionary that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wirelake.protocols.expiries import SLACK, Expiries


@given(st.lists(st.tuples(st.sampled_from(("set", "drop", "take")), st.integers(0, 9), st.integers(0, 20)), max_size=60))
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
