"""The state machine of EMP: (state, speaker, message) -> next state or fault.

States are named from outside, so that client, server and the lake's rules read the same table. Rules that depend on data, such as which
identifiers are in flight, are in the session.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Application, Bye, Data, Error, Hello, Message, Ping, Pong
from wirelake.protocols.protocol import StateMachine
from wirelake.protocols.speaker import Speaker

__all__ = ["INITIAL", "MACHINE", "MESSAGES", "TRANSITIONS", "Speaker", "State", "refusal"]


class State(IntEnum):
    """The state of a connection."""

    CONNECTED = 0
    """Connected; no message yet."""
    CLIENT_GREETED = 1
    SERVER_GREETED = 2
    OPEN = 3
    """Both sent a hello: every exchange is allowed."""
    CLIENT_LEFT = 4
    """Termination: the client sent bye or error; messages that the server sent before may still arrive."""
    SERVER_LEFT = 5
    CLOSED = 6


INITIAL: Final = State.CONNECTED
CLIENT: Final = Speaker.CLIENT
SERVER: Final = Speaker.SERVER
MESSAGES: Final[tuple[type[Message], ...]] = (Hello, Bye, Ping, Pong, Error, Data, Application)
_EXCHANGES: Final[tuple[type[Message], ...]] = (Ping, Pong, Data, Application)

TRANSITIONS: Final[dict[tuple[State, Speaker, type[Message]], State]] = {
    # Handshake: each peer sends a hello; the order does not matter.
    (State.CONNECTED, CLIENT, Hello): State.CLIENT_GREETED,
    (State.CONNECTED, SERVER, Hello): State.SERVER_GREETED,
    (State.CLIENT_GREETED, SERVER, Hello): State.OPEN,
    (State.SERVER_GREETED, CLIENT, Hello): State.OPEN,
    # Termination: bye and error are allowed at any moment, once (EMP-26 for the first message).
    **{
        (state, speaker, parting): left
        for speaker, left in ((CLIENT, State.CLIENT_LEFT), (SERVER, State.SERVER_LEFT))
        for state in (State.CONNECTED, State.CLIENT_GREETED, State.SERVER_GREETED, State.OPEN)
        for parting in (Bye, Error)
    },
    (State.CLIENT_LEFT, SERVER, Bye): State.CLOSED,
    (State.CLIENT_LEFT, SERVER, Error): State.CLOSED,
    (State.SERVER_LEFT, CLIENT, Bye): State.CLOSED,
    (State.SERVER_LEFT, CLIENT, Error): State.CLOSED,
    # Ping-pong, Data: at any moment after the handshake, by either peer.
    **{(State.OPEN, speaker, exchange): State.OPEN for speaker in Speaker for exchange in _EXCHANGES},
    # EMP-33: the other end may have sent messages before the bye reached it.
    **{(State.CLIENT_LEFT, SERVER, message): State.CLIENT_LEFT for message in (Hello, *_EXCHANGES)},
    **{(State.SERVER_LEFT, CLIENT, message): State.SERVER_LEFT for message in (Hello, *_EXCHANGES)},
}
"""(state, speaker, message) -> next state. Every other triple is forbidden."""

_LEFT: Final = {CLIENT: (State.CLIENT_LEFT, State.CLOSED), SERVER: (State.SERVER_LEFT, State.CLOSED)}
_GREETED: Final = {CLIENT: (State.CLIENT_GREETED, State.OPEN), SERVER: (State.SERVER_GREETED, State.OPEN)}


def refusal(state: State, speaker: Speaker, message: type[Message]) -> Fault:
    """The rule that a message breaks if TRANSITIONS does not have it."""
    if state in _LEFT[speaker]:
        return Fault.SPOKE_AFTER_PARTING  # EMP-33
    if state not in _GREETED[speaker]:
        return Fault.HELLO_EXPECTED  # EMP-26
    return Fault.HELLO_REPEATED if message is Hello else Fault.SPOKE_TOO_SOON  # EMP-25, EMP-28


MACHINE: Final = StateMachine.of(
    initial=INITIAL,
    transitions=TRANSITIONS,
    messages=MESSAGES,
    states=State,
    speakers=Speaker,
    refusal=refusal,
)
"""The state machine, as the protocol's descriptor and its analyzer use it."""
