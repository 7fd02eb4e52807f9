"""Shipping: one split of a capture in; out go parcels of packets for those who assemble connections, and blocks of all the rest.

It is what the reader is where several tasks read together: recorded payloads become blocks as they do there, accounts travel with blocks
that may be empty, and packets are dealt into buckets. So are recorded payloads of protocols that are read by what was said before.

It refuses to know Spark, and what is in packets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from wirelake.capture.blocks.accounting import Accounting
from wirelake.capture.blocks.block import (
    PIECE_COLUMNS,
    PIECE_OFFSET,
    PIECE_START,
    PIECE_TS,
    RUN_COLUMNS,
    RUN_FLOW,
    RUN_START,
    RUN_STOP,
    Block,
    Source,
    Span,
)
from wirelake.capture.blocks.from_recording import Recorded
from wirelake.capture.blocks.packet_batch import Packer, PacketBatch
from wirelake.capture.blocks.read_file import account_packing, account_records, walk_split, walked_mark
from wirelake.capture.containers.detect import restore
from wirelake.capture.containers.records import KIND, LINK, RECORD_PACKET
from wirelake.capture.containers.walk import EVERYTHING, WINDOW, Damaged, Walk
from wirelake.capture.files.identity import content
from wirelake.capture.files.source_file import Bytes, open_plain, open_source
from wirelake.capture.files.split import Split
from wirelake.capture.packets.ip_fragments import REACH
from wirelake.capture.record.exported_pdu import LINK_EXPORTED
from wirelake.errors import SourceChanged

__all__ = ["Partitioned", "ReadTask", "deal", "read_split", "read_tasks", "spoil", "whole"]


class ReadTask(msgspec.Struct, frozen=True):
    """One split of a source, with what a task needs to know of the others."""

    source: Source
    split: Split
    spans: list[Span]
    """The span of this split, last, and those before it that parts of its datagrams may be of."""
    is_last: bool = True
    rank: int = 0
    """The order of sources in time."""
    spoilt: str = ""
    """Why it is not to be read, but to go to quarantine; empty if it is to be read."""

    @property
    def size(self) -> int:
        """Bytes of the source that are to be read."""
        return self.spans[-1].length


class Partitioned(msgspec.Struct):
    """Recorded payloads of some connections, to be decoded by whoever has their bucket; see `PacketBatch`."""

    block: Block
    rank: int
    place: int
    bucket: int


def read_tasks(source: Source, splits: list[Split], rank: int = 0) -> list[ReadTask]:
    """What there is to do for a source; without splits it is read whole. A packed source accounts for itself as long as it lies there."""
    splits = splits or [Split(0, EVERYTHING, None)]
    ends = [*(split.begin for split in splits[1:]), source.size]
    spans = [Span(split.begin, end - split.begin) for split, end in zip(splits, ends, strict=True)]
    made = []
    for number, split in enumerate(splits):
        near = number
        while near and spans[near].at > split.begin - REACH:
            near -= 1
        made.append(ReadTask(source, split, spans[near : number + 1], number == len(splits) - 1, rank))
    return made


def whole(source: Source, begin: int, reason: str) -> ReadTask:
    """A source whose bytes go to quarantine from a place on, because they cannot be decoded."""
    return ReadTask(source, Split(begin, EVERYTHING, None), [Span(begin, source.size - begin)], spoilt=reason)


def spoil(work: ReadTask) -> Iterator[Block]:
    """The bytes of a work, as they lie in its source, all of them for quarantine."""
    span, accounting = work.spans[-1], Accounting([work.spans[-1].at])
    at, stop = span.at, span.at + span.length
    with open_plain(work.source) as plain:
        while at < stop:
            raw = plain.window(at, min(WINDOW, stop - at))
            accounting.quarantine(at, raw, "decoder", work.spoilt)
            at += len(raw)
            yield from _complete(work, None, accounting)
    marked = msgspec.structs.replace(span, mark=content(work.source, span.at, span.length))
    yield from _complete(msgspec.structs.replace(work, spans=[marked]), None, accounting, always=True)


def read_split(
    work: ReadTask,
    *,
    buckets: int = 1,
    ports: Mapping[int, str],
    protocols: Collection[str] | None = None,
    partitioned: Collection[str] = (),
    window: int = WINDOW,
) -> Iterator[PacketBatch | Partitioned | Block]:
    """Read one split; connections are dealt into so many buckets, recorded ones of the protocols in `partitioned` only."""
    source, split = work.source, work.split
    accounting = Accounting([span.at for span in work.spans])
    packer = Packer(source, work.rank, buckets, work.spans, accounting)
    recorded = Recorded(ports, protocols, accounting)
    with open_source(source) as file:
        if split.begin:
            packer.warm(_before(source, file, split, window))
        walk = walk_split(source, file, split, window, hashed=not work.spans[-1].mark)
        for step in walk.steps():
            block = None
            if isinstance(step, Damaged):
                accounting.quarantine(step.base, step.raw, step.layer, step.reason)
            else:
                packets = account_records(step, accounting)
                exported = packets[:, LINK] == LINK_EXPORTED
                if exported.any():
                    block = recorded.block(source, step.base, step.data, step.used, packets[exported])
                if block is not None:
                    block.spans = work.spans
                    block, sent = deal(block, partitioned, buckets)
                    yield from (Partitioned(one, work.rank, step.base, bucket) for bucket, one in sent.items())
                if not exported.all():
                    yield from packer.window(step.base, step.data, packets[~exported])
            yield from _complete(work, block, accounting)
        if walk.at != split.end and split.growing:
            raise SourceChanged(source.path, walk.at, f"is not what it was: records ended at byte {split.end}")
        packer.finish(walk.at, is_last=work.is_last)
        account_packing(file, accounting)
        span = work.spans[-1]
        span = span if span.mark else msgspec.structs.replace(span, mark=walked_mark(source, walk, span))
        yield from _complete(msgspec.structs.replace(work, spans=[*work.spans[:-1], span]), None, accounting, always=True)


def deal(block: Block, partitioned: Collection[str], buckets: int) -> tuple[Block, dict[int, Block]]:
    """What stays of a block of recorded payloads, and by bucket what is taken out of it: connections of these protocols."""
    targets = np.array(
        [int.from_bytes(one.session_id[:8]) % buckets if one.protocol in partitioned else -1 for one in block.flows], np.int64
    )
    if not (targets >= 0).any():
        return block, {}
    data = np.frombuffer(block.data, np.uint8)
    of_runs = targets[block.runs[:, RUN_FLOW]]
    sent = {}
    for bucket in np.unique(targets[targets >= 0]).tolist():
        flows = np.flatnonzero(targets == bucket)
        numbers = np.zeros(len(targets), np.int64)
        numbers[flows] = np.arange(len(flows))
        old = block.runs[of_runs == bucket]
        runs, pieces = old.copy(), np.empty((len(old), PIECE_COLUMNS), np.int64)
        runs[:, RUN_STOP] = np.cumsum(old[:, RUN_STOP] - old[:, RUN_START])
        runs[:, RUN_START] = runs[:, RUN_STOP] - (old[:, RUN_STOP] - old[:, RUN_START])
        runs[:, RUN_FLOW] = numbers[old[:, RUN_FLOW]]
        mine = block.pieces[of_runs == bucket]  # one record is one run and one piece
        pieces[:, PIECE_START], pieces[:, PIECE_OFFSET], pieces[:, PIECE_TS] = runs[:, RUN_START], mine[:, PIECE_OFFSET], mine[:, PIECE_TS]
        chunks = [data[start:stop] for start, stop in old[:, : RUN_STOP + 1].tolist()]
        sizes = np.concatenate(([0], runs[:, RUN_STOP]))
        events = [
            msgspec.structs.replace(
                one, flow=int(numbers[one.flow]), after=int(sizes[np.searchsorted(old[:, RUN_START], one.after, side="left")])
            )
            for one in block.events
            if targets[one.flow] == bucket
        ]
        body = np.concatenate(chunks).tobytes() if chunks else b""
        sent[bucket] = Block(block.source, body, runs, pieces, [block.flows[flow] for flow in flows.tolist()], events, spans=block.spans)
    stays = of_runs < 0
    events = [one for one in block.events if targets[one.flow] < 0]
    rest = Block(block.source, block.data if stays.any() else b"", block.runs[stays], block.pieces[stays], block.flows, events)
    return rest, sent


def _before(source: Source, file: Bytes, split: Split, window: int) -> Iterator[tuple[int, bytes, np.ndarray[Any, Any]]]:
    """The packets of windows before a split, as far back as matters."""
    at, known = split.warm
    walk = Walk(source.path, file, at=at, stop=split.begin, container=restore(known) if known else None, window=window)
    for step in walk.steps():
        if not isinstance(step, Damaged):
            packets = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            yield step.base, step.data, packets[packets[:, LINK] != LINK_EXPORTED]


def _complete(work: ReadTask, block: Block | None, accounting: Accounting, *, always: bool = False) -> Iterator[Block]:
    """A block with what was accounted for; none when there is neither."""
    accounts, unreadable = accounting.take()
    if block is None and not accounts and not always:
        return
    if block is None:
        block = Block(work.source, b"", np.empty((0, RUN_COLUMNS), np.int64), np.empty((0, PIECE_COLUMNS), np.int64))
    block.accounts, block.unreadable, block.spans = accounts, unreadable, work.spans
    yield block
