"""YAMP messages: one frozen value per message, an enum for every code.

Codes that no enum names are kept as integers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

__all__ = [
    "DEFAULT_PORT",
    "TYPES",
    "VERSION",
    "WRAPPINGS",
    "Cancel",
    "Close",
    "CloseRedirect",
    "Event",
    "Handshake",
    "Message",
    "MessageType",
    "Ping",
    "Pong",
    "Request",
    "Response",
    "ResponseType",
    "name_of",
]

VERSION: Final = 1
"""YAMP-2: version 1.0 is the number 1."""
DEFAULT_PORT: Final = None
"""YAMP-51: there is none; an address names its port."""

WRAPPINGS: Final = ("websocket",)
"""YAMP-14: carriers of its bytes."""


class MessageType(IntEnum):
    """Message: its first byte."""

    HANDSHAKE = 0
    PING = 1
    PONG = 2
    CLOSE = 3
    CLOSE_REDIRECT = 4
    EVENT = 5
    REQUEST = 6
    CANCEL = 7
    RESPONSE = 8


class ResponseType(IntEnum):
    """0x08 response: the outcome of a request."""

    DONE = 0
    ERROR = 1
    PROGRESS = 2
    CANCELLED = 3


class Handshake(msgspec.Struct, frozen=True, gc=False, tag="system.handshake"):
    """0x00 system.handshake: the version and the serializer its sender wants; the server's echo says yes."""

    version: int = VERSION
    serializer: str = "json"


class Ping(msgspec.Struct, frozen=True, gc=False, tag="system.ping"):
    """0x01 system.ping: asks for a pong with the same payload."""

    payload: bytes = b""


class Pong(msgspec.Struct, frozen=True, gc=False, tag="system.pong"):
    """0x02 system.pong: answers a ping."""

    payload: bytes = b""


class Close(msgspec.Struct, frozen=True, gc=False, tag="system.close"):
    """0x03 system.close: its sender is going to close the connection."""

    reason: str = ""


class CloseRedirect(msgspec.Struct, frozen=True, gc=False, tag="system.close-redirect"):
    """0x04 system.close-redirect (YAMP-23): the server closes, and wants the client to go to another url."""

    url: str


class Event(msgspec.Struct, frozen=True, gc=False, tag="event"):
    """0x05 event: it has no answer. `body` is as the serializer made it."""

    uid: bytes
    uri: str
    body: bytes = b""


class Request(msgspec.Struct, frozen=True, gc=False, tag="request"):
    """0x06 request: wants a response; a progressive one wants to hear of steps on the way."""

    uid: bytes
    uri: str
    progressive: bool = False
    body: bytes = b""


class Cancel(msgspec.Struct, frozen=True, gc=False, tag="cancel"):
    """0x07 cancel: asks to stop working on a request, gracefully or (`kill`) at once and without a word."""

    uid: bytes
    uri: str
    request_uid: bytes
    kill: bool = False


class Response(msgspec.Struct, frozen=True, gc=False, tag="response"):
    """0x08 response: a step or the outcome of a request."""

    uid: bytes
    uri: str
    request_uid: bytes
    response_type: int = ResponseType.DONE
    body: bytes = b""


Message = Handshake | Ping | Pong | Close | CloseRedirect | Event | Request | Cancel | Response

TYPES: Final[dict[type[Message], MessageType]] = {
    Handshake: MessageType.HANDSHAKE,
    Ping: MessageType.PING,
    Pong: MessageType.PONG,
    Close: MessageType.CLOSE,
    CloseRedirect: MessageType.CLOSE_REDIRECT,
    Event: MessageType.EVENT,
    Request: MessageType.REQUEST,
    Cancel: MessageType.CANCEL,
    Response: MessageType.RESPONSE,
}
"""The number of each message."""


def name_of(message: type[Message]) -> str:
    """The name of a message in the specification."""
    return str(message.__struct_config__.tag)
