"""Two hundred seeds of two links in a hostile network; twenty thousand with `make soak`."""

from __future__ import annotations

import pytest
from tests.protocols.relink import simulation

BATCH = 50


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, BATCH))
def test_every_message_once_and_in_order_and_both_sides_agree(first):
    """RELINK-32, RELINK-28: see simulation.py for what is held."""
    for seed in range(first, first + BATCH):
        simulation.play(seed)


def test_a_seed_always_tells_the_same_story():
    stories = []
    for _ in range(2):
        world = simulation.World(11, keep_trace=True)
        world.run()
        stories.append(world.trace)
    assert stories[0] == stories[1]
    assert len(stories[0]) > 50


def test_a_failing_seed_prints_its_story(monkeypatch):
    def broken(world: simulation.World) -> None:
        raise AssertionError("for the sake of it")

    monkeypatch.setattr(simulation.World, "judge", broken)
    with pytest.raises(AssertionError, match="seed 3: ") as failure:
        simulation.play(3)
    story = str(failure.value)
    assert "for the sake of it" in story
    assert "the connector connects" in story
    assert "python -m tests.protocols.relink.simulation 3" in story


@pytest.mark.slow
def test_the_stories_are_eventful():
    """Over some seeds everything happens that the simulation is for."""
    parsed = ""
    for seed in range(40):
        world = simulation.World(seed, keep_trace=True)
        world.run()
        parsed += "\n".join(world.trace)
    for word in ("Resumed(", "LinkLost(", "restarts", "ChannelClosed", "UNCOMMITTED", "ROLLED_BACK", "COMMITTED", "LinkShutdown", "cut"):
        assert word in parsed, word
    for word in ("replaced=True", "PONG_TIMEOUT", "CLOSED_INSIDE_MESSAGE", "took the link over", "resumed=True", "mutes the server"):
        assert word in parsed, word
