"""Protocol: the typed descriptor of one protocol.

Everything outside its package reaches it through this. A package says `PROTOCOL = Protocol(...)` in its `__init__` and declares it under
the entry-point group `wirelake.protocols`. Required fields come first. Each optional capability is a field with a default: None or False
says that a protocol does not have it.

Columns and notations are loaded by a function, because they import Arrow or more: a short command must not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from typing import Protocol as Interface

import msgspec

from wirelake.protocols.buffer import Frames
from wirelake.protocols.faults import Faults
from wirelake.protocols.kernel import Find, Octets, Scan, ScanLimits, Walk

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from wirelake.protocols.arrow import BodySerializers, Columns

    Array = np.ndarray[Any, Any]

__all__ = [
    "AnyProtocol",
    "BodyNegotiation",
    "ColumnBuilder",
    "Describe",
    "Describer",
    "FragmentState",
    "FrameBuffer",
    "Handshake",
    "HandshakeReader",
    "Limits",
    "Message",
    "NegotiatedColumns",
    "Notation",
    "PassiveColumns",
    "PassiveDecoding",
    "Protocol",
    "SessionKind",
    "StateMachine",
    "XmppText",
]

Message = msgspec.Struct
"""A message is a struct; its tag is its name in `messages`."""


class Limits(Interface):
    """Limits and dialect flags of a protocol: a frozen struct, whose fields `--set` takes."""

    @property
    def max_parts(self) -> int:
        """Parts that one message may have at most."""

    def for_scan(self) -> ScanLimits:
        """The numbers that the scanner kernels take."""


L = TypeVar("L", bound=Limits)
L_contra = TypeVar("L_contra", bound=Limits, contravariant=True)
M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=IntEnum)
P = TypeVar("P", bound=IntEnum)

Transition = tuple[IntEnum, IntEnum, type[Message]]
"""State, speaker, type of message."""


class StateMachine(msgspec.Struct, frozen=True):
    """Which message each side may send in which state. Make one with `of`."""

    initial: IntEnum
    transitions: Mapping[Transition, IntEnum]
    """(state, speaker, message) -> next state. A message that is not here is forbidden."""
    messages: tuple[type[Message], ...]
    states: type[IntEnum]
    speakers: type[IntEnum]
    """Members `CLIENT` and `SERVER`, or `NODE`."""
    refusal: Callable[[IntEnum, IntEnum, type[Message]], Faults]
    """The rule that a forbidden message breaks."""
    untimely: Mapping[Transition, Faults]
    """Transitions that exist, although the sender breaks this rule."""

    @staticmethod
    def of(
        *,
        initial: S,
        transitions: Mapping[tuple[S, P, type[M]], S],
        messages: tuple[type[M], ...],
        states: type[S],
        speakers: type[P],
        refusal: Callable[[S, P, type[M]], Faults],
        untimely: Mapping[tuple[S, P, type[M]], Faults] | None = None,
    ) -> StateMachine:
        """Make one of a protocol's own tables, whose types must agree."""
        return StateMachine(
            initial,
            {key: after for key, after in transitions.items()},  # noqa: C416 - a dict of the wider type
            messages,
            states,
            speakers,
            cast("Callable[[IntEnum, IntEnum, type[Message]], Faults]", refusal),
            {key: fault for key, fault in (untimely or {}).items()},  # noqa: C416
        )


class FrameBuffer(Interface):
    """Takes bytes as they arrive and gives whole messages; see `buffer.Buffer`."""

    @property
    def takes_datagrams(self) -> bool:
        """Whether it must be fed one whole message at a time."""

    @property
    def rest(self) -> bytes:
        """Bytes that are no whole message yet."""

    @property
    def lost(self) -> bool:
        """Whether nothing more can be read."""

    def feed(self, data: bytes) -> Iterator[Frames]:
        """Take what arrived; give whole messages in batches."""


class ColumnBuilder(Interface[L_contra]):
    """The module `columns` of a protocol: scanned rows to Arrow columns."""

    @property
    def SCHEMA(self) -> pa.Schema:  # noqa: N802 - a constant of a module
        """The protocol's own columns, each with a comment."""

    @property
    def ROW_COLUMNS(self) -> int:  # noqa: N802
        """Numbers in a scanned row."""

    @property
    def PART_COLUMNS(self) -> int:  # noqa: N802
        """Numbers in a part of a row."""

    def readable(self, rows: Array, /) -> Array:
        """Which rows are messages; the others go to `quarantine`."""

    def columns(self, data: Array, rows: Array, parts: Array, limits: L_contra, json_bodies: bool, budget: int, /) -> Columns:
        """The columns of readable rows; only the first rows, if all together inflate beyond `budget` bytes."""


