"""Assembly: packet batches of one bucket in order, connections across files, blocks out.

A task that has a bucket has every packet of its connections. `lake/jobs` and `lake/sources` feed the batches and decode the blocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from wirelake.capture.blocks.accounting import Accounting
from wirelake.capture.blocks.block import OFFSET_MASK, ORIGIN_COLUMNS, SEGMENT_COLUMNS, SOURCE_SHIFT, Block, Source, Span, place, renamed
from wirelake.capture.blocks.builder import BlockBuilder
from wirelake.capture.blocks.flows import view_id
from wirelake.capture.blocks.from_packets import FlowAssembler
from wirelake.capture.blocks.packet_batch import TS_AT, PacketBatch, route
from wirelake.capture.blocks.stored_state import Number, Record
from wirelake.capture.containers.records import NO_TIME
from wirelake.capture.packets.tracked import Dialect, one_dialect

__all__ = ["BLOCK_BYTES", "MAX_SOURCES", "Assembly"]

BLOCK_BYTES: Final = 4 << 20
"""Bytes collected before they become a block."""
MAX_SOURCES: Final = 1 << 14
"""Sources whose connections are followed from one to the next; after so many, all state is dropped.

Offsets have bits for twice as many.
"""


ANY_BUCKET: Final = (1 << 31) - 1
"""Buckets that connections are told apart by."""
ROTATION_US: Final = 50_000
"""Packets of one connection may be out of order by this much where a rotated capture goes on in its next file."""
MAX_SEEN: Final = 1 << 18
"""Connections of which it is known who saw them; of more, the older half is forgotten."""


class Sighting(Record):
    """What one observer saw of a connection."""

    root: bytes
    """The source in which it begins; empty for the first observer's."""
    current: bytes
    """The source in which it goes on."""
    last: Number
    """Time of its last packet."""


