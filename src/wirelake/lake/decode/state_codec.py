"""DecoderState as bytes, and back.

Flows are stored once, and referred to by number. Waiting bytes, and the pieces that lead back to their sources, lie end to end in two
arrays: one pass checks all their ranges. Scan limits are not stored, except for what peers agreed on in a handshake: kernels size their
arrays by the limits of the ingest that reads on.

Handshakes and unfinished messages are stored as their protocol's own structs (`Handshake.state`, `PassiveDecoding.state`). The first
protocol with such a capability stores them bare. Any other stores a map of one entry: its name and the struct.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake import protocols
from wirelake.capture.blocks.block import ORIGIN_COLUMNS, ORIGIN_OFFSET, ORIGIN_START, Flow, Source, Span
from wirelake.capture.blocks.flows import SESSION_ID_SIZE
from wirelake.capture.blocks.stored_state import LAST, Count, Number, Record, check, check_places, check_spans, decode, encode
from wirelake.lake.decode.seen_pairs import SOURCE_ID_SIZE, SeenPairs
from wirelake.lake.decode.state import Direction, Reason, Segment
from wirelake.lake.decode.streams import DEAD, GAP, LOOKS, READING, UNCOUNTED
from wirelake.lake.decode.websocket import ALIEN, STARTS, Wrapped
from wirelake.lake.decode.xmpp import Stream
from wirelake.protocols import websocket, xmpp
from wirelake.protocols.kernel import ScanLimits
from wirelake.protocols.protocol import FragmentState, Handshake, HandshakeReader, Limits

if TYPE_CHECKING:
    from wirelake.lake.decode.state import DecoderState

__all__ = ["encoded", "restore"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
Id = Annotated[bytes, msgspec.Meta(min_length=1, max_length=64)]
Side = Literal[0, 1]
Missing = Annotated[int, msgspec.Meta(ge=UNCOUNTED, le=1 << 60)]
Look = Annotated[int, msgspec.Meta(ge=0, lt=len(LOOKS))]
_ORIGIN_BYTES: Final = 8 * ORIGIN_COLUMNS
_OPENINGS: Final = frozenset(start[at:] for start in STARTS.values() for at in range(len(start) + 1))
"""Possible rests of the bytes that an opening handshake begins with."""
_ONE_ENTRY: Final = b"\x81"
"""The first byte of a map of one entry in msgpack."""
_NIL: Final = msgspec.Raw(msgspec.msgpack.encode(None))
_GAPS: Final = {gap.name: gap for gap in (GAP, ALIEN)}


class Waiting(Record):
    """Bytes that wait: their flow and direction, and their share of the two arrays."""

    flow: Count
    to_server: Side
    size: Count
    count: Count
    """Pieces."""


class DirectionState(Record):
    """A `Direction`."""

    waiting: Waiting
    mode: Annotated[int, msgspec.Meta(ge=READING, le=DEAD)]
    agreed: msgspec.Raw
    """`Handshake.agreement` of its protocol; nil where there is no handshake, or nothing is read."""
    owed: Annotated[int, msgspec.Meta(ge=0, le=LAST)]
    why: str | None
    """The name of a fault, or of a gap."""
    first: Literal[0, 1]
    looked: Look
    is_hopeful: bool


class SegmentState(Record):
    """A `Segment`."""

    waiting: Waiting
    missing: Missing


class WrappedState(Record):
    """A `Wrapped`."""

    waiting: Waiting
    state: list[Number]
    start: bytes
    missing: Count
    is_searching: bool
    looked: Look
    has_gap: bool


class StreamState(Record):
    """A `Stream`."""

    waiting: Waiting
    state: list[Number]
    is_passing: bool
    is_securing: bool
    has_gap: bool
    heard: list[tuple[str, bool]]


class StoredState(Record):
    """A `DecoderState`; every table is in its order."""

    sources: list[Source]
    spans: list[Span]
    flows: list[Flow]
    data: bytes
    origins: bytes
    directions: list[DirectionState]
    pending: list[list[SegmentState]]
    handshakes: list[tuple[Id, msgspec.Raw]]
    agreed: list[tuple[Id, Side, str]]
    fragment_states: list[tuple[Id, Side, msgspec.Raw]]
    wrapped: list[tuple[Id, Side, WrappedState | None]]
    stanzas: list[tuple[Id, Side, StreamState | None]]
    seen: list[tuple[Id, bytes]]


class _Waits(Protocol):
    """Something with waiting bytes."""

    flow: Flow
    data: ByteArray
    origins: IntArray


class _Writer:
    """Lays bytes and pieces end to end."""

    def __init__(self) -> None:
        self.flows: dict[Flow, int] = {}
        self.data: list[bytes] = []
        self.origins: list[bytes] = []

    def add(self, item: _Waits, to_server: int) -> Waiting:
        """Add the waiting bytes of one direction. Pieces without bytes are dropped."""
        count = len(item.origins) if len(item.data) else 0
        if count:
            self.data.append(item.data.tobytes())
            self.origins.append(item.origins.astype("<i8", copy=False).tobytes())
        number = self.flows.setdefault(item.flow, len(self.flows))
        return Waiting(number, 1 if to_server else 0, len(item.data), count)


def encoded(decoder_state: DecoderState) -> bytes:
    """The bytes of a state."""
    writer = _Writer()
    directions = [_direction_state(one, writer) for one in decoder_state.directions.values()]
    pending = [[SegmentState(writer.add(one, one.to_server), one.missing) for one in waiting] for waiting in decoder_state.pending.values()]
    wrapped = [(*_key(key), None if one is None else _wrapped_state(one, writer)) for key, one in decoder_state.wrapped.items()]
    stanzas = [(*_key(key), None if one is None else _stream_state(one, key[1], writer)) for key, one in decoder_state.stanzas.items()]
    return encode(
        StoredState(
            decoder_state.sources,
            decoder_state.spans,
            list(writer.flows),
            b"".join(writer.data),
            b"".join(writer.origins),
            directions,
            pending,
            [(key, _packed(one.state(), _handshake_states())) for key, one in decoder_state.handshakes.items()],
            [(*_key(key), one) for key, one in decoder_state.agreed.items()],
            [(*_key(key), _packed(one.state(), _fragment_states())) for key, one in decoder_state.fragment_states.items()],
            wrapped,
            stanzas,
            list(decoder_state.seen),
        )
    )


def _key(speaker: tuple[bytes, int]) -> tuple[bytes, Side]:
    return speaker[0], 1 if speaker[1] else 0


@cache
def _handshake_states() -> dict[str, type[msgspec.Struct]]:
    """Protocol -> the struct that its handshakes are stored as."""
    return {one.name: one.handshake.state for one in map(protocols.get, protocols.names()) if one.handshake is not None}


@cache
def _fragment_states() -> dict[str, type[msgspec.Struct]]:
    """Protocol -> the struct that its unfinished messages are stored as."""
    return {one.name: one.passive.state for one in map(protocols.get, protocols.names()) if one.passive and one.passive.state}


def _packed(state: msgspec.Struct, kinds: Mapping[str, type[msgspec.Struct]]) -> msgspec.Raw:
    """A protocol's struct: bare if the protocol is the first of its kind, else with its name."""
    first, *_ = kinds
    name = next(name for name, kind in kinds.items() if isinstance(state, kind))
    return msgspec.Raw(msgspec.msgpack.encode(state if name == first else {name: state}))


