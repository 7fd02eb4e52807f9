"""The state machine: every (state, speaker, message), those in the table and those that are not."""

from __future__ import annotations

import msgspec
import pytest
from tests.cases import each
from tests.protocols.emp import speech
from tests.protocols.emp.pair import CLIENT, QUIET, Side

from wirelake.errors import LocalProtocolError
from wirelake.protocols.emp.events import Ending
from wirelake.protocols.emp.faults import BREACHES, Fault
from wirelake.protocols.emp.messages import Application, Bye, Data, Error, Hello, Ping, Pong, name_of
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import MESSAGES, TRANSITIONS, Speaker, State, refusal

TRIPLES = [(state, speaker, message) for state in State for speaker in Speaker for message in MESSAGES]
IDS = [f"{state.name}-{speaker.name}-{name_of(message)}" for state, speaker, message in TRIPLES]
BYTES = {
    Hello: speech.hello(),
    Bye: speech.bye,
    Ping: speech.ping,
    Pong: speech.pong,
    Error: speech.error(128, b"own"),
    Data: speech.data(b"x"),
    Application: speech.envelope(200, b"x"),
}
VALUES = {Hello: Hello(), Bye: Bye(), Ping: Ping(), Pong: Pong(), Error: Error(0), Data: Data(), Application: Application(200)}


def test_the_vocabulary_is_covered():
    assert set(BYTES) == set(MESSAGES) == set(VALUES)


@each(("state", "speaker", "message"), TRIPLES, ids=IDS)
def test_the_table_treats_both_speakers_alike(state, speaker, message):
    """Nothing in EMP depends on who opened the connection: the mirror image of every row is a row."""
    mirror = {
        State.CLIENT_GREETED: State.SERVER_GREETED,
        State.SERVER_GREETED: State.CLIENT_GREETED,
        State.CLIENT_LEFT: State.SERVER_LEFT,
        State.SERVER_LEFT: State.CLIENT_LEFT,
    }
    after = TRANSITIONS.get((state, speaker, message))
    assert TRANSITIONS.get((mirror.get(state, state), speaker.other, message)) == mirror.get(after, after)


def allowed(state, speaker, message):
    """The specification in one function, written without the table."""
    mine, left_me, left_other = (
        (State.CLIENT_GREETED, State.CLIENT_LEFT, State.SERVER_LEFT)
        if speaker is CLIENT
        else (State.SERVER_GREETED, State.SERVER_LEFT, State.CLIENT_LEFT)
    )
    if state in (State.CLOSED, left_me):
        return None
    if message in (Bye, Error):
        return State.CLOSED if state is left_other else left_me
    if state is left_other:
        return state
    if message is Hello:
        return {State.CONNECTED: mine, State.OPEN: None, mine: None}.get(state, State.OPEN)
    return State.OPEN if state is State.OPEN else None


@each(("state", "speaker", "message"), TRIPLES, ids=IDS)
def test_the_table_is_the_specification(state, speaker, message):
    assert TRANSITIONS.get((state, speaker, message)) == allowed(state, speaker, message)


FORBIDDEN = [(triple, name) for triple, name in zip(TRIPLES, IDS, strict=True) if triple not in TRANSITIONS]


@each(("state", "speaker", "message"), [triple for triple, _ in FORBIDDEN], ids=[name for _, name in FORBIDDEN])
def test_what_is_not_in_the_table_breaks_a_rule(state, speaker, message):
    fault = refusal(state, speaker, message)
    assert fault in BREACHES
    if allowed(state, speaker, Bye) is None:
        assert fault is Fault.SPOKE_AFTER_PARTING
    elif message is Hello:
        assert fault is Fault.HELLO_REPEATED
    elif allowed(state, speaker, Hello) is not None:
        assert fault is Fault.HELLO_EXPECTED
    else:
        assert fault is Fault.SPOKE_TOO_SOON


def arrive(session, state):
    """A session in this state, without asking how it got there."""
    session.state = state
    session.output()
    session.events()
    return session


@each(("state", "speaker", "message"), [triple for triple, _ in FORBIDDEN], ids=[name for _, name in FORBIDDEN])
def test_saying_what_is_forbidden_is_refused_and_changes_nothing(state, speaker, message):
    session = arrive(Session(speaker, QUIET), state)
    with pytest.raises(LocalProtocolError) as caught:
        session._say(VALUES[message])
    assert caught.value.fault is refusal(state, speaker, message)
    assert (session.state, session.output(), session.events(), session.ended, session.deadline) == (state, b"", [], None, None)


@each(("state", "speaker", "message"), [triple for triple, _ in FORBIDDEN], ids=[name for _, name in FORBIDDEN])
def test_hearing_what_is_forbidden_ends_the_session_and_delivers_nothing(state, speaker, message):
    """Only our own parting word may move the state; an error is never answered, whatever the state."""
    session = arrive(Session(speaker.other, QUIET), state)
    session.receive(BYTES[message], 0.0)
    (ended,) = session.events()
    assert ended is session.ended
    fault = refusal(state, speaker, message)
    output = session.output()
    if message is Error:
        assert (output, session.state, ended.how, ended.by) == (b"", state, Ending.ERROR, speaker)
    elif fault.rule.error_code is None or (state, speaker.other, Error) not in TRANSITIONS:
        assert (output, session.state, ended.fault) == (b"", state, fault)
    else:
        assert (output[4], output[8]) == (speech.ERROR, fault.rule.error_code)
        assert session.state is TRANSITIONS[state, speaker.other, Error]
        assert (ended.how, ended.fault, ended.here) == (Ending.ERROR, fault, True)


ALLOWED = [(triple, name) for triple, name in zip(TRIPLES, IDS, strict=True) if triple in TRANSITIONS]


@each(("state", "speaker", "message"), [triple for triple, _ in ALLOWED], ids=[name for _, name in ALLOWED])
def test_what_is_in_the_table_moves_speaker_and_listener_alike(state, speaker, message):
    after = TRANSITIONS[state, speaker, message]
    talker = arrive(Session(speaker, QUIET), state)
    talker._say(VALUES[message])
    assert talker.state is after
    assert talker.output()[4] == BYTES[message][4]
    if (state, speaker.other, Bye) in TRANSITIONS:  # who has left hears nothing: see below
        listener = arrive(Session(speaker.other, msgspec.structs.replace(QUIET, application_types=frozenset({200}))), state)
        listener.receive(BYTES[message], 0.0)
        assert listener.state is after
        assert (listener.ended is not None) is (message in (Bye, Error))


@pytest.mark.parametrize("cut", [1, 3, 4096])
@pytest.mark.parametrize("speaker", Speaker)
def test_a_session_that_is_over_hears_nothing_more(cut, speaker):
    side = Side(speaker, QUIET, cut)
    side.start()
    side.receive(speech.hello() + speech.bye)
    said = side.said
    side.receive(b"".join(BYTES.values()) + b"\x00\x00\x00\x00" + speech.request(1))
    side.eof()
    side.wait(1000)
    assert side.said == said
    assert side.delivered == []
    assert side.ended.how is Ending.BYE
