"""`each` runs every case, shares fixtures, and names the case that fails."""

from __future__ import annotations

import inspect

import pytest
from tests.cases import each


def test_every_case_is_run_in_order_and_decorators_stack():
    seen = []

    @each("two", "xy")
    @each(("one", "three"), [(1, 2), (3, 4)])
    def test(one, two, three, fixture):
        seen.append((one, two, three, fixture))

    assert list(inspect.signature(test).parameters) == ["fixture"]
    test(fixture="f")
    assert seen == [(1, "x", 2, "f"), (3, "x", 4, "f"), (1, "y", 2, "f"), (3, "y", 4, "f")]


@pytest.mark.parametrize(
    ("ids", "name"),
    [(None, "case 1: 2"), (["one", "two"], "case 1: two"), (lambda value: f"v{value}", "case 1: v2"), (lambda _: None, "case 1: 2")],
)
def test_the_first_case_that_fails_is_named(ids, name):
    @each("value", [1, 2], ids)
    def test(value):
        assert value == 1

    with pytest.raises(AssertionError) as caught:
        test()
    assert caught.value.__notes__ == [name]


def test_a_test_without_cases_is_an_error():
    with pytest.raises(AssertionError, match="has no cases"):
        each("value", [])(lambda value: None)
    with pytest.raises(AssertionError, match="does not take"):
        each("other", [1])(lambda value: None)
    with pytest.raises(AssertionError, match="other ids"):
        each("value", [1], ["one", "two"])(lambda value: None)
