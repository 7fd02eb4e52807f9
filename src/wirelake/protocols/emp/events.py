"""Events of an EMP session: frozen values."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from wirelake.errors import PeerError, WirelakeError
from wirelake.protocols.emp.faults import OURS, Fault
from wirelake.protocols.emp.messages import Error, MessageType, OtherExtension
from wirelake.protocols.ending import BaseEnded, Ending

__all__ = ["DataReceived", "Ended", "Ending", "Noticed", "Opened", "RequestExpired", "RequestReceived", "ResponseReceived", "SessionEvent"]


class Opened(msgspec.Struct, frozen=True):
    """Handshake: both peers sent a hello."""

    version: int


class DataReceived(msgspec.Struct, frozen=True):
    """Data: a body, unpacked; `type_id` is 5, or the application's own type."""

    body: bytes
    type_id: int = MessageType.DATA
    extensions: tuple[OtherExtension, ...] = ()


class RequestReceived(msgspec.Struct, frozen=True):
    """Request-response: the peer asks; answer with `respond(request_id, …)`."""

    request_id: int
    body: bytes
    type_id: int = MessageType.DATA
    extensions: tuple[OtherExtension, ...] = ()


class ResponseReceived(msgspec.Struct, frozen=True):
    """Request-response: the answer to a request of ours."""

    request_id: int
    body: bytes
    type_id: int = MessageType.DATA
    extensions: tuple[OtherExtension, ...] = ()


class RequestExpired(msgspec.Struct, frozen=True):
    """EMP-16: no answer in time; a late one will be swallowed."""

    request_id: int


class Noticed(msgspec.Struct, frozen=True):
    """A rule was broken that is tolerated."""

    fault: Fault


class Ended(BaseEnded[Fault], frozen=True):
    """Termination: the session is over."""

    error: Error | None = None
    """The error message that ended it, if there was one."""

    LOCAL_FAULTS: ClassVar = OURS

    def reason(self) -> WirelakeError:
        """The error that pending calls fail with."""
        if self.error is not None and not self.here:
            return PeerError(self.error, f"the peer reported error {self.error.error_code}: {self.error.message or '(no text)'}")
        return super().reason()


SessionEvent = Opened | DataReceived | RequestReceived | ResponseReceived | RequestExpired | Noticed | Ended
