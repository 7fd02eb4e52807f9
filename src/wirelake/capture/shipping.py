"""Shipping: one split of a capture in; out go parcels of packets for those who assemble connections, and blocks of all the rest.

It is what the reader is where several tasks read together: recorded payloads become blocks as they do there, accounts travel with blocks
that may be empty, and packets are dealt into buckets.

It refuses to know Spark, and what is in packets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from wirelake.capture.blocks import PIECE_COLUMNS, RUN_COLUMNS, Block, Source, Span
from wirelake.capture.containers import restore
from wirelake.capture.exported import LINK_EXPORTED
from wirelake.capture.files import Bytes, open_source
from wirelake.capture.fragments import REACH
from wirelake.capture.parcels import Packer, Parcel
from wirelake.capture.reader import account_packing, account_records, walk_split
from wirelake.capture.recorded import Recorded
from wirelake.capture.records import KIND, LINK, RECORD_PACKET
from wirelake.capture.splits import Split
from wirelake.capture.tally import Tally
from wirelake.capture.walking import EVERYTHING, WINDOW, Spoilt, Walk

__all__ = ["Work", "ship", "works"]


class Work(msgspec.Struct, frozen=True):
    """One split of a source, with what a task needs to know of the others."""

    source: Source
    split: Split
    spans: list[Span]
    """The span of this split, last, and those before it that parts of its datagrams may be of."""
    is_last: bool = True
    rank: int = 0
    """The order of sources in time."""

    @property
    def size(self) -> int:
        """Bytes of the source that are to be read."""
        return self.spans[-1].length


def works(source: Source, splits: list[Split], rank: int = 0) -> list[Work]:
    """What there is to do for a source; without splits it is read whole. A packed source accounts for itself as long as it lies there."""
    splits = splits or [Split(0, EVERYTHING, None)]
    ends = [*(split.begin for split in splits[1:]), source.size]
    spans = [Span(split.begin, end - split.begin) for split, end in zip(splits, ends, strict=True)]
    made = []
    for number, split in enumerate(splits):
        near = number
        while near and spans[near].at > split.begin - REACH:
            near -= 1
        made.append(Work(source, split, spans[near : number + 1], number == len(splits) - 1, rank))
    return made


def ship(
    work: Work, *, buckets: int = 1, ports: Mapping[int, str], protocols: Collection[str] | None = None, window: int = WINDOW
) -> Iterator[Parcel | Block]:
    """Read one split; connections are dealt into so many buckets."""
    source, split = work.source, work.split
    tally = Tally([span.at for span in work.spans])
    packer = Packer(source, work.rank, buckets, work.spans, tally)
    recorded = Recorded(ports, protocols, tally)
    with open_source(source) as file:
        if split.begin:
            packer.warm(_before(source, file, split, window))
        walk = walk_split(source, file, split, window)
        for step in walk.steps():
            block = None
            if isinstance(step, Spoilt):
                tally.quarantine(step.base, step.raw, step.layer, step.reason)
            else:
                packets = account_records(step, tally)
                exported = packets[:, LINK] == LINK_EXPORTED
                if exported.any():
                    block = recorded.block(source, step.base, step.data, step.used, packets[exported])
                if not exported.all():
                    yield from packer.window(step.base, step.data, packets[~exported])
            yield from _complete(work, block, tally)
        packer.finish(walk.at, is_last=work.is_last)
        account_packing(file, tally)
        yield from _complete(work, None, tally, always=True)


def _before(source: Source, file: Bytes, split: Split, window: int) -> Iterator[tuple[int, bytes, np.ndarray[Any, Any]]]:
    """The packets of windows before a split, as far back as matters."""
    at, known = split.warm
    walk = Walk(source.path, file, at=at, stop=split.begin, container=restore(known) if known else None, window=window)
    for step in walk.steps():
        if not isinstance(step, Spoilt):
            packets = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            yield step.base, step.data, packets[packets[:, LINK] != LINK_EXPORTED]


def _complete(work: Work, block: Block | None, tally: Tally, *, always: bool = False) -> Iterator[Block]:
    """A block with what was accounted for; none when there is neither."""
    accounts, stretches = tally.take()
    if block is None and not accounts and not always:
        return
    if block is None:
        block = Block(work.source, b"", np.empty((0, RUN_COLUMNS), np.int64), np.empty((0, PIECE_COLUMNS), np.int64))
    block.accounts, block.stretches, block.spans = accounts, stretches, work.spans
    yield block
