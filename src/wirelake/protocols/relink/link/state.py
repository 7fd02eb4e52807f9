"""What the two halves of a link share: what is to be said and told, and whether there is anybody to say it to.

It refuses to know what it carries.
"""

from __future__ import annotations

from wirelake.protocols.relink.events import SessionEvent

__all__ = ["LinkState"]


class LinkState:
    """The way out of a link, to the peer and to the owner."""

    def __init__(self) -> None:
        self.output: list[bytes] = []
        self.events: list[SessionEvent] = []
        self.now = 0.0
        """The time of the last call."""
        self.is_connected = False
        """There is a connection, and its handshake is done: acknowledgements and general packets may be said."""
        self.is_talking = False
        """RELINK-21: messages and operations may be said, too."""
        self.strikes = 0
        """RELINK-12: protocol errors since the last progress."""
        self.has_progressed = False
        """Whether there was progress on this connection, or on the last one while there is none: see `progress`."""
        self.incarnations = 0
        """Channels of the peer so far, on this link and those before: a message of a lost link must not be taken for one of this."""

    def progress(self) -> None:
        """RELINK-12: the peer did something after the handshake that it had not done before.

        Progress is a new message or decision of the peer, or an acknowledgement or result that covers more than the ones before it. A pong
        is progress of the connection, too, but does not forgive protocol errors. A handshake is none, and neither is what a peer repeats
        after it (RELINK-20).
        """
        self.strikes = 0
        self.has_progressed = True
