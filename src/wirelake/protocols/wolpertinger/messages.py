"""Messages of wolpertinger: texts of layer 1, documents of layer 2, enums for codes.

The documents are in `layer2/calls.py`. Codes that no enum names survive as integers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, ErrorCode, Response

__all__ = [
    "DEFAULT_PORT",
    "HIGHEST_ID",
    "HIGHEST_SENT_ID",
    "WRAPPINGS",
    "Call",
    "Encryption",
    "Envelope",
    "Error",
    "ErrorCode",
    "Message",
    "Response",
    "Result",
    "ResultCode",
    "TextKind",
    "name_of",
]

DEFAULT_PORT: Final = None
"""WOLP-11: lines over a byte stream have none; an address names its port."""
WRAPPINGS: Final = ("xmpp",)
"""WOLP-11: streams that texts may be the bodies of messages in."""
HIGHEST_ID: Final = 0xFFFFFFFF
"""WOLP-3: the largest message_id that is accepted."""
HIGHEST_SENT_ID: Final = 0x7FFFFFFF
"""WOLP-3: the largest message_id that is sent; after it comes 1."""


class TextKind(IntEnum):
    """Layer 1: the kinds of text, by their metadata."""

    MESSAGE = 0
    FRAGMENT = 1
    RESULT = 2


class ResultCode(IntEnum):
    """WOLP-4: the outcome of a message in layer 1."""

    SUCCESS = 0
    TIMEOUT = 1
    UNKNOWN_ERROR = 2
    SPLITTING_ERROR = 3
    ENCRYPTION_ERROR = 4
    INVALID_FORMAT = 5


class Encryption(IntEnum):
    """Encryption: whether and how a payload is encrypted, and which metadata key says so (WOLP-5)."""

    NONE = 0
    AES = 1
    SECURE_AES = 2
    UNKNOWN = 3


class Envelope(msgspec.Struct, frozen=True, gc=False, tag="message"):
    """Transmission layer: a message, or a fragment of one.

    `payload` is base64 as on the wire, blanks included.
    """

    message_id: int
    payload: bytes = b""
    gzip: int | None = None
    encryption: Encryption = Encryption.NONE
    fragment_index: int | None = None
    fragment_count: int | None = None


class Result(msgspec.Struct, frozen=True, gc=False, tag="result"):
    """Message Id and Delivery Confirmation: the outcome of the message with this id."""

    code: int
    message_id: int


Message = Envelope | Result


def name_of(message: type[Message]) -> str:
    """The name of a kind of text."""
    return str(message.__struct_config__.tag)
