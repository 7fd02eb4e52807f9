"""Everything wirelake raises, in one tree: blame is a type, cause is an enum, place is data.

```
WirelakeError
├── ProtocolError              somebody broke a specification: carries `fault`, `clause`
│   ├── LocalProtocolError     … it was us: a bug in the calling code
│   └── RemoteProtocolError    … it was the peer
│       └── DecodeError        … in the bytes themselves: carries `offset`
├── SessionClosed              the conversation is over; nobody broke anything
│   ├── ConnectionLost         … it ended without a word
│   └── Redirected             … the peer named another address: carries `url`
├── PeerError                  the peer ended the conversation with an error of its own
├── RequestTimeout             the peer did not answer in time
├── DeliveryFailed             a message did not arrive, or nobody knows: carries `outcome`
├── RequestFailed              the peer answered with an error: carries its `body`
├── RequestCancelled           a request was taken back before it was answered
├── ConnectFailed              no connection, or no finished handshake
├── CaptureError               a file is not the capture it claims to be
│   └── SourceChanged          … it is gone, unreadable, or not what it was when it was identified
├── InputMissing               a file or folder that was named is not there, or cannot be opened
│   ├── CapturesMissing        … there are no captures to ingest; a LakeError, too
│   └── LakeMissing            … there is no lake in the folder; a LakeError, too
├── LakeError                  a lake cannot be read, written or started
│   ├── QueryError             … SQL that cannot be answered
│   └── StateError             … stored decoder state is damaged: carries `reason`
└── UsageError                 a command was called the wrong way
    └── MissingExtra           … a library is not installed: carries `library` and `extra`
```

It refuses to know what any particular fault means: each protocol's `faults.py` does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

__all__ = [
    "CaptureError",
    "CapturesMissing",
    "ConnectFailed",
    "ConnectionLost",
    "DecodeError",
    "DeliveryFailed",
    "ErrorCode",
    "FaultLike",
    "InputMissing",
    "LakeError",
    "LakeMissing",
    "LocalProtocolError",
    "MissingExtra",
    "PeerError",
    "ProtocolError",
    "QueryError",
    "Redirected",
    "RemoteProtocolError",
    "RequestCancelled",
    "RequestFailed",
    "RequestTimeout",
    "SessionClosed",
    "SourceChanged",
    "StateError",
    "UsageError",
    "WirelakeError",
]


class FaultLike(Protocol):
    """What an error needs of a room's fault: its name, its clause, and one plain sentence."""

    @property
    def name(self) -> str: ...
    @property
    def clause(self) -> str: ...
    @property
    def text(self) -> str: ...


class ErrorCode(StrEnum):
    """Stable codes for programs. The wording of an error may change; its code does not."""

    OTHER = "WL-ERROR"
    """Any error without a code of its own."""
    SOURCE_CHANGED = "WL-SOURCE-CHANGED"
    """A source is gone, unreadable, or not what it was when it was identified."""
    NEEDS_SHUFFLE = "WL-NEEDS-SHUFFLE"
    """A source has connections that must be partitioned by connection before they are decoded."""
    DECODER_FAILED = "WL-DECODER-FAILED"
    """A source cannot be decoded because of a bug in a decoder."""


class WirelakeError(Exception):
    """The root: catching it catches all of ours and nothing else. `code` is for programs, the text for people."""

    code: ErrorCode = ErrorCode.OTHER


class ProtocolError(WirelakeError):
    """Somebody broke a specification; `fault` says which rule, `detail` what was seen."""

    def __init__(self, fault: FaultLike, detail: str = "") -> None:
        self.fault = fault
        self.detail = detail
        super().__init__(fault, detail)

    @property
    def clause(self) -> str:
        """The clause or ruling that was broken."""
        return self.fault.clause

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.clause}: {self.fault.text}{detail} ({self.fault.name})"


class LocalProtocolError(ProtocolError):
    """The calling code asked for something the specification forbids."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the specification, or went beyond a ruling or a limit of this side: `fault.origin` says which."""


class DecodeError(RemoteProtocolError):
    """Bytes that cannot be read as a message; `offset` is the first byte that is wrong."""

    def __init__(self, fault: FaultLike, offset: int, detail: str = "") -> None:
        super().__init__(fault, detail)
        self.offset = offset
        self.args = (fault, offset, detail)

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.clause}: {self.fault.text} at byte {self.offset}{detail} ({self.fault.name})"


class SessionClosed(WirelakeError):
    """The conversation is over and nobody broke anything; the text says how it ended."""


class ConnectionLost(SessionClosed):
    """The connection ended without the word a parting peer says."""


class Redirected(SessionClosed):
    """The peer ended the conversation and named another address to go to; `url` is that."""

    def __init__(self, url: str, text: str) -> None:
        self.url = url
        super().__init__(text)


class PeerError(WirelakeError):
    """The peer ended the conversation with an error message; `message` is that message."""

    def __init__(self, message: object, text: str) -> None:
        self.message = message
        super().__init__(text)


class RequestTimeout(WirelakeError):
    """The peer did not answer a request in time; the connection lives on."""


class DeliveryFailed(WirelakeError):
    """A message was not delivered, or nobody knows whether it was; `outcome` is what is known."""

    def __init__(self, outcome: object, text: str) -> None:
        self.outcome = outcome
        super().__init__(outcome, text)

    def __str__(self) -> str:
        return str(self.args[1])


class RequestFailed(WirelakeError):
    """A request was answered with an error; `body` is what was said. Raised by a handler, it is the answer. The connection lives on."""

    def __init__(self, body: object, text: str = "") -> None:
        self.body = body
        super().__init__(text or f"the request failed: {body!r}")


class RequestCancelled(WirelakeError):
    """A request was taken back before it was answered; the connection lives on."""


class ConnectFailed(WirelakeError):
    """No connection could be made, or the handshake did not finish."""


class CaptureError(WirelakeError):
    """A file is not the capture it claims to be; `path` and `offset` say where."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        self.path = path
        self.offset = offset
        self.reason = reason
        super().__init__(path, offset, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} at byte {self.offset}"


class SourceChanged(CaptureError):
    """A source is gone, cannot be read, or is not what it was when it was identified."""

    code = ErrorCode.SOURCE_CHANGED


class InputMissing(WirelakeError):
    """A file or folder that was named as input is not there, or cannot be opened."""


class LakeError(WirelakeError):
    """A lake cannot be read, written or started; the text says what to do."""


class CapturesMissing(LakeError, InputMissing):
    """What was named to be ingested is not there, or holds no captures."""


class LakeMissing(LakeError, InputMissing):
    """There is no lake in the folder that was named."""


class QueryError(LakeError):
    """SQL that cannot be answered: it is wrong, does not only read, or fails on a row."""


class StateError(LakeError):
    """Decoder state that was stored in a lake is damaged, or is none; `reason` says what is wrong with it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class UsageError(WirelakeError):
    """A command was called the wrong way; the text says what would be right."""


class MissingExtra(UsageError):
    """An optional library is not installed; `extra` of this package installs it."""

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        self.extra = extra
        super().__init__(library, extra)

    def __str__(self) -> str:
        return f"{self.library} is not installed: run `pip install 'wirelake[{self.extra}]'`"
