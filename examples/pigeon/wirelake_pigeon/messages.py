"""The messages of PIGEON/1 as frozen values.

A frame is the letter P, a type (one byte), the size of the body (two bytes, big-endian), and the body.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

__all__ = ["DEFAULT_PORT", "TYPES", "VERSION", "Ack", "Bye", "Hello", "Kind", "Message", "Note"]

DEFAULT_PORT: Final = 5070
VERSION: Final = 1


class Kind(IntEnum):
    """§2.2: the types of frames."""

    HELLO = 1
    NOTE = 2
    ACK = 3
    BYE = 4


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """§3.1: opens a session, in both directions."""

    version: int = VERSION


class Note(msgspec.Struct, frozen=True, tag="note"):
    """§3.2: a text, to be acknowledged."""

    number: int
    text: str


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    """§3.2: the note of this number arrived."""

    number: int


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """§3.3: the last message of its sender."""


Message = Hello | Note | Ack | Bye
TYPES: Final[dict[type[Message], Kind]] = {Hello: Kind.HELLO, Note: Kind.NOTE, Ack: Kind.ACK, Bye: Kind.BYE}
