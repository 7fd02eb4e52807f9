"""Keepalive: a silent connection is asked once, and ended if it does not answer in time."""

from __future__ import annotations

import pytest
from tests.protocols.relink.pair import C, L, Pair

from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import Ping
from wirelake.protocols.relink.options import Options

TIMED = Options(ping_interval=10.0, pong_timeout=5.0, jitter=0.0)


def pings(pair: Pair, speaker=C) -> int:
    return sum(isinstance(packet, Ping) for packet in pair.packets(speaker))


@pytest.fixture
def silent() -> Pair:
    """A connection whose connector hears nothing more."""
    return Pair(options=TIMED)


def tick(pair: Pair, now: float) -> None:
    """Time passes for the connector; what it says is lost."""
    pair.now = now
    pair.ends[C].tick(now)
    pair.out(C)


def test_silence_is_asked_about_when_the_interval_is_over_and_not_before(silent):
    tick(silent, 9.99)
    assert pings(silent) == 0
    tick(silent, 10.0)
    assert pings(silent) == 1


def test_one_ping_waits_at_a_time(silent):
    for now in (10.0, 10.5, 12.0, 14.9):
        tick(silent, now)
    assert pings(silent) == 1
    assert silent.ends[C].ended is None


def test_a_pong_that_does_not_come_in_time_ends_the_connection(silent):
    tick(silent, 10.0)
    tick(silent, 14.99)
    assert silent.ends[C].ended is None
    tick(silent, 15.0)
    assert silent.ends[C].ended.fault is Fault.PONG_TIMEOUT


def test_an_answer_starts_the_interval_again():
    pair = Pair(options=TIMED)
    pair.wait(10.0)
    assert (pings(pair), pings(pair, L)) == (1, 1)
    pair.wait(9.9)
    assert pings(pair) == 1
    pair.wait(0.1)
    assert pings(pair) == 2
    assert pair.ends[C].ended is None