def _unpacked(content: msgspec.Raw, kinds: Mapping[str, type[msgspec.Struct]]) -> tuple[str, msgspec.Struct]:
    """The protocol and its struct; raises StateError if they are none."""
    first, *_ = kinds
    if bytes(content)[:1] != _ONE_ENTRY:
        return first, decode(bytes(content), kinds[first])
    ((name, state),) = decode(bytes(content), dict[str, msgspec.Raw]).items()
    check(name in kinds, f"no installed protocol {name!r} stores such a state")
    return name, decode(bytes(state), kinds[name])


def _direction_state(direction_state: Direction, writer: _Writer) -> DirectionState:
    handshake = _handshake(direction_state.flow)
    agreed = _NIL if handshake is None else msgspec.Raw(msgspec.msgpack.encode(handshake.agreed(direction_state.scan_limits)))
    why = None if direction_state.why is None else direction_state.why.name
    waiting = writer.add(direction_state, direction_state.to_server)
    return DirectionState(
        waiting,
        direction_state.mode,
        agreed,
        direction_state.owed,
        why,
        1 if direction_state.first else 0,
        direction_state.looked,
        direction_state.is_hopeful,
    )


def _wrapped_state(one: Wrapped, writer: _Writer) -> WrappedState:
    waiting = writer.add(one, one.to_server)
    return WrappedState(waiting, one.state.tolist(), one.start, one.missing, one.is_searching, one.looked, one.has_gap)


