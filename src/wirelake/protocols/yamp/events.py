"""Events of a YAMP session: frozen values."""

from __future__ import annotations

from typing import Any

import msgspec

from wirelake.errors import Redirected, WirelakeError
from wirelake.protocols.ending import BaseEnded, Ending
from wirelake.protocols.yamp.faults import Fault

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
    "ResponseUnreadable",
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
    memory: int = 0
    """Bytes of memory that it takes, about, if that was found when it was parsed: for large ones."""


class RequestReceived(msgspec.Struct, frozen=True):
    """0x06 request: the peer asks; answer with one of the session's `respond` functions."""

    uid: bytes
    uri: str
    body: Any
    progressive: bool
    size: int = 0
    memory: int = 0


class CancelReceived(msgspec.Struct, frozen=True):
    """0x07 cancel: the peer takes a request back. Killed, it must not be answered any more (YAMP-34)."""

    request_uid: bytes
    kill: bool


class ProgressReceived(msgspec.Struct, frozen=True):
    """0x08 response: a step of a request of ours."""

    request_uid: bytes
    body: Any
    size: int = 0
    memory: int = 0


class ResponseReceived(msgspec.Struct, frozen=True):
    """0x08 response: the outcome of a request of ours; done, error or cancelled (YAMP-30)."""

    request_uid: bytes
    response_type: int
    body: Any


class ResponseUnreadable(msgspec.Struct, frozen=True):
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


class Ended(BaseEnded[Fault], frozen=True):
    """0x03 system.close: the session is over. `detail` is the reason, or the url of a redirect."""

    def reason(self) -> WirelakeError:
        """The error that pending calls fail with (YAMP-49)."""
        if self.how is Ending.REDIRECT:
            return Redirected(self.detail, f"{self.actor} redirected to {self.detail}")
        return super().reason()


SessionEvent = (
    Opened
    | EventReceived
    | RequestReceived
    | CancelReceived
    | ProgressReceived
    | ResponseReceived
    | ResponseUnreadable
    | RequestExpired
    | PongReceived
    | Noticed
    | Ended
)
