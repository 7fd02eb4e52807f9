"""The runners can fail: every word of every vector, ours and the others', is changed, and each change is reported.

Labels (`reading.LABELS`) and the inputs below are left alone: what follows from an input is what the other words are compared with.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cases import each
from tests.conformance.harness import OWN, RUNNERS, files, label, vectors
from tests.conformance.reading import LABELS, Unmapped

INPUTS: Final = {
    "emp.json": {"hex"},
    "event-mesh.json": {"hex", "keys", "prior"},
    "relink.json": {"hex", "ctx"},
    "relink-scenarios.json": {"kind", "id_size", "transactions", "channel", "peer_says", "cursor", "outstanding", "sequence", "steps"},
    "wolpertinger.json": {"wire", "xml", "keys", "context"},
    "yamp.json": {"hex", "ws_message_sizes"},
}
"""File -> words of a vector that set the scene; recordings are nothing else, and have tests of their own."""
SILENT: Final = {("byte_exact_encoding",)}
"""Words that may claim nothing: `false` does not forbid that our encoder produces the same bytes."""
REASONS: Final = (
    "unknown type 9",
    "unknown format 9",
    "endpoint name is not UTF-8",
    "old link id without epoch",
    "multicast over the limit",
)
CASES: Final = [
    (path, index, one)
    for path in (*files(), *files(OWN))
    if path.name in INPUTS
    for index, one in enumerate(vectors(path))
    if isinstance(one, dict)
]


def fails(path: Path, vector: Any) -> bool:
    try:
        RUNNERS[path.name](vector)
    except Exception:
        return True
    return False


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a vector, but for labels."""
    if isinstance(value, dict):
        for key, one in value.items():
            if at or key not in LABELS:
                yield from places(one, (*at, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from places(one, (*at, index))
    yield at


def others(value: Any, at: tuple[Any, ...]) -> list[Any]:
    """Other values for a place."""
    if at[-1:] == ("error",):
        return [one for one in REASONS if not set(re.findall("[a-z]{5,}", one)) & set(re.findall("[a-z]{5,}", value))]
    if at == ("reason",) and value in ("duplicate-tlv", "duplicate-sub-tlv"):
        return ["duplicate-tlv" if value == "duplicate-sub-tlv" else "duplicate-sub-tlv", None]
    match value:
        case bool():
            return [not value, None, *([] if at[-1] == "pending" else [int(value)])]
        case int():
            return [value + 1, str(value + 1), None]
        case float():
            return [value * 2 + 1, None]
        case str() if re.fullmatch(r"-?[0-9]+", value):
            return [str(int(value) + 1), None]
        case str():
            first = {"1": "2"}.get(value[0], "1") if re.match("[0-9a-f]", value) else f"x{value[:1]}"
            longer = [] if re.fullmatch("[-+0-9.eE]+", value) else [value + "00"]  # 1.5 and 1.500 are the same
            return [first + value[1:], None, *longer]
        case list():
            return [[*value, copy.deepcopy(value[-1]) if value else 1], *([value[:-1]] if value else [])]
        case dict():
            return [{**value, "novelty": 1}]
    return [0, "00"]


def changed(vector: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    one = copy.deepcopy(vector)
    holder = one
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    return one


def value_at(vector: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        vector = vector[key]
    return vector


def is_compared(path: Path, vector: Any, at: tuple[Any, ...]) -> bool:
    if at[:1] == ("xsd_valid",) and "<!DOCTYPE" in vector["xml"]:  # WOLP-17: it does not come to that
        return False
    return at not in SILENT and (not at or at[0] not in INPUTS[path.name])


@pytest.mark.slow
@each(("path", "index", "vector"), CASES, ids=[f"{one[0].parent.name}-{label(*one)}" for one in CASES])
def test_no_word_of_a_vector_can_be_changed(path, index, vector):
    for at in places(vector):
        if not is_compared(path, vector, at):
            continue
        for other in others(value_at(vector, at), at):
            assert fails(path, changed(vector, at, other)), (at, other)


@each(("path", "index", "vector"), CASES, ids=[f"{one[0].parent.name}-{label(*one)}" for one in CASES])
def test_a_word_that_nobody_knows_fails_by_name(path, index, vector):
    with pytest.raises(Unmapped, match="novelty"):
        RUNNERS[path.name]({**vector, "novelty": 1})
    if isinstance(vector.get("fields"), dict):
        with pytest.raises(Unmapped, match=r"novelty|fields of a document"):
            RUNNERS[path.name]({**vector, "fields": {**vector["fields"], "novelty": 1}})


STEPS = [(one, step) for path, _, one in CASES for step in range(len(one.get("steps", ())))]


@each(("scenario", "step"), STEPS, ids=lambda one: str(one) if isinstance(one, int) else one.get("name", ""))
def test_no_step_of_a_flow_can_be_changed(scenario, step):
    kind, what, *_ = scenario["steps"][step]
    path = Path("relink-scenarios.json")
    assert fails(path, changed(scenario, ("steps", step, 0), "novelty"))
    if kind != "state":
        assert fails(path, changed(scenario, ("steps", step, 1), "e000000000000000"))
    elif isinstance(what, dict):
        for word, value in what.items():
            for other in others(value, ("steps",)) if value not in ("none", "consumed", "rolled back") else ("committed", "0"):
                assert fails(path, changed(scenario, ("steps", step, 1, word), other)), (word, other)
        assert fails(path, changed(scenario, ("steps", step, 1, "novelty"), 1))
    else:
        place = 1 if re.search("[g-z]", what) else 2
        claim = scenario["steps"][step][place]
        for found in re.finditer(r"\b(?:[0-9]|none|closed|closing|consumed(?! (?:[0-9]|none))|committed)\b(?! message)", claim):
            new = {"none": "3", "closed": "open", "closing": "closed", "consumed": "committed", "committed": "consumed"}.get(found[0], "9")
            other = claim[: found.start()] + new + claim[found.end() :]
            assert fails(path, changed(scenario, ("steps", step, place), other)), other
        assert fails(path, changed(scenario, ("steps", step), ["state", "", "all is well"]))


def test_a_scenario_that_claims_nothing_fails():
    for steps in (["state"], ["state", 5], ["state", "", ""], ["state", {}], ["state", None], "state"):
        with pytest.raises(Unmapped):
            RUNNERS["relink-scenarios.json"]({"kind": "flow", "id_size": 0, "steps": [steps]})
    with pytest.raises(Unmapped):
        RUNNERS["relink-scenarios.json"](
            {"kind": "resume", "channel": {"consumed": 0, "sent_up_to": 0}, "peer_says": ["6000000000000000"], "id_size": 0}
        )