def _stream_state(one: Stream, to_server: int, writer: _Writer) -> StreamState:
    state = one.state.tolist()
    state[xmpp.DONE], state[xmpp.BEGAN] = 0, min(state[xmpp.BEGAN], 0)  # counted from the bytes that wait
    waiting = writer.add(one, to_server)
    return StreamState(waiting, state, one.is_passing, one.is_securing, one.has_gap, list(one.heard.items()))


class _Reader:
    """Gives bytes and pieces out again, after all their ranges were checked."""

    def __init__(self, state: StoredState) -> None:
        self._flows = state.flows
        for flow in state.flows:
            _check_flow(flow)
        self._data = np.frombuffer(state.data, np.uint8)
        check(len(state.origins) % _ORIGIN_BYTES == 0, "pieces are cut off")
        self._origins = np.frombuffer(state.origins, "<i8").astype(np.int64).reshape(-1, ORIGIN_COLUMNS)
        waiting = [one.waiting for one in state.directions]
        waiting += [one.waiting for scan_input in state.pending for one in scan_input]
        waiting += [one.waiting for *_, one in state.wrapped if one is not None]
        waiting += [one.waiting for *_, one in state.stanzas if one is not None]
        self._check(state, waiting)
        self._byte = self._origin = 0

    def _check(self, state: StoredState, waiting: list[Waiting]) -> None:
        check(sum(one.size for one in waiting) == len(self._data), "bytes that wait are missing")
        check(sum(one.count for one in waiting) == len(self._origins), "pieces are missing")
        check(all(one.flow < len(self._flows) for one in waiting), "there is no flow of this number")
        check(all(bool(one.size) == bool(one.count) for one in waiting), "bytes that wait have no pieces")
        sizes = np.array([one.size for one in waiting], np.int64)
        counts = np.array([one.count for one in waiting], np.int64)
        owners = np.repeat(np.arange(len(waiting)), counts)
        starts = self._origins[:, ORIGIN_START]
        first = np.diff(owners, prepend=-1) != 0
        check(bool((starts[first] == 0).all()), "the first piece does not begin with the first byte")
        check(bool((first[1:] | (np.diff(starts) >= 0)).all()), "pieces are not in order")
        check(bool((starts < sizes[owners]).all()), "a piece begins behind the bytes that wait")
        check_places(state.sources, state.spans, self._origins[:, ORIGIN_OFFSET], sizes[owners])

    def flow(self, waiting: Waiting) -> Flow:
        """The flow of waiting bytes."""
        return self._flows[waiting.flow]

    def next(self, waiting: Waiting) -> tuple[ByteArray, IntArray]:
        """The next bytes, and their pieces; both may be written to."""
        data = self._data[self._byte : self._byte + waiting.size].copy()
        origins = self._origins[self._origin : self._origin + waiting.count].copy()
        self._byte += waiting.size
        self._origin += waiting.count
        return data, origins


def restore(decoder_state: DecoderState, content: bytes) -> None:
    """Fill a new state from stored bytes; raises StateError if they are damaged."""
    state = decode(content, StoredState)
    check_spans(state.sources, state.spans)
    decoder_state.sources, decoder_state.spans = state.sources, state.spans
    reader = _Reader(state)
    for direction in state.directions:
        direction_state = _direction(direction, reader)
        decoder_state.directions[direction_state.flow.session_id, direction_state.to_server] = direction_state
    check(len(decoder_state.directions) == len(state.directions), "a direction is there twice")
    for waits in state.pending:
        scan_input = [
            Segment(
                reader.flow(direction_state.waiting),
                direction_state.waiting.to_server,
                direction_state.missing,
                *reader.next(direction_state.waiting),
            )
            for direction_state in waits
        ]
        check(
            len({direction_state.flow.session_id for direction_state in scan_input}) == 1,
            "what waits for a handshake is of several connections",
        )
        check(
            all(_handshake(direction_state.flow) is not None for direction_state in scan_input),
            "a protocol without a handshake waits for one",
        )
        decoder_state.pending[scan_input[0].flow.session_id] = scan_input
    check(len(decoder_state.pending) == len(state.pending), "a connection is there twice")
    decoder_state.handshakes = {key: _handshake_reader(direction_state) for key, direction_state in state.handshakes}
    decoder_state.agreed = {(key, side): direction_state for key, side, direction_state in state.agreed}
    decoder_state.fragment_states = {(key, side): _fragment_state(direction_state) for key, side, direction_state in state.fragment_states}
    decoder_state.wrapped = {
        (key, side): None if direction_state is None else _wrapped(direction_state, (key, side), reader)
        for key, side, direction_state in state.wrapped
    }
    decoder_state.stanzas = {
        (key, side): None if direction_state is None else _stream(direction_state, (key, side), reader)
        for key, side, direction_state in state.stanzas
    }
    sizes = {(len(session), len(source)) for session, source in state.seen}
    check(sizes <= {(SESSION_ID_SIZE, SOURCE_ID_SIZE)}, "a connection or a source has an id of another size")
    decoder_state.seen = SeenPairs(state.seen)


