"""EMP messages: one frozen value per message and extension block, an enum for every code.

Codes that no enum names are kept as integers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

__all__ = [
    "APPLICATION_FIRST",
    "DEFAULT_PORT",
    "TYPES",
    "VERSION",
    "Application",
    "Bye",
    "Compression",
    "Data",
    "Error",
    "ErrorCode",
    "Extension",
    "ExtensionId",
    "Hello",
    "Message",
    "MessageType",
    "OtherExtension",
    "Ping",
    "Pong",
    "RequestResponse",
    "Scheme",
    "name_of",
]

VERSION: Final = 1
"""Hello: the current version of the protocol."""
DEFAULT_PORT: Final = 5040
"""EMP-42: the port, with and without TLS."""
APPLICATION_FIRST: Final = 128
"""EMP-4, EMP-44: types, error codes and extension ids from here on belong to the application."""


class MessageType(IntEnum):
    """Message types: the identifiers the specification defines."""

    HELLO = 0
    BYE = 1
    PING = 2
    PONG = 3
    ERROR = 4
    DATA = 5


class ErrorCode(IntEnum):
    """Error: the codes the specification defines (EMP-3: an extension error is 4)."""

    UNSPECIFIED = 0
    IO = 1
    """EMP-45: accepted, and never sent here."""
    TIMEOUT = 2
    PROTOCOL = 3
    EXTENSION = 4


class ExtensionId(IntEnum):
    """Extensions: EMP-4 gives the two of the specification their numbers."""

    REQUEST_RESPONSE = 0
    COMPRESSION = 1


class Scheme(IntEnum):
    """Compression: how a body is packed."""

    IDENTITY = 0
    GZIP = 1


class RequestResponse(msgspec.Struct, frozen=True, gc=False, tag="request-response"):
    """Extensions, request-response: this message is a request, or the response to one."""

    request: bool
    request_id: int


class Compression(msgspec.Struct, frozen=True, gc=False, tag="compression"):
    """Extensions, compression: how the body of this message is packed."""

    scheme: int


class OtherExtension(msgspec.Struct, frozen=True, gc=False, tag="other"):
    """Extensions: a block of an extension the specification does not define, as it came."""

    id: int
    content: bytes


Extension = RequestResponse | Compression | OtherExtension


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Hello: the highest version its sender supports."""

    version: int = VERSION
    extensions: tuple[Extension, ...] = ()


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """Bye: its sender closes the connection, and nothing went wrong."""

    extensions: tuple[Extension, ...] = ()


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Ping: asks for a pong."""

    extensions: tuple[Extension, ...] = ()


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """Pong: answers a ping."""

    extensions: tuple[Extension, ...] = ()


class Error(msgspec.Struct, frozen=True, tag="error"):
    """Error: its sender met an error and closes the connection."""

    error_code: int
    """EMP-23: any number is accepted."""
    extension_id: int = 0
    extension_error_code: int = 0
    message: str = ""
    extensions: tuple[Extension, ...] = ()


class Data(msgspec.Struct, frozen=True, tag="data"):
    """Data of applications; `body` is as on the wire, packed if a compression block says so."""

    body: bytes = b""
    extensions: tuple[Extension, ...] = ()


class Application(msgspec.Struct, frozen=True, tag="application"):
    """Message types: one the application introduced (EMP-44: 128 to 255)."""

    type_id: int
    body: bytes = b""
    extensions: tuple[Extension, ...] = ()


Message = Hello | Bye | Ping | Pong | Error | Data | Application

TYPES: Final[dict[type[Message], MessageType]] = {
    Hello: MessageType.HELLO,
    Bye: MessageType.BYE,
    Ping: MessageType.PING,
    Pong: MessageType.PONG,
    Error: MessageType.ERROR,
    Data: MessageType.DATA,
}
"""The number of each message but the application's own, which carry theirs."""


def name_of(message: type[Message]) -> str:
    """The name of a message in the specification."""
    return str(message.__struct_config__.tag)
