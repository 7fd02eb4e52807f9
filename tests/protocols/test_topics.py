"""Patterns over names: what matches what, held to a slow and obvious twin, and that names from outside fill no memory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import UsageError
from wirelake.protocols import topics
from wirelake.protocols.topics import Topics, check, matches

LEVELS = st.sampled_from(["a", "b", "", "ab", "*", ">", "é"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.tuples(st.lists(st.sampled_from(["a", "b", "", "ab", "*"]), max_size=3), st.sampled_from(["a", "b", "*", ">"])).map(
    lambda pair: ".".join([*pair[0], pair[1]])
)


def twin(pattern: str, name: str) -> bool:
    """As a regular expression: `*` is anything without a dot, `>` anything."""
    levels = [r"[^.]*" if one == "*" else ".*" if one == ">" else re.escape(one) for one in pattern.split(".")]
    return re.fullmatch(r"\.".join(levels), name, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("plant.boiler", "plant.boiler", True),
        ("plant.boiler", "plant.boiler.temperature", False),
        ("plant.*", "plant.boiler", True),
        ("plant.*", "plant", False),
        ("plant.*", "plant.boiler.temperature", False),
        ("*.boiler", "plant.boiler", True),
        ("plant.>", "plant.boiler.temperature", True),
        ("plant.>", "plant", False),
        (">", "plant", True),
        (">", "", True),
        ("*", "", True),
        ("*.>", "plant", False),
        ("plant.*.temperature", "plant..temperature", True),
        ("a", "A", False),
    ],
)
def test_what_matches_what(pattern, name, expected):
    assert matches(pattern, name) is expected
    found = Topics()
    found.add(pattern, "listener")
    assert (found.listeners(name) == ("listener",)) is expected


@given(PATTERNS, NAMES)
def test_matching_is_that_of_the_twin(pattern, name):
    assert matches(pattern, name) is twin(pattern, name)


@given(st.lists(PATTERNS, max_size=8), NAMES)
def test_all_listeners_are_found_each_once(patterns, name):
    found = Topics()
    for number, pattern in enumerate(patterns):
        found.add(pattern, number)
        found.add(pattern, number)
    assert sorted(found.listeners(name)) == [number for number, pattern in enumerate(patterns) if twin(pattern, name)]


@given(st.lists(PATTERNS, min_size=1, max_size=8), st.data())
def test_removing_undoes_adding_and_leaves_nothing(patterns, data):
    found = Topics()
    for number, pattern in enumerate(patterns):
        found.add(pattern, number)
    kept = dict(enumerate(patterns))
    for number in data.draw(st.permutations(range(len(patterns)))):
        found.remove(patterns[number], number)
        del kept[number]
        for name in ("a", "a.b", "b..a", ""):
            assert sorted(found.listeners(name)) == [one for one, pattern in kept.items() if twin(pattern, name)]
    assert found._root.below == {}


@pytest.mark.parametrize("pattern", ["", "a.>.b", ">.a", "a*", "*a.b", "a.b>", "**", ">>"])
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(UsageError):
        check(pattern)
    with pytest.raises(UsageError):
        Topics().add(pattern, 1)


def test_another_separator_may_cut():
    found = Topics("/")
    found.add("a.b/*", 1)
    assert found.listeners("a.b/c") == (1,)
    assert found.listeners("a.b.c") == ()
    assert matches("a/>", "a/b/c", "/")


def test_removing_what_is_not_there_is_refused():
    found = Topics()
    found.add("a.b", 1)
    for pattern, listener in (("a.c", 1), ("a.b", 2), ("a", 1)):
        with pytest.raises(UsageError):
            found.remove(pattern, listener)
    assert found.listeners("a.b") == (1,)


def test_names_from_outside_fill_no_memory():
    found = Topics()
    found.add("a.*", 1)
    for number in range(5 * topics.REMEMBERED):
        assert found.listeners(f"a.{number}") == (1,)
        assert len(found._known) <= topics.REMEMBERED


def test_a_name_of_many_levels_costs_no_more_than_the_patterns_there_are():
    found = Topics()
    for number in range(12):
        found.add(".".join(["*"] * number + ["a"]), number)
        found.add(".".join(["a"] * number + ["*"]), number)
    assert found.listeners(".".join("a" * 500)) == ()
    assert 3 in found.listeners("a.a.a.a")
