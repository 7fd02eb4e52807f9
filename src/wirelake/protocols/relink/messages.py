"""Messages of Relink: a frozen value per handshake part and packet type, enums for codes.

An operation or acknowledgement without a sequence number is the channel packet of the specification, with one it is the sequence packet.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

import msgspec

__all__ = [
    "DEFAULT_PORT",
    "LAST_LINK_ID",
    "LAST_SEQUENCE",
    "TYPES",
    "VERSION",
    "Acknowledgement",
    "AnyMessage",
    "Close",
    "Closed",
    "Commit",
    "Committed",
    "Consumed",
    "Format",
    "Handshake",
    "HandshakeFlag",
    "Kind",
    "Message",
    "Nop",
    "Operation",
    "Packet",
    "Ping",
    "Pong",
    "Received",
    "Reply",
    "Request",
    "Resume",
    "Rollback",
    "Shutdown",
    "Uncommitted",
    "Version",
    "name_of",
]

VERSION: Final = 0
"""§1: the only version there is."""
DEFAULT_PORT: Final = None
"""The specification names no port: an address has to."""
LAST_LINK_ID: Final = (1 << 63) - 1
"""§1, RELINK-8: the largest link id."""
LAST_SEQUENCE: Final = (1 << 32) - 1
"""§3.1: the sequence number after which 0 comes again.

Before any message it means nothing (RELINK-15).
"""


class Kind(IntEnum):
    """§2: packet types.

    General ones as on the wire, operations from 8 on, acknowledgements from 16 on; then the handshake.
    """

    NOP = 0
    PING = 1
    PONG = 2
    RESUME = 3
    SHUTDOWN = 4
    COMMIT = 8
    ROLLBACK = 9
    CLOSE = 10
    RECEIVED = 16
    CONSUMED = 17
    COMMITTED = 18
    UNCOMMITTED = 19
    CLOSED = 20
    MESSAGE = 24
    VERSION = 32
    REQUEST = 33
    REPLY = 34


class Format(IntEnum):
    """§2.1: the channel packet formats; an odd one is about the receiver's channels (RELINK-7)."""

    CHANNEL_OPERATION = 0
    CHANNEL_ACKNOWLEDGEMENT = 1
    SEQUENCE_OPERATION = 2
    SEQUENCE_ACKNOWLEDGEMENT = 3
    MESSAGE = 4


class HandshakeFlag(IntFlag):
    """§1: handshake flags."""

    CONNECTOR_TRANSACTIONS = 1
    LISTENER_TRANSACTIONS = 2
    REQUIRE_OLD_LINK = 4


class Version(msgspec.Struct, frozen=True, gc=False, tag="version"):
    """§1: the connector's highest version, or the one the listener chose."""

    version: int = VERSION


class Request(msgspec.Struct, frozen=True, gc=False, tag="request"):
    """§1: the connector asks for an endpoint, and a link, old or new."""

    endpoint: str = ""
    connector_id_size: int = 0
    listener_id_size: int = 0
    flags: int = 0
    epoch: int = 0
    link_id: int = 0


class Reply(msgspec.Struct, frozen=True, gc=False, tag="reply"):
    """§1: the link it gets; link id zero is none."""

    epoch: int
    link_id: int


class Nop(msgspec.Struct, frozen=True, gc=False, tag="nop"):
    """§2.2: padding between packets."""


class Ping(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    """§3.4: asks for a pong."""


class Pong(msgspec.Struct, frozen=True, gc=False, tag="pong"):
    """§3.4: answers a ping."""


class Resume(msgspec.Struct, frozen=True, gc=False, tag="resume"):
    """§3.5: its sender has restated its acknowledgements; messages may follow."""


class Shutdown(msgspec.Struct, frozen=True, gc=False, tag="shutdown"):
    """§3.6: its sender opens no more channels."""


class Operation(msgspec.Struct, frozen=True):
    """§2.3.1, §2.3.2: about channels of its sender.

    Without a sequence it targets the next message of each.
    """

    ids: tuple[bytes, ...]
    sequence: int | None = None
    multicast: bool = False


class Commit(Operation, frozen=True, tag="commit"):
    """§3.2: the receiver is to process messages."""


class Rollback(Operation, frozen=True, tag="rollback"):
    """§3.2: the receiver is to ignore messages."""


class Close(msgspec.Struct, frozen=True, tag="close"):
    """§3.3: no more messages on these channels."""

    ids: tuple[bytes, ...]
    multicast: bool = False


class Acknowledgement(msgspec.Struct, frozen=True):
    """§2.3.1, §2.3.2: about channels of its receiver.

    Without a sequence it targets the next message of each.
    """

    ids: tuple[bytes, ...]
    sequence: int | None = None
    multicast: bool = False


class Received(Acknowledgement, frozen=True, tag="received"):
    """§3.5: messages arrived."""


class Consumed(Acknowledgement, frozen=True, tag="consumed"):
    """§3.1: the application consumed messages."""


class Committed(Acknowledgement, frozen=True, tag="committed"):
    """§3.2: messages were processed."""


class Uncommitted(Acknowledgement, frozen=True, tag="uncommitted"):
    """§3.2: messages could not be processed."""


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """§3.3: the channels are closed and may be opened again."""

    ids: tuple[bytes, ...]
    multicast: bool = False


class Message(msgspec.Struct, frozen=True, tag="message"):
    """§2.3.3: a payload in parts, for one channel or many."""

    ids: tuple[bytes, ...]
    parts: tuple[bytes, ...] = ()
    multicast: bool = False
    long: bool = False
    """The number of parts has 32 bits, also where 8 would do (RELINK-30)."""
    large: bool = False
    """The sizes have 64 bits, also where 16 would do."""


Handshake = Version | Request | Reply
Packet = (
    Nop | Ping | Pong | Resume | Shutdown | Commit | Rollback | Close | Received | Consumed | Committed | Uncommitted | Closed | Message
)
AnyMessage = Handshake | Packet

TYPES: Final[dict[type[AnyMessage], Kind]] = {
    Nop: Kind.NOP,
    Ping: Kind.PING,
    Pong: Kind.PONG,
    Resume: Kind.RESUME,
    Shutdown: Kind.SHUTDOWN,
    Commit: Kind.COMMIT,
    Rollback: Kind.ROLLBACK,
    Close: Kind.CLOSE,
    Received: Kind.RECEIVED,
    Consumed: Kind.CONSUMED,
    Committed: Kind.COMMITTED,
    Uncommitted: Kind.UNCOMMITTED,
    Closed: Kind.CLOSED,
    Message: Kind.MESSAGE,
    Version: Kind.VERSION,
    Request: Kind.REQUEST,
    Reply: Kind.REPLY,
}
"""The number of every handshake part and packet type."""


def name_of(message_type: type[AnyMessage]) -> str:
    """The name of a message type in the specification."""
    return str(message_type.__struct_config__.tag)
