"""The runner of event-mesh.json can fail: whatever a vector says is asserted, and what it does not know is a failure."""

from __future__ import annotations

import copy

import pytest
from tests.cases import each
from tests.conformance import event_mesh
from tests.conformance.harness import directory, vectors
from tests.conformance.reading import Unmapped

VECTORS = vectors(directory() / "event-mesh.json") if (directory() / "event-mesh.json").exists() else []
OK = [one for one in VECTORS if one["expect"] == "ok"]
REJECT = [one for one in VECTORS if one["expect"] == "reject"]


def fails(vector) -> bool:
    try:
        event_mesh.run(vector)
    except Exception:
        return True
    return False


@each("vector", OK, ids=lambda one: one.get("name", ""))
def test_no_field_of_a_vector_can_be_left_out(vector):
    for key in (*event_mesh.HEADER, "tlvs"):
        with pytest.raises(Unmapped):
            event_mesh.run({**vector, "fields": {name: value for name, value in vector["fields"].items() if name != key}})
    assert fails({**vector, "expect": "reject", "fields": {}, "reason": "replay"})


@each("vector", REJECT, ids=lambda one: one.get("name", ""))
def test_no_other_reason_passes(vector):
    for other in {one["reason"] for one in REJECT} - {vector["reason"]}:
        assert fails({**vector, "reason": other})
    assert fails({**vector, "expect": "ok", "reason": None})


@pytest.mark.parametrize(
    "change",
    [
        {"expect": "maybe"},
        {"novelty": 1},
        {"hex": "00 00"},
        {"keys": {}},
        {"keys": {"hmac": [], "ed25519": [], "enc": [], "now": 0, "policy": {"trust": "anyone", "freshness": True}}},
        {"keys": {"hmac": [], "ed25519": [], "enc": [], "now": 0, "policy": {"trust": "store", "freshness": "yes"}}},
        {"keys": {"hmac": [{}], "ed25519": [], "enc": [], "now": 0, "policy": {"trust": "store", "freshness": True}}},
    ],
)
def test_what_is_not_known_is_a_failure(change):
    with pytest.raises(Unmapped):
        event_mesh.run({**OK[0], **change})
    with pytest.raises(Unmapped):
        event_mesh.run(None)


def test_foreign_words_for_faults_are_not_words_of_this_project():
    assert not {word for words in event_mesh.WORDS.values() for word in words} & set(event_mesh.REASONS)


def test_a_rendering_that_loses_bytes_is_none():
    for given in (["\ufffd"], ["ff", "\xff"], "ff", [None]):
        with pytest.raises(AssertionError):
            event_mesh.same_bytes([b"\xff"], given)
    event_mesh.same_bytes([b"\xff"], ["ff"])
    event_mesh.same_bytes([b"\xff", b"\xfe"], ["\xff", "\xfe"])
    with pytest.raises(AssertionError):
        event_mesh.same_bytes([b"\xff", b"a"], ["ff", "a"])


def test_a_sealed_vector_with_another_profile_or_key_fails():
    (sealed,) = [one for one in OK if one["fields"].get("profile") == "EMM-13"]
    assert fails({**sealed, "fields": {**sealed["fields"], "profile": "EMM-14"}})
    other = copy.deepcopy(sealed)
    other["keys"]["enc"][0]["key"] = "00" * 32
    assert fails(other)
