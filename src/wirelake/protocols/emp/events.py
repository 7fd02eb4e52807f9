"""What a session of EMP tells its owner: frozen events, complete when they are made.

It refuses to know how they come about.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from wirelake.errors import ConnectionLost, LocalProtocolError, PeerError, RemoteProtocolError, SessionClosed, WirelakeError
from wirelake.protocols.emp.faults import OURS, Fault
from wirelake.protocols.emp.messages import Error, MessageType, OtherExtension
from wirelake.protocols.emp.state_machine import Speaker

__all__ = ["DataReceived", "Ended", "Ending", "Event", "Noticed", "Opened", "RequestExpired", "RequestReceived", "ResponseReceived"]


class Opened(msgspec.Struct, frozen=True):
    """Handshake: both peers said hello."""

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


class Ending(Enum):
    """Termination: the ways a session ends."""

    BYE = "bye"
    ERROR = "error"
    CLOSED = "closed"


class Ended(msgspec.Struct, frozen=True):
    """Termination: the session is over; `by` said the last word, `fault` is the rule that was broken, if one was."""

    how: Ending
    by: Speaker
    here: bool
    """The last word was ours."""
    fault: Fault | None = None
    error: Error | None = None
    detail: str = ""

    def reason(self) -> WirelakeError:
        """The error that fails whatever was still pending."""
        if self.here and self.fault is not None:
            blamed = LocalProtocolError if self.fault in OURS else RemoteProtocolError
            return blamed(self.fault, self.detail)
        if self.error is not None and not self.here:
            return PeerError(self.error, f"the peer reported error {self.error.error_code}: {self.error.message or '(no text)'}")
        if self.how is Ending.CLOSED and not self.here:
            return ConnectionLost(f"the connection was lost: {self.fault.text if self.fault else self.detail}")
        who = "this side" if self.here else "the peer"
        return SessionClosed(f"{who} closed the session{': ' + self.detail if self.detail else ''}")


Event = Opened | DataReceived | RequestReceived | ResponseReceived | RequestExpired | Noticed | Ended
