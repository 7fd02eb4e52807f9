"""Live Relink, taped by one of its ends: the simulation of two links in a hostile network, and what a stranger says into it.

Each run is a recording of its own, so that the file tells which run a row of the lake is about; `heard` is what the taping end's own
sessions judged.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.protocols.relink import simulation
from tests.protocols.relink.network import Connection
from tests.protocols.relink.pair import C, L

from wirelake.capture.recording import Connection as Recorded
from wirelake.capture.recording import Recorder
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.conversation import Speaker
from wirelake.protocols.relink.events import Ended, Noticed, Opened
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.options import Options
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.wire import encode

START_NS = 1_700_000_000 * 10**9


class TapedWorld(simulation.World):
    """A simulated network, and what one of its ends says, hears and judges."""

    def __init__(self, path: Path, seed: int, observer: Speaker) -> None:
        self.path, self.observer = path, observer
        self.heard: list[Fault] = []
        self.taped: list[Taped] = []
        self._whims = random.Random(seed)
        super().__init__(seed)

    def restart(self, *, first: bool = False) -> None:
        if first:
            self._recorder = Recorder(self.path, protocol="relink", clock=lambda: START_NS + int(self.clock.now * 1e9))
        super().restart(first=first)
        self.registry.epoch += (2 * self.seed + self.observer) * 10**10  # a link has a name of its own in every run

    def connect(self) -> None:
        self.reconnect_planned = False
        if self.connector.is_over:
            return
        self.connections = [one for one in self.connections if not all(end.ended for end in one.ends)]
        ends = [self._session(C, link=self.connector), self._session(L, registry=self.registry)]
        self.connections.append(Connection(self.clock, self.draw, *ends, self.settle))

    def _session(self, speaker: Speaker, **of: Any) -> Session:
        if speaker is not self.observer:
            return Session(speaker, self.options, **of)
        here, there = ("127.0.0.1", 10_000 + len(self.taped)), ("127.0.0.1", 7000)
        if speaker is C:
            record = self._recorder.connection(role="client", local=here, remote=there)
        else:
            record = self._recorder.connection(role="server", local=there, remote=here)
        self.taped.append(Taped(speaker, self.options, record, self.heard, **of))
        return self.taped[-1]

    def intrude(self) -> bool:
        """Something is said to the end that tapes, which nobody meant to say; whether there was anybody to hear it."""
        end = self.taped[-1]
        if end.ended is not None or not end.is_opened:
            return False
        end.receive(self._whim(end), self.clock.now)
        end.events()
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
        return encode(said) + draw.choice((b"", encode(m.Message(theirs, (b"????",)))))

    def close(self) -> None:
        for end in self.taped:
            end.close()
        self._recorder.close()


class Taped(Session):
    """A session that tapes itself as a live peer does."""

    def __init__(self, speaker: Speaker, options: Options, record: Recorded, heard: list[Fault], **of: Any) -> None:
        super().__init__(speaker, options, **of)
        self.is_opened = self._is_closed = False
        self._record, self._heard_faults = record, heard

    def output(self) -> bytes:
        data = super().output()
        if data and not self._is_closed:
            self._record.sent(data)
        if self.ended is not None:
            self.close()
        return data

    def receive(self, data: bytes, now: float) -> None:
        super().receive(data, now)
        if self.frames:
            self._record.received(self.frames)

    def events(self):
        events = super().events()
        self.is_opened |= any(isinstance(one, Opened) for one in events)
        self._heard_faults += [one.fault for one in events if isinstance(one, Noticed | Ended) and one.fault is not None]
        return events

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self.rest:
                self._record.received(self.rest)
            self._record.closed("eof")
