"""Live Relink, taped by one of its ends: the simulation of two links in a hostile network, and what a stranger says into it.

All runs are in one recording, one after the other, so that the place of a row of the lake tells which run it is about. `heard` is what the
taping end's own sessions judged, `resolved` what became of the messages it sent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.protocols.relink import simulation
from tests.protocols.relink.network import Connection
from tests.protocols.relink.pair import C, L

from wirelake.capture.record.recorder import Connection as Recorded
from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.events import Ended, LinkLost, MessagesResolved, Noticed, Opened, SessionEvent
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.options import Options
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import encode

START_NS = 1_700_000_000 * 10**9


class Tape:
    """A recording of many runs, each in simulated time of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        self.ports = iter(range(10_000, 65_000))
        self.recorder = Recorder(path, protocol="relink", clock=lambda: START_NS + int(self.now * 1e9), observer="")

    @property
    def place(self) -> int:
        """Where the next record will be."""
        self.recorder.flush()
        return self.path.stat().st_size


def tell(tape: Tape, steps: Iterable[tuple[str, bytes]]) -> None:
    """Record what two say to each other, a tenth of a second after the other."""
    talk = old = None
    for who, data in steps:
        tape.now += 11 if who == "wait" else 0.1
        if talk is None:
            talk = tape.recorder.connection(role="client", local=("127.0.0.1", next(tape.ports)), remote=("127.0.0.1", 7000))
        if who == "client":
            talk.sent(data)
        elif who == "server":
            talk.received(data)
        elif who == "late":
            old.sent(data)
        elif who == "takeover":
            talk, old = None, talk
        elif who in ("cut", "closed"):
            talk.closed("eof")
            talk = None


class TapedWorld(simulation.World):
    """A simulated network, and what one of its ends says, hears and judges."""

    def __init__(self, tape: Tape, seed: int, observer: Speaker) -> None:
        self.tape, self.observer = tape, observer
        self.heard: list[Fault] = []
        self.resolved: Counter[tuple[str, str]] = Counter()
        """Of the messages of the end that tapes: channel and number, and the outcome that the peer told."""
        self.is_lost = False
        """A link was lost, or a listener's process ended: its last resume may be on the tape, and never came into force."""
        self.taped: list[Taped] = []
        self._whims = random.Random(seed)
        super().__init__(seed)

    def restart(self, *, first: bool = False) -> None:
        super().restart(first=first)
        self.is_lost |= not first
        self.registry.epoch += (2 * self.seed + self.observer) * 10**10  # a link has a name of its own in every run

    def connect(self) -> None:
        self.reconnect_planned = False
        if self.connector.is_over:
            return
        self.connections = [one for one in self.connections if not all(end.ended for end in one.ends)]
        ends = [self._session(C, link=self.connector), self._session(L, registry=self.registry)]
        self.connections.append(Connection(self.clock, self.draw, *ends, self.settle))  # type: ignore[call-arg]  # two ends

    def _session(self, speaker: Speaker, **of: Any) -> Session:
        if speaker is not self.observer:
            return Session(speaker, self.options, **of)
        client, server = ("127.0.0.1", next(self.tape.ports)), ("127.0.0.1", 7000)
        self.tape.now = self.clock.now
        if speaker is C:
            record = self.tape.recorder.connection(role="client", local=client, remote=server)
        else:
            record = self.tape.recorder.connection(role="server", local=server, remote=client)
        self.taped.append(Taped(self, record, speaker, self.options, **of))
        return self.taped[-1]

    def intrude(self) -> bool:
        """Something is said to the end that tapes, which nobody meant to say; whether there was anybody to hear it."""
        end = self.taped[-1]
        if end.ended is not None or not end.is_opened:
            return False
        end.output()  # what it has said is on its way
        end.receive(self._whim(end), self.clock.now)
        end.events()
        end.output()
        return True

    def _whim(self, end: Taped) -> bytes:
        draw, link = self._whims, end.link
        sizes = link.endpoint.id_sizes
        theirs, ours = (
            (draw.choice([*channels, bytes([draw.randrange(5)]) * sizes[side]]),)
            for channels, side in ((link.inbox.channels, end.peer), (link.outbox.channels, end.speaker))
        )
        number = draw.choice((None, None, *range(8), m.LAST_SEQUENCE))
        said = draw.choice(
            (
                *(kind(theirs, number) for kind in (m.Commit, m.Rollback)),
                *(kind(ours, number) for kind in (m.Received, m.Consumed, m.Committed, m.Uncommitted)),
                *(m.Message(theirs, (b"????",)), m.Close(theirs), m.Closed(ours), m.Resume(), m.Pong(), m.Shutdown()),
            )
        )
        return encode(said)


class Taped(Session):
    """A session that tapes itself as a live peer does."""

    def __init__(self, world: TapedWorld, record: Recorded, speaker: Speaker, options: Options, **of: Any) -> None:
        super().__init__(speaker, options, **of)
        self.is_opened = self.is_resumed = self._is_closed = False
        self._world, self._tape = world, record

    def output(self) -> bytes:
        self._world.tape.now = self._world.clock.now
        data = super().output()
        if data:
            self._tape.sent(data)
        if self.ended is not None and not self._is_closed:
            self._is_closed = True
            if self.rest:
                self._tape.received(self.rest)
            self._tape.closed("eof")
        return data

    def receive(self, data: bytes, now: float) -> None:
        self._world.tape.now = now
        super().receive(data, now)
        if self.frames:
            self._tape.received(self.frames)

    def events(self) -> list[SessionEvent]:
        events = super().events()
        for opened in (one for one in events if isinstance(one, Opened)):
            self.is_opened, self.is_resumed = True, opened.resumed
        for one in events:
            if isinstance(one, MessagesResolved):
                numbers = range(one.first, one.last + 1)
                self._world.resolved.update((f"{one.channel.hex()}/{number}", one.outcome.value) for number in numbers)
            self._world.is_lost |= isinstance(one, LinkLost)
        self._world.heard += [one.fault for one in events if isinstance(one, Noticed | Ended) and one.fault is not None]
        return events
