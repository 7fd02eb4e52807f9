"""Read one split of a capture: packet batches for assembling tasks, blocks of the rest.

It is `read_file.py` for many tasks: recorded payloads become blocks in the same way, and accounts travel with blocks that may be empty.
Packets are partitioned into buckets by connection. So are recorded payloads of stateful protocols, whose later messages need earlier ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from wirelake.capture.blocks.accounting import Accounting
from wirelake.capture.blocks.block import (
    ORIGIN_COLUMNS,
    ORIGIN_OFFSET,
    ORIGIN_START,
    ORIGIN_TS,
    SEGMENT_COLUMNS,
    SEGMENT_FLOW,
    SEGMENT_START,
    SEGMENT_STOP,
    Block,
    Source,
    Span,
)
from wirelake.capture.blocks.from_recording import RecordingReader
from wirelake.capture.blocks.packet_batch import Packer, PacketBatch
from wirelake.capture.blocks.read_file import account_compression, account_records, walk_split, walked_mark
from wirelake.capture.containers.detect import restore
from wirelake.capture.containers.records import KIND, LINK, RECORD_PACKET
from wirelake.capture.containers.walk import EVERYTHING, WINDOW, Damaged, Walk, Window
from wirelake.capture.files.identity import content
from wirelake.capture.files.source_file import Bytes, open_plain, open_source
from wirelake.capture.files.split import Split
from wirelake.capture.packets.ip_fragments import REACH
from wirelake.capture.record.exported_pdu import LINK_EXPORTED
from wirelake.errors import SourceChanged

__all__ = ["Partitioned", "ReadTask", "StepReader", "partition", "quarantine", "quarantine_rest", "read_split", "read_tasks"]


class ReadTask(msgspec.Struct, frozen=True):
    """One split of a source, with the spans of earlier splits it needs."""

    source: Source
    split: Split
    spans: list[Span]
    """The span of this split, last, and those before it that may hold IP fragments of its datagrams."""
    is_last: bool = True
    rank: int = 0
    """The order of sources in time."""
    spoilt: str = ""
    """Why its bytes go to quarantine unread; empty if it is to be read."""

    @property
    def size(self) -> int:
        """Bytes of the source that are to be read."""
        return self.spans[-1].length


class Partitioned(msgspec.Struct):
    """Recorded payloads of some connections, for the task of their bucket; see `PacketBatch`."""

    block: Block
    rank: int
    place: int
    bucket: int


def read_tasks(source: Source, splits: list[Split], rank: int = 0) -> list[ReadTask]:
    """Return the read tasks of a source; without splits, one for all of it.

    Spans of a compressed source count stored bytes.
    """
    splits = splits or [Split(0, EVERYTHING, None)]
    ends = [*(split.begin for split in splits[1:]), source.size]
    spans = [Span(split.begin, end - split.begin) for split, end in zip(splits, ends, strict=True)]
    tasks = []
    for number, split in enumerate(splits):
        near = number
        while near and spans[near].at > split.begin - REACH:
            near -= 1
        tasks.append(ReadTask(source, split, spans[near : number + 1], number == len(splits) - 1, rank))
    return tasks


def quarantine_rest(source: Source, begin: int, reason: str) -> ReadTask:
    """Return a task that puts a source into quarantine from an offset on, because it cannot be decoded."""
    return ReadTask(source, Split(begin, EVERYTHING, None), [Span(begin, source.size - begin)], spoilt=reason)


def quarantine(task: ReadTask) -> Iterator[Block]:
    """Yield the stored bytes of a task, all of them for quarantine."""
    span, accounting = task.spans[-1], Accounting([task.spans[-1].at])
    at, stop = span.at, span.at + span.length
    with open_plain(task.source) as plain:
        while at < stop:
            raw = plain.window(at, min(WINDOW, stop - at))
            accounting.quarantine(at, raw, "decoder", task.spoilt)
            at += len(raw)
            yield from _complete(task.source, task.spans, None, accounting)
    marked = msgspec.structs.replace(span, mark=content(task.source, span.at, span.length))
    yield from _complete(task.source, [marked], None, accounting, always=True)


def read_split(
    task: ReadTask,
    *,
    buckets: int = 1,
    ports: Mapping[int, str],
    protocols: Collection[str] | None = None,
    partitioned: Collection[str] = (),
    window: int = WINDOW,
) -> Iterator[PacketBatch | Partitioned | Block]:
    """Read one split.

    Connections are partitioned into buckets, recorded ones only of the protocols in `partitioned`.
    """
    source, split = task.source, task.split
    reader = StepReader(source, task.spans, rank=task.rank, buckets=buckets, ports=ports, protocols=protocols, partitioned=partitioned)
    with open_source(source) as file:
        if split.begin:
            reader.warm(_before(source, file, split, window))
        walk = walk_split(source, file, split, window, hashed=True)
        for step in walk.steps():
            yield from reader.step(step)
        if walk.at != split.end and split.growing:
            raise SourceChanged(source.path, walk.at, f"is not what it was: records ended at byte {split.end}")
        span = task.spans[-1]
        mark = walked_mark(source, walk, span)
        if span.mark not in (b"", mark):
            raise SourceChanged(source.path, span.at, "has other bytes than when it was planned")
        yield from reader.finish(walk.at, file, mark, is_last=task.is_last)


class StepReader:
    """Turns the steps of one walk over a source into packet batches and blocks.

    `spans` are those of `ReadTask`.
    """

    def __init__(
        self,
        source: Source,
        spans: list[Span],
        *,
        rank: int = 0,
        buckets: int = 1,
        ports: Mapping[int, str],
        protocols: Collection[str] | None = None,
        partitioned: Collection[str] = (),
    ) -> None:
        self._source = source
        self._spans = spans
        self._rank = rank
        self._buckets = buckets
        self._partitioned = partitioned
        self._accounting = Accounting([span.at for span in spans])
        self._packer = Packer(source, rank, buckets, spans, self._accounting)
        self._recording_reader = RecordingReader(ports, protocols, self._accounting, source.observer)

    def warm(self, steps: Iterator[tuple[int, bytes, np.ndarray[Any, Any]]]) -> None:
        """Add the packets of windows before the walk (base, data, records)."""
        self._packer.warm(steps)

    def step(self, step: Window | Damaged) -> Iterator[PacketBatch | Partitioned | Block]:
        """Yield what one step has."""
        block = None
        if isinstance(step, Damaged):
            self._accounting.quarantine(step.base, step.raw, step.layer, step.reason)
        else:
            packets = account_records(step, self._accounting)
            exported = packets[:, LINK] == LINK_EXPORTED
            if exported.any():
                block = self._recording_reader.block(self._source, step.base, step.data, step.used, packets[exported])
            if block is not None:
                block.spans = self._spans
                block, sent = partition(block, self._partitioned, self._buckets)
                yield from (Partitioned(one, self._rank, step.base, bucket) for bucket, one in sent.items())
            if not exported.all():
                yield from self._packer.window(step.base, step.data, packets[~exported] if exported.any() else packets)
        yield from _complete(self._source, self._spans, block, self._accounting)

    def finish(self, end: int, file: Bytes, mark: bytes = b"", *, is_last: bool) -> Iterator[Block]:
        """Yield the rest after a walk that ended at `end`; `mark` is the hash of its bytes."""
        self._packer.finish(end, is_last=is_last)
        account_compression(file, self._accounting)
        spans = [*self._spans[:-1], msgspec.structs.replace(self._spans[-1], mark=mark)]
        yield from _complete(self._source, spans, None, self._accounting, always=True)


def partition(block: Block, partitioned: Collection[str], buckets: int) -> tuple[Block, dict[int, Block]]:
    """Split a block of recorded payloads: what stays, and by bucket the connections of these protocols."""
    targets = np.array(
        [int.from_bytes(one.session_id[:8]) % buckets if one.protocol in partitioned else -1 for one in block.flows], np.int64
    )
    if not (targets >= 0).any():
        return block, {}
    data = np.frombuffer(block.data, np.uint8)
    of_segments = targets[block.segments[:, SEGMENT_FLOW]]
    sent = {}
    for bucket in np.unique(targets[targets >= 0]).tolist():
        flows = np.flatnonzero(targets == bucket)
        numbers = np.zeros(len(targets), np.int64)
        numbers[flows] = np.arange(len(flows))
        old = block.segments[of_segments == bucket]
        segments, origins = old.copy(), np.empty((len(old), ORIGIN_COLUMNS), np.int64)
        segments[:, SEGMENT_STOP] = np.cumsum(old[:, SEGMENT_STOP] - old[:, SEGMENT_START])
        segments[:, SEGMENT_START] = segments[:, SEGMENT_STOP] - (old[:, SEGMENT_STOP] - old[:, SEGMENT_START])
        segments[:, SEGMENT_FLOW] = numbers[old[:, SEGMENT_FLOW]]
        mine = block.origins[of_segments == bucket]  # one record is one segment and one origin
        origins[:, ORIGIN_START], origins[:, ORIGIN_OFFSET], origins[:, ORIGIN_TS] = (
            segments[:, SEGMENT_START],
            mine[:, ORIGIN_OFFSET],
            mine[:, ORIGIN_TS],
        )
        chunks = [data[start:stop] for start, stop in old[:, : SEGMENT_STOP + 1].tolist()]
        sizes = np.concatenate(([0], segments[:, SEGMENT_STOP]))
        events = [
            msgspec.structs.replace(
                one, flow=int(numbers[one.flow]), after=int(sizes[np.searchsorted(old[:, SEGMENT_START], one.after, side="left")])
            )
            for one in block.events
            if targets[one.flow] == bucket
        ]
        body = np.concatenate(chunks).tobytes() if chunks else b""
        sent[bucket] = Block(
            block.source, body, segments, origins, [block.flows[flow] for flow in flows.tolist()], events, spans=block.spans
        )
    stays = of_segments < 0
    events = [one for one in block.events if targets[one.flow] < 0]
    rest = Block(block.source, block.data if stays.any() else b"", block.segments[stays], block.origins[stays], block.flows, events)
    return rest, sent


def _before(source: Source, file: Bytes, split: Split, window: int) -> Iterator[tuple[int, bytes, np.ndarray[Any, Any]]]:
    """Yield the packets of windows before a split, from `split.warm` on."""
    at, known = split.warm
    walk = Walk(source.path, file, at=at, stop=split.begin, container=restore(known) if known else None, window=window)
    for step in walk.steps():
        if not isinstance(step, Damaged):
            packets = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            yield step.base, step.data, packets[packets[:, LINK] != LINK_EXPORTED]


def _complete(source: Source, spans: list[Span], block: Block | None, accounting: Accounting, *, always: bool = False) -> Iterator[Block]:
    """Yield a block with the accounts; none if there is neither."""
    accounts, unreadable = accounting.take()
    if block is None and not accounts and not always:
        return
    if block is None:
        block = Block(source, b"", np.empty((0, SEGMENT_COLUMNS), np.int64), np.empty((0, ORIGIN_COLUMNS), np.int64))
    block.accounts, block.unreadable, block.spans = accounts, unreadable, spans
    yield block
