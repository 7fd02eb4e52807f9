"""What a session of YAMP tells its owner: frozen events, complete when they are made.

It refuses to know how they come about.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from wirelake.errors import ConnectionLost, Redirected, RemoteProtocolError, SessionClosed, WirelakeError
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.state_machine import Speaker

__all__ = [
    "CancelReceived",
    "Ended",
    "Ending",
    "EventReceived",
    "Noticed",
    "Opened",
    "PongReceived",
    "ProgressReceived",
    "RequestExpired",
    "RequestReceived",
    "ResponseReceived",
    "ResponseSpoilt",
    "SessionEvent",
]


class Opened(msgspec.Struct, frozen=True):
    """0x00 system.handshake: both sides agree."""

    version: int
    serializer: str
    """As the handshake named it: empty if the client left it to the server (YAMP-5)."""


class EventReceived(msgspec.Struct, frozen=True):
    """0x05 event: parsed; no body is None (YAMP-31)."""

    uri: str
    body: Any
    uid: bytes
    size: int = 0
    """Bytes of the body as it came."""


class RequestReceived(msgspec.Struct, frozen=True):
    """0x06 request: the peer asks; answer with one of the session's `respond` functions."""

    uid: bytes
    uri: str
    body: Any
    progressive: bool
    size: int = 0


class CancelReceived(msgspec.Struct, frozen=True):
    """0x07 cancel: the peer takes a request back. Killed, it must not be answered any more (YAMP-34)."""

    request_uid: bytes
    kill: bool


class ProgressReceived(msgspec.Struct, frozen=True):
    """0x08 response: a step of a request of ours."""

    request_uid: bytes
    body: Any
    size: int = 0


class ResponseReceived(msgspec.Struct, frozen=True):
    """0x08 response: what became of a request of ours; done, error or cancelled (YAMP-30)."""

    request_uid: bytes
    response_type: int
    body: Any


class ResponseSpoilt(msgspec.Struct, frozen=True):
    """YAMP-44: a request of ours was answered with a body that the serializer refuses."""

    request_uid: bytes
    response_type: int
    raw: bytes
    detail: str


class RequestExpired(msgspec.Struct, frozen=True):
    """YAMP-41: no answer and no progress in time; a late answer will be ignored."""

    request_uid: bytes


class PongReceived(msgspec.Struct, frozen=True):
    """0x02 system.pong: the answer to our ping."""

    payload: bytes


class Noticed(msgspec.Struct, frozen=True):
    """A rule was broken that is tolerated."""

    fault: Fault
    detail: str = ""


class Ending(Enum):
    """The ways a session ends."""

    CLOSE = "close"
    REDIRECT = "redirect"
    CLOSED = "closed"


class Ended(msgspec.Struct, frozen=True):
    """0x03 system.close: the session is over; `by` said the last word, `fault` is the rule that was broken, if one was."""

    how: Ending
    by: Speaker
    here: bool
    """The last word was ours."""
    fault: Fault | None = None
    detail: str = ""
    """The reason that was given, or the url of a redirect, or what was seen."""

    def reason(self) -> WirelakeError:
        """The error that fails whatever was still pending (YAMP-49)."""
        if self.here and self.fault is not None:
            return RemoteProtocolError(self.fault, self.detail)
        if self.how is Ending.CLOSED and not self.here:
            return ConnectionLost(f"the connection was lost: {self.fault.text if self.fault else self.detail}")
        who = "this side" if self.here else "the peer"
        if self.how is Ending.REDIRECT:
            return Redirected(self.detail, f"{who} redirected to {self.detail}")
        return SessionClosed(f"{who} closed the session{': ' + self.detail if self.detail else ''}")


SessionEvent = (
    Opened
    | EventReceived
    | RequestReceived
    | CancelReceived
    | ProgressReceived
    | ResponseReceived
    | ResponseSpoilt
    | RequestExpired
    | PongReceived
    | Noticed
    | Ended
)
