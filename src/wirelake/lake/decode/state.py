"""DecoderState: all that a decoder keeps of connections between blocks, files and tasks.

Decoded rows depend on the bytes of a connection, never on where those were cut. So all bytes that wait for more are here, and nowhere else.
A state can be stored as bytes and restored. It holds no keys.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake.capture.blocks.block import (
    OFFSET_MASK,
    ORIGIN_OFFSET,
    SOURCE_SHIFT,
    Block,
    Flow,
    FlowEvent,
    Source,
    Span,
    Unreadable,
    renamed,
)
from wirelake.capture.blocks.flow_events import EVENT_OFFSET, FlowEvents
from wirelake.lake.decode.accounting import Where
from wirelake.lake.decode.seen_pairs import SeenPairs
from wirelake.protocols.faults import Faults
from wirelake.protocols.kernel import ScanLimits
from wirelake.protocols.protocol import FragmentState, HandshakeReader, Limits

if TYPE_CHECKING:
    from wirelake.lake.decode.websocket import Wrapped
    from wirelake.lake.decode.xmpp import Stream

__all__ = ["MAX_REMEMBERED", "MAX_SOURCES", "DecoderState", "Direction", "Gap", "Reason", "Segment", "Speaker"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
Speaker = tuple[bytes, int]
"""Session id, and 1 for the client or 0 for the server."""

MAX_REMEMBERED: Final = 1 << 17
"""Entries of each table of a state: connections, speakers, or connections in sources.

Beyond this the older half is dropped.
"""
MAX_SOURCES: Final = 1 << 10
"""Sources that are numbered before unused ones are dropped."""


class Gap(msgspec.Struct, frozen=True):
    """Why bytes of a stream are no message though no sender broke a rule.

    The capture lacks bytes, or cannot be read.
    """

    name: str = "GAP"
    clause: str | None = None
    text: str = "bytes are missing from the capture here"


Reason = Faults | Gap
"""Why bytes go to quarantine."""


class Segment(msgspec.Struct):
    """Bytes of one direction as they come next, and the pieces that lead back to their source."""

    flow: Flow
    to_server: int
    missing: int
    """Bytes that are missing before them; see `RUN_MISSING`."""
    data: ByteArray
    origins: IntArray

    @property
    def speaker(self) -> Speaker:
        """The side that sent it."""
        return self.flow.session_id, self.to_server


class Direction(msgspec.Struct):
    """How far one direction of a stream has been read, and its bytes that wait for more."""

    flow: Flow
    to_server: int
    mode: int
    """See `streams.py`."""
    scan_limits: ScanLimits = ()
    """For the scanner's kernels."""
    data: ByteArray = msgspec.field(default_factory=lambda: np.zeros(0, np.uint8))
    origins: IntArray = msgspec.field(default_factory=lambda: np.zeros((0, 3), np.int64))
    owed: int = 0
    """Bytes that belong to a message broken by a gap, including those that wait."""
    why: Reason | None = None
    """Why bytes are passed over."""
    first: int = 0
    """Where in the bytes that wait the search begins."""
    looked: int = 0
    """How many windows were searched in vain."""
    is_hopeful: bool = False
    """If no message is certain, assume that one begins with the first byte."""


