"""The state machine of PIGEON/1: which message each side may send in which state.

States are named from outside, so that client, server and the lake read the same table.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from wirelake.protocols.speaker import Speaker
from wirelake_pigeon.faults import Fault
from wirelake_pigeon.messages import Ack, Bye, Hello, Message, Note

__all__ = ["INITIAL", "MESSAGES", "TRANSITIONS", "Speaker", "State", "refusal"]


class State(IntEnum):
    """How far a session is."""

    CONNECTED = 0
    CLIENT_GREETED = 1
    SERVER_GREETED = 2
    OPEN = 3
    CLIENT_LEFT = 4
    SERVER_LEFT = 5
    CLOSED = 6


INITIAL: Final = State.CONNECTED
CLIENT: Final = Speaker.CLIENT
SERVER: Final = Speaker.SERVER
MESSAGES: Final[tuple[type[Message], ...]] = (Hello, Note, Ack, Bye)

TRANSITIONS: Final[dict[tuple[State, Speaker, type[Message]], State]] = {
    # §3.1: each side says hello once, in either order.
    (State.CONNECTED, CLIENT, Hello): State.CLIENT_GREETED,
    (State.CONNECTED, SERVER, Hello): State.SERVER_GREETED,
    (State.CLIENT_GREETED, SERVER, Hello): State.OPEN,
    (State.SERVER_GREETED, CLIENT, Hello): State.OPEN,
    # §3.2: notes and acknowledgements in both directions.
    **{(State.OPEN, speaker, message): State.OPEN for speaker in Speaker for message in (Note, Ack)},
    # §3.3: after the bye of one side, the other may finish.
    (State.OPEN, CLIENT, Bye): State.CLIENT_LEFT,
    (State.OPEN, SERVER, Bye): State.SERVER_LEFT,
    **{(State.CLIENT_LEFT, SERVER, message): State.CLIENT_LEFT for message in (Note, Ack)},
    **{(State.SERVER_LEFT, CLIENT, message): State.SERVER_LEFT for message in (Note, Ack)},
    (State.CLIENT_LEFT, SERVER, Bye): State.CLOSED,
    (State.SERVER_LEFT, CLIENT, Bye): State.CLOSED,
}
"""(state, speaker, message) -> next state. A message that is not here is forbidden."""


def refusal(state: State, speaker: Speaker, message: type[Message]) -> Fault:  # noqa: ARG001 - every protocol's has these parameters
    """The rule that a forbidden message breaks."""
    left = State.CLIENT_LEFT if speaker is CLIENT else State.SERVER_LEFT
    return Fault.SENT_AFTER_BYE if state in (left, State.CLOSED) else Fault.HELLO_EXPECTED
