"""The runners of Relink's vectors can fail: whatever a vector says is asserted, and what they do not know is a failure."""

from __future__ import annotations

import copy

import pytest
from tests.cases import each
from tests.conformance import relink, relink_scenarios, relink_sessions
from tests.conformance.harness import directory, vectors
from tests.conformance.reading import Unmapped


def known(name: str) -> list:
    return vectors(directory() / name) if (directory() / name).exists() else []


VECTORS, SCENARIOS, SESSIONS = known("relink.json"), known("relink-scenarios.json"), known("relink-sessions.json")


def fails(run, vector) -> bool:
    try:
        run(vector)
    except Exception:
        return True
    return False


@each("vector", [one for one in VECTORS if one["expect"] == "ok"], ids=lambda one: one.get("name", ""))
def test_no_field_of_a_vector_can_be_left_out(vector):
    for key in vector["fields"]:
        changed = copy.deepcopy(vector)
        del changed["fields"][key]
        assert fails(relink.run, changed), key
    assert fails(relink.run, {**vector, "expect": "terminate", "fields": {"kind": vector["fields"]["kind"], "error": "limit"}})


@pytest.mark.parametrize("vector", [one for one in VECTORS if one["expect"] == "terminate"], ids=lambda one: one.get("name", ""))
def test_what_must_end_a_connection_cannot_pass_for_another_reason(vector):
    text = vector["fields"]["error"]
    wrong = "over the limit" if "limit" not in text else "unknown type"
    assert fails(relink.run, {**vector, "fields": {**vector["fields"], "error": wrong}})
    assert fails(relink.run, {**vector, "hex": "0000000000000000" if vector["fields"]["kind"] not in relink.STAGES else "00" * 24})


def test_an_error_in_other_words_has_one_of_ours_or_is_a_failure():
    vector = {"hex": "1500000000000000", "expect": "terminate", "ctx": {"id_size": 0}, "fields": {"kind": "unknown"}}
    for words, holds in (("such packets do not exist", True), ("bad padding", False), ("", False)):
        assert fails(relink.run, {**vector, "fields": {"kind": "unknown", "error": words}}) is not holds


@pytest.mark.parametrize(
    "change", [{"expect": "maybe"}, {"novelty": 1}, {"hex": "00 00"}, {"ctx": {"size": 1}}, {"fields": {"kind": "novel"}}]
)
def test_what_is_not_known_is_a_failure(change):
    for vector in VECTORS[:1]:
        with pytest.raises(Unmapped):
            relink.run({**vector, **change})
    with pytest.raises(Unmapped):
        relink_scenarios.run({"kind": "novel"})
    with pytest.raises(Unmapped):
        relink_sessions.run([])


@each("scenario", SCENARIOS, ids=lambda one: one.get("name", ""))
def test_no_outcome_of_a_scenario_can_be_changed(scenario):
    if "expect" in scenario:
        assert fails(relink_scenarios.run, {**scenario, "expect": "ok" if scenario["expect"] == "terminate" else "terminate"})
    if "outcome" in scenario:
        assert fails(relink_scenarios.run, {key: value for key, value in scenario.items() if key != "outcome"} | {"then": "close"})
    if "then" in scenario:
        assert fails(relink_scenarios.run, {key: value for key, value in scenario.items() if key != "then"})


@pytest.mark.parametrize("recording", SESSIONS, ids=lambda one: "recorded")
def test_no_step_of_a_recording_can_be_left_out(recording):
    for name, steps in recording.items():
        if name.startswith("session"):
            # An acknowledgement that is said again after the cut may be lost: that is what a resume is for; and nobody has to shut down.
            said = [index for index, step in enumerate(steps) if step["hex"] and step["hex"][:2] not in ("2d", "80")]
            for index in said:
                changed = {**recording, name: [*steps[:index], *steps[index + 1 :]]}
                assert fails(relink_sessions.run, changed), steps[index]