class DecoderState:
    """The state of the connections that one task reads."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        """By number: every stored place has the number of its source here."""
        self.spans: list[Span] = []
        self.directions: dict[Speaker, Direction] = {}
        """Streams, oldest first."""
        self.pending: dict[bytes, list[Segment]] = {}
        """Connection -> segments that wait for the end of its handshake."""
        self.handshakes: dict[bytes, HandshakeReader[Limits]] = {}
        """Connection -> its handshake, once it is over."""
        self.agreed: dict[Speaker, str] = {}
        """The body serializer of each speaker, where a protocol negotiates one."""
        self.fragment_states: dict[Speaker, FragmentState] = {}
        """Unfinished messages of each speaker, where a protocol has messages in pieces."""
        self.wrapped: dict[Speaker, Wrapped | None] = {}
        """The state of each speaker's WebSocket, where there may be one; None: there is none."""
        self.stanzas: dict[Speaker, Stream | None] = {}
        """The state of each speaker's XMPP stream, where there may be one; None: there is none."""
        self.seen = SeenPairs()
        """(connection, source) that `connections` has a row for."""

    @property
    def waiting(self) -> int:
        """Bytes that wait."""
        return sum(len(one.data) for one in self._waiting())

    @property
    def where(self) -> Where:
        """The sources and spans that stored places lead to."""
        return Where(self.sources, self.spans)

    def rename(self, names: Mapping[bytes, str]) -> None:
        """Give sources the paths that they have now, by id."""
        self.sources = [renamed(source, names) for source in self.sources]

    def renumber(self, block: Block) -> Block:
        """The same block, its places numbered as they are here; its sources and spans are known from now on."""
        sources, spans = block.all_sources(), block.all_spans()
        if not any(len(one.data) for one in self._waiting()):
            self.sources, self.spans = list(sources), list(spans)
            return block
        if len(self.sources) + len(sources) > MAX_SOURCES:
            self.narrow()
        known = {source.id: number for number, source in enumerate(self.sources)}
        for source in sources:
            if source.id not in known:
                known[source.id] = len(self.sources)
                self.sources.append(source)
            else:
                self.sources[known[source.id]] = source
        numbers = np.array([known[source.id] for source in sources], np.int64)

        def moved(at: int) -> int:
            return int(numbers[at >> SOURCE_SHIFT]) << SOURCE_SHIFT | at & OFFSET_MASK

        there = {span.at: number for number, span in enumerate(self.spans)}
        for span in spans:
            if span.mark and moved(span.at) in there:
                self.spans[there[moved(span.at)]] = msgspec.structs.replace(span, at=moved(span.at))
        for span in spans:
            if moved(span.at) not in there:
                insort(self.spans, msgspec.structs.replace(span, at=moved(span.at)), key=lambda one: one.at)
        if (numbers == np.arange(len(numbers))).all():
            return block
        return Block(
            block.source,
            block.data,
            block.segments,
            _moved(block.origins, numbers),
            block.flows,
            _moved_events(block.events, numbers),
            [msgspec.structs.replace(one, at=moved(one.at)) for one in block.accounts],
            [Unreadable(moved(one.offset), one.length, one.layer, one.reason, one.raw) for one in block.unreadable],
            block.last,
        )

    def narrow(self) -> None:
        """Drop sources and spans that no waiting bytes come from."""
        places = [one.origins[:, ORIGIN_OFFSET] for one in self._waiting()]
        used = np.concatenate(places) if places else np.zeros(0, np.int64)
        starts = np.array([span.at for span in self.spans], np.int64)
        spans = np.unique(np.searchsorted(starts, used, side="right") - 1).tolist()
        kept = np.unique(used >> SOURCE_SHIFT)
        numbers = np.zeros(len(self.sources), np.int64)
        numbers[kept] = np.arange(len(kept))
        self.sources = [self.sources[number] for number in kept.tolist()]
        old = [self.spans[number] for number in spans]
        self.spans = [
            msgspec.structs.replace(one, at=int(numbers[one.at >> SOURCE_SHIFT]) << SOURCE_SHIFT | one.at & OFFSET_MASK) for one in old
        ]
        for waits in self._waiting():
            waits.origins = _moved(waits.origins, numbers)

    def forget(self) -> None:
        """Drop the older half of each table that is over its limit."""
        tables: list[dict[Any, Any]] = [self.handshakes, self.agreed, self.fragment_states, self.wrapped, self.stanzas]
        for table in tables:
            if len(table) > MAX_REMEMBERED:
                for key in list(table)[: len(table) // 2]:
                    may_wait = table is self.stanzas or table is self.wrapped
                    if not (may_wait and table[key] is not None and len(table[key].data)):  # what waits is still to be accounted for
                        del table[key]
        if len(self.seen) > MAX_REMEMBERED:
            self.seen.drop_oldest(len(self.seen) // 2)

    def drop(self, connections: Collection[bytes]) -> None:
        """Drop these connections, as if they had never been seen; and the state of all XMPP streams."""
        self.stanzas.clear()
        by_connection: list[dict[Any, Any]] = [
            self.directions,
            self.pending,
            self.handshakes,
            self.agreed,
            self.fragment_states,
            self.wrapped,
        ]
        for one in by_connection:
            for key in [key for key in one if (key if isinstance(key, bytes) else key[0]) in connections]:
                del one[key]
        self.seen.drop(connections)

    def take(self) -> bytes:
        """All of it as bytes."""
        from wirelake.lake.decode import state_codec  # noqa: PLC0415 - it imports modules that import this one

        self.narrow()
        return state_codec.encoded(self)

    @classmethod
    def put(cls, taken: bytes) -> DecoderState:
        """Restore a state from bytes; raises StateError if they are damaged."""
        from wirelake.lake.decode import state_codec as decode_state_codec  # noqa: PLC0415 - it imports modules that import this one

        decoder_state = cls()
        decode_state_codec.restore(decoder_state, taken)
        return decoder_state

    def _waiting(self) -> Iterator[Direction | Segment | Stream | Wrapped]:
        yield from self.directions.values()
        yield from chain.from_iterable(self.pending.values())
        yield from (one for held in (self.stanzas, self.wrapped) for one in held.values() if one is not None)


def _moved_events(events: Sequence[FlowEvent], numbers: IntArray) -> Sequence[FlowEvent]:
    """Events whose sources have other numbers now."""
    if isinstance(events, FlowEvents):
        return FlowEvents(_moved(events.table, numbers, EVENT_OFFSET))
    return [
        msgspec.structs.replace(one, offset=int(numbers[one.offset >> SOURCE_SHIFT]) << SOURCE_SHIFT | one.offset & OFFSET_MASK)
        for one in events
    ]


def _moved(origins: IntArray, numbers: IntArray, column: int = ORIGIN_OFFSET) -> IntArray:
    """Pieces whose sources have other numbers now."""
    moved = origins.copy()
    moved[:, column] = numbers[origins[:, column] >> SOURCE_SHIFT] << SOURCE_SHIFT | origins[:, column] & OFFSET_MASK
    return moved
