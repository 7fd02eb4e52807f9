"""Two sides of a link; a test decides when bytes are transferred and where connections end."""

from __future__ import annotations

from typing import Any

from tests.protocols.relink import invariants

from wirelake.protocols.relink.events import MessageReceived, MessagesResolved, Outcome, SessionEvent
from wirelake.protocols.relink.handshake import HandshakeReader
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.messages import AnyMessage
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, PART_COLUMNS, ROW_COLUMNS, scan
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import message

C, L = Speaker.CONNECTOR, Speaker.LISTENER
QUIET = Options(ping_interval=None, handshake_timeout=10.0, ack_delay=0.0, ack_every=1)
"""No pings, and every consumed message is acknowledged at once, so that a test sees only what it is about."""
EPOCH = 1_700_000_000_000_000


class Pair:
    """A connector's link and a listener's registry, with at most one connection that both know of."""

    def __init__(self, endpoint: Endpoint | None = None, options: Options = QUIET, *, connect: bool = True, first_id: int = 7) -> None:
        self.endpoint = endpoint or Endpoint("demo", 1, 1)
        self.options = options
        self.now = 0.0
        self.ids = iter(range(first_id, 1 << 30))
        self.registry = Registry([self.endpoint], EPOCH, lambda: next(self.ids), options)
        self.connector = LinkCore(C, self.endpoint, options)
        self.heard: dict[Speaker, list[SessionEvent]] = {C: [], L: []}
        self.bytes: dict[Speaker, bytes] = {C: b"", L: b""}
        """Everything each side said on the current connection."""
        self.ends: dict[Speaker, Session] = {}
        if connect:
            self.connect()
            self.run()

    def link(self, speaker: Speaker) -> LinkCore:
        if speaker is C:
            return self.connector
        session = self.ends[L]
        assert session.link is not None
        return session.link

    def connect(self, *, run: bool = False) -> None:
        """A new connection; the one before is not told."""
        self.ends = {C: Session(C, self.options, link=self.connector), L: Session(L, self.options, registry=self.registry, remote="here")}
        self.bytes = {C: b"", L: b""}
        for end in self.ends.values():
            end.start(self.now)
        if run:
            self.run()

    def out(self, speaker: Speaker) -> bytes:
        """What one side has to say; it is up to the test whether it arrives."""
        end = self.ends[speaker]
        data = end.output()
        self.hear(speaker)
        data += end.output()
        self.bytes[speaker] += data
        return data

    def hear(self, speaker: Speaker) -> None:
        self.heard[speaker] += self.ends[speaker].events()
        invariants.check(self.connector)
        for link in self.registry.links.values():
            invariants.check(link)

    def give(self, speaker: Speaker, data: bytes) -> None:
        """Bytes arrive at one side."""
        self.ends[speaker].receive(data, self.now)
        self.hear(speaker)

    def run(self) -> None:
        """Everything arrives, both ways, until nobody has anything to say."""
        for _ in range(1000):
            moved = False
            for speaker in (C, L):
                if data := self.out(speaker):
                    self.give(speaker.other, data)
                    moved = True
            if not moved:
                return
        raise AssertionError("they never stop talking")

    def wait(self, seconds: float) -> None:
        """Time passes, and timers fire."""
        self.now += seconds
        for speaker, end in self.ends.items():
            if end.ended is None:
                end.tick(self.now)
                self.hear(speaker)
        self.run()

    def lose(self, *speakers: Speaker) -> None:
        """The connection is gone, for these or for both; what was on its way is lost."""
        for speaker in speakers or (C, L):
            self.ends[speaker].output()
            self.ends[speaker].receive_eof(self.now)
            self.hear(speaker)

    def reconnect(self) -> None:
        self.lose()
        self.connect(run=True)

    def restart(self) -> None:
        """The listener's process ends, and another begins."""
        self.lose()
        self.registry = Registry([self.endpoint], self.registry.epoch + 1, lambda: next(self.ids), self.options)

    def said(self, speaker: Speaker) -> list[AnyMessage]:
        """What one side said on the current connection."""
        return decoded(self.bytes[speaker], speaker, self.endpoint)

    def packets(self, speaker: Speaker) -> list[AnyMessage]:
        return self.said(speaker)[2:]

    # What was told.

    def of(self, speaker: Speaker, kind: type[SessionEvent]) -> list[Any]:
        return [one for one in self.heard[speaker] if isinstance(one, kind)]

    def delivered(self, speaker: Speaker) -> list[bytes]:
        return [b"".join(one.parts) for one in self.of(speaker, MessageReceived)]

    def outcomes(self, speaker: Speaker) -> dict[tuple[bytes, int], Outcome]:
        found = {}
        for one in self.of(speaker, MessagesResolved):
            for number in range(one.first, one.last + 1):
                assert (one.channel, number) not in found, "resolved twice"
                found[one.channel, number] = one.outcome
        return found

    def consume_all(self, speaker: Speaker, *, success: bool = True) -> None:
        """The application takes everything it was given."""
        for one in self.of(speaker, MessageReceived):
            self.link(speaker).settle(one, self.now, success=success)
        self.run()


def decoded(data: bytes, speaker: Speaker, endpoint: Endpoint) -> list[AnyMessage]:
    prologue, said, at = HandshakeReader(DEFAULT_LIMITS, endpoint.id_sizes), [], 0
    while at < len(data):
        row, parts = [0] * ROW_COLUMNS, [0] * (1100 * PART_COLUMNS)
        count, _, at, _ = scan(data, at, len(data), row, parts, prologue.limits(speaker))
        assert count, "half a packet was said"
        said.append(message(data, row, parts))
        prologue.follow(speaker, data, row)
    return said
