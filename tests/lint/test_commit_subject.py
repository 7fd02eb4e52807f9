"""The subject of a commit names an area, says what changes, and fits a line."""

import pytest
from tests.lint.commit_subject import MAX_LENGTH, problem


@pytest.mark.parametrize(
    "message",
    ["relink: resume a channel", "peers, transports: one error", "fixup! cli: say why\n\nbody", "Merge branch 'main'", "a: " + "b" * 69],
)
def test_good_subjects_pass(message):
    assert problem(message) == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("a: " + "b" * (MAX_LENGTH - 2), "73 characters"),
        ("resume a channel", "names no area"),
        ("relink:no blank", "names no area"),
        ("", "names no area"),
        ("relink: resume\nbody", "second line"),
    ],
)
def test_others_are_refused_with_the_reason(message, reason):
    assert reason in problem(message)
