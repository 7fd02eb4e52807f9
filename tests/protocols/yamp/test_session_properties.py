"""Sessions under whatever Hypothesis says and does."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.protocols.yamp import speech
from tests.protocols.yamp.pair import CLIENT, SERVER, Pair, Side, options, quiet
from tests.protocols.yamp.speech import PRIMITIVES, mutated

from wirelake.protocols.yamp.events import CancelReceived, RequestExpired, RequestReceived, ResponseReceived
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Close


@examples(250)
@given(
    mutated(st.lists(PRIMITIVES, max_size=8).map(b"".join)),
    st.booleans(),
    st.sampled_from((1, 3, 7, 4096)),
    st.sampled_from((CLIENT, SERVER)),
)
def test_whatever_arrives_a_session_does_not_raise_and_the_cut_does_not_matter(data, greeted, cut, speaker):
    whole, pieces = Side(speaker), Side(speaker, cut=cut)
    for side in (whole, pieces):
        side.start()
        side.receive(speech.handshake() * greeted + data)
        side.eof()
        assert side.session.ended is not None
    assert whole.heard == pieces.heard
    assert whole.said == pieces.said
    assert sum(isinstance(one, Close) for one in whole.messages) <= 1


@examples(150)
@given(st.lists(mutated(PRIMITIVES), max_size=8))
def test_whatever_datagrams_arrive_a_session_does_not_raise(datagrams):
    side = Side(SERVER, quiet(datagrams=True))
    side.start()
    for data in datagrams:
        side.receive(data)
    side.eof()
    assert side.session.ended is not None


class Step(msgspec.Struct):
    """Something an owner, the link or time does."""

    what: str
    who: int
    which: int


WHATS = ("send", "request", "progressive", "respond", "fail", "report", "cancel", "kill", "give-in", "ping", "wait", "carry")
STEPS = st.lists(st.builds(Step, st.sampled_from(WHATS), st.integers(0, 1), st.integers(0, 9)), max_size=50)


@examples(150)
@given(STEPS, st.sampled_from((1, 3, 4096)))
def test_two_right_peers_never_fault_each_other(steps, cut):
    """Any order of doing: every request has one outcome, or is killed; nobody is blamed for anything but what crossed on the way."""
    both = options(request_timeout=20.0, ping_interval=5.0, ping_timeout=None)
    pair = Pair(cut, both, both).start()
    asked: tuple[list[bytes], list[bytes]] = ([], [])
    killed: set[bytes] = set()
    for step in steps:
        side = pair.sides[step.who]
        session = side.session
        taken = [event.uid for event in side.heard if isinstance(event, RequestReceived) and session.is_serving(event.uid)]
        mine = asked[step.who]
        if step.what == "send":
            session.send("event", step.which)
        elif step.what in ("request", "progressive"):
            mine.append(session.request("request", step.which, side.now, progressive=step.what == "progressive"))
        elif step.what in ("cancel", "kill") and mine:
            uid = mine[step.which % len(mine)]
            if session.cancel(uid, kill=step.what == "kill") and step.what == "kill":
                killed.add(uid)
        elif step.what in ("respond", "fail", "report", "give-in") and taken:
            uid = taken[step.which % len(taken)]
            if step.what == "give-in":
                session.respond_cancelled(uid)
            else:
                {"respond": session.respond, "fail": session.respond_error, "report": session.report}[step.what](uid, step.which)
        elif step.what == "ping":
            session.ping(side.now)
        elif step.what == "wait":
            pair.wait(step.which)
        elif step.what == "carry":
            pair.settle()
        side.drain()
    pair.settle()
    pair.wait(41)
    for side, own in zip(pair.sides, asked, strict=True):
        assert side.session.ended is None
        outcomes = [event.request_uid for event in side.heard if isinstance(event, ResponseReceived | RequestExpired)]
        assert len(outcomes) == len(set(outcomes))
        assert set(outcomes) == set(own) - killed
        assert side.session.pending == 0
        assert set(side.noticed) <= {Fault.RESPONSE_UNMATCHED, Fault.CANCEL_UNMATCHED}
        assert all(isinstance(event.kill, bool) for event in side.heard if isinstance(event, CancelReceived))
