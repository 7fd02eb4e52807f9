"""The state machine: every (state, speaker, message), those in the table and those that are not."""

from __future__ import annotations

import random

import pytest
from tests.cases import each
from tests.protocols.yamp import speech
from tests.protocols.yamp.pair import CLIENT, QUIET, SERVER, Side

from wirelake.errors import LocalProtocolError
from wirelake.protocols.yamp.events import Ending, Noticed, Opened, PongReceived
from wirelake.protocols.yamp.faults import BREACHES, Fault
from wirelake.protocols.yamp.messages import TYPES, Close, CloseRedirect, Handshake, name_of
from wirelake.protocols.yamp.session import Session
from wirelake.protocols.yamp.state_machine import MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.yamp.wire import decode

TRIPLES = [(state, speaker, message) for state in State for speaker in Speaker for message in MESSAGES]
IDS = [f"{state.name}-{speaker.name}-{name_of(message)}" for state, speaker, message in TRIPLES]
BYTES = {
    type(decode(said)): said
    for said in (
        *(speech.handshake(), speech.ping(), speech.pong(), speech.close(), speech.redirect()),
        *(speech.event(), speech.request(), speech.cancel(), speech.response()),
    )
}


def test_the_vocabulary_is_covered():
    assert set(BYTES) == set(MESSAGES) == set(TYPES)


def allowed(state, speaker, message):
    """The specification and the rulings in one function, written without the table."""
    mine, other = (State.CLIENT_LEFT, State.SERVER_LEFT) if speaker is CLIENT else (State.SERVER_LEFT, State.CLIENT_LEFT)
    if state in (State.CLOSED, mine):
        return None
    parts = message is Close or (message is CloseRedirect and speaker is SERVER)
    if message is CloseRedirect and not parts:
        return None
    if state is State.CONNECTED and speaker is CLIENT:
        return State.CLIENT_GREETED if message is Handshake else None
    if parts:
        return State.CLOSED if state is other else mine
    if state is other:
        return state
    if speaker is SERVER and state is not State.OPEN:
        return State.OPEN if message is Handshake and state is State.CLIENT_GREETED else None
    return state


@each(("state", "speaker", "message"), TRIPLES, ids=IDS)
def test_the_table_is_the_specification(state, speaker, message):
    assert TRANSITIONS.get((state, speaker, message)) == allowed(state, speaker, message)


FORBIDDEN = [(triple, name) for triple, name in zip(TRIPLES, IDS, strict=True) if triple not in TRANSITIONS]
REFUSED = each(("state", "speaker", "message"), [triple for triple, _ in FORBIDDEN], ids=[name for _, name in FORBIDDEN])


@REFUSED
def test_what_is_not_in_the_table_breaks_a_rule(state, speaker, message):
    fault = refusal(state, speaker, message)
    assert fault in BREACHES
    left = state is State.CLOSED or state.name == f"{speaker.name}_LEFT"
    assert (fault is Fault.SPOKE_AFTER_CLOSE) is left
    if not left:
        assert fault is (Fault.REDIRECT_BY_CLIENT if message is CloseRedirect else Fault.HANDSHAKE_EXPECTED)


def arrive(speaker, state):
    """A session in this state, without asking how it got there."""
    session = Session(speaker, QUIET, draw=random.Random(4).randbytes)
    session.state = state
    return session


@REFUSED
def test_saying_what_is_forbidden_is_refused_and_changes_nothing(state, speaker, message):
    session = arrive(speaker, state)
    with pytest.raises(LocalProtocolError) as caught:
        session._say(decode(BYTES[message]))
    assert caught.value.fault is refusal(state, speaker, message)
    assert (session.state, session.output(), session.events(), session.ended, session.deadline) == (state, b"", [], None, None)


@REFUSED
def test_hearing_what_is_forbidden_ends_the_session_and_delivers_nothing(state, speaker, message):
    """Only our own close may move the state."""
    session = arrive(speaker.other, state)
    session.receive(BYTES[message], 0.0)
    (ended,) = session.events()
    fault, output = refusal(state, speaker, message), session.output()
    assert (ended, ended.fault, ended.here) == (session.ended, fault, True)
    if fault.rule.close_reason is None or (state, speaker.other, Close) not in TRANSITIONS:
        assert (output, session.state, ended.how) == (b"", state, Ending.CLOSED)
    else:
        assert decode(output) == Close(fault.rule.close_reason)
        assert session.state is TRANSITIONS[state, speaker.other, Close]
        assert ended.how is Ending.CLOSE


ALLOWED = [(triple, name) for triple, name in zip(TRIPLES, IDS, strict=True) if triple in TRANSITIONS]


@each(("state", "speaker", "message"), [triple for triple, _ in ALLOWED], ids=[name for _, name in ALLOWED])
def test_what_is_in_the_table_moves_the_speaker(state, speaker, message):
    talker = arrive(speaker, state)
    talker._say(decode(BYTES[message]))
    assert talker.state is TRANSITIONS[state, speaker, message]
    assert talker.output() == BYTES[message]


@each("message", MESSAGES, ids=name_of)
@each("speaker", Speaker)
def test_what_is_in_the_table_is_heard_in_an_open_session(speaker, message):
    side = Side(speaker.other, QUIET)
    side.start()
    side.receive(speech.handshake())
    if (State.OPEN, speaker, message) in TRANSITIONS:
        side.receive(BYTES[message])
        assert side.session.state is TRANSITIONS[State.OPEN, speaker, message]
        assert (side.session.ended is not None) is (message in (Close, CloseRedirect))


@pytest.mark.parametrize("cut", [1, 3, 4096])
@pytest.mark.parametrize("speaker", Speaker)
def test_a_session_that_is_over_hears_nothing_more(cut, speaker):
    side = Side(speaker, QUIET, cut)
    side.start()
    side.receive(speech.handshake() + speech.close(b"enough"))
    said = list(side.said)
    side.receive(b"".join(BYTES.values()) + b"\xff" + speech.request())
    side.eof()
    side.wait(1000)
    assert side.said == said
    assert side.delivered == []
    assert (side.ended.how, side.ended.detail) == (Ending.CLOSE, "enough")
    assert not any(isinstance(event, Noticed | PongReceived) for event in side.heard)
    assert sum(isinstance(event, Opened) for event in side.heard) == 1
