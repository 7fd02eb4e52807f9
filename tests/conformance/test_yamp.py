"""The runner of yamp.json can fail: whatever a vector says is asserted, and what it does not know is a failure."""

from __future__ import annotations

import copy

import pytest
from tests.cases import each
from tests.conformance import yamp
from tests.conformance.harness import directory, vectors
from tests.conformance.reading import Unmapped

VECTORS = vectors(directory() / "yamp.json") if (directory() / "yamp.json").exists() else []
OK = [one for one in VECTORS if one["expect"] == "ok"]
REJECT = [one for one in VECTORS if one["expect"] == "reject"]


def fails(vector) -> bool:
    try:
        yamp.run(vector)
    except Exception:
        return True
    return False


@each("vector", OK, ids=lambda one: one.get("name", ""))
def test_no_field_of_a_vector_can_be_left_out(vector):
    for key in vector["fields"]:
        changed = copy.deepcopy(vector)
        del changed["fields"][key]
        assert fails(changed), key
    assert fails({**vector, "expect": "reject", "reject": {"close": True}, "fields": None})
    assert fails({**vector, "hex": vector["hex"] + "00"})


@pytest.mark.parametrize("vector", REJECT, ids=lambda one: one.get("name", ""))
def test_no_other_outcome_passes(vector):
    close = vector["reject"].get("close")
    assert fails({**vector, "reject": {"incomplete": True} if close else {"close": True}})
    if close and vector["hex"] != "ff":
        assert fails({**vector, "reject": {"in": "handshake", "incomplete": True}})
    assert fails({**{key: value for key, value in vector.items() if key != "reject"}, "expect": "ok", "fields": {}})


@pytest.mark.parametrize(
    "change",
    [
        {"expect": "maybe"},
        {"novelty": 1},
        {"hex": "00 00"},
        {"fields": None},
        {"fields": {"type_name": "howdy"}},
        {"ws_message_sizes": 4},
    ],
)
def test_what_is_not_known_is_a_failure(change):
    with pytest.raises(Unmapped):
        yamp.run({**OK[0], **change})
    with pytest.raises(Unmapped):
        yamp.run(None)


@pytest.mark.parametrize(
    "reject", [{}, {"close": False}, {"close": True, "incomplete": True}, {"in": "sleep", "close": True}, {"error_code": 3}]
)
def test_an_outcome_that_is_not_known_is_a_failure(reject):
    with pytest.raises(Unmapped):
        yamp.run({"hex": "ff", "expect": "reject", "reject": reject})


def test_pieces_must_be_all_of_the_message():
    assert fails({**OK[0], "ws_message_sizes": "1+1"})