class Describe(Interface[L_contra]):
    """Makes the object that `wirelake decode` prints for a scanned row."""

    def __call__(self, data: bytes, row: list[int], parts: list[int], limits: L_contra, base: int, /) -> dict[str, Any]:
        """Offset, length, type and every field; or `fault`, `clause` and the place. `base` is the offset of `data` in the input."""


class Describer(Interface[L_contra]):
    """Describes the messages of one sender, where that depends on the earlier ones."""

    def describe(self, data: bytes, row: list[int], parts: list[int], limits: L_contra, base: int, /) -> dict[str, Any]:
        """See `Describe`."""


class Notation(msgspec.Struct, Generic[L, M], frozen=True, kw_only=True):
    """A protocol's messages as JSON objects, both ways."""

    describe: Describe[L]
    parse: Callable[[dict[str, Any]], M]
    """The message of an object; raises UsageError that names the field."""
    describer: Callable[[Any], Describer[L]] | None = None
    """Optional: makes a describer for one sender, given the keys of `--keys` (or None)."""


class HandshakeReader(Interface[L_contra]):
    """How far the handshake of one connection is, for a reader that sees both directions."""

    @property
    def session(self) -> bytes | None:
        """16 bytes that name the session in tables; None: the connection is the session, or not known yet."""

    def is_over(self, speaker: IntEnum, /) -> bool:
        """Whether this side has sent its part of the handshake."""

    def limits(self, speaker: IntEnum, accepted: L_contra | None = None, /) -> ScanLimits | None:
        """The scan limits for what this side sends next; None: not known yet. `accepted` replaces the reader's own limits."""

    def pieces(self, speaker: IntEnum, data: Octets, start: int, stop: int, /) -> Iterator[tuple[ScanLimits | None, int, int]]:
        """A run of bytes in pieces that are scanned alike: (scan limits, start, stop). Follows the handshake on the way."""

    def state(self) -> msgspec.Struct:
        """What is stored between two micro-batches: an array-like struct."""


class Handshake(msgspec.Struct, Generic[L], frozen=True, kw_only=True):
    """Capability: the peers agree first on how their bytes are read. Nothing is read before both have sent their part."""

    start: Callable[[L], HandshakeReader[L]]
    """The reader of a new connection."""
    restore: Callable[[Any], HandshakeReader[L]]
    """The reader of a stored state."""
    state: type[msgspec.Struct]
    """The type that `HandshakeReader.state` returns."""
    agreement: Any
    """The type of what the peers agreed on, as it is stored with each direction."""
    agreed: Callable[[ScanLimits], object | None]
    """What the peers agreed on, taken out of scan limits; None: nothing is read."""
    scan_limits: Callable[[Any, L], ScanLimits]
    """Scan limits of a reader with these limits, for what the peers agreed on."""
    unknown: Faults
    """The fault of bytes that cannot be read because the handshake was not seen."""


class NegotiatedColumns(ColumnBuilder[L_contra], Interface[L_contra]):
    """A `columns` module for bodies whose serializer the peers negotiate."""

    def negotiated(self, data: Array, rows: Array, speakers: Array, known: MutableMapping[int, str], /) -> BodySerializers:
        """The serializer of each row; `known` has that of each sender, and is brought up to date."""

    def columns(
        self,
        data: Array,
        rows: Array,
        parts: Array,
        limits: L_contra,
        json_bodies: bool,
        budget: int,
        body_serializers: BodySerializers | None = None,
        /,
    ) -> Columns:
        """See `ColumnBuilder`; bodies are read by their serializers."""


BodyNegotiation = Callable[[], NegotiatedColumns[L]]
"""Capability: loads the `columns` module of a protocol whose peers negotiate serializers."""


