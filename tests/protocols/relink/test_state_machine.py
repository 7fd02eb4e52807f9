"""The state machine of a connection: every (state, speaker, message), allowed or refused; and the table of faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cases import each
from tests.protocols.relink.pair import EPOCH

from wirelake.protocols.relink import __all__ as exported
from wirelake.protocols.relink.faults import BREACHES, OURS, Fault
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.messages import TYPES, Message, Reply, Request, Shutdown, Version, name_of
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import INITIAL, MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.relink.wire import encode

C, L = Speaker.CONNECTOR, Speaker.LISTENER
PATHS = {
    State.CONNECTED: (),
    State.CONNECTOR_GREETED: ((C, Version),),
    State.GREETED: ((C, Version), (L, Version)),
    State.EARLY: ((C, Version), (C, Request)),
    State.REQUESTED: ((C, Version), (C, Request), (L, Version)),
    State.OPEN: ((C, Version), (L, Version), (C, Request), (L, Reply)),
    State.CONNECTOR_SHUT: ((C, Version), (L, Version), (C, Request), (L, Reply), (C, Shutdown)),
    State.LISTENER_SHUT: ((C, Version), (L, Version), (C, Request), (L, Reply), (L, Shutdown)),
    State.SHUT: ((C, Version), (L, Version), (C, Request), (L, Reply), (L, Shutdown), (C, Shutdown)),
}
"""How to get to each state."""


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_every_state_is_reached_as_the_table_says(state):
    at = INITIAL
    for speaker, message in PATHS[state]:
        at = TRANSITIONS[at, speaker, message]
    assert at is state


def test_packets_only_after_the_handshake_and_handshake_only_in_its_order():
    """RELINK-4: what is not in the table is said before its turn."""
    talking = {State.OPEN, State.CONNECTOR_SHUT, State.LISTENER_SHUT, State.SHUT}
    for state in State:
        for speaker in Speaker:
            for message in MESSAGES:
                after = TRANSITIONS.get((state, speaker, message))
                if message not in (Version, Request, Reply):
                    assert (after is not None) == (state in talking)
                    assert after in (None, state) or message is Shutdown
                elif after is None:
                    assert refusal(state, speaker, message) is Fault.HANDSHAKE_ORDER
                else:
                    assert (state, speaker, message) not in {(one, L, Request) for one in State} | {(one, C, Reply) for one in State}
    assert set(MESSAGES) == set(TYPES)
    assert Speaker.CLIENT is C
    assert Speaker.SERVER is L
    assert (C.other, L.other) == (L, C)


def test_a_session_lives_in_the_table():
    endpoint = Endpoint("demo", 1, 1)
    options = Options(ping_interval=None)
    one = Session(C, options, link=LinkCore(C, endpoint, options))
    other = Session(L, options, registry=Registry([endpoint], EPOCH, lambda: 1, options))
    seen = []
    one.start(0.0)
    other.start(0.0)
    for _ in range(4):
        for speaking, hearing in ((one, other), (other, one)):
            hearing.receive(speaking.output(), 0.0)
            seen.append((one.state, other.state))
    assert seen[-1] == (State.OPEN, State.OPEN)
    one.link.shutdown()
    other.receive(one.output(), 0.0)
    assert one.state is other.state is State.CONNECTOR_SHUT
    other.link.shutdown()
    one.receive(other.output(), 0.0)
    one.output()
    assert one.state is other.state is State.SHUT
    assert one.ended.fault is None


def test_names_are_those_of_the_specification():
    assert [name_of(one) for one in MESSAGES[:4]] == ["version", "request", "reply", "shutdown"]
    assert encode(Message((b"",), ()))[0] == 0x11


def test_our_own_faults_are_breaches():
    assert OURS < BREACHES


def test_the_room_exports_its_roles():
    roles = {"DEFAULT_PORT", "INITIAL", "TRANSITIONS", "Fault", "Limits", "Options", "Session", "Speaker", "State", "buffer", "decode"}
    assert roles | {"encode", "refusal", "scan", "sniff", "walk"} <= set(exported)


@each("number", range(1, 34))
def test_every_ruling_is_named_by_a_test(number):
    """A ruling that no test names is a rule nobody holds."""
    here = Path(__file__)
    files = [*here.parent.glob("test_*.py"), *(here.parents[2] / "peers").glob("test_relink*.py")]
    name = re.compile(rf"RELINK-{number}(?!\d)")
    naming = [path.name for path in files if path != here and name.search(path.read_text())]
    assert naming, f"RELINK-{number}"
