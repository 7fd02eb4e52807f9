"""All errors that wirelake raises, as one tree of types.

```
WirelakeError
├── ProtocolError              a specification was broken: carries `fault`, `clause`
│   ├── LocalProtocolError     … by the calling code
│   └── RemoteProtocolError    … by the peer
│       └── DecodeError        … in the bytes themselves: carries `offset`
├── SessionClosed              the session is over, and no rule was broken
│   ├── ConnectionLost         … it ended without a closing message; a ConnectionError, too
│   └── Redirected             … the peer named another address: carries `url`
├── PeerError                  the peer ended the session with an error message
├── RequestTimeout             no answer in time; a TimeoutError, too
├── DeliveryFailed             a message was not delivered, or that is unknown: carries `outcome`
├── RequestFailed              the peer answered with an error: carries its `body`
├── RequestCancelled           a request was cancelled before it was answered
├── ConnectFailed              no connection, or no complete handshake; an OSError, too
├── CaptureError               a file is not a valid capture
│   └── SourceChanged          … it is gone, unreadable, or not what it was when it was identified
├── InputMissing               an input file or folder does not exist, or cannot be opened
│   ├── CapturesMissing        … there are no captures to ingest; a LakeError, too
│   └── LakeMissing            … there is no lake in the folder; a LakeError, too
├── LakeError                  a lake cannot be read, written or started
│   ├── QueryError             … SQL that cannot be answered
│   ├── StateError             … stored decoder state is damaged: carries `reason`
│   └── TableFeature           … a table has features of Delta Lake that are not honoured: carries `features`
└── UsageError                 a wrong argument or option; a ValueError, too
    └── MissingExtra           … a library is not installed: carries `library` and `extra`
```

Four of them are built-in errors as well, so that `except TimeoutError` or `except OSError` works as elsewhere in Python.
`TimeoutError` and `ConnectionError` are kinds of `OSError`: catch ours before a plain `OSError`.
What a fault means is in the `faults.py` of its protocol.
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
    "TableFeature",
    "UsageError",
    "WirelakeError",
]


class FaultLike(Protocol):
    """The part of a protocol's fault that errors use: name, clause and one sentence."""

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
    TABLE_FEATURE = "WL-TABLE-FEATURE"
    """Another program turned on a feature of Delta Lake, such as deletion vectors: answers without it would be wrong."""
    DISK_FULL = "WL-DISK-FULL"
    """No space is left on a disk that is written to."""


class WirelakeError(Exception):
    """The base of all errors of wirelake. `code` is for programs, the text for people."""

    code: ErrorCode = ErrorCode.OTHER


class ProtocolError(WirelakeError):
    """A specification was broken: `fault` is the rule, `detail` the value that broke it."""

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
    """The peer broke the specification, a ruling or a limit of this side; `fault.origin` says which."""


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
    """The session is over and no rule was broken; the text says how it ended."""


class ConnectionLost(SessionClosed, ConnectionError):
    """The connection ended without a closing message of the protocol."""


class Redirected(SessionClosed):
    """The peer closed the session and named another address: `url`."""

    def __init__(self, url: str, text: str) -> None:
        self.url = url
        super().__init__(url, text)

    def __str__(self) -> str:
        return str(self.args[1])


class PeerError(WirelakeError):
    """The peer ended the session with an error message: `message`."""

    def __init__(self, message: object, text: str) -> None:
        self.message = message
        super().__init__(message, text)

    def __str__(self) -> str:
        return str(self.args[1])


class RequestTimeout(WirelakeError, TimeoutError):
    """The peer did not answer in time; the connection stays open, unless the peer has been silent for too long."""


class DeliveryFailed(WirelakeError):
    """A message was not delivered, or that is unknown; `outcome` says which."""

    def __init__(self, outcome: object, text: str) -> None:
        self.outcome = outcome
        super().__init__(outcome, text)

    def __str__(self) -> str:
        return str(self.args[1])


class RequestFailed(WirelakeError):
    """A request was answered with an error, whose content is `body`; the connection stays open.

    A handler that raises it answers with this error.
    """

    def __init__(self, body: object, text: str = "") -> None:
        self.body = body
        super().__init__(body, text or f"the request failed: {body!r}")

    def __str__(self) -> str:
        return str(self.args[1])


class RequestCancelled(WirelakeError):
    """A request was cancelled before it was answered; the connection stays open."""


class ConnectFailed(WirelakeError, OSError):
    """No connection could be made, or the handshake did not finish."""


class CaptureError(WirelakeError):
    """A file is not a valid capture; `path` and `offset` say where."""

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
    """An input file or folder does not exist, or cannot be opened."""


class LakeError(WirelakeError):
    """A lake cannot be read, written or started; the text says what to do."""


class CapturesMissing(LakeError, InputMissing):
    """The paths to ingest do not exist, or hold no captures."""


class LakeMissing(LakeError, InputMissing):
    """There is no lake in the given folder."""


class QueryError(LakeError):
    """SQL that cannot be answered: it is wrong, does not only read, or fails on a row."""


class StateError(LakeError):
    """Decoder state stored in a lake is damaged; `reason` says how."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TableFeature(LakeError):
    """A `table` has `features` of Delta Lake that are not honoured: answers would be wrong."""

    code = ErrorCode.TABLE_FEATURE

    def __init__(self, table: str, features: tuple[str, ...]) -> None:
        self.table = table
        self.features = features
        super().__init__(table, features)

    def __str__(self) -> str:
        return (
            f"table {self.table} has a feature of Delta Lake that wirelake does not honour: {', '.join(self.features)}. Turn it off again "
            f"(Spark: ALTER TABLE … DROP FEATURE {self.features[0]}), or ingest the sources into a new lake"
        )


class UsageError(WirelakeError, ValueError):
    """A wrong argument or option; the text says what to write instead."""


class MissingExtra(UsageError):
    """An optional library is not installed; `extra` of this package installs it."""

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        self.extra = extra
        super().__init__(library, extra)

    def __str__(self) -> str:
        return f"{self.library} is not installed: run `pip install 'wirelake[{self.extra}]'`"