class FragmentState(Interface):
    """What is remembered of one sender whose messages come in pieces."""

    @property
    def weight(self) -> int:
        """Bytes that wait, about."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""

    def forget_pieces(self) -> None:
        """Give up the pieces that wait."""

    def state(self) -> msgspec.Struct:
        """What is stored between two micro-batches: an array-like struct."""


class PassiveColumns(ColumnBuilder[L_contra], Interface[L_contra]):
    """A `columns` module for messages that need earlier ones of their sender, or keys, to be read."""

    def passive(
        self,
        data: Array,
        rows: Array,
        speakers: Array,
        seconds: Array,
        decoders: dict[int, FragmentState],
        limits: L_contra,
        keyring: object | None,
        budget: int,
        /,
    ) -> tuple[dict[int, object], int]:
        """Payloads that rows complete or that keys open, by row; and how many of the first rows were looked at.

        `decoders` has the state of each sender, and is brought up to date.
        """

    def columns(
        self,
        data: Array,
        rows: Array,
        parts: Array,
        limits: L_contra,
        json_bodies: bool,
        budget: int,
        payloads: Mapping[int, object] | None = None,
        /,
    ) -> Columns:
        """See `ColumnBuilder`; `payloads` are those of `passive`."""


class PassiveDecoding(msgspec.Struct, Generic[L], frozen=True, kw_only=True):
    """Capability: a third party joins messages that come in pieces, and opens encrypted ones if it has keys."""

    columns: Callable[[], PassiveColumns[L]]
    state: type[msgspec.Struct]
    """The type that `FragmentState.state` returns."""
    restore: Callable[[Any], FragmentState | None]
    """The state of one sender from its stored form; None if it contradicts itself."""


class XmppText(msgspec.Struct, Generic[L], frozen=True, kw_only=True):
    """Capability: messages travel as the bodies of XMPP stanzas, too."""

    is_text: Callable[[bytes], bool]
    """Whether the body of a stanza is a message of this protocol."""
    scan_limits: Callable[[L], ScanLimits]
    """Scan limits for such a body."""


class SessionKind(StrEnum):
    """What a row of `sessions` is."""

    CONNECTION = "connection"
    NODE = "node"
    """A node that sends, on whatever connections."""
    LINK = "link"
    """Two peers whose session outlives its connections."""


class Protocol(msgspec.Struct, Generic[L, M], frozen=True, kw_only=True):
    """One protocol. `Protocol[Limits, Message](...)` lets a type checker hold the fields against each other."""

    name: str
    """Its name in commands, tables and addresses: lower case, with underscores."""
    title: str
    """Its name in prose."""
    package: str
    """The package it is in: `__name__` of the module that makes the descriptor."""
    port: int
    """The port that `wirelake serve` listens on, and that captures are recognised by."""
    default_port: int | None = None
    """The port of an address without one; None where the specification names none."""
    limits: type[L]
    options: type[msgspec.Struct]
    """Options of a session."""
    session: type[object]
    """The sans-I/O session."""
    faults: type[Faults]
    state_machine: StateMachine

    scan: Scan
    walk: Walk
    find: Find
    sniff: Callable[[bytes], bool]
    """Whether a stream, or a datagram, that begins with these bytes certainly is of this protocol."""
    buffer: Callable[[L], FrameBuffer]
    decode: Callable[[bytes, L], M]
    encode: Callable[[M, L], bytes]
    columns: Callable[[], ColumnBuilder[L]]
    """Loads the module `columns`; it needs Arrow."""
    notation: Callable[[], Notation[L, M]]

    handshake: Handshake[L] | None = None
    body_serializers: BodyNegotiation[L] | None = None
    passive: PassiveDecoding[L] | None = None
    websocket: bool = False
    """Whether streams may travel inside WebSockets. `sniff` must look inside, too."""
    xmpp: XmppText[L] | None = None
    dialects: tuple[str, ...] = ()
    """Boolean fields of the limits that say how peers depart from the specification; recordings carry them."""
    recognise: Callable[[bytes], tuple[str, ...] | None] | None = None
    """The dialect of a stream by its first bytes; None as long as more bytes are needed."""
    offline_limits: tuple[str, ...] = ()
    """Fields of the limits for bytes without a connection: commands that speak do not take them."""
    is_signed: bool = False
    """Whether messages are signed, so that keys can verify them."""
    session_kind: SessionKind = SessionKind.CONNECTION
    has_handshake: bool = True
    """Whether sessions open with a handshake and end with an error; without, an error is a message like others."""
    on_fault: str = "ends the session"
    """Reaction of a live peer to a fault that is not tolerated, for the protocol's page in docs/."""

    @property
    def is_stateful(self) -> bool:
        """Whether reading a message needs earlier bytes of its connection."""
        return self.handshake is not None or self.body_serializers is not None or self.passive is not None

    @property
    def has_streams(self) -> bool:
        """Whether messages travel in byte streams, and not in datagrams only."""
        return "MESSAGE_CUT" in self.faults.__members__

    def cut(self, *, is_datagram: bool = False) -> Faults:
        """The fault of bytes that end inside a message; some protocols have another one for datagrams."""
        members = self.faults.__members__
        return members["DATAGRAM_CUT" if is_datagram and "DATAGRAM_CUT" in members else "MESSAGE_CUT"]


AnyProtocol = Protocol[Limits, Message]
"""A protocol whose limits and messages are known by their interfaces only."""
