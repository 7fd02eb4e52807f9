"""Event Mesh messages: one frozen value per message and field, an enum for every code.

A message keeps its fields as on the wire, in order and in pieces; `packet/values.py` joins them. Codes that no enum names are kept as
integers.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

import msgspec

__all__ = [
    "CLOCK_SKEW_ALLOWANCE",
    "DEFAULT_PORT",
    "HEADER",
    "LONGEST_FIELD",
    "MAX_PACKET_SIZE",
    "MAX_PAYLOAD_SIZE",
    "MAX_TLV_COUNT",
    "REPLAY_WINDOW",
    "TAIL",
    "TYPES",
    "VERSION",
    "Algorithm",
    "Event",
    "EventType",
    "Field",
    "FieldType",
    "Flag",
    "Heartbeat",
    "Hello",
    "Message",
    "Other",
    "SubType",
    "name_of",
]

VERSION: Final = 1
"""§2.2: the only valid version (EMM-2)."""
DEFAULT_PORT: Final = 5041
"""The specification names no port; this is ours."""
HEADER: Final = 17
"""§2.1: bytes before the payload."""
MAX_PACKET_SIZE: Final = 548
"""Variables: the payload that fits the smallest MTU."""
MAX_PAYLOAD_SIZE: Final = 531
"""Variables: a packet without its header (EMM-4)."""
MAX_TLV_COUNT: Final = 64
"""Variables: fields of a packet and their parts together (EMM-26)."""
REPLAY_WINDOW: Final = 300
"""Variables: seconds in which a message id may not come twice."""
CLOCK_SKEW_ALLOWANCE: Final = 120
"""Variables: seconds a clock may be ahead of ours."""
LONGEST_FIELD: Final = 255
"""§4: the most bytes of a field, whose length is one byte."""


class EventType(IntEnum):
    """§3: the event types the specification defines."""

    HELLO = 0x01
    HEARTBEAT = 0x02
    EVENT = 0x03


class Flag(IntFlag):
    """§2.3: the bits of the flags; the other five are reserved (EMM-3)."""

    URGENT = 0x01
    ENCRYPTED = 0x02
    COMPRESSED = 0x04


class FieldType(IntEnum):
    """§4.1, §4.2: the field types the specification defines."""

    STRING = 0x01
    INTEGER = 0x02
    FLOAT = 0x03
    BINARY = 0x04
    JSON = 0x05
    HMAC = 0x10
    ENCRYPTION = 0x11
    SIGNATURE = 0x12
    PUBLIC_KEY = 0x13
    NODE_ID = 0x14
    TIMESTAMP = 0x15
    NONCE = 0x16
    KEY_ID = 0x17
    AUTH_KEY_ID = 0x18


TAIL: Final = (FieldType.PUBLIC_KEY, FieldType.AUTH_KEY_ID, FieldType.HMAC, FieldType.SIGNATURE)
"""§6.1: the fields that come last, in this order; all others ascend before them (EMM-5)."""


class SubType(IntEnum):
    """§4.2.1: the fields inside encryption metadata."""

    ALGORITHM = 0x01
    LENGTH = 0x02
    IV = 0x03
    NONCE = 0x04
    KEY_ID = 0x05


class Algorithm(IntEnum):
    """§4.2.2: how a payload is encrypted."""

    AES_256_GCM = 0x01
    CHACHA20_POLY1305 = 0x02


class Field(msgspec.Struct, frozen=True, gc=False):
    """§4: one type-length-value field."""

    type: int
    value: bytes


class Hello(msgspec.Struct, frozen=True, gc=False, tag="hello"):
    """§3.1: discovery; a node's id and its capabilities."""

    message_id: int
    timestamp: int
    fields: tuple[Field, ...] = ()
    flags: int = 0


class Heartbeat(msgspec.Struct, frozen=True, gc=False, tag="heartbeat"):
    """§3.2: a node is alive."""

    message_id: int
    timestamp: int
    fields: tuple[Field, ...] = ()
    flags: int = 0


class Event(msgspec.Struct, frozen=True, gc=False, tag="event"):
    """§3.3: something happened; its name is the first string."""

    message_id: int
    timestamp: int
    fields: tuple[Field, ...] = ()
    flags: int = 0


class Other(msgspec.Struct, frozen=True, gc=False, tag="other"):
    """§3: an event type the specification does not define (EMM-21)."""

    event_type: int
    message_id: int
    timestamp: int
    fields: tuple[Field, ...] = ()
    flags: int = 0


Message = Hello | Heartbeat | Event | Other

TYPES: Final[dict[type[Message], EventType]] = {Hello: EventType.HELLO, Heartbeat: EventType.HEARTBEAT, Event: EventType.EVENT}
"""The number of each message but `Other`, which carries its own."""


def name_of(message: type[Message]) -> str:
    """The name of a message in the specification."""
    return str(message.__struct_config__.tag)
