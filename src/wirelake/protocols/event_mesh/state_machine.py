"""The state machine of an Event Mesh node: what is known of it after each message.

§1 promises neither delivery nor order, so every message is allowed in every state. The state says whether a node sent a hello, sent only
other packets, or is silent. Silence is the one transition without a message; the listener decides how long it takes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from wirelake.errors import UsageError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import Event, Heartbeat, Hello, Message, Other
from wirelake.protocols.protocol import StateMachine

__all__ = ["INITIAL", "MACHINE", "MESSAGES", "SILENCE", "TRANSITIONS", "Speaker", "State", "refusal"]


class Speaker(IntEnum):
    """Nodes are equals, and each has its own state: the speaker is always the node."""

    NODE = 0


class State(IntEnum):
    """The state of a node, as others see it."""

    UNKNOWN = 0
    """No message of it has arrived."""
    HEARD = 1
    """It sends messages, but its hello was lost or sent earlier."""
    GREETED = 2
    """§3.1: it sent a hello."""
    SILENT = 3
    """§3.2: no message for longer than the receiver waits."""


INITIAL: Final = State.UNKNOWN
MESSAGES: Final[tuple[type[Message], ...]] = (Hello, Heartbeat, Event, Other)

TRANSITIONS: Final[dict[tuple[State, Speaker, type[Message]], State]] = {
    # §3.1: a hello, at any time.
    **{(state, Speaker.NODE, Hello): State.GREETED for state in State},
    # §3.2: every other message is a sign of life and keeps GREETED.
    **{
        (state, Speaker.NODE, message): State.GREETED if state is State.GREETED else State.HEARD
        for state in State
        for message in (Heartbeat, Event, Other)
    },
}
"""(state, speaker, message) -> next state. Nothing is forbidden."""

SILENCE: Final[dict[State, State]] = {state: State.UNKNOWN if state is State.UNKNOWN else State.SILENT for state in State}
"""state -> the state after the silence timeout."""


def refusal(state: State, speaker: Speaker, message: type[Message]) -> Fault:
    """The rule that a message breaks if TRANSITIONS does not have it: there is none, so this raises."""
    raise UsageError(f"nothing is forbidden, and so not {message.__name__} by {speaker.name} in {state.name}")


MACHINE: Final = StateMachine.of(
    initial=INITIAL,
    transitions=TRANSITIONS,
    messages=MESSAGES,
    states=State,
    speakers=Speaker,
    refusal=refusal,
)
"""The state machine, as the protocol's descriptor and its analyzer use it."""
