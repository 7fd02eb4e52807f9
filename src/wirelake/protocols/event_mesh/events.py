"""Events of an Event Mesh session, frozen values; and its counters."""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import Field, FieldType, Flag, Message
from wirelake.protocols.event_mesh.options import Address
from wirelake.protocols.event_mesh.packet.values import is_security, joined, typed
from wirelake.protocols.event_mesh.security.verify import Identity
from wirelake.protocols.event_mesh.state_machine import State

__all__ = ["Delivered", "Dropped", "Metrics", "Peer", "PeerChanged", "QueueFull", "SessionEvent"]


URGENT: Final = int(Flag.URGENT)
"""A plain number: this is asked of every event."""


class Peer(msgspec.Struct, frozen=True):
    """The state of another node."""

    node_id: bytes
    state: State
    place: Address | None
    """Where its hello came from; None if there was none that may be answered."""
    proven: bool
    """Whether a key proved it."""
    capabilities: bytes
    """§3.1: the capabilities of its last hello; opaque."""
    heard: float
    """Steady time of its last sign of life."""


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """§3.3: an event that passed every check, or a message of a type that the application handles."""

    name: str | None
    """EMM-20: of an event, its name.

    None for another type, and for a sealed event without a name in clear.
    """
    message: Message
    fields: tuple[Field, ...]
    """The message's fields; of a sealed event that was opened, those that were hidden."""
    identity: Identity
    """The sender, and the proof of it."""
    source: Address
    """The address it came from: the sender, or a node that relays."""
    time: int
    """When it was signed or created, by its own word; seconds since 1970."""
    sealed: bool = False
    """§2.3: whether the payload is still encrypted or compressed, for the application to open."""
    unopened: Fault | None = None
    """Why a sealed payload was not opened here; None if that was not to be tried."""

    @property
    def urgent(self) -> bool:
        """§2.3: to be processed before others."""
        return self.message.flags & URGENT != 0

    @property
    def values(self) -> list[Field]:
        """EMM-10: the data fields, the name first, with the pieces of each value joined."""
        return joined(field for field in self.fields if not is_security(field.type))

    @property
    def content(self) -> list[str | int | float | bytes]:
        """§4.1: the data fields but the name, as Python values; JSON is text."""
        values = self.values
        name = next((place for place, field in enumerate(values) if field.type == FieldType.STRING), len(values))
        return [typed(field) for place, field in enumerate(values) if place != name]


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """EMM-30: a packet that was dropped, and why; its sender gets no answer."""

    fault: Fault
    source: Address
    node_id: bytes | None
    """The sender that it names, proven or not."""
    offset: int = 0


class PeerChanged(msgspec.Struct, frozen=True):
    """§3.1, §3.2: a node sent a packet, greeted, fell silent, or was forgotten (then it is UNKNOWN)."""

    peer: Peer
    before: State


class QueueFull(msgspec.Struct, frozen=True):
    """A datagram that this node sends by itself did not fit into the queue.

    Such datagrams are relayed packets, hellos and heartbeats.
    """

    to: Address
    urgent: bool


SessionEvent = Delivered | Dropped | PeerChanged | QueueFull


class Metrics(msgspec.Struct):
    """Counters since the start; `rejected` has a counter for each reason."""

    received: int = 0
    """Datagrams that arrived."""
    rate_limited: int = 0
    """… of these, not looked at."""
    own: int = 0
    """… of our own that came back, by multicast or over a relay."""
    rejected: dict[Fault, int] = {}
    """… dropped, by reason."""
    accepted: int = 0
    """… that passed every check."""
    sealed: int = 0
    """Accepted packets with a payload that was not opened here."""
    delivered: int = 0
    """Accepted packets that were handed to the application; hellos and heartbeats are not."""
    ignored: int = 0
    """EMM-21: accepted packets of an event type without a handler."""
    relayed: int = 0
    """Packets passed on, however many there were to pass them to."""
    published: int = 0
    sent: int = 0
    """Datagrams handed to the transport."""
    queue_full: int = 0
    """Datagrams that found the send queue full."""
    replays_evicted: int = 0
    """EMM-23: packets that had to be forgotten before their time."""
    ids_forgotten: int = 0
    """EMM-22: message ids of our own that had to be."""
    peers_refused: int = 0
    """Nodes that found the table full."""

    def reasons(self) -> dict[str, int]:
        """The rejected by the words that vectors and people use."""
        return {fault.reason: count for fault, count in sorted(self.rejected.items())}
