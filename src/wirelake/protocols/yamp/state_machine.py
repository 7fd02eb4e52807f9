"""The state machine of YAMP: (state, speaker, message) -> next state or fault.

States are named from outside, so that client, server and the lake's rules read the same table. Rules that depend on data, such as which
requests are in flight, are in the session.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from wirelake.protocols.protocol import StateMachine
from wirelake.protocols.speaker import Speaker
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Cancel, Close, CloseRedirect, Event, Handshake, Message, Ping, Pong, Request, Response

__all__ = ["INITIAL", "MACHINE", "MESSAGES", "TRANSITIONS", "UNTIMELY", "Speaker", "State", "refusal"]


class State(IntEnum):
    """The state of a connection."""

    CONNECTED = 0
    """Connected; no message yet."""
    CLIENT_GREETED = 1
    """The client sent its handshake; the server has not answered."""
    OPEN = 2
    """The server echoed the handshake: both sides may send events, ask and answer (YAMP-45)."""
    CLIENT_LEFT = 3
    """0x03 system.close: the client closed; messages that the server sent before may still arrive."""
    SERVER_LEFT = 4
    CLOSED = 5


INITIAL: Final = State.CONNECTED
CLIENT: Final = Speaker.CLIENT
SERVER: Final = Speaker.SERVER
MESSAGES: Final[tuple[type[Message], ...]] = (Handshake, Ping, Pong, Close, CloseRedirect, Event, Request, Cancel, Response)
_EXCHANGES: Final[tuple[type[Message], ...]] = (Ping, Pong, Event, Request, Cancel, Response)
_PARTINGS: Final[tuple[type[Message], ...]] = (Close, CloseRedirect)

TRANSITIONS: Final[dict[tuple[State, Speaker, type[Message]], State]] = {
    # 0x00 system.handshake: the client sends its handshake, the server echoes it.
    (State.CONNECTED, CLIENT, Handshake): State.CLIENT_GREETED,
    (State.CLIENT_GREETED, SERVER, Handshake): State.OPEN,
    # YAMP-11: a second handshake is ignored.
    (State.CLIENT_GREETED, CLIENT, Handshake): State.CLIENT_GREETED,
    (State.OPEN, CLIENT, Handshake): State.OPEN,
    (State.OPEN, SERVER, Handshake): State.OPEN,
    # YAMP-10: a client should wait for the echo; messages it sent before are accepted all the same.
    **{(State.CLIENT_GREETED, CLIENT, exchange): State.CLIENT_GREETED for exchange in _EXCHANGES},
    **{(State.OPEN, speaker, exchange): State.OPEN for speaker in Speaker for exchange in _EXCHANGES},
    # 0x03 system.close, YAMP-9: a server may refuse or redirect at any moment, a client may close once it has greeted.
    **{
        (state, SERVER, parting): State.SERVER_LEFT
        for state in (State.CONNECTED, State.CLIENT_GREETED, State.OPEN)
        for parting in _PARTINGS
    },
    **{(state, CLIENT, Close): State.CLIENT_LEFT for state in (State.CLIENT_GREETED, State.OPEN)},
    # YAMP-20: the other end may have sent messages before the close reached it.
    **{(State.CLIENT_LEFT, SERVER, message): State.CLIENT_LEFT for message in (Handshake, *_EXCHANGES)},
    **{(State.SERVER_LEFT, CLIENT, message): State.SERVER_LEFT for message in (Handshake, *_EXCHANGES)},
    **{(State.CLIENT_LEFT, SERVER, parting): State.CLOSED for parting in _PARTINGS},
    (State.SERVER_LEFT, CLIENT, Close): State.CLOSED,
}
"""(state, speaker, message) -> next state. Every other triple is forbidden."""

UNTIMELY: Final = {(State.CLIENT_GREETED, CLIENT, exchange): Fault.SPOKE_TOO_SOON for exchange in _EXCHANGES}
"""(state, speaker, message) that is accepted -> the rule its sender breaks all the same (YAMP-10)."""

_LEFT: Final = {CLIENT: (State.CLIENT_LEFT, State.CLOSED), SERVER: (State.SERVER_LEFT, State.CLOSED)}


def refusal(state: State, speaker: Speaker, message: type[Message]) -> Fault:
    """The rule that a message breaks if TRANSITIONS does not have it."""
    if state in _LEFT[speaker]:
        return Fault.SPOKE_AFTER_CLOSE  # YAMP-20
    if message is CloseRedirect:
        return Fault.REDIRECT_BY_CLIENT  # YAMP-21
    return Fault.HANDSHAKE_EXPECTED  # YAMP-9, YAMP-53


MACHINE: Final = StateMachine.of(
    initial=INITIAL,
    transitions=TRANSITIONS,
    messages=MESSAGES,
    states=State,
    speakers=Speaker,
    refusal=refusal,
    untimely=UNTIMELY,
)
"""The state machine, as the protocol's descriptor and its analyzer use it."""
