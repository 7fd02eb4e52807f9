"""Events of a Relink session and link for their owner: frozen and complete values.

Sequence numbers in events count on where those on the wire wrap (§3.1).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import msgspec

from wirelake.protocols.ending import BaseEnded, Ending
from wirelake.protocols.relink.faults import OURS, Fault

__all__ = [
    "ChannelClosed",
    "Ended",
    "Ending",
    "LinkLost",
    "LinkShutdown",
    "MessageReceived",
    "MessagesResolved",
    "Noticed",
    "Opened",
    "Outcome",
    "PeerClosedChannel",
    "PeerShutdown",
    "Ponged",
    "Resumed",
    "SessionEvent",
    "TombstonesForgotten",
    "TombstonesRefused",
    "Unresolved",
]


class Opened(msgspec.Struct, frozen=True):
    """§1: the handshake is done; `resumed` says that the link is the old one."""

    epoch: int
    link_id: int
    resumed: bool


class Resumed(msgspec.Struct, frozen=True):
    """§3.5: the peer resumed; has the numbers of messages received, sent again, and consumed meanwhile."""

    kept: int
    replayed: int
    consumed: int


class MessageReceived(msgspec.Struct, frozen=True, gc=False):
    """§3.1: a message of the peer, to be consumed.

    With transactions, it was committed and is to be settled.
    """

    channel: bytes
    sequence: int
    parts: tuple[bytes, ...]
    incarnation: int
    """Distinguishes the channel from others of the same id before and after it."""

    @property
    def body(self) -> bytes:
        """The parts, joined."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


class Outcome(Enum):
    """The outcomes of a message of ours."""

    CONSUMED = "consumed"
    """§3.1: the peer's application consumed it."""
    COMMITTED = "committed"
    """§3.2: the peer processed it."""
    UNCOMMITTED = "uncommitted"
    """§3.2: the peer could not process it."""
    ROLLED_BACK = "rolled back"
    """§3.2: we took it back."""
    FAILED = "failed"
    """RELINK-28: the link was lost before the peer could have processed it."""
    UNKNOWN = "unknown"
    """RELINK-28, RELINK-32: the peer may or may not have processed it."""


class MessagesResolved(msgspec.Struct, frozen=True, gc=False):
    """§3.1, §3.2: the outcome of the messages `first` to `last` of a channel of ours."""

    channel: bytes
    first: int
    last: int
    outcome: Outcome


class ChannelClosed(msgspec.Struct, frozen=True):
    """§3.3: a channel of ours is closed: everything on it was consumed, and it may be opened again."""

    channel: bytes


class PeerClosedChannel(msgspec.Struct, frozen=True):
    """§3.3: the peer sends no more on a channel of its own."""

    channel: bytes


class Ponged(msgspec.Struct, frozen=True):
    """§3.4: the answer to the n-th ping on this connection."""

    ping: int


class PeerShutdown(msgspec.Struct, frozen=True):
    """§3.6: the peer opens no more channels."""


class LinkShutdown(msgspec.Struct, frozen=True):
    """§3.6: both sides have shut down; the link is over and nothing was lost."""


class Unresolved(msgspec.Struct, frozen=True):
    """RELINK-32: a message of ours whose link was lost.

    `parts` is None if the peer had acknowledged receiving it.
    """

    channel: bytes
    sequence: int
    parts: tuple[bytes, ...] | None
    outcome: Outcome


class LinkLost(msgspec.Struct, frozen=True):
    """RELINK-10, RELINK-32: the link and its state are gone; `replaced` says that there is a new one."""

    epoch: int
    link_id: int
    fault: Fault
    unresolved: tuple[Unresolved, ...]
    replaced: bool = False


class TombstonesForgotten(msgspec.Struct, frozen=True):
    """RELINK-22: closed channels of the peer that are not announced any more, because the peer closed the connection at it.

    Only with `tombstones="forgiving"`. If their `closed` was lost, their messages arrive again.
    """

    channels: tuple[bytes, ...]


class TombstonesRefused(msgspec.Struct, frozen=True):
    """RELINK-22: the peer closed several connections right after closed channels were announced.

    They are announced again all the same. A peer that never accepts it needs `tombstones="forgiving"`.
    """

    channels: tuple[bytes, ...]


class Noticed(msgspec.Struct, frozen=True):
    """A rule was broken, which is tolerated."""

    fault: Fault


class Ended(BaseEnded[Fault], frozen=True):
    """The connection is over; only a shutdown ends the link, too."""

    LOCAL_FAULTS: ClassVar = OURS
    SUBJECT: ClassVar = "connection"


SessionEvent = (
    Opened
    | Resumed
    | MessageReceived
    | MessagesResolved
    | ChannelClosed
    | PeerClosedChannel
    | Ponged
    | PeerShutdown
    | LinkShutdown
    | LinkLost
    | TombstonesForgotten
    | TombstonesRefused
    | Noticed
    | Ended
)
