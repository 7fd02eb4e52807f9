"""The words in which a scenario of Relink may say what state a channel is in."""

from __future__ import annotations

import pytest
from tests.conformance.relink_states import _claims


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("", {}),
        ("all is well", {}),
        ("pending: 2, consumed up to 0", {"pending": "2", "consumed": "0"}),
        ("pending none", {"pending": "none"}),
        ("nothing is pending", {"pending": "0"}),
        ("no messages outstanding", {"outstanding": "0"}),
        ("2 messages are pending", {"pending": "2"}),
        ("sequences 1 and 2 are pending", {"pending": ["1", "2"]}),
        ("still pending", {"pending": True}),
        ("0 and 2 committed, 1 was rolled back", {"0": "committed", "1": "rolled back", "2": "committed"}),
        ("committed 0, uncommitted 1", {"0": "committed", "1": "uncommitted"}),
        ("the channel is closed", {"closed": True}),
        ("received 3, channel open", {"received": "3", "open": True}),
        ("link lost", {"link lost": True}),
        ("undisclosed", {}),
    ],
)
def test_a_text_claims(text, claims):
    assert _claims(text) == claims
