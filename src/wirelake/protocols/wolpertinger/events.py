"""Events of a wolpertinger session for its owner: frozen, and complete when they are made."""

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
    """Connection Timeouts, RemoteError: why a call of ours failed."""

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
    """Connection Timeouts: a call of ours without a response was delivered.

    An error may still follow, as an ErrorReceived.
    """

    call_id: str


class CallFailed(msgspec.Struct, frozen=True):
    """A call of ours failed; `code` is that of the RemoteError or of the result, if there was one."""

    call_id: str
    why: Failure
    code: int | None = None
    component: str = ""
    """RemoteError: the component that caused it."""

    @property
    def text(self) -> str:
        """The reason as text."""
        if self.code is None:
            return self.why.value
        name = error_name(self.code) if self.why is Failure.ERROR else None
        return f"{self.why.value} ({self.code}{' ' + name if name else ''})"


class CallReceived(msgspec.Struct, frozen=True):
    """RemoteMethodCall: a call of the peer that is allowed.

    Component and method are spelled as they were declared.
    """

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
        """WOLP-15: the name of the code in the schema."""
        return error_name(self.code)


class TrustChanged(msgspec.Struct, frozen=True):
    """WOLP-22: the trust level of the peer here, and ours there."""

    granted: int
    held: int


class KeysAgreed(msgspec.Struct, frozen=True):
    """WOLP-24: everything is encrypted with these keys from now on; for a key log."""

    keys: Keys


class TrustAwarded(msgspec.Struct, frozen=True):
    """WOLP-27: the trust level that the peer announced; it has no effect."""

    level: int


class Step(Enum):
    """The steps of authentication."""

    ESTABLISH = "EstablishConnection"
    KEYS = "KeyExchange"
    CLUSTER = "ClusterAuthVerify"
    CLUSTER_BACK = "ClusterAuthRequestVerification"
    USER = "UserAuthVerify"


class Authenticated(msgspec.Struct, frozen=True):
    """The trust level that `authenticate` asked for is reached."""

    level: int


class AuthenticationFailed(msgspec.Struct, frozen=True):
    """A step towards the requested trust failed.

    `code` is that of a RemoteError or result, if there was one.
    """

    step: Step
    fault: Fault
    why: Failure | None = None
    code: int | None = None


class WasReset(msgspec.Struct, frozen=True):
    """WOLP-28: levels, keys, fragments and calls are gone; open calls of the peer need no answer any more."""

    here: bool
    """It was our decision."""
    fault: Fault | None = None


class PeerUnavailable(msgspec.Struct, frozen=True):
    """WOLP-10: a message was not confirmed, however often it was sent."""


class Noticed(msgspec.Struct, frozen=True):
    """A rule was broken, and the session goes on."""

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
