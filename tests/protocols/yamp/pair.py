"""Two sessions on a link that cuts, in a world whose time is a number; every step is followed by a look at what must always hold."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec
from tests.protocols.yamp import speech

from wirelake.protocols.yamp.events import Ended, Noticed, Opened, SessionEvent
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Close, Message
from wirelake.protocols.yamp.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.yamp.session import Session
from wirelake.protocols.yamp.state_machine import Speaker, State
from wirelake.protocols.yamp.wire import buffer, message

CLIENT, SERVER = Speaker.CLIENT, Speaker.SERVER
QUIET = Options(handshake_timeout=None, ping_timeout=None, request_timeout=None)
"""No timers."""


def options(**changes: object) -> Options:
    """The defaults, but for this."""
    return msgspec.structs.replace(DEFAULT_OPTIONS, **changes)


def quiet(**changes: object) -> Options:
    """No timers, but for this."""
    return msgspec.structs.replace(QUIET, **changes)


class Side:
    """A session with its owner: drains it after every step, keeps what came out, and checks it."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, cut: int = 4096, seed: int = 4) -> None:
        self.session = Session(speaker, options, draw=random.Random(seed + speaker).randbytes)
        self.cut = cut
        self.now = 0.0
        self.heard: list[SessionEvent] = []
        self.said: list[bytes] = []
        self.unsent: list[bytes] = []
        self.started = False

    def start(self) -> None:
        self.session.start(self.now)
        self.started = True
        self.drain()

    def receive(self, data: bytes) -> None:
        """Bytes from the other side, in the pieces the link makes of them; a datagram whole."""
        if self.session.options.datagrams:
            self.session.receive(data, self.now)
            self.drain()
            return
        for at in range(0, len(data), self.cut):
            self.session.receive(data[at : at + self.cut], self.now)
            self.drain()

    def eof(self) -> None:
        self.session.receive_eof(self.now)
        self.drain()

    def tick(self) -> None:
        self.session.tick(self.now)
        self.drain()
        deadline = self.session.deadline
        assert deadline is None or deadline > self.now, "a timer that is due again at once"

    def wait(self, seconds: float) -> None:
        """Let time pass, waking the session whenever it asked for it."""
        until = self.now + seconds
        while (deadline := self.session.deadline) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.tick()
        self.now = until
        self.tick()

    def drain(self) -> None:
        output = self.session.messages()
        self.said += output
        self.unsent += output
        self.heard += self.session.events()
        self.check()

    def check(self) -> None:
        """What holds after every step."""
        session, options = self.session, self.session.options
        assert session.output() == b""
        assert session.events() == []
        endings = [event for event in self.heard if isinstance(event, Ended)]
        opened = [event for event in self.heard if isinstance(event, Opened)]
        assert len(opened) <= 1
        if session.ended is not None:
            assert endings == [session.ended] == self.heard[-1:], "one ending, and it is the last event"
            assert (session.pending, session.serving, session.deadline) == (0, 0, None)
            return
        assert endings == []
        assert opened or not self.delivered
        if opened:
            assert session.state is State.OPEN
        elif self.started:
            assert session.deadline is not None or options.handshake_timeout is None

    # What tests ask.

    @property
    def ended(self) -> Ended:
        assert self.session.ended is not None
        return self.session.ended

    @property
    def messages(self) -> list[Message]:
        """Everything this side said, decoded: what we send is always right, and comes message by message."""
        found = []
        for data in self.said:
            (batch,) = buffer(self.session.options.limits).feed(data)
            (row,) = batch[1]
            found.append(message(batch[0], row))
        return found

    @property
    def delivered(self) -> list[SessionEvent]:
        """What was handed to the application."""
        return [event for event in self.heard if not isinstance(event, Opened | Noticed | Ended)]

    @property
    def noticed(self) -> list[Fault]:
        return [event.fault for event in self.heard if isinstance(event, Noticed)]

    def forget(self) -> None:
        """What was said and heard so far is not looked at again."""
        self.said, self.unsent = [], []
        self.heard = [event for event in self.heard if isinstance(event, Opened)]

    def last(self, kind: type) -> SessionEvent:
        """The last event of a kind."""
        return [event for event in self.heard if isinstance(event, kind)][-1]


class Pair:
    """A client and a server, and the link between them."""

    def __init__(self, cut: int = 4096, client: Options = DEFAULT_OPTIONS, server: Options = DEFAULT_OPTIONS) -> None:
        self.client = Side(CLIENT, client, cut)
        self.server = Side(SERVER, server, cut)
        self.lost: list[bytes] = []
        self.drop = lambda _: False
        """Which messages the link loses."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.client, self.server

    def start(self) -> Pair:
        for side in self.sides:
            side.start()
        self.settle()
        return self

    def settle(self) -> None:
        """Carry messages until none are left to carry."""
        moved = True
        while moved:
            moved = False
            for side in self.sides:
                side.drain()
            for one, other in (self.sides, self.sides[::-1]):
                said, one.unsent = one.unsent, []
                kept = [each for each in said if not self.drop(each)]
                for data in kept if one.session.options.datagrams else [b"".join(kept)]:
                    other.receive(data)
                moved |= bool(said)

    def wait(self, seconds: float) -> None:
        """Let time pass for both, in the order of their deadlines."""
        until = self.client.now + seconds
        while True:
            deadlines = [side.session.deadline for side in self.sides if side.session.deadline is not None]
            now = min([until, *deadlines])
            for side in self.sides:
                side.now = max(side.now, now)
                side.tick()
            self.settle()
            if now >= until:
                return


def established(options: Options = DEFAULT_OPTIONS, *, speaker: Speaker = SERVER, cut: int = 4096) -> Side:
    """One side after its handshake, ready to hear anything; what it said and heard so far is forgotten."""
    side = Side(speaker, options, cut)
    side.start()
    side.receive(speech.handshake(1, options.serializer.encode()))
    assert [type(event) for event in side.heard] == [Opened]
    assert side.session.state is State.OPEN
    side.forget()
    return side


class Answer(NamedTuple):
    """What came of saying something to a session."""

    reason: str | None
    """Of the close that was said."""
    ended: Ended | None
    delivered: list[SessionEvent]
    noticed: list[Fault]
    messages: list[Message]


def answer(
    data: bytes, options: Options = DEFAULT_OPTIONS, *, handshake: bool = False, cut: int = 4096, speaker: Speaker = SERVER
) -> Answer:
    """Say something to one side, as the first thing or after the handshake."""
    side = Side(speaker, options, cut) if handshake else established(options, cut=cut, speaker=speaker)
    if handshake:
        side.start()
        side.forget()
    side.receive(data)
    said = side.messages
    closes = [one.reason for one in said if isinstance(one, Close)]
    assert len(closes) <= 1
    assert not closes or isinstance(said[-1], Close), "a close is the last word"
    return Answer(closes[0] if closes else None, side.session.ended, side.delivered, side.noticed, said)
