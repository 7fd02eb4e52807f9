"""The end of a session: its cause, the side that ended it, and the error of pending calls."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Generic, TypeVar

import msgspec

from wirelake.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError, SessionClosed, WirelakeError
from wirelake.protocols.faults import Faults
from wirelake.protocols.speaker import Speaker

__all__ = ["BaseEnded", "Ending"]

FaultT = TypeVar("FaultT", bound=Faults)


class Ending(Enum):
    """The ways a session ends. Each protocol has some of them."""

    BYE = "bye"
    """A farewell (EMP, wolpertinger)."""
    CLOSE = "close"
    """A close message (YAMP)."""
    REDIRECT = "redirect"
    """A redirect to another server (YAMP)."""
    SHUTDOWN = "shutdown"
    """Both ends shut the link down (Relink)."""
    ERROR = "error"
    """An error (EMP, Relink)."""
    CLOSED = "closed"
    """The connection was closed without a message that says so."""


class BaseEnded(msgspec.Struct, Generic[FaultT], frozen=True):
    """The session is over. Each protocol derives its event `Ended` from this class."""

    how: Ending
    by: Speaker
    """The end that spoke last, or that closed the connection."""
    here: bool
    """Whether `by` is this side."""
    fault: FaultT | None = None
    """The rule that was broken, if one was."""
    detail: str = ""

    LOCAL_FAULTS: ClassVar[frozenset[Faults]] = frozenset()
    """Faults of this side: a LocalProtocolError, not a RemoteProtocolError."""
    SUBJECT: ClassVar[str] = "session"
    """The thing that is over, for the error text."""

    def reason(self) -> WirelakeError:
        """The error that pending calls fail with."""
        if self.fault is not None:
            if not self.here:
                return ConnectionLost(f"the connection was lost: {self.fault.text}")
            blamed = LocalProtocolError if self.fault in self.LOCAL_FAULTS else RemoteProtocolError
            return blamed(self.fault, self.detail)
        return SessionClosed(f"{self.actor} closed the {self.SUBJECT}{': ' + self.detail if self.detail else ''}")

    @property
    def actor(self) -> str:
        """`by`, for people."""
        return "this side" if self.here else "the peer"
