"""One recorded session of emp-session.json: every message of it decoded, and each side played to a session of ours in the other's place.

What we say in its place may differ from what was said in the recording, in timing above all; but nothing we hear may be a fault, every
ping has its pong, and every request its answer.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from tests.conformance.emp import cuts, through_buffer
from tests.conformance.reading import Unmapped, keys, octets

from wirelake.protocols.emp import messages as m
from wirelake.protocols.emp.conversation import INITIAL, TRANSITIONS, Speaker
from wirelake.protocols.emp.events import DataReceived, Ended, Ending, Event, Noticed, RequestReceived, ResponseReceived
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.options import Options
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.wire import decode, encode, plain

DIRECTIONS = {"C>S": Speaker.CLIENT, "S>C": Speaker.SERVER}
OPTIONS = Options(request_timeout=None, application_types=frozenset(range(128, 256)))
"""Their requests and pings were recorded, ours are not: nothing of ours may expire while theirs is played."""


class Step(msgspec.Struct):
    """One thing that happened."""

    at: float
    speaker: Speaker | None
    data: bytes
    event: str | None


def run(session: Any) -> None:
    """Hold one recorded session."""
    steps = read(session)
    check_conversation(steps)
    for speaker in Speaker:
        Play(steps, speaker, timed=True).check()
        Play(steps, speaker, timed=False).check()


def read(session: Any) -> list[Step]:
    keys("session", session, {"frames"}, {"description", "name", "source", "provenance"})
    steps = []
    for index, frame in enumerate(session["frames"]):
        if "hex" in frame:
            keys(f"frames[{index}]", frame, {"t", "dir", "hex"})
            steps.append(Step(float(frame["t"]), direction(frame["dir"]), octets("hex", frame["hex"]), None))
        else:
            keys(f"frames[{index}]", frame, {"t", "event"} | ({"dir"} if frame.get("event") == "eof" else set()), {"dir"})
            if frame["event"] not in ("open", "eof"):
                raise Unmapped(f"event {frame['event']!r}")
            steps.append(Step(float(frame["t"]), direction(frame["dir"]) if "dir" in frame else None, b"", frame["event"]))
    if not any(step.data for step in steps):
        raise Unmapped("a session in which nobody says anything")
    return steps


def direction(text: Any) -> Speaker:
    if text not in DIRECTIONS:
        raise Unmapped(f"direction {text!r}")
    return DIRECTIONS[text]


def check_conversation(steps: list[Step]) -> None:
    """Every message of both directions is decoded, encodes to its bytes, and was allowed when it was said."""
    state = INITIAL
    for step in steps:
        if step.data:
            said = decode(step.data)
            assert encode(said) == step.data
            state = TRANSITIONS[state, step.speaker, type(said)]
            if isinstance(said, m.Data | m.Application):
                plain(said)
    for speaker in Speaker:
        stream = b"".join(step.data for step in steps if step.speaker is speaker)
        whole = [decode(step.data) for step in steps if step.data and step.speaker is speaker]
        for pieces in cuts(stream):
            assert through_buffer(pieces) == whole


class Play:
    """One side of the recording, played to a session of ours in the place of the other side."""

    def __init__(self, steps: list[Step], speaker: Speaker, *, timed: bool) -> None:
        self.speaker = speaker
        self.theirs = [decode(step.data) for step in steps if step.data and step.speaker is speaker]
        self.session = Session(speaker.other, OPTIONS)
        self.heard: list[Event] = []
        self.said = b""
        self.now = steps[0].at if timed else 0.0
        self.session.start(self.now)
        self.drain()
        for step in steps:
            if timed:
                self.now = step.at
                self.session.tick(self.now)
            self.play(step)
            self.drain()

    def play(self, step: Step) -> None:
        if step.speaker is self.speaker:
            if step.event == "eof":
                self.session.receive_eof(self.now)
            else:
                self.session.receive(step.data, self.now)
        elif step.data and self.session.ended is None:
            said = decode(step.data)
            self.ask_as_they_did(said)
            if isinstance(said, m.Bye):
                self.session.bye()

    def ask_as_they_did(self, said: m.Message) -> None:
        """Requests of the side we stand in for are asked by us as well, so that the answers in the recording match."""
        if isinstance(said, m.Data | m.Application) and any(isinstance(one, m.RequestResponse) and one.request for one in said.extensions):
            self.session.request(plain(said), self.now)
        elif isinstance(said, m.Ping) and not self.session._ping_pending:
            self.session.ping(self.now)

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
        assert {event.fault for event in self.heard if isinstance(event, Noticed)} <= {Fault.PONG_UNSOLICITED, Fault.UNUSED_BITS_SET}
        ours = through_buffer([self.said])
        assert not any(isinstance(one, m.Error) for one in ours)
        they_left = any(isinstance(one, m.Bye) for one in self.theirs)
        if they_left and not any(isinstance(one, m.Bye) for one in ours):
            assert (ended.how, ended.here) == (Ending.BYE, False)
        pings = sum(isinstance(one, m.Ping) for one in self.theirs)
        requests, responses, bodies = Counter(), Counter(), []
        for one in self.theirs:
            for block in getattr(one, "extensions", ()):
                if isinstance(block, m.RequestResponse):
                    (requests if block.request else responses)[block.request_id] += 1
            if isinstance(one, m.Data | m.Application):
                bodies.append(plain(one))
        if not any(isinstance(one, m.Bye) for one in ours):
            assert sum(isinstance(one, m.Pong) for one in ours) == pings
            delivered = [event for event in self.heard if isinstance(event, DataReceived | RequestReceived | ResponseReceived)]
            assert [event.body for event in delivered] == bodies
            assert Counter(event.request_id for event in delivered if isinstance(event, RequestReceived)) == requests
            assert Counter(event.request_id for event in delivered if isinstance(event, ResponseReceived)) == responses
            answered = Counter(b.request_id for one in ours for b in one.extensions if isinstance(b, m.RequestResponse) and not b.request)
            assert answered == requests
        assert sum(isinstance(event, Ended) for event in self.heard) <= 1
