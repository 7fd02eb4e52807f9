"""A node's life: everything may be said at any time, and silence is known only of those who spoke."""

from __future__ import annotations

from wirelake.protocols.event_mesh.messages import Event, Heartbeat, Hello, Other
from wirelake.protocols.event_mesh.state_machine import INITIAL, MESSAGES, SILENCE, TRANSITIONS, Speaker, State


def test_nothing_is_forbidden():
    assert set(TRANSITIONS) == {(state, Speaker.NODE, message) for state in State for message in MESSAGES}


def test_a_life():
    state, seen = INITIAL, []
    for said in (Heartbeat, Event, Hello, Heartbeat, None, Other, None, Hello, None, None):
        state = SILENCE[state] if said is None else TRANSITIONS[state, Speaker.NODE, said]
        seen.append(state.name)
    assert seen == ["HEARD", "HEARD", "GREETED", "GREETED", "SILENT", "HEARD", "SILENT", "GREETED", "SILENT", "SILENT"]


def test_who_never_spoke_is_not_silent():
    assert SILENCE[State.UNKNOWN] is State.UNKNOWN
