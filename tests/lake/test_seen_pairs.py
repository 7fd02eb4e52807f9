"""SeenPairs is an ordered set, however it grows and shrinks."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wirelake.capture.blocks.flows import SESSION_ID_SIZE
from wirelake.lake.decode import seen_pairs
from wirelake.lake.decode.seen_pairs import SeenPairs
from wirelake.protocols.kernel import _over_views, compiled


@pytest.mark.parametrize("form", [_over_views, compiled])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_added_once_and_kept_in_order(monkeypatch, form, seed):
    monkeypatch.setattr(seen_pairs, "over_arrays", form)
    monkeypatch.setattr(seen_pairs, "SMALLEST", 4)
    dice = random.Random(seed)
    # Ids that differ in one bit, and extremes: all of their words are compared.
    sessions = [bytes(16), b"\xff" * 16, *((1 << bit).to_bytes(16) for bit in (0, 31, 32, 63, 64, 127))]
    sources = [bytes(8), b"\xff" * 8, (1 << 63).to_bytes(8)]
    seen, expected = SeenPairs(), {}
    for _ in range(30):
        pairs = [(dice.choice(sessions), dice.choice(sources)) for _ in range(dice.randrange(6))]
        fresh = [number for number, pair in enumerate(pairs) if pair not in expected and expected.setdefault(pair, True)]
        words = np.frombuffer(b"".join(session + source for session, source in pairs), np.uint8).reshape(-1, SESSION_ID_SIZE + 8)
        assert seen.add(words).tolist() == fresh
        if dice.random() < 0.2:
            gone = set(dice.sample(sessions, 2))
            seen.drop(gone)
            expected = {pair: True for pair in expected if pair[0] not in gone}
        if dice.random() < 0.2:
            seen.drop_oldest(len(seen) // 2)
            expected = dict.fromkeys(list(expected)[len(expected) // 2 :], True)
        assert list(seen) == list(expected) == list(SeenPairs(seen))
        assert len(seen) == len(expected)
