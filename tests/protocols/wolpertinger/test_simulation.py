"""Over any simulated network, calls are delivered at most once and have one outcome, and trust can be gained again."""

from __future__ import annotations

import pytest
from tests.protocols.wolpertinger.pair import TRUSTED
from tests.protocols.wolpertinger.simulation import World, calls, trust

from wirelake.protocols.wolpertinger.trust.state import STRANGER


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_calls_over_a_hostile_network(seed):
    calls(seed, TRUSTED if seed % 2 else STRANGER)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_trust_over_a_hostile_network(seed):
    trust(seed)


def test_the_network_is_hostile():
    worlds = [calls(seed, TRUSTED) for seed in range(8)]
    assert any(world.lose for world in worlds)
    assert any(sum(world.delivered.values()) < len(world.expected) for world in worlds)


def test_the_same_seed_is_the_same_story():
    one, other = (calls(5, TRUSTED) for _ in range(2))
    assert isinstance(one, World)
    assert (one.outcomes, one.delivered, one.now) == (other.outcomes, other.delivered, other.now)
