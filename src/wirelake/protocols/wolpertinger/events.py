"""What a session of wolpertinger tells its owner: frozen events, complete when they are made.

It refuses to know how they come about.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from wirelake.protocols.ending import BaseEnded, Ending
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import error_name
from wirelake.protocols.wolpertinger.layer2.values import Value
from wirelake.protocols.wolpertinger.wire import Keys

__all__ = [
    "Authenticated",
    "AuthenticationFailed",
    "CallDone",
    "CallFailed",
    "CallReceived",
    "CallReturned",
    "Ended",
    "Ending",
    "ErrorReceived",
    "Failure",
    "KeysAgreed",
    "Noticed",
    "PeerUnavailable",
    "SessionEvent",
    "Step",
    "TrustAwarded",
    "TrustChanged",
    "WasReset",
]


class Failure(Enum):
    """Connection Timeouts, RemoteError: why a call of ours came to nothing."""

    ERROR = "the peer answered with an error"
    TIMEOUT = "no response in time"
    REFUSED = "the peer could not read the message"
    UNDELIVERED = "the message was not confirmed"
    UNREADABLE = "the response cannot be read"
    RESET = "the connection was reset"
    ENDED = "the session ended"


class CallReturned(msgspec.Struct, frozen=True):
    """RemoteMethodResponse: a call of ours was answered; None is null (WOLP-19)."""

    call_id: str
    value: Value | None


class CallDone(msgspec.Struct, frozen=True):
    """Connection Timeouts: a call of ours without a response was delivered; an error may still follow, as an ErrorReceived."""

    call_id: str


class CallFailed(msgspec.Struct, frozen=True):
    """A call of ours came to nothing; `code` is that of the RemoteError or of the result, if there was one."""

    call_id: str
    why: Failure
    code: int | None = None
    component: str = ""
    """RemoteError: the component that caused it."""

    @property
    def text(self) -> str:
        """The same for people."""
        if self.code is None:
            return self.why.value
        name = error_name(self.code) if self.why is Failure.ERROR else None
        return f"{self.why.value} ({self.code}{' ' + name if name else ''})"


class CallReceived(msgspec.Struct, frozen=True):
    """RemoteMethodCall: the peer may call this, and does; component and method are spelled as they were declared."""

    call_id: str
    component: str
    method: str
    parameters: tuple[Value, ...]
    returns: bool
    size: int = 0
    """Bytes of the document."""


class ErrorReceived(msgspec.Struct, frozen=True):
    """RemoteError: an error that fails no call of ours that waits."""

    component: str
    code: int
    call_id: str | None = None

    @property
    def name(self) -> str | None:
        """WOLP-15: what the schema calls the code."""
        return error_name(self.code)


class TrustChanged(msgspec.Struct, frozen=True):
    """WOLP-22: what the peer may do here, and what we may do there."""

    granted: int
    held: int


class KeysAgreed(msgspec.Struct, frozen=True):
    """WOLP-24: everything is encrypted with these from now on; for whoever keeps a key log."""

    keys: Keys


class TrustAwarded(msgspec.Struct, frozen=True):
    """WOLP-27: what the peer says that it trusts us with; nothing follows from it."""

    level: int


class Step(Enum):
    """How trust is gained."""

    ESTABLISH = "EstablishConnection"
    KEYS = "KeyExchange"
    CLUSTER = "ClusterAuthVerify"
    CLUSTER_BACK = "ClusterAuthRequestVerification"
    USER = "UserAuthVerify"


class Authenticated(msgspec.Struct, frozen=True):
    """The trust that was asked for with `authenticate` is there."""

    level: int


class AuthenticationFailed(msgspec.Struct, frozen=True):
    """A step towards the trust that was asked for failed; `code` is that of a RemoteError or result, if there was one."""

    step: Step
    fault: Fault
    why: Failure | None = None
    code: int | None = None


class WasReset(msgspec.Struct, frozen=True):
    """WOLP-28: levels, keys, fragments and calls are gone; calls of the peer that are at work need no answer any more."""

    here: bool
    """It was our decision."""
    fault: Fault | None = None


class PeerUnavailable(msgspec.Struct, frozen=True):
    """WOLP-10: a message was not confirmed, however often it was sent."""


class Noticed(msgspec.Struct, frozen=True):
    """A rule was broken, and the conversation goes on."""

    fault: Fault
    detail: str = ""


class Ended(BaseEnded[Fault], frozen=True):
    """The session is over."""


SessionEvent = (
    CallReturned
    | CallDone
    | CallFailed
    | CallReceived
    | ErrorReceived
    | TrustChanged
    | KeysAgreed
    | TrustAwarded
    | Authenticated
    | AuthenticationFailed
    | WasReset
    | PeerUnavailable
    | Noticed
    | Ended
)
