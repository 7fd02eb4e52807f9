"""One side of PIGEON/1 without I/O: bytes and time in; bytes, events and a deadline out."""

from __future__ import annotations

import msgspec

from wirelake.errors import LocalProtocolError
from wirelake.protocols.ending import BaseEnded, Ending
from wirelake.protocols.kernel import FAULT
from wirelake.protocols.stream_session import StreamSession
from wirelake_pigeon.faults import UNREADABLE, Fault
from wirelake_pigeon.messages import Ack, Bye, Hello, Message, Note
from wirelake_pigeon.options import Options
from wirelake_pigeon.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake_pigeon.wire import buffer, encode, message

__all__ = ["Acknowledged", "Ended", "NoteReceived", "Opened", "Session", "SessionEvent"]


class Opened(msgspec.Struct, frozen=True):
    """§3.1: both sides said hello."""


class NoteReceived(msgspec.Struct, frozen=True):
    """§3.2: a note arrived, and was acknowledged."""

    number: int
    text: str


class Acknowledged(msgspec.Struct, frozen=True):
    """§3.2: a note of ours arrived."""

    number: int


class Ended(BaseEnded[Fault], frozen=True):
    """The session is over."""


SessionEvent = Opened | NoteReceived | Acknowledged | Ended


class Session(StreamSession[SessionEvent]):
    """One side of a session. After every call: send `output`, handle `events`, and call `tick` at `deadline`."""

    def __init__(self, speaker: Speaker, options: Options | None = None) -> None:
        self.speaker = speaker
        self.options = options or Options()
        self.state: State = INITIAL
        self.ended: Ended | None = None
        self.deadline: float | None = None
        self.asked = 0
        self._buffer = buffer(self.options.limits)
        self._output: list[bytes] = []
        self._events: list[SessionEvent] = []
        self._next_number = 1

    @property
    def is_proven(self) -> bool:
        """Whether the peer has sent a valid hello."""
        return self.state not in (State.CONNECTED, State.CLIENT_GREETED if self.speaker is Speaker.CLIENT else State.SERVER_GREETED)

    def start(self, now: float) -> None:
        """§3.1: say hello, and wait for the peer's."""
        self._send(Hello())
        if self.state is not State.OPEN:
            self.deadline = now + self.options.hello_timeout

    def note(self, text: str) -> int:
        """§3.2: send a note; returns its number."""
        number = self._next_number
        self._send(Note(number, text))
        self._next_number += 1
        return number

    def bye(self, detail: str = "") -> None:  # noqa: ARG002 - PIGEON/1 has no field for it
        """§3.3: say bye."""
        if self.ended is None:
            if (self.state, self.speaker, Bye) in TRANSITIONS:
                self._send(Bye())
            self._end(Ended(Ending.BYE, self.speaker, here=True))

    def receive(self, data: bytes, now: float) -> None:  # noqa: ARG002 - nothing depends on the time
        """Take bytes that arrived."""
        for whole, rows, _ in self._buffer.feed(data):
            for row in rows:
                if self.ended is not None:
                    return
                if row[FAULT] in UNREADABLE:
                    self._end(Ended(Ending.ERROR, self.speaker, here=True, fault=Fault(row[FAULT])))
                else:
                    self._take(message(whole, row))

    def receive_eof(self, now: float) -> None:  # noqa: ARG002
        """The peer closed the connection."""
        if self.ended is None:
            self._end(Ended(Ending.CLOSED, self.speaker.other, here=False, fault=Fault.CLOSED_WITHOUT_BYE))

    def tick(self, now: float) -> None:
        """The deadline may have passed."""
        if self.ended is None and self.deadline is not None and now >= self.deadline:
            self._end(Ended(Ending.ERROR, self.speaker, here=True, fault=Fault.HELLO_TIMEOUT))

    def pause(self) -> None:
        """Nothing is timed while the owner does not read."""

    def resume(self, now: float) -> None:
        """See `pause`."""

    def drained(self, count: int, now: float) -> None:
        """Nothing waits for answers in time."""

    def _take(self, received: Message) -> None:
        after = TRANSITIONS.get((self.state, self.speaker.other, type(received)))
        if after is None:
            self._end(Ended(Ending.ERROR, self.speaker, here=True, fault=refusal(self.state, self.speaker.other, type(received))))
            return
        self.state = after
        if isinstance(received, Hello) and after is State.OPEN:
            self.deadline = None
            self._events.append(Opened())
        elif isinstance(received, Note):
            self._send(Ack(received.number))
            self._events.append(NoteReceived(received.number, received.text))
        elif isinstance(received, Ack):
            self._events.append(Acknowledged(received.number))
        elif isinstance(received, Bye):
            self._end(Ended(Ending.BYE, self.speaker.other, here=False))

    def _send(self, sent: Message) -> None:
        after = TRANSITIONS.get((self.state, self.speaker, type(sent)))
        if after is None:
            raise LocalProtocolError(refusal(self.state, self.speaker, type(sent)))
        self._output.append(encode(sent, self.options.limits))
        self.state = after
        if isinstance(sent, Hello) and after is State.OPEN:
            self._events.append(Opened())

    def _end(self, ended: Ended) -> None:
        self.ended, self.deadline = ended, None
        self._events.append(ended)
