"""The two ends of a connection, as state machines and recordings name them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Speaker"]


class Speaker(IntEnum):
    """One end of a connection.

    Relink's specification calls the client the connector and the server the listener.
    """

    CLIENT = 0
    """It opened the connection."""
    SERVER = 1
    """It accepted the connection."""
    CONNECTOR = 0
    LISTENER = 1

    @property
    def other(self) -> Speaker:
        """The opposite end."""
        return Speaker(1 - self)
