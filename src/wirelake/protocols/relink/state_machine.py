"""The state machine of a Relink connection: (state, speaker, message) -> state or fault.

States are named from outside, so that connector, listener and the lake's rules read the same table. Rules that depend on data are in the
link: whether it is an old one, which channels are open, how far acknowledgements may go.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from wirelake.protocols.protocol import StateMachine
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import (
    AnyMessage,
    Close,
    Closed,
    Commit,
    Committed,
    Consumed,
    Message,
    Nop,
    Ping,
    Pong,
    Received,
    Reply,
    Request,
    Resume,
    Rollback,
    Shutdown,
    Uncommitted,
    Version,
)
from wirelake.protocols.speaker import Speaker

__all__ = ["INITIAL", "MACHINE", "MESSAGES", "TRANSITIONS", "Speaker", "State", "refusal"]


class State(IntEnum):
    """The states of a connection."""

    CONNECTED = 0
    """No message was sent."""
    CONNECTOR_GREETED = 1
    """§1: the connector sent its version."""
    GREETED = 2
    """§1: the listener sent the version."""
    EARLY = 3
    """RELINK-4: the connector did not wait for the version."""
    REQUESTED = 4
    """§1: the connector asked for a link."""
    OPEN = 5
    """§1: the listener gave one; packets both ways."""
    CONNECTOR_SHUT = 6
    """§3.6: the connector opens no more channels."""
    LISTENER_SHUT = 7
    SHUT = 8
    """§3.6: neither does; the connection can be closed."""


INITIAL: Final = State.CONNECTED
CONNECTOR: Final = Speaker.CONNECTOR
LISTENER: Final = Speaker.LISTENER
_PACKETS: Final[tuple[type[AnyMessage], ...]] = (
    *(Nop, Ping, Pong, Resume, Commit, Rollback, Close, Received, Consumed, Committed, Uncommitted, Closed, Message),
)
MESSAGES: Final[tuple[type[AnyMessage], ...]] = (Version, Request, Reply, Shutdown, *_PACKETS)
_TALKING: Final = (State.OPEN, State.CONNECTOR_SHUT, State.LISTENER_SHUT, State.SHUT)

TRANSITIONS: Final[dict[tuple[State, Speaker, type[AnyMessage]], State]] = {
    # §1: the fields of the handshake in their order, half-duplex.
    (State.CONNECTED, CONNECTOR, Version): State.CONNECTOR_GREETED,
    (State.CONNECTOR_GREETED, LISTENER, Version): State.GREETED,
    (State.GREETED, CONNECTOR, Request): State.REQUESTED,
    (State.REQUESTED, LISTENER, Reply): State.OPEN,
    # RELINK-4: a listener tolerates an early request.
    (State.CONNECTOR_GREETED, CONNECTOR, Request): State.EARLY,
    (State.EARLY, LISTENER, Version): State.REQUESTED,
    # §2: full-duplex packets, also after a shutdown: RELINK-23, open channels stay open.
    **{(state, speaker, packet): state for state in _TALKING for speaker in Speaker for packet in _PACKETS},
    # §3.6: either side may send shutdown at any time; a repetition changes nothing.
    (State.OPEN, CONNECTOR, Shutdown): State.CONNECTOR_SHUT,
    (State.OPEN, LISTENER, Shutdown): State.LISTENER_SHUT,
    (State.CONNECTOR_SHUT, CONNECTOR, Shutdown): State.CONNECTOR_SHUT,
    (State.CONNECTOR_SHUT, LISTENER, Shutdown): State.SHUT,
    (State.LISTENER_SHUT, CONNECTOR, Shutdown): State.SHUT,
    (State.LISTENER_SHUT, LISTENER, Shutdown): State.LISTENER_SHUT,
    (State.SHUT, CONNECTOR, Shutdown): State.SHUT,
    (State.SHUT, LISTENER, Shutdown): State.SHUT,
}
"""(state, speaker, message) -> next state. Other combinations are forbidden."""


def refusal(state: State, speaker: Speaker, message: type[AnyMessage]) -> Fault:  # noqa: ARG001 - as in every protocol
    """The rule that a message breaks which TRANSITIONS does not have: only the handshake has an order."""
    return Fault.HANDSHAKE_ORDER


MACHINE: Final = StateMachine.of(
    initial=INITIAL,
    transitions=TRANSITIONS,
    messages=MESSAGES,
    states=State,
    speakers=Speaker,
    refusal=refusal,
)
"""The state machine, as the protocol's descriptor and its analyzer use it."""
