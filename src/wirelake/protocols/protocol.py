"""Protocol: the typed descriptor of one protocol.

Everything outside its package reaches it through this. A package says `PROTOCOL = Protocol(...)` in its `__init__` and declares it under
the entry-point group `wirelake.protocols`. Required fields come first. Each optional capability is a field with a default: None or False
says that a protocol does not have it.

Columns and notations are loaded by a function, because they import Arrow or more: a short command must not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar
from typing import Protocol as Interface

import msgspec

from wirelake.protocols.buffer import Frames
from wirelake.protocols.faults import Faults
from wirelake.protocols.kernel import Find, Octets, Scan, ScanLimits, Walk
from wirelake.protocols.speaker import Speaker

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from wirelake.protocols.analyzer import SessionAnalyzer
    from wirelake.protocols.arrow import BodySerializers, Columns

    ByteArray = npt.NDArray[np.uint8]
    Rows = npt.NDArray[np.int64]
    Times = npt.NDArray[np.int64]
    Seconds = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]

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
    "JsonObject",
    "Limits",
    "Message",
    "NegotiatedColumns",
    "Notation",
    "PassiveColumns",
    "PassiveDecoding",
    "Protocol",
    "SessionKind",
    "Signatures",
    "StateMachine",
    "VerifyMessage",
    "VerifyRows",
    "XmppText",
]

Message = msgspec.Struct
"""A message is a struct; its tag is its name in `messages`."""
JsonObject = dict[str, object]
"""An object as `wirelake decode` prints it and `wirelake encode` reads it."""


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
T = TypeVar("T")
H = TypeVar("H", bound=msgspec.Struct)
"""A handshake, or unfinished messages, as they are stored."""
A = TypeVar("A", bound=msgspec.Struct)
"""The agreement of a handshake."""
K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
"""Keys that verify or decrypt."""

Transition = tuple[IntEnum, IntEnum, type[Message]]
"""State, speaker, type of message."""


def _narrowed(value: object, kind: type[T]) -> T:
    """A value that a protocol gave out before, as the type that the protocol knows it by."""
    if not isinstance(value, kind):
        raise TypeError(f"internal error: {kind.__name__} is needed, not {type(value).__name__}")
    return value


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
        own: dict[type[Message], type[M]] = {message: message for message in messages}

        def refuse(state: IntEnum, speaker: IntEnum, message: type[Message]) -> Faults:
            return refusal(states(state), speakers(speaker), own[message])

        return StateMachine(
            initial,
            {key: after for key, after in transitions.items()},  # noqa: C416 - a dict of the wider type
            messages,
            states,
            speakers,
            refuse,
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

    def feed(self, data: bytes) -> Iterable[Frames]:
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

    def readable(self, rows: Rows, /) -> Mask:
        """Which rows are messages; the others go to `quarantine`."""

    def columns(self, data: ByteArray, rows: Rows, parts: Rows, limits: L_contra, json_bodies: bool, budget: int, /) -> Columns:
        """The columns of readable rows; only the first rows, if all together inflate beyond `budget` bytes."""


class Describe(Interface[L_contra]):
    """Makes the object that `wirelake decode` prints for a scanned row."""

    def __call__(self, data: bytes, row: list[int], parts: list[int], limits: L_contra, base: int, /) -> JsonObject:
        """Offset, length, type and every field; or `fault`, `clause` and the place. `base` is the offset of `data` in the input."""


class Describer(Interface[L_contra]):
    """Describes the messages of one sender, where that depends on the earlier ones."""

    def describe(self, data: bytes, row: list[int], parts: list[int], limits: L_contra, base: int, /) -> JsonObject:
        """See `Describe`."""


class Notation(msgspec.Struct, Generic[L, M], frozen=True, kw_only=True):
    """A protocol's messages as JSON objects, both ways."""

    describe: Describe[L]
    parse: Callable[[JsonObject], M]
    """The message of an object; raises UsageError that names the field."""
    describers: Callable[[bytes | None], Callable[[], Describer[L]]] | None = None
    """Optional: reads the content of the file of `--keys` (or None); returns a function that makes a describer for one sender.

    Raises UsageError if the content is no keys.
    """


class HandshakeReader(Interface[L_contra]):
    """How far the handshake of one connection is, for a reader that sees both directions."""

    @property
    def session(self) -> bytes | None:
        """16 bytes that name the session in tables; None: the connection is the session, or not known yet."""

    def is_over(self, speaker: Speaker, /) -> bool:
        """Whether this side has sent its part of the handshake."""

    def limits(self, speaker: Speaker, accepted: L_contra | None = None, /) -> ScanLimits | None:
        """The scan limits for what this side sends next; None: not known yet. `accepted` replaces the reader's own limits."""

    def pieces(self, speaker: Speaker, data: Octets, start: int, stop: int, /) -> Iterator[tuple[ScanLimits | None, int, int]]:
        """A run of bytes in pieces that are scanned alike: (scan limits, start, stop). Follows the handshake on the way."""

    def follow(self, speaker: Speaker, data: bytes | memoryview, row: Sequence[int], /) -> bool:
        """Take a row of the handshake that was read from this side; returns whether its limits change from now on."""

    def state(self) -> msgspec.Struct:
        """What is stored between two micro-batches: an array-like struct."""


