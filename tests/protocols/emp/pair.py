"""Two sessions of EMP on a link that cuts, and what holds after every step."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from tests.protocols import sides
from tests.protocols.emp import speech

from wirelake.protocols.emp.events import DataReceived, Ended, Noticed, Opened, RequestReceived, ResponseReceived, SessionEvent
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Error, Message
from wirelake.protocols.emp.options import DEFAULT_OPTIONS, Options, Refused
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import Speaker, State
from wirelake.protocols.emp.wire import decode

CLIENT, SERVER = Speaker.CLIENT, Speaker.SERVER
QUIET = Options(ping_interval=None, pong_timeout=None, request_timeout=None, handshake_timeout=None)
"""No timers."""


def options(**changes: object) -> Options:
    """The defaults, but for this."""
    return msgspec.structs.replace(DEFAULT_OPTIONS, **changes)


def quiet(**changes: object) -> Options:
    """No timers, but for this."""
    return msgspec.structs.replace(QUIET, **changes)


class Reverse:
    """An extension that reverses the body; it refuses a body that begins with what its block says."""

    def undo(self, content: bytes, body: bytes) -> bytes:
        if content and body.startswith(content):
            raise Refused(77, "not that")
        return body[::-1]


EXTENDED = options(application_types=frozenset({128, 200}), codecs={200: Reverse(), 255: Reverse()})
"""An application with types and extensions of its own."""


class Side(sides.Side):
    """One side; what it said is one stream of bytes."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, cut: int = 4096) -> None:
        super().__init__(Session(speaker, options), cut)
        self.said = b""
        self.unsent = b""
        self.paused = False

    def pause(self) -> None:
        self.session.pause()
        self.paused = True
        self.drain()

    def resume(self) -> None:
        self.session.resume(self.now)
        self.paused = False
        self.drain()

    def take_output(self) -> None:
        output = self.session.output()
        self.said += output
        self.unsent += output

    def check(self) -> None:
        session, options = self.session, self.session.options
        endings = [event for event in self.heard if isinstance(event, Ended)]
        if session.ended is not None:
            assert endings == [session.ended] == self.heard[-1:], "one ending, and it is the last event"
            assert session.pending == 0
            assert session.deadline is None
            return
        assert endings == []
        opened = [event for event in self.heard if isinstance(event, Opened)]
        assert len(opened) <= 1
        delivered = [event for event in self.heard if isinstance(event, DataReceived | RequestReceived | ResponseReceived)]
        assert opened or not delivered
        deadline = session.deadline
        if self.started and not opened:
            assert session.state is not State.OPEN
            assert (deadline is None) == (options.handshake_timeout is None)
        if session.pending and options.request_timeout is not None:
            assert deadline is not None
        if opened and options.ping_interval is not None and options.pong_timeout is not None and not self.paused:
            assert deadline is not None, "neither a ping nor a pong is waited for"

    # What tests ask.

    @property
    def messages(self) -> list[Message]:
        """Everything this side said, decoded: what we send is always right."""
        found, at, limits = [], 0, self.session.options.limits
        while at < len(self.said):
            size = int.from_bytes(self.said[at : at + 4]) + limits.size_bias
            found.append(decode(self.said[at : at + size], limits))
            at += size
        return found

    @property
    def delivered(self) -> list[SessionEvent]:
        """What was handed to the application."""
        return [event for event in self.heard if isinstance(event, DataReceived | RequestReceived | ResponseReceived)]

    @property
    def noticed(self) -> list[Fault]:
        return [event.fault for event in self.heard if isinstance(event, Noticed)]


class Pair(sides.Pair[Side]):
    """A client and a server."""

    def __init__(self, cut: int = 4096, client: Options = DEFAULT_OPTIONS, server: Options = DEFAULT_OPTIONS) -> None:
        super().__init__(Side(CLIENT, client, cut), Side(SERVER, server, cut))
        self.deaf: set[Speaker] = set()
        """Sides that do not hear what is sent: it waits on the link."""

    def carry(self, one: Side, other: Side) -> bool:
        if not one.unsent or other.session.speaker in self.deaf:
            return False
        data, one.unsent = one.unsent, b""
        other.receive(data)
        return True


def established(options: Options = DEFAULT_OPTIONS, *, speaker: Speaker = SERVER, cut: int = 4096) -> Side:
    """One side after its handshake, ready to hear anything; what it said and heard so far is forgotten."""
    side = Side(speaker, options, cut)
    side.start()
    side.receive(speech.hello(bias=options.limits.size_bias))
    assert [type(event) for event in side.heard] == [Opened]
    assert side.session.state is State.OPEN
    side.said = side.unsent = b""
    return side


class Answer(NamedTuple):
    """What came of saying something to a session."""

    error: Error | None
    ended: Ended | None
    delivered: list[SessionEvent]
    noticed: list[Fault]


def answer(data: bytes, options: Options = DEFAULT_OPTIONS, *, handshake: bool = False, cut: int = 4096) -> Answer:
    """Say something to a server, as the first thing or after the handshake."""
    side = Side(SERVER, options, cut) if handshake else established(options, cut=cut)
    if handshake:
        side.start()
        side.said = b""
    side.receive(data)
    said = side.messages
    errors = [one for one in said if isinstance(one, Error)]
    assert len(errors) <= 1
    assert said[-1:] == errors[-1:] or not errors, "an error is the last word"
    return Answer(errors[0] if errors else None, side.session.ended, side.delivered, side.noticed)
