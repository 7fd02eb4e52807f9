"""Sessions under whatever Hypothesis says and does."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.protocols.emp import speech
from tests.protocols.emp.pair import EXTENDED, SERVER, Pair, Side, options
from tests.protocols.emp.speech import PRIMITIVES, mutated

from wirelake.protocols.emp.events import (
    DataReceived,
    Ending,
    RequestReceived,
)
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Data, Error, RequestResponse


@examples(250)
@given(mutated(st.lists(PRIMITIVES, max_size=8).map(b"".join)), st.booleans(), st.sampled_from((1, 3, 7, 4096)))
def test_whatever_arrives_a_session_does_not_raise_and_the_cut_does_not_matter(data, greeted, cut):
    whole, pieces = Side(SERVER, EXTENDED), Side(SERVER, EXTENDED, cut)
    for side in (whole, pieces):
        side.start()
        side.receive(speech.hello() * greeted + data)
        side.eof()
        assert side.session.ended is not None
    assert whole.heard == pieces.heard
    assert whole.said == pieces.said
    assert sum(isinstance(one, Error) for one in whole.messages) <= 1


class Step(msgspec.Struct):
    """Something an owner, the link or time does."""

    what: str
    who: int
    size: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(("send", "pack", "request", "respond", "abandon", "ping", "wait", "carry", "pause", "resume")),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
    max_size=40,
)


@examples(100)
@given(STEPS, st.sampled_from((1, 3, 4096)), st.booleans(), st.booleans())
def test_two_right_peers_never_fault_each_other(steps, cut, in_order, says_bye):
    """Any order of doing: every request is answered, expires or is given up; nobody is blamed for anything but silence."""
    both = options(request_timeout=20.0, ping_interval=5.0, pong_timeout=None, in_order=in_order)
    pair = Pair(cut, both, both).start()
    open_requests = ([], [])
    for step in steps:
        side, other = pair.sides[step.who], pair.sides[1 - step.who]
        session = side.session
        if step.what in ("send", "pack"):
            session.send(bytes(step.size * 100), compress=step.what == "pack")
        elif step.what == "request":
            session.request(bytes(step.size), side.now)
        elif step.what == "respond":
            taken = [event.request_id for event in side.heard if isinstance(event, RequestReceived)]
            waiting = [one for one in taken if one not in open_requests[step.who]]
            if waiting:
                chosen = waiting[step.size % len(waiting)]
                open_requests[step.who].append(chosen)
                session.respond(chosen, b"answer")
        elif step.what == "abandon":
            session.abandon(step.size)
        elif step.what == "ping" and not session._pong.waits:
            session.ping(side.now)
        elif step.what == "wait":
            pair.wait(step.size)
        elif step.what == "pause":
            side.pause()
        elif step.what == "resume":
            side.resume()
        side.drain()
        if step.what == "carry":
            pair.settle()
        assert side.session.ended is None
        assert other.session.ended is None
    pair.settle()
    pair.wait(21)
    for side, other in (pair.sides, pair.sides[::-1]):
        assert set(side.noticed) <= {Fault.RESPONSE_LATE}
        assert side.session.pending == 0
        sent = [one for one in other.messages if isinstance(one, Data) and not any(isinstance(e, RequestResponse) for e in one.extensions)]
        assert len([event for event in side.delivered if isinstance(event, DataReceived)]) == len(sent)
    if says_bye:
        pair.client.session.bye()
        pair.settle()
        assert [side.ended.how for side in pair.sides] == [Ending.BYE, Ending.BYE]