class Handshake(msgspec.Struct, Generic[L], frozen=True, kw_only=True):
    """Capability: the peers agree first on how their bytes are read. Make one with `of`.

    Nothing is read before both peers have sent their part.
    """

    start: Callable[[L], HandshakeReader[L]]
    """The reader of a new connection."""
    restore: Callable[[msgspec.Struct], HandshakeReader[L]]
    """The reader of a stored state."""
    state: type[msgspec.Struct]
    """The type that `HandshakeReader.state` returns."""
    agreement: type[msgspec.Struct]
    """The type of what the peers agreed on, as it is stored with each direction: an array-like struct."""
    agreed: Callable[[ScanLimits], msgspec.Struct | None]
    """What the peers agreed on, taken out of scan limits; None: nothing is read."""
    scan_limits: Callable[[msgspec.Struct | None, L], ScanLimits]
    """Scan limits of a reader with these limits, for what the peers agreed on."""
    unknown: Faults
    """The fault of bytes that cannot be read because the handshake was not seen."""
    parts: Callable[[L], Sequence[tuple[Speaker, ScanLimits]]] | None = None
    """Optional: the parts of every handshake, with their scan limits; those of a side in their order.

    Only where no part decides what others there are. Then handshakes of many connections are read together.
    """

    @staticmethod
    def of(
        *,
        start: Callable[[L], HandshakeReader[L]],
        restore: Callable[[H], HandshakeReader[L]],
        state: type[H],
        agreement: type[A],
        agreed: Callable[[ScanLimits], A | None],
        scan_limits: Callable[[A | None, L], ScanLimits],
        unknown: Faults,
        parts: Callable[[L], Sequence[tuple[Speaker, ScanLimits]]] | None = None,
    ) -> Handshake[L]:
        """Make one of a protocol's own functions, whose types must agree."""

        def restored(stored: msgspec.Struct) -> HandshakeReader[L]:
            return restore(_narrowed(stored, state))

        def limits_for(agreement_reached: msgspec.Struct | None, limits: L) -> ScanLimits:
            return scan_limits(None if agreement_reached is None else _narrowed(agreement_reached, agreement), limits)

        return Handshake(
            start=start,
            restore=restored,
            state=state,
            agreement=agreement,
            agreed=agreed,
            scan_limits=limits_for,
            unknown=unknown,
            parts=parts,
        )