def _check_flow(flow: Flow) -> None:
    """Check that the decoder can read a flow, and that tables have columns for it."""
    check(1 <= len(flow.session_id) <= 64, "a session has no id")
    check(flow.protocol in protocols.names(), f"no protocol is called {flow.protocol!r}")
    check(protocols.get(flow.protocol).has_streams, f"{flow.protocol} has no streams")
    check(all(0 <= end.port <= 0xFFFF for end in (flow.client, flow.server)), "a port is none")


def _check_carrier(flow: Flow, is_carrier: bool, name: str, key: tuple[bytes, int]) -> None:
    check(is_carrier, f"{flow.protocol} does not travel inside {name}")
    check(flow.session_id == key[0], "a flow has two ids")


def _handshake(flow: Flow) -> Handshake[Limits] | None:
    return protocols.get(flow.protocol).handshake


def _direction(state: DirectionState, reader: _Reader) -> Direction:
    flow = reader.flow(state.waiting)
    check(state.mode == READING or state.why is not None, "nothing says why bytes are passed over")
    handshake = _handshake(flow)
    scan_limits: ScanLimits = ()
    check(state.mode == DEAD or (state.agreed != _NIL) == (handshake is not None), "nothing says how bytes are to be read")
    if handshake is not None:
        agreed = None if state.agreed == _NIL else decode(bytes(state.agreed), handshake.agreement)
        scan_limits = handshake.scan_limits(agreed, protocols.get(flow.protocol).limits())
    why = None if state.why is None else _why(state.why, flow)
    data, origins = reader.next(state.waiting)
    rest = (state.owed, why, state.first, state.looked, state.is_hopeful)
    return Direction(flow, state.waiting.to_server, state.mode, scan_limits, data, origins, *rest)


def _why(name: str, flow: Flow) -> Reason:
    faults = protocols.get(flow.protocol).faults.__members__
    check(name in faults or name in _GAPS, f"{flow.protocol} has no fault {name!r}")
    return _GAPS.get(name) or faults[name]


def _handshake_reader(content: msgspec.Raw) -> HandshakeReader[Limits]:
    name, state = _unpacked(content, _handshake_states())
    handshake = protocols.get(name).handshake
    assert handshake is not None  # noqa: S101 - `_handshake_states` has those
    return handshake.restore(state)


def _fragment_state(content: msgspec.Raw) -> FragmentState:
    name, state = _unpacked(content, _fragment_states())
    passive = protocols.get(name).passive
    restored = None if passive is None else passive.restore(state)
    check(restored is not None, "pieces of a message contradict each other")
    assert restored is not None  # noqa: S101 - checked
    return restored


def _wrapped(state: WrappedState, key: tuple[bytes, int], reader: _Reader) -> Wrapped:
    flow = reader.flow(state.waiting)
    _check_carrier(flow, protocols.get(flow.protocol).websocket, "websocket", key)
    check(websocket.is_state(state.state), "a WebSocket is in a state that there is not")
    check(state.start in _OPENINGS and state.waiting.to_server == key[1], "an opening handshake begins with something else")
    check(state.is_searching or not state.waiting.size, "bytes wait though frames are known")
    one = Wrapped(flow, key[1], state.start)
    one.state[:] = state.state
    one.data, one.origins = reader.next(state.waiting)
    one.missing, one.is_searching, one.looked, one.has_gap = state.missing, state.is_searching, state.looked, state.has_gap
    return one


def _stream(state: StreamState, key: tuple[bytes, int], reader: _Reader) -> Stream:
    flow = reader.flow(state.waiting)
    _check_carrier(flow, protocols.get(flow.protocol).xmpp is not None, "xmpp", key)
    check(xmpp.is_state(state.state), "a stream of XMPP is in a state that there is not")
    one = Stream(flow)
    one.state[:] = state.state
    one.data, one.origins = reader.next(state.waiting)
    one.is_passing, one.is_securing, one.has_gap, one.heard = state.is_passing, state.is_securing, state.has_gap, dict(state.heard)
    return one
