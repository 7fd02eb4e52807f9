"""Two sessions and a network between them that loses, repeats, delays and pauses, all by one seed; time is simulated.

What must hold whatever the network does is asserted on the way: a call is delivered at most once (until a reset, WOLP-28), has exactly one
outcome, and a value that came back is the one that was sent. When the network is well again, everything comes to rest, and trust can be
gained.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from typing import Any

from tests.protocols.wolpertinger.pair import COMPONENTS, dice

from wirelake.protocols.wolpertinger.events import (
    Authenticated,
    AuthenticationFailed,
    CallDone,
    CallFailed,
    CallReceived,
    CallReturned,
    WasReset,
)
from wirelake.protocols.wolpertinger.options import Options
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState

CLUSTER = bytes(range(16))
ALL_RETRIES = 10_000.0
"""Seconds in which every message is confirmed or given up, however many fragments it has, and every step, too."""


class World:
    """Both sides, what is on its way between them, and the bookkeeping of what was promised."""

    def __init__(self, seed: int, trust_state: TrustState = STRANGER, *, ordered: bool = False) -> None:
        self.random = random.Random(seed)
        self.ordered = ordered
        self.lose, self.repeat = self.random.choice([0.0, 0.05, 0.3]), self.random.choice([0.0, 0.1, 0.4])
        self.now = 0.0
        self.calm = False
        """The network is well again."""
        options = Options(
            components=COMPONENTS,
            cluster_key=CLUSTER,
            fragment_size=self.random.choice([60, 200, 30_500]),
            compress=self.random.random() < 0.3,
        )
        self.sides = [Session(speaker, options, draw=dice(f"{seed} {speaker}"), trust_state=trust_state) for speaker in Speaker]
        self._wire: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()
        self._last_arrival = [0.0, 0.0]
        self._paused_until = 0.0
        self.expected: dict[str, str | None] = {}
        self.outcomes: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.values: dict[str, Any] = {}
        self.finished: list[Any] = []
        self.resets = 0
        self.work: list[tuple[float, int, int, CallReceived]] = []

    def call(self, side: int) -> None:
        """A call of a random kind."""
        one = self.sides[side]
        if self.random.random() < 0.3:
            self.expected[one.call("Sample", "Void", (), self.now, returns=False)] = None
        else:
            text = "x" * self.random.choice([0, 10, 500])
            self.expected[one.call("Sample", "Echo", (text,), self.now)] = text

    def run(self, until: float) -> None:
        """Everything that happens until then."""
        while True:
            self._settle()
            moments = [one.deadline for one in self.sides if one.deadline is not None]
            moments += [self._wire[0][0]] if self._wire else []
            moments += [self.work[0][0]] if self.work else []
            if not moments or min(moments) > until:
                self.now = until
                return
            self.now = max(self.now, min(moments))
            while self._wire and self._wire[0][0] <= self.now:
                _, _, side, text = heapq.heappop(self._wire)
                self.sides[side].receive_text(text, self.now)
                self._settle()
            while self.work and self.work[0][0] <= self.now:
                _, _, side, event = heapq.heappop(self.work)
                self.sides[side].respond(event.call_id, event.parameters[0], self.now)
                self._settle()
            for one in self.sides:
                if one.deadline is not None and one.deadline <= self.now:
                    one.tick(self.now)

    def _settle(self) -> None:
        for side, one in enumerate(self.sides):
            for text in one.messages():
                self._send(1 - side, text)
            for event in one.events():
                self._note(side, event)

    def _send(self, side: int, text: bytes) -> None:
        if not self.calm and self.random.random() < 0.01:
            self._paused_until = self.now + self.random.uniform(0, 40)
        for _ in range(1 if self.calm or self.random.random() >= self.repeat else 2):
            if not self.calm and self.random.random() < self.lose:
                continue
            arrival = max(self.now, self._paused_until) + self.random.uniform(0.001, 0.01 if self.calm else 5.0)
            if self.ordered:
                arrival = self._last_arrival[side] = max(arrival, self._last_arrival[side])
            heapq.heappush(self._wire, (arrival, next(self._numbers), side, text))

    def _note(self, side: int, event: Any) -> None:
        if isinstance(event, CallReceived):
            self.delivered[event.call_id] += 1
            # WOLP-28: a reset forgets what was delivered; what the network repeats after one is new.
            assert self.delivered[event.call_id] == 1 or self.resets, "delivered twice"
            if event.returns:
                heapq.heappush(self.work, (self.now + self.random.choice([0.0, 1.0, 60.0]), next(self._numbers), side, event))
        elif isinstance(event, CallReturned | CallDone | CallFailed):
            self.outcomes[event.call_id] += 1
            assert self.outcomes[event.call_id] == 1, "two outcomes"
            if isinstance(event, CallReturned):
                assert event.value == self.expected[event.call_id]
            if isinstance(event, CallReturned | CallDone):
                assert self.delivered[event.call_id] or self.resets  # WOLP-22: what comes in clear by mistake is confirmed, and refused
        elif isinstance(event, WasReset):
            self.resets += 1
        elif isinstance(event, Authenticated | AuthenticationFailed):
            self.finished.append(event)

    def rest(self) -> None:
        """Nobody owes anybody anything."""
        assert set(self.outcomes) == set(self.expected)
        for one in self.sides:
            assert (one.pending, one.serving, one.deadline, one._waiting) == (0, 0, None, [])
            assert len(one._layer1.unconfirmed) == 0
            assert one._layer1.assembly.weight == 0


def calls(seed: int, trust_state: TrustState) -> World:
    """Many calls in both directions over a network that reorders."""
    world = World(seed, trust_state)
    for _ in range(25):
        world.call(world.random.randrange(2))
        world.run(world.now + world.random.choice([0.0, 0.5, 30.0]))
    world.calm = True
    world.run(world.now + ALL_RETRIES)
    world.rest()
    return world


def trust(seed: int) -> World:
    """Gaining trust over a network that loses and repeats, with calls meanwhile; then once more when it is well."""
    world = World(seed, ordered=True)
    for attempts in range(1, 7):
        world.sides[0].authenticate(world.random.choice([1, 2, 3]), world.now)
        for _ in range(3):
            world.call(world.random.randrange(2))
            world.run(world.now + world.random.choice([0.0, 5.0]))
        if world.random.random() < 0.2:
            world.sides[world.random.randrange(2)].reset(world.now)
        world.run(world.now + ALL_RETRIES)
        assert len(world.finished) == attempts, "an attempt without an outcome, or with two"
    world.calm = True
    for _ in range(3):
        world.sides[0].authenticate(3, world.now)
        world.run(world.now + ALL_RETRIES)
        if isinstance(world.finished[-1], Authenticated):
            break
    assert world.finished[-1] == Authenticated(3)
    assert [one.trust_state.granted for one in world.sides] == [3, 3]
    assert world.sides[0].trust_state.keys == world.sides[1].trust_state.keys
    world.rest()
    return world