class NegotiatedColumns(ColumnBuilder[L_contra], Interface[L_contra]):
    """A `columns` module for bodies whose serializer the peers negotiate."""

    def negotiated(self, data: ByteArray, rows: Rows, speakers: Rows, known: MutableMapping[int, str], /) -> BodySerializers:
        """The serializer of each row; `known` has that of each sender, and is brought up to date."""

    def columns(
        self,
        data: ByteArray,
        rows: Rows,
        parts: Rows,
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


F = TypeVar("F", bound=FragmentState)
"""The state of one sender."""
Y = TypeVar("Y", bound=msgspec.Struct)
"""A payload that was joined or decrypted."""


class PassiveColumns(Interface[L_contra, F, Y, K_contra]):
    """A `columns` module for messages that need earlier ones of their sender, or keys, to be read. See `ColumnBuilder`."""

    def passive(
        self,
        data: ByteArray,
        rows: Rows,
        speakers: Rows,
        seconds: Seconds,
        decoders: dict[int, F],
        limits: L_contra,
        keyring: K_contra | None,
        budget: int,
        /,
    ) -> tuple[dict[int, Y], int]:
        """Payloads that rows complete or that keys open, by row; and how many of the first rows were looked at.

        `decoders` has the state of each sender, and is brought up to date.
        """

    def columns(
        self,
        data: ByteArray,
        rows: Rows,
        parts: Rows,
        limits: L_contra,
        json_bodies: bool,
        budget: int,
        payloads: Mapping[int, Y] | None = None,
        /,
    ) -> Columns:
        """See `ColumnBuilder`; `payloads` are those of `passive`."""


class PassiveDecoding(msgspec.Struct, Generic[L], frozen=True, kw_only=True):
    """Capability: a third party joins messages that come in pieces, and opens encrypted ones if it has keys. Make one with `of`."""

    columns: Callable[[], PassiveColumns[L, FragmentState, msgspec.Struct, object]]
    """Loads the `columns` module, with the protocol's own types checked at each call."""
    state: type[msgspec.Struct] | None = None
    """The type that `FragmentState.state` returns; None: no message needs earlier ones."""
    restore: Callable[[msgspec.Struct], FragmentState | None] = lambda _: None
    """The state of one sender from its stored form; None if it contradicts itself."""

    @staticmethod
    def of(
        *,
        columns: Callable[[], PassiveColumns[L, F, Y, K]],
        state: type[H],
        restore: Callable[[H], F | None],
        decoder: type[F],
        payload: type[Y],
        keys: type[K],
    ) -> PassiveDecoding[L]:
        """Make one of a protocol's own functions, whose types must agree."""

        def checked() -> PassiveColumns[L, FragmentState, msgspec.Struct, object]:
            return _CheckedPassive(columns(), decoder, payload, keys)

        def restored(stored: msgspec.Struct) -> FragmentState | None:
            return restore(_narrowed(stored, state))

        return PassiveDecoding(columns=checked, state=state, restore=restored)

    @staticmethod
    def by_keys(*, columns: Callable[[], PassiveColumns[L, FragmentState, Y, K]], payload: type[Y], keys: type[K]) -> PassiveDecoding[L]:
        """Make one for messages that are whole, and may need keys."""

        def checked() -> PassiveColumns[L, FragmentState, msgspec.Struct, object]:
            return _CheckedPassive(columns(), FragmentState, payload, keys)  # type: ignore[type-abstract]  # there are none

        return PassiveDecoding(columns=checked)


class _CheckedPassive(Generic[L, F, Y, K]):
    """A `PassiveColumns` for callers that do not know the protocol's own types."""

    def __init__(self, own: PassiveColumns[L, F, Y, K], decoder: type[F], payload: type[Y], keys: type[K]) -> None:
        self._own = own
        self._decoder = decoder
        self._payload = payload
        self._keys = keys

    def passive(
        self,
        data: ByteArray,
        rows: Rows,
        speakers: Rows,
        seconds: Seconds,
        decoders: dict[int, FragmentState],
        limits: L,
        given: object | None,
        budget: int,
        /,
    ) -> tuple[dict[int, msgspec.Struct], int]:
        """See `PassiveColumns`. Of the sets of keys that are given, one may be of this protocol."""
        own = {number: _narrowed(decoder, self._decoder) for number, decoder in decoders.items()}
        keys = next((keys for keys in given if isinstance(keys, self._keys)), None) if isinstance(given, tuple) else None
        payloads, count = self._own.passive(data, rows, speakers, seconds, own, limits, keys, budget)
        decoders.update(own)
        return {**payloads}, count

    def columns(
        self,
        data: ByteArray,
        rows: Rows,
        parts: Rows,
        limits: L,
        json_bodies: bool,
        budget: int,
        payloads: Mapping[int, msgspec.Struct] | None = None,
        /,
    ) -> Columns:
        """See `PassiveColumns`."""
        own = {number: _narrowed(payload, self._payload) for number, payload in (payloads or {}).items()}
        return self._own.columns(data, rows, parts, limits, json_bodies, budget, own)


VerifyMessage = Callable[[bytes, float], JsonObject]
"""The bytes of a message, and the time in seconds since 1970 -> fields about its sender, or `rejected` with the reason."""


class VerifyRows(Interface[K_contra]):
    """Verifies the scanned rows of a block."""

    def __call__(self, data: ByteArray, rows: Rows, parts: Rows, micros: Times, keys: K_contra, /) -> pa.Array:
        """Whether each row is genuine, by these keys at these times; null where it carries no signature."""


class Signatures(msgspec.Struct, Generic[L], frozen=True, kw_only=True):
    """Capability: messages are signed, and keys verify them. Make one with `of`."""

    keys: type[object]
    """The type of the keys; keys of another type are not for this protocol."""
    verify_rows: VerifyRows[object]
    """Fills the column `verified` of `messages`; needs Arrow."""
    verifier: Callable[[bytes, L], VerifyMessage]
    """The content of a file of keys, and limits -> what `decode --keys` calls for each message.

    Raises UsageError if the content is no keys.
    """

    @staticmethod
    def of(
        *,
        keys: type[K],
        verify_rows: Callable[[], VerifyRows[K]],
        verifier: Callable[[bytes, L], VerifyMessage],
    ) -> Signatures[L]:
        """Make one of a protocol's own functions, whose types must agree. `verify_rows` loads the function when it is needed."""

        def verified(data: ByteArray, rows: Rows, parts: Rows, micros: Times, given: object, /) -> pa.Array:
            return verify_rows()(data, rows, parts, micros, _narrowed(given, keys))

        return Signatures(keys=keys, verify_rows=verified, verifier=verifier)


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
    signatures: Signatures[L] | None = None
    session_kind: SessionKind = SessionKind.CONNECTION
    has_handshake: bool = True
    """Whether sessions open with a handshake and end with an error; without, an error is a message like others."""
    analyzer: Callable[[], type[SessionAnalyzer]] | None = None
    """Loads the analyzer; None: messages are paired by `kind` and `correlation_id`, and held to the state machine."""
    on_fault: str = "ends the session"
    """Reaction of a live peer to a fault that is not tolerated, for the protocol's page in docs/."""

    @property
    def is_stateful(self) -> bool:
        """Whether reading a message needs earlier bytes of its connection."""
        passive = self.passive is not None and self.passive.state is not None
        return self.handshake is not None or self.body_serializers is not None or passive

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
