"""The state of a memory as bytes, and back.

Flows are stored once, and referred to by number. The bytes that wait, and the pieces that lead back to their sources, lie end to end in two
arrays: one pass holds all of them to their ranges. What the scanner is given is not stored, except for what peers agreed on: kernels
size their arrays by the limits of the ingest that reads on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol

import msgspec
import numpy as np

from wirelake import protocols
from wirelake.capture.blocks.block import ORIGIN_COLUMNS, ORIGIN_OFFSET, ORIGIN_START, Flow, Source, Span
from wirelake.capture.blocks.stored_state import LAST, Count, Number, Record, check, check_places, check_spans, decode, encode
from wirelake.lake.decode.state import Direction, Segment
from wirelake.lake.decode.streams import DEAD, GAP, LOOKS, READING, UNCOUNTED
from wirelake.lake.decode.websocket import ALIEN, STARTS, Wrapped
from wirelake.lake.decode.xmpp import Stream
from wirelake.protocols import websocket, xmpp
from wirelake.protocols.relink.handshake import Agreed, HandshakeReader, HandshakeState
from wirelake.protocols.wolpertinger.passive import PassiveDecoder, PassiveState

if TYPE_CHECKING:
    from wirelake.lake.decode.state import DecoderState

__all__ = ["encoded", "restore"]

Array = np.ndarray[Any, Any]
Id = Annotated[bytes, msgspec.Meta(min_length=1, max_length=64)]
Side = Literal[0, 1]
Missing = Annotated[int, msgspec.Meta(ge=UNCOUNTED, le=1 << 60)]
Look = Annotated[int, msgspec.Meta(ge=0, lt=len(LOOKS))]
_ORIGIN_BYTES: Final = 8 * ORIGIN_COLUMNS
_OPENINGS: Final = frozenset(start[at:] for start in STARTS.values() for at in range(len(start) + 1))
"""What may be left of the beginning of an opening handshake."""
_GAPS: Final = {gap.name: gap for gap in (GAP, ALIEN)}


class Waiting(Record):
    """Bytes that wait: whose they are, and how much of the two arrays is theirs."""

    flow: Count
    to_server: Side
    size: Count
    count: Count
    """Pieces."""


class DirectionState(Record):
    """A `Direction`."""

    waiting: Waiting
    mode: Annotated[int, msgspec.Meta(ge=READING, le=DEAD)]
    agreed: Agreed | None
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
    handshakes: list[tuple[Id, HandshakeState]]
    agreed: list[tuple[Id, Side, str]]
    fragment_states: list[tuple[Id, Side, PassiveState]]
    wrapped: list[tuple[Id, Side, WrappedState | None]]
    stanzas: list[tuple[Id, Side, StreamState | None]]
    seen: list[tuple[Id, bytes]]


class _Waits(Protocol):
    """What has bytes that wait."""

    flow: Flow
    data: Array
    origins: Array


class _Writer:
    """Lays bytes and pieces end to end."""

    def __init__(self) -> None:
        self.flows: dict[Flow, int] = {}
        self.data: list[bytes] = []
        self.origins: list[bytes] = []

    def add(self, one: _Waits, to_server: int) -> Waiting:
        """The bytes that one waits with. Where there are none, pieces lead nowhere."""
        count = len(one.origins) if len(one.data) else 0
        if count:
            self.data.append(one.data.tobytes())
            self.origins.append(one.origins.astype("<i8", copy=False).tobytes())
        number = self.flows.setdefault(one.flow, len(self.flows))
        return Waiting(number, 1 if to_server else 0, len(one.data), count)


def encoded(decoder_state: DecoderState) -> bytes:
    """The state of a memory."""
    writer = _Writer()
    directions = [_direction_state(one, writer) for one in decoder_state.directions.values()]
    pending = [[SegmentState(writer.add(one, one.to_server), one.missing) for one in said] for said in decoder_state.pending.values()]
    wrapped = [(*_key(key), one and _wrapped_state(one, writer)) for key, one in decoder_state.wrapped.items()]
    stanzas = [(*_key(key), one and _stream_state(one, key[1], writer)) for key, one in decoder_state.stanzas.items()]
    return encode(
        StoredState(
            decoder_state.sources,
            decoder_state.spans,
            list(writer.flows),
            b"".join(writer.data),
            b"".join(writer.origins),
            directions,
            pending,
            [(key, one.state()) for key, one in decoder_state.handshakes.items()],
            [(*_key(key), one) for key, one in decoder_state.agreed.items()],
            [(*_key(key), one.state()) for key, one in decoder_state.fragment_states.items()],
            wrapped,
            stanzas,
            list(decoder_state.seen),
        )
    )


def _key(speaker: tuple[bytes, int]) -> tuple[bytes, Side]:
    return speaker[0], 1 if speaker[1] else 0


def _direction_state(one: Direction, writer: _Writer) -> DirectionState:
    agreed = HandshakeReader.agreed(one.given) if _needs_handshake(one.flow) else None
    why = one.why and one.why.name
    waiting = writer.add(one, one.to_server)
    return DirectionState(waiting, one.mode, agreed, one.owed, why, 1 if one.first else 0, one.looked, one.is_hopeful)


def _wrapped_state(one: Wrapped, writer: _Writer) -> WrappedState:
    waiting = writer.add(one, one.to_server)
    return WrappedState(waiting, one.state.tolist(), one.start, one.missing, one.is_searching, one.looked, one.has_gap)


def _stream_state(one: Stream, to_server: int, writer: _Writer) -> StreamState:
    state = one.state.tolist()
    state[xmpp.DONE], state[xmpp.BEGAN] = 0, min(state[xmpp.BEGAN], 0)  # counted from the bytes that wait
    waiting = writer.add(one, to_server)
    return StreamState(waiting, state, one.is_passing, one.is_securing, one.has_gap, list(one.heard.items()))


class _Reader:
    """Gives bytes and pieces out again, after all of them were held to their ranges."""

    def __init__(self, state: StoredState) -> None:
        self._flows = state.flows
        for flow in state.flows:
            _check_flow(flow)
        self._data = np.frombuffer(state.data, np.uint8)
        check(len(state.origins) % _ORIGIN_BYTES == 0, "pieces are cut off")
        self._origins = np.frombuffer(state.origins, "<i8").astype(np.int64).reshape(-1, ORIGIN_COLUMNS)
        waiting = [one.waiting for one in state.directions]
        waiting += [one.waiting for said in state.pending for one in said]
        waiting += [one.waiting for *_, one in state.wrapped if one is not None]
        waiting += [one.waiting for *_, one in state.stanzas if one is not None]
        self._check(state, waiting)
        self._byte = self._origin = 0

    def _check(self, state: StoredState, waiting: list[Waiting]) -> None:
        check(sum(one.size for one in waiting) == len(self._data), "bytes that wait are missing")
        check(sum(one.count for one in waiting) == len(self._origins), "pieces are missing")
        check(all(one.flow < len(self._flows) for one in waiting), "there is no flow of this number")
        check(all(bool(one.size) == bool(one.count) for one in waiting), "bytes that wait have no pieces")
        sizes, counts = (np.array([getattr(one, name) for one in waiting], np.int64) for name in ("size", "count"))
        owners = np.repeat(np.arange(len(waiting)), counts)
        starts = self._origins[:, ORIGIN_START]
        first = np.diff(owners, prepend=-1) != 0
        check(bool((starts[first] == 0).all()), "the first piece does not begin with the first byte")
        check(bool((first[1:] | (np.diff(starts) >= 0)).all()), "pieces are not in order")
        check(bool((starts < sizes[owners]).all()), "a piece begins behind the bytes that wait")
        check_places(state.sources, state.spans, self._origins[:, ORIGIN_OFFSET], sizes[owners])

    def flow(self, waiting: Waiting) -> Flow:
        """Whose bytes they are."""
        return self._flows[waiting.flow]

    def next(self, waiting: Waiting) -> tuple[Array, Array]:
        """The next bytes, and their pieces; both may be written to."""
        data = self._data[self._byte : self._byte + waiting.size].copy()
        origins = self._origins[self._origin : self._origin + waiting.count].copy()
        self._byte += waiting.size
        self._origin += waiting.count
        return data, origins


def restore(decoder_state: DecoderState, content: bytes) -> None:
    """Give a new memory the state that was stored; raises StateError for one that cannot be."""
    state = decode(content, StoredState)
    check_spans(state.sources, state.spans)
    decoder_state.sources, decoder_state.spans = state.sources, state.spans
    reader = _Reader(state)
    for direction in state.directions:
        one = _direction(direction, reader)
        decoder_state.directions[one.flow.session_id, one.to_server] = one
    check(len(decoder_state.directions) == len(state.directions), "a direction is there twice")
    for waits in state.pending:
        said = [Segment(reader.flow(one.waiting), one.waiting.to_server, one.missing, *reader.next(one.waiting)) for one in waits]
        check(len({one.flow.session_id for one in said}) == 1, "what waits for a handshake is of several connections")
        check(all(_needs_handshake(one.flow) for one in said), "a protocol without a handshake waits for one")
        decoder_state.pending[said[0].flow.session_id] = said
    check(len(decoder_state.pending) == len(state.pending), "a connection is there twice")
    decoder_state.handshakes = {key: HandshakeReader.restored(one) for key, one in state.handshakes}
    decoder_state.agreed = {(key, side): one for key, side, one in state.agreed}
    decoder_state.fragment_states = {(key, side): _ear(one) for key, side, one in state.fragment_states}
    decoder_state.wrapped = {(key, side): one and _wrapped(one, (key, side), reader) for key, side, one in state.wrapped}
    decoder_state.stanzas = {(key, side): one and _stream(one, (key, side), reader) for key, side, one in state.stanzas}
    decoder_state.seen = dict.fromkeys(state.seen)


def _check_flow(flow: Flow) -> None:
    """Hold a flow to what the decoder can read, and tables have columns for."""
    check(1 <= len(flow.session_id) <= 64, "a session has no id")
    check(flow.protocol in protocols.ROOMS, f"no protocol is called {flow.protocol!r}")
    check("MESSAGE_CUT" in protocols.room(flow.protocol).Fault.__members__, f"{flow.protocol} has no streams")
    check(all(0 <= end.port <= 0xFFFF for end in (flow.client, flow.server)), "a port is none")


def _check_wrapping(flow: Flow, wrapping: str, key: tuple[bytes, int]) -> None:
    check(wrapping in getattr(protocols.room(flow.protocol), "WRAPPINGS", ()), f"{flow.protocol} does not travel inside {wrapping}")
    check(flow.session_id == key[0], "a flow has two ids")


def _needs_handshake(flow: Flow) -> bool:
    return hasattr(protocols.room(flow.protocol), "HandshakeReader")


def _direction(state: DirectionState, reader: _Reader) -> Direction:
    flow = reader.flow(state.waiting)
    check(state.mode == READING or state.why is not None, "nothing says why bytes are passed over")
    check(state.mode == DEAD or (state.agreed is not None) == _needs_handshake(flow), "nothing says how bytes are to be read")
    given = HandshakeReader.given(state.agreed)
    why = None if state.why is None else _why(state.why, flow)
    data, origins = reader.next(state.waiting)
    told = (state.owed, why, state.first, state.looked, state.is_hopeful)
    return Direction(flow, state.waiting.to_server, state.mode, given, data, origins, *told)


def _why(name: str, flow: Flow) -> Any:
    faults = protocols.room(flow.protocol).Fault.__members__
    check(name in faults or name in _GAPS, f"{flow.protocol} has no fault {name!r}")
    return _GAPS.get(name) or faults[name]


def _ear(state: PassiveState) -> PassiveDecoder:
    decoder = PassiveDecoder.restored(state)
    check(decoder is not None, "pieces of a message contradict each other")
    assert decoder is not None  # noqa: S101 - checked
    return decoder


def _wrapped(state: WrappedState, key: tuple[bytes, int], reader: _Reader) -> Wrapped:
    flow = reader.flow(state.waiting)
    _check_wrapping(flow, "websocket", key)
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
    _check_wrapping(flow, "xmpp", key)
    check(xmpp.is_state(state.state), "a stream of XMPP is in a state that there is not")
    one = Stream(flow)
    one.state[:] = state.state
    one.data, one.origins = reader.next(state.waiting)
    one.is_passing, one.is_securing, one.has_gap, one.heard = state.is_passing, state.is_securing, state.has_gap, dict(state.heard)
    return one
