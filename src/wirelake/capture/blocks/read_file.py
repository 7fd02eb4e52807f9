"""Read one capture file into blocks, window by window, with bounded memory.

Recordings (exported PDUs) become blocks over the file's own bytes; packets become blocks of TCP and UDP payload. No content of a file
raises: what cannot be read becomes unreadable ranges, and segments and accounts of all blocks add up to the size of the file. Only a file
that cannot be opened, or is shorter than when it was identified, raises CaptureError.

`read_split.py` is the same for many tasks that read one file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from wirelake.capture.blocks.accounting import CONTAINER, Accounting
from wirelake.capture.blocks.block import ORIGIN_COLUMNS, SEGMENT_COLUMNS, Block, Source, Span
from wirelake.capture.blocks.builder import BlockBuilder
from wirelake.capture.blocks.from_packets import FlowAssembler
from wirelake.capture.blocks.from_recording import RecordingReader
from wirelake.capture.containers.detect import HEAD_SIZE, Container, recognise, restore
from wirelake.capture.containers.records import KIND, LENGTH, LINK, RECORD_BAD_DATA, RECORD_KINDS, RECORD_PACKET, SIZE, START
from wirelake.capture.containers.walk import WINDOW, Damaged, Walk, Window
from wirelake.capture.files import identity
from wirelake.capture.files.source_file import Bytes, Compressed, open_source, read_range
from wirelake.capture.files.split import Split
from wirelake.capture.packets.filter import EVERYTHING, PacketFilter
from wirelake.capture.packets.tracked import Dialect, one_dialect
from wirelake.capture.record.exported_pdu import LINK_EXPORTED

__all__ = ["WINDOW", "account_compression", "account_records", "open_container", "read", "walk_split", "walked_mark"]


def open_container(source: Source) -> Container:
    """Return the container of a file; raises CaptureError if it is no capture.

    `read` makes such a file unreadable instead.
    """
    return recognise(source.path, read_range(source, 0, HEAD_SIZE))


def read(
    source: Source,
    *,
    ports: Mapping[int, str],
    sniff: Callable[[bytes], str | None],
    protocols: Collection[str] | None = None,
    window: int = WINDOW,
    split: Split | None = None,
    packet_filter: PacketFilter = EVERYTHING,
    dialect: Dialect = one_dialect,
) -> Iterator[Block]:
    """Read a capture, or one split of it.

    The last block is marked, and of a split has the hash of its bytes.

    A flow's protocol is known by the tag of a recording (any, or only those in `protocols`), by `ports` at either end, or by what `sniff`
    returns for the first bytes of a direction or datagram (None: not known, or not yet). `dialect` returns the dialect of a stream by its
    first bytes. Packets that `packet_filter` excludes are neither followed nor accounted for.
    """
    with open_source(source) as file:
        walk = walk_split(source, file, split, window, hashed=True)
        yield from _Reading(source, file, ports, sniff, protocols, walk, packet_filter, dialect, marked=split is not None).blocks()


def walk_split(source: Source, file: Bytes, split: Split | None, window: int = WINDOW, *, hashed: bool = False) -> Walk:
    """Return a walk over a split, or over everything."""
    if split is None:
        return Walk(source.path, file, window=window)
    container = restore(split.known) if split.known else None
    more = {"growing": split.growing, "hashed": hashed and not isinstance(file, Compressed)}
    return Walk(source.path, file, at=split.begin, stop=split.end, container=container, window=window, **more)


def walked_mark(source: Source, walk: Walk, span: Span) -> bytes:
    """Return the hash of a span that was walked to its end; of a compressed source, of its stored bytes."""
    return walk.digest.digest() if walk.digest else identity.content(source, span.at, span.length)


def account_records(step: Window, accounting: Accounting) -> np.ndarray[Any, Any]:
    """Account for everything in a window that is not inside a packet; returns the packets."""
    rows = step.rows
    is_packet = rows[:, KIND] == RECORD_PACKET
    packets: np.ndarray[Any, Any] = rows if is_packet.all() else rows[is_packet]
    around = int(packets[:, LENGTH].sum() - packets[:, SIZE].sum())
    accounting.add(CONTAINER, "packet record", around, len(packets), step.base)
    if len(packets) == len(rows):
        return packets
    is_bad = rows[:, KIND] >= RECORD_BAD_DATA
    for kind in np.unique(rows[~is_packet & ~is_bad, KIND]).tolist():
        sizes = rows[rows[:, KIND] == kind, LENGTH]
        accounting.add(CONTAINER, RECORD_KINDS[kind], int(sizes.sum()), len(sizes), step.base)
    for record in rows[is_bad].tolist():
        raw = step.data[record[START] : record[START] + record[LENGTH]]
        accounting.quarantine(step.base + record[START], raw, step.layer, RECORD_KINDS[record[KIND]])
    return packets


def account_compression(file: Bytes, accounting: Accounting) -> None:
    """Account for what compression saved, and for compressed bytes that cannot be decompressed."""
    if not isinstance(file, Compressed):
        return
    accounting.add(CONTAINER, "spared by compression", file.compressed_at - file.decompressed, 1)
    at = file.decompressed
    while file.broken and (raw := file.left()):
        accounting.quarantine(at, raw, "file", file.broken)
        at += len(raw)


class _Reading:
    """One pass over one file."""

    def __init__(
        self,
        source: Source,
        file: Bytes,
        ports: Mapping[int, str],
        sniff: Callable[[bytes], str | None],
        protocols: Collection[str] | None,
        walk: Walk,
        packet_filter: PacketFilter,
        dialect: Dialect,
        *,
        marked: bool,
    ) -> None:
        self._source = source
        self._marked = marked
        self._file = file
        self._walk = walk
        self._span = Span(walk.at, min(walk.stop, source.size) - walk.at)
        self._accounting = Accounting((walk.at,))
        self._builder = BlockBuilder()
        self._flow_assembler = FlowAssembler(ports, sniff, self._builder, self._accounting, packet_filter, dialect)
        self._recording_reader = RecordingReader(ports, protocols, self._accounting, source.observer)

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks. Each waits for the next step, so that the last can be marked."""
        waiting: list[Block] = []
        for step in self._walk.steps():
            blocks = self._step(step)
            if blocks:
                yield from waiting
                waiting = blocks
        self._flow_assembler.finish()
        account_compression(self._file, self._accounting)
        blocks = self._complete([])
        if blocks:
            yield from waiting
            waiting = blocks
        if not waiting:
            waiting = [self._empty()]
        waiting[-1].last = True
        if self._marked:
            mark = walked_mark(self._source, self._walk, self._span)
            waiting[-1].spans = [msgspec.structs.replace(self._span, mark=mark)]
        yield from waiting

    def _step(self, step: Window | Damaged) -> list[Block]:
        if isinstance(step, Damaged):
            self._accounting.quarantine(step.base, step.raw, step.layer, step.reason)
            return self._complete([])
        packets = account_records(step, self._accounting)
        exported = packets[:, LINK] == LINK_EXPORTED
        blocks = []
        if exported.any():
            blocks.append(self._recording_reader.block(self._source, step.base, step.data, step.used, packets[exported]))
        if not exported.all():
            self._flow_assembler.window(step.base, step.data, packets[~exported])
        return self._complete(blocks)

    def _complete(self, blocks: list[Block | None]) -> list[Block]:
        """Return blocks with what was collected and accounted for; none if there is nothing."""
        ready = [block for block in (*blocks, self._builder.take(self._source)) if block is not None]
        accounts, unreadable = self._accounting.take()
        if not ready:
            if not accounts:
                return []
            ready = [self._empty()]
        ready[0].accounts, ready[0].unreadable = accounts, unreadable
        for block in ready:
            block.spans = [self._span]
        return ready

    def _empty(self) -> Block:
        return Block(self._source, b"", np.empty((0, SEGMENT_COLUMNS), np.int64), np.empty((0, ORIGIN_COLUMNS), np.int64))
