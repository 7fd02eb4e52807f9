"""State that both halves of a link share: packets to send, events, and connection progress."""

from __future__ import annotations

from wirelake.protocols.relink.events import SessionEvent

__all__ = ["LinkState"]


class LinkState:
    """Written by `LinkCore`, `Inbox` and `Outbox` only; each attribute names its writers.

    A session goes through `LinkCore`.
    """

    def __init__(self) -> None:
        self.output: list[bytes] = []
        """Packets to send. All three append; `LinkCore.packets` takes them, attach and detach drop them."""
        self.events: list[SessionEvent] = []
        """Events for the owner. All three append; `LinkCore.events` takes them."""
        self.now = 0.0
        """The time of the last call. Written by `LinkCore` alone."""
        self.is_connected = False
        """A connection is attached and its handshake is done.

        Acknowledgements and general packets may be sent. Written by `LinkCore`.
        """
        self.may_send = False
        """RELINK-21: messages and operations may be sent, too.

        Set by `Outbox` at a start or resume, cleared by `LinkCore`.
        """
        self.strikes = 0
        """RELINK-12: protocol errors since the last progress. Counted by `LinkCore`, cleared by `progress`."""
        self.has_progressed = False
        """There was progress on this connection, or on the last one while there is none.

        Set by `progress` and by a pong (`Inbox`), cleared by `LinkCore.attach`.
        """
        self.incarnations = 0
        """Channels of the peer so far, on this link and the links before it. Counted by `Inbox`.

        So a message of a lost link is not taken for one of this link."""

    def progress(self) -> None:
        """RELINK-12: the peer did something after the handshake that it had not done before.

        Progress is a new message or decision of the peer, or an acknowledgement or result that covers more than the ones before it. A pong
        is progress of the connection, too, but does not forgive protocol errors. A handshake is none, and neither is a repetition
        after it (RELINK-20).
        """
        self.strikes = 0
        self.has_progressed = True
