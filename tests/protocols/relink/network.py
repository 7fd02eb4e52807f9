"""A simulated network: connections whose bytes are delayed, arrive in pieces, and stop at any byte."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any


class Clock:
    """Simulated time: what is planned happens in its order, and nothing else does."""

    def __init__(self) -> None:
        self.now = 0.0
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._plans, (max(when, self.now), self._number, act))

    def after(self, delay: float, act: Callable[[], None]) -> None:
        self.at(self.now + delay, act)

    def run(self, until: float) -> None:
        while self._plans and self._plans[0][0] <= until:
            self.now, _, act = heapq.heappop(self._plans)
            act()
        self.now = until


class Pipe:
    """One direction of a connection."""

    def __init__(self, clock: Clock, draw: random.Random, deliver: Callable[[bytes], None]) -> None:
        self.clock, self.draw, self.deliver = clock, draw, deliver
        self.latency = draw.choice((0.0, 0.001, 0.01, 0.05))
        self.waiting = bytearray()
        """Sent, and not arrived."""
        self.last = 0.0
        self.is_cut = False

    def send(self, data: bytes) -> None:
        if self.is_cut or not data:
            return
        self.waiting += data
        self.last = max(self.last, self.clock.now + self.latency * self.draw.uniform(0.5, 1.5))
        self.clock.at(self.last, self._arrive)

    def _arrive(self) -> None:
        size = len(self.waiting)
        if size == 0:
            return
        if self.draw.random() < 0.3:  # any piece of it
            size = self.draw.randrange(1, size + 1)
            if size < len(self.waiting):
                self.clock.after(0.0, self._arrive)
        self._give(size)

    def _give(self, size: int) -> None:
        data = bytes(self.waiting[:size])
        del self.waiting[:size]
        self.deliver(data)

    def cut(self, keep: int) -> None:
        """Nothing more arrives but this many bytes of what is on its way."""
        self.is_cut = True
        del self.waiting[keep:]


class Connection:
    """Two sessions and the two pipes between them; after every call of a session its output is sent on."""

    def __init__(self, clock: Clock, draw: random.Random, connector: Any, listener: Any, settle: Callable[[Any], None]) -> None:
        self.clock, self.draw, self.settle = clock, draw, settle
        self.ends = (connector, listener)
        self.pipes = (Pipe(clock, draw, lambda data: self._hear(1, data)), Pipe(clock, draw, lambda data: self._hear(0, data)))
        self.is_cut = False
        self.arrivals_left: int | None = None
        """Arrivals after which the network loses this connection; None: it may live."""
        self._timers: list[float | None] = [None, None]
        for end in self.ends:
            end.start(clock.now)
        self.pump()

    def pump(self) -> None:
        """Take what both ends have to say, tell their owners what happened, and look at their deadlines."""
        for index, end in enumerate(self.ends):
            self.pipes[index].send(end.output())
            self.settle(end)
            self.pipes[index].send(end.output())
            self._plan(index)
            if end.ended is not None and not self.pipes[index].is_cut:
                # A closed end: what it said still arrives, then the end of the stream.
                self.pipes[index].is_cut = True
                self.clock.at(self.pipes[index].last + 0.001, lambda other=1 - index: self._eof(other))

    def cut(self) -> None:
        """The network loses the connection: of what is on its way any number of bytes arrive; each end learns it sometime, or never."""
        if self.is_cut:
            return
        self.is_cut = True
        for index, pipe in enumerate(self.pipes):
            pipe.cut(self.draw.randrange(len(pipe.waiting) + 1) if self.draw.random() < 0.7 else 0)
            if self.draw.random() < 0.8:
                self.clock.after(self.draw.choice((0.0, 0.02, 0.5, 3.0)), lambda other=1 - index: self._eof(other))

    def mute(self, index: int) -> None:
        """Nothing arrives of what one end says from now on, and neither end is told; the other direction goes on."""
        self.pipes[index].cut(len(self.pipes[index].waiting))

    def _hear(self, index: int, data: bytes) -> None:
        end = self.ends[index]
        if self.arrivals_left == 0:
            self.cut()
            return
        if self.arrivals_left is not None:
            self.arrivals_left -= 1
        if end.ended is None:
            end.receive(data, self.clock.now)
            self.pump()

    def _eof(self, index: int) -> None:
        end = self.ends[index]
        if end.ended is None:
            end.receive_eof(self.clock.now)
            self.pump()

    def _plan(self, index: int) -> None:
        end = self.ends[index]
        deadline = None if end.ended is not None else end.deadline
        if deadline is not None and (self._timers[index] is None or deadline < self._timers[index]):
            self._timers[index] = deadline
            self.clock.at(deadline, lambda: self._tick(index, deadline))

    def _tick(self, index: int, planned: float) -> None:
        if self._timers[index] != planned:  # another one came before it
            return
        self._timers[index] = None
        end = self.ends[index]
        if end.ended is None:
            end.tick(self.clock.now)
            self.pump()
