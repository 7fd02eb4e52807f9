"""Vectors made here, for words of the shapes that no other vector at hand uses; `own` has them in files named as the others are."""

from __future__ import annotations

import pytest
from tests.conformance.harness import OWN, RUNNERS, files, label, vectors

CASES = [(path, index, one) for path in files(OWN) for index, one in enumerate(vectors(path))]


@pytest.mark.parametrize(("path", "index", "vector"), CASES, ids=[label(*case) for case in CASES])
def test_a_vector_of_ours_holds(path, index, vector):
    RUNNERS[path.name](vector)


def test_every_word_that_other_vectors_may_use_is_in_one_of_ours():
    said = "".join(path.read_text() for path in files(OWN))
    for word in (
        *("joined_string_length_bytes", "EMM-13+14", "replay_sequences", "state", "pending", "types", "user_auth_key_b64", "values"),
        *("duplicate-sub-tlv", "duplicate-tlv"),
    ):
        assert f'"{word}"' in said, word
