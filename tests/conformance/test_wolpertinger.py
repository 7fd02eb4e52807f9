"""The runner of wolpertinger.json can fail: whatever a vector says is asserted, and what it does not know is a failure."""

from __future__ import annotations

import copy

import pytest
from tests.cases import each
from tests.conformance import wolpertinger
from tests.conformance.harness import directory, vectors
from tests.conformance.reading import Unmapped

FILE = directory() / "wolpertinger.json"
VECTORS = vectors(FILE) if FILE.exists() else []
TEXTS = [one for one in VECTORS if one["layer"] == 1]
DOCUMENTS = [one for one in VECTORS if one["layer"] == 2]
AUTHENTICATION = [one for one in VECTORS if one["layer"] == "auth"]


def fails(vector) -> bool:
    try:
        wolpertinger.run(vector)
    except Exception:
        return True
    return False


@each("vector", TEXTS, ids=lambda one: one.get("name", ""))
def test_no_outcome_of_a_text_can_be_changed(vector):
    for key in ("delivered_hex", "replies"):
        assert fails({**vector, key: [*vector[key], "00" if key == "delivered_hex" else "result:0;message_id:77;"]}), key
        assert not vector[key] or fails({**vector, key: vector[key][1:]}), key
    assert fails({**vector, "result_code": 2})
    assert fails({**vector, "confirmations": [*vector.get("confirmations", []), [77, 0]]})
    assert fails({**vector, "expect": "reject" if vector["expect"] == "ok" and vector["delivered_hex"] else "maybe"})


@each("vector", DOCUMENTS, ids=lambda one: one.get("name", ""))
def test_no_outcome_of_a_document_can_be_changed(vector):
    assert fails({**vector, "error_code": 203})
    assert fails({**vector, "expect": "ok" if vector["expect"] == "reject" else "reject"})


@pytest.mark.parametrize("vector", AUTHENTICATION, ids=lambda one: one.get("name", ""))
def test_no_key_can_be_changed(vector):
    for part in ("fields", "keys"):
        for key, value in vector[part].items():
            other = copy.deepcopy(vector)
            first = value[0]
            other[part][key] = ("1" if first == "0" else "0" if first in "123456789abcdef" else "z") + value[1:]
            assert fails(other), key


@pytest.mark.parametrize(
    "vector",
    [
        None,
        {},
        {"expect": "ok", "layer": 3},
        {**(TEXTS[0] if TEXTS else {}), "novelty": 1},
        {**(TEXTS[0] if TEXTS else {}), "wire": [1]},
        {**(DOCUMENTS[0] if DOCUMENTS else {}), "context": {"mood": 1}},
        {"layer": "auth", "expect": "ok", "keys": {"moon": 1}, "fields": {"token_b64": "", "verification_key_b64": ""}},
        {"layer": "auth", "expect": "reject", "keys": {}, "fields": {}},
    ],
)
def test_what_is_not_known_is_a_failure(vector):
    with pytest.raises(Unmapped):
        wolpertinger.run(vector)
