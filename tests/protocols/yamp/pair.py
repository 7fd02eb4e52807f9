"""Two sessions of YAMP on a link that cuts or loses, and what holds after every step."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec
from tests.protocols import sides
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


class Side(sides.Side):
    """One side; what it said is a list of messages, so that a link of datagrams can carry them."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, cut: int = 4096, seed: int = 4) -> None:
        super().__init__(Session(speaker, options, draw=random.Random(seed + speaker).randbytes), cut)
        self.said: list[bytes] = []
        self.unsent: list[bytes] = []

    def receive(self, data: bytes) -> None:
        """A datagram comes whole."""
        if self.session.options.datagrams:
            self.session.receive(data, self.now)
            self.drain()
        else:
            super().receive(data)

    def take_output(self) -> None:
        output = self.session.messages()
        self.said += output
        self.unsent += output

    def check(self) -> None:
        session, options = self.session, self.session.options
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


class Pair(sides.Pair[Side]):
    """A client and a server, and a link that loses messages."""

    def __init__(self, cut: int = 4096, client: Options = DEFAULT_OPTIONS, server: Options = DEFAULT_OPTIONS) -> None:
        super().__init__(Side(CLIENT, client, cut), Side(SERVER, server, cut))
        self.drop = lambda _: False
        """Which messages the link loses."""

    def carry(self, one: Side, other: Side) -> bool:
        said, one.unsent = one.unsent, []
        kept = [each for each in said if not self.drop(each)]
        for data in kept if one.session.options.datagrams else [b"".join(kept)]:
            other.receive(data)
        return bool(said)


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
