"""One recorded session of emp-session.json: every message of it decoded, and each side played to a session of ours in the other's place.

What we say in its place may differ from what was said in the recording, in timing above all; but nothing we hear may be a fault, every
ping has its pong, and every request its answer.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from tests.conformance.emp import cuts, through_buffer
from tests.conformance.reading import LABELS, Unmapped, keys, octets

from wirelake.protocols.emp import messages as m
from wirelake.protocols.emp.events import DataReceived, Ended, Ending, Noticed, RequestReceived, ResponseReceived, SessionEvent
from wirelake.protocols.emp.faults import TOLERATED, Fault
from wirelake.protocols.emp.options import Options
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import INITIAL, TRANSITIONS, Speaker
from wirelake.protocols.emp.wire import buffer, decode, encode, message, plain

DIRECTIONS = {"C>S": Speaker.CLIENT, "S>C": Speaker.SERVER}
OPTIONS = Options(
    handshake_timeout=None, ping_interval=None, pong_timeout=None, request_timeout=None, application_types=frozenset(range(128, 256))
)
"""What they said was recorded, and when; what we say is our own: nothing of ours may be due while theirs is played."""


class Step(msgspec.Struct):
    """One thing that happened."""

    at: float
    speaker: Speaker | None
    data: bytes = b""
    said: list[m.Message] = []
    """The messages that are whole with this data."""
    event: str | None = None


def run(session: Any) -> None:
    """Hold one recorded session."""
    steps = read(session)
    check_order(steps)
    for speaker in Speaker:
        Play(steps, speaker).check()


def read(session: Any) -> list[Step]:
    keys("session", session, {"frames"}, LABELS)
    steps, buffers = [], {speaker: buffer() for speaker in Speaker}
    for index, frame in enumerate(session["frames"]):
        if "hex" in frame:
            keys(f"frames[{index}]", frame, {"t", "dir", "hex"})
            speaker, data = direction(frame["dir"]), octets("hex", frame["hex"])
            said = [message(whole, row, parts) for whole, rows, parts in buffers[speaker].feed(data) for row in rows]
            steps.append(Step(float(frame["t"]), speaker, data, said))
        else:
            keys(f"frames[{index}]", frame, {"t", "event"} | ({"dir"} if frame.get("event") == "eof" else set()), {"dir"})
            if frame["event"] not in ("open", "eof"):
                raise Unmapped(f"event {frame['event']!r}")
            steps.append(Step(float(frame["t"]), direction(frame["dir"]) if "dir" in frame else None, event=frame["event"]))
    if not any(step.said for step in steps):
        raise Unmapped("a session without a message")
    assert [buffers[speaker].rest for speaker in Speaker] == [b"", b""], "the recording ends inside a message"
    return steps


def direction(text: Any) -> Speaker:
    if text not in DIRECTIONS:
        raise Unmapped(f"direction {text!r}")
    return DIRECTIONS[text]


def check_order(steps: list[Step]) -> None:
    """Every message of both directions is decoded, encoded and decoded again, and was allowed when it was said."""
    state = INITIAL
    for step in steps:
        for said in step.said:
            assert decode(encode(said)) == said
            state = TRANSITIONS[state, step.speaker, type(said)]
            if isinstance(said, m.Data | m.Application):
                plain(said)
    for speaker in Speaker:
        stream = b"".join(step.data for step in steps if step.speaker is speaker)
        for pieces in cuts(stream):
            assert through_buffer(pieces) == said_by(speaker, steps)


def said_by(speaker: Speaker, steps: list[Step]) -> list[m.Message]:
    return [said for step in steps if step.speaker is speaker for said in step.said]


class Play:
    """One side of the recording, played to a session of ours in the place of the other side."""

    def __init__(self, steps: list[Step], speaker: Speaker) -> None:
        self.speaker = speaker
        self.theirs: list[m.Message] = []
        self.session = Session(speaker.other, OPTIONS)
        self.heard: list[SessionEvent] = []
        self.said = b""
        self.now = steps[0].at
        self.session.start(self.now)
        self.drain()
        for step in steps:
            self.now = step.at
            self.session.tick(self.now)
            self.play(step)
            self.drain()

    def play(self, step: Step) -> None:
        if step.speaker is self.speaker:
            if step.event == "eof":
                self.session.receive_eof(self.now)
            else:
                if self.session.ended is None:
                    self.theirs += step.said
                self.session.receive(step.data, self.now)
        else:
            for said in step.said:
                if self.session.ended is None:
                    self.act_as_they_did(said)

    def act_as_they_did(self, said: m.Message) -> None:
        """What the side we stand in for began, we begin as well, so that the answers in the recording match."""
        asked = [one.request_id for one in said.extensions if isinstance(one, m.RequestResponse) and one.request]
        if asked:
            self.session._requests._last_id = asked[0] - 1  # they count as they like
            self.session.request(plain(said), self.now)
        elif isinstance(said, m.Ping) and not self.session._pong.waits:
            self.session.ping(self.now)
        elif isinstance(said, m.Bye):
            self.session.bye()

    def drain(self) -> None:
        self.said += self.session.output()
        for event in self.session.events():
            self.heard.append(event)
            if isinstance(event, RequestReceived) and self.session.ended is None:
                self.session.respond(event.request_id, b"answer to " + event.body)
                self.said += self.session.output()

    def check(self) -> None:
        ended = self.session.ended
        assert ended is None or ended.fault in (None, Fault.CLOSED_WITHOUT_PARTING), ended
        assert {event.fault for event in self.heard if isinstance(event, Noticed)} <= TOLERATED
        ours = through_buffer([self.said])
        assert not any(isinstance(one, m.Error) for one in ours)
        if any(isinstance(one, m.Bye) for one in self.theirs):
            assert (ended.how, ended.here) == (Ending.BYE, False)
        pings = sum(isinstance(one, m.Ping) for one in self.theirs)
        requests, responses, bodies = Counter(), Counter(), []
        for one in self.theirs:
            for block in one.extensions:
                if isinstance(block, m.RequestResponse):
                    (requests if block.request else responses)[block.request_id] += 1
            if isinstance(one, m.Data | m.Application):
                bodies.append(plain(one))
        assert sum(isinstance(one, m.Pong) for one in ours) == pings
        delivered = [event for event in self.heard if isinstance(event, DataReceived | RequestReceived | ResponseReceived)]
        assert [event.body for event in delivered] == bodies
        assert Counter(event.request_id for event in delivered if isinstance(event, RequestReceived)) == requests
        assert Counter(event.request_id for event in delivered if isinstance(event, ResponseReceived)) == responses
        answered = Counter(b.request_id for one in ours for b in one.extensions if isinstance(b, m.RequestResponse) and not b.request)
        assert answered == requests
        assert sum(isinstance(event, Ended) for event in self.heard) <= 1
