"""Shipping: one split of a capture in; out go parcels of packets for those who assemble connections, and blocks of all the rest.

It is what the reader is where several tasks read together: recorded payloads become blocks as they do there, accounts travel with blocks
that may be empty, and packets are dealt into buckets.

It refuses to know Spark, and what is in packets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

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
from wirelake.capture.walking import WINDOW, Spoilt, Walk

__all__ = ["ship", "spans_of"]


def spans_of(source: Source, splits: list[Split]) -> list[Span]:
    """What each split of a source accounts for; a packed source is one, as long as it lies there."""
    ends = [*(split.begin for split in splits[1:]), source.size]
    return [Span(split.begin, end - split.begin) for split, end in zip(splits, ends, strict=True)]


def ship(
    source: Source,
    splits: list[Split],
    number: int,
    *,
    rank: int = 0,
    buckets: int = 1,
    ports: Mapping[int, str],
    protocols: Collection[str] | None = None,
    window: int = WINDOW,
) -> Iterator[Parcel | Block]:
    """Read the split of this number of a source, whose splits these are."""
    split = splits[number]
    spans = spans_of(source, splits)
    near = [span for span in spans[: number + 1] if span.at + span.length > split.begin - REACH or span is spans[number]]
    tally = Tally([span.at for span in spans])
    packer = Packer(source, rank, buckets, near, tally)
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
            yield from _complete(source, spans, number, block, tally)
        packer.finish(walk.at, is_last=number == len(splits) - 1)
        account_packing(file, tally)
        yield from _complete(source, spans, number, None, tally)


def _before(source: Source, file: Bytes, split: Split, window: int) -> Iterator[tuple[int, bytes, np.ndarray[Any, Any]]]:
    """The packets of windows before a split, as far back as matters."""
    at, known = split.warm
    walk = Walk(source.path, file, at=at, stop=split.begin, container=restore(known) if known else None, window=window)
    for step in walk.steps():
        if not isinstance(step, Spoilt):
            packets = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            yield step.base, step.data, packets[packets[:, LINK] != LINK_EXPORTED]


def _complete(source: Source, spans: list[Span], number: int, block: Block | None, tally: Tally) -> Iterator[Block]:
    """A block with what was accounted for; none when there is neither."""
    accounts, stretches = tally.take()
    if block is None and not accounts:
        return
    if block is None:
        block = Block(source, b"", np.empty((0, RUN_COLUMNS), np.int64), np.empty((0, PIECE_COLUMNS), np.int64))
    block.accounts, block.stretches = accounts, stretches
    told = {account.at for account in accounts}
    block.spans = [span for span in spans[: number + 1] if span.at in told or span is spans[number]]
    yield block