class Assembly:
    """The state of all connections of one task's bucket."""

    def __init__(self, ports: Mapping[int, str], sniff: Callable[[bytes], str | None], dialect: Dialect = one_dialect) -> None:
        self._ports = ports
        self._sniff = sniff
        self._dialect = dialect
        self._observer = ""
        """The first capture of the observer, if it saw the same connections as another one."""
        self._others: dict[bytes, Assembly] = {}
        """Id of a source -> what an observer saw that begins with it, of connections that others saw at the same time."""
        self._seen: dict[int, list[Sighting]] = {}
        """Hash of a connection -> who saw it."""
        self._begin()

    def _begin(self) -> None:
        self._sources: list[Source] = []
        self._spans: list[Span] = []
        self._starts: list[int] = []
        self._accounting = Accounting(self._starts)
        self._builder = BlockBuilder()
        self._flows: FlowAssembler | None = None

    @property
    def _flow_assembler(self) -> FlowAssembler:
        """All flows. Made for the first packets: recordings have none, and looking up ports imports every protocol."""
        if self._flows is None:
            self._flows = FlowAssembler(self._ports, self._sniff, self._builder, self._accounting, dialect=self._dialect)
        return self._flows

    def take(self) -> bytes:
        """Return the state of all connections as bytes, to continue from later. Call `rest` before."""
        from wirelake.capture.blocks import assembly_state  # noqa: PLC0415 - it imports this module

        self._narrow()
        return assembly_state.encoded(self)

    @staticmethod
    def put(taken: bytes, ports: Mapping[int, str], sniff: Callable[[bytes], str | None], dialect: Dialect = one_dialect) -> Assembly:
        """Return an assembly that continues from a state; raises StateError if the state is invalid."""
        from wirelake.capture.blocks import assembly_state  # noqa: PLC0415 - it imports this module

        assembly = Assembly(ports, sniff, dialect)
        assembly_state.restore(assembly, taken)
        return assembly

    def _narrow(self) -> None:
        """Drop sources and spans of which nothing is held, and renumber the others."""
        used = sorted(set(self._flow_assembler.places()))
        kept = sorted({place >> SOURCE_SHIFT for place in used})
        numbers = {old: new for new, old in enumerate(kept)}
        spans = [self._spans[number] for number in sorted({bisect_right(self._starts, place) - 1 for place in used})]

        def moved(at: int) -> int:
            return place(numbers[at >> SOURCE_SHIFT], at & OFFSET_MASK)

        self._flow_assembler.move(moved)
        self._sources[:] = [self._sources[number] for number in kept]
        self._spans[:] = [msgspec.structs.replace(span, at=moved(span.at)) for span in spans]
        self._starts[:] = [span.at for span in self._spans]

    def feed(self, batch: PacketBatch) -> Iterator[Block]:
        """Add the next packet batch; yields full blocks. Connections that another capture has at the same time are assembled apart."""
        if not batch.source.begins or batch.source.observer or not len(batch.packets):
            yield from self._feed(batch)
            return
        whose = self._whose(batch)
        for source_id in dict.fromkeys([b"", *whose]):  # even without packets, a batch has spans
            chosen = np.array([one == source_id for one in whose], np.bool_)
            part = msgspec.structs.replace(batch, packets=batch.packets[chosen])
            if not source_id:
                yield from self._feed(part)
                continue
            other = self._others.get(source_id)
            if other is None:
                other = self._others[source_id] = Assembly(self._ports, self._sniff, self._dialect)
                other._observer = Source("", source_id, 0).capture_observer
            yield from other._feed(part)

    def _whose(self, batch: PacketBatch) -> list[bytes]:
        """Say for each packet whose sighting of its connection it belongs to: the id of a source, empty for the first observer's.

        A connection goes on in a file that begins after its last packet. In other files it is seen once more.
        """
        connections, places = np.unique(route(batch.data, batch.packets, ANY_BUCKET), return_inverse=True)
        ts = batch.packets[:, TS_AT]
        last = np.full(len(connections), NO_TIME)
        np.maximum.at(last, places, ts)
        found: list[bytes] = []
        for connection, until in zip(connections.tolist(), last.tolist(), strict=True):
            sightings = self._seen.setdefault(connection, [])
            mine = next((one for one in sightings if one.current == batch.source.id), None)
            if mine is None:
                before = [one for one in sightings if one.last <= batch.source.begins + ROTATION_US]
                mine = max(before, key=lambda one: one.last, default=None)
            if mine is None:
                mine = Sighting(batch.source.id if sightings else b"", batch.source.id, until)
                sightings.append(mine)
            mine.current, mine.last = batch.source.id, max(mine.last, until)
            found.append(mine.root)
        if len(self._seen) > MAX_SEEN:
            for connection in list(self._seen)[: MAX_SEEN // 2]:
                del self._seen[connection]
        return [found[place] for place in places.tolist()]

    def _feed(self, batch: PacketBatch) -> Iterator[Block]:
        if not self._sources or self._sources[-1].id != batch.source.id:
            if len(self._sources) >= MAX_SOURCES:
                yield from self.finish()
                self._begin()
            self._sources.append(batch.source)
        base = place(len(self._sources) - 1, 0)
        for span in batch.spans:
            at = bisect_left(self._starts, base + span.at)
            if at == len(self._starts) or self._starts[at] != base + span.at:
                self._starts.insert(at, base + span.at)
                self._spans.insert(at, msgspec.structs.replace(span, at=base + span.at))
        table = batch.packets
        self._flow_assembler.packets(batch.data, table, base)
        if self._builder.size >= BLOCK_BYTES:
            yield from self._blocks()

    def rename(self, names: Mapping[bytes, str]) -> None:
        """Give sources the paths that they have now, by id."""
        self._sources[:] = [renamed(source, names) for source in self._sources]

    def rest(self) -> Iterator[Block]:
        """Yield what was collected so far; connections continue."""
        for other in self._others.values():
            yield from other._blocks()
        yield from self._blocks()

    def finish(self) -> Iterator[Block]:
        """End all connections and yield the last block, marked as the last."""
        for other in self._others.values():
            if other._flows is not None:
                other._flows.finish()
            yield from other._blocks()
        if self._flows is not None:
            self._flows.finish()
        for block in self._blocks(always=True):
            block.last = True
            yield block

    def _blocks(self, *, always: bool = False) -> Iterator[Block]:
        if not self._sources:
            return
        accounts, unreadable = self._accounting.take()
        block = self._builder.take(self._sources[0])
        if block is None:
            if not accounts and not always:
                return
            block = Block(self._sources[0], b"", np.empty((0, SEGMENT_COLUMNS), np.int64), np.empty((0, ORIGIN_COLUMNS), np.int64))
        if self._observer:
            block.flows = [msgspec.structs.replace(flow, session_id=view_id(flow.session_id, self._observer)) for flow in block.flows]
        block.accounts, block.unreadable = accounts, unreadable
        block.sources, block.spans = list(self._sources), list(self._spans)
        yield block
