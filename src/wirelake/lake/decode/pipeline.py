"""The decoding loop: packet batches and blocks go in, rows of all tables come out.

Packets are first assembled to connections, which become blocks. The decoder turns every block into rows. Batch ingests, micro-batches and
the data sources without a lake all decode with this loop; they differ in where items come from and where rows go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import NamedTuple

import numpy as np

from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import (
    ORIGIN_OFFSET,
    ORIGIN_START,
    SEGMENT_FLOW,
    SEGMENT_START,
    SEGMENT_STOP,
    SOURCE_SHIFT,
    Block,
    Flow,
    Source,
)
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.lake.decode.batches import Batches
from wirelake.lake.decode.decoder import Decoder

__all__ = ["Decoded", "Guard", "decode"]

Suspects = Callable[[], list[Source]]
"""Names the sources that an error comes from; called after the error."""
Guard = Callable[[Suspects], AbstractContextManager[None]]
"""Runs a step of the loop, and turns its errors into others that name the sources."""


class Decoded(NamedTuple):
    """The rows of one block, or those that are left at the end."""

    flows: Sequence[Flow]
    """The connections of the block; none at the end."""
    rows: Batches
    """Without the rows that the decoder's sink got."""


def _unguarded(suspects: Suspects) -> AbstractContextManager[None]:  # noqa: ARG001 - errors pass unchanged
    return nullcontext()


def decode(
    items: Iterable[PacketBatch | Block],
    decoder: Decoder,
    assembly: Assembly | None = None,
    *,
    is_end: bool = True,
    guard: Guard = _unguarded,
    spare: Callable[[], Decoder] | None = None,
) -> Iterator[Decoded]:
    """Yield the rows of every block, then those that are left, with the ledger.

    Packet batches need an `assembly`. Without `is_end` more will come later: unfinished messages stay in the state of assembly and decoder.
    `spare` makes another decoder, to find out which sources of a block cannot be decoded.
    """
    for item in items:
        yield from _blocks(_assembled(item, assembly), item.source, decoder, guard, spare)
    if assembly is not None:
        yield from _blocks(assembly.finish() if is_end else assembly.rest(), None, decoder, guard, spare)
    waiting = list(decoder.decoder_state.sources)  # if the end fails, all of them are suspects
    with guard(lambda: waiting):
        last = decoder.finish() if is_end else decoder.rest()
    yield Decoded([], last)


def _assembled(item: PacketBatch | Block, assembly: Assembly | None) -> Iterable[Block]:
    if isinstance(item, Block):
        return [item]
    if assembly is None:
        raise TypeError("internal error: packets need an assembly")
    return assembly.feed(item)


def _blocks(
    blocks: Iterable[Block], source: Source | None, decoder: Decoder, guard: Guard, spare: Callable[[], Decoder] | None
) -> Iterator[Decoded]:
    """Decode blocks of a source, or of several if it is None."""
    coming, current = iter(blocks), list[Block]()

    def suspects() -> list[Source]:
        if current:
            return _culprits(current[0], spare) if spare is not None else current[0].all_sources()
        return [source] if source is not None else decoder.decoder_state.sources

    while True:
        current.clear()
        with guard(suspects):
            current.extend(islice(coming, 1))
            if not current:
                return
            rows = decoder.feed(current[0])
        yield Decoded(current[0].flows, rows)


def _culprits(block: Block, spare: Callable[[], Decoder]) -> list[Source]:
    """Find the sources of those connections of a block that cannot be decoded alone.

    Returns all of its sources if each of them can.
    """
    sources = block.all_sources()
    if len(sources) == 1:
        return sources
    guilty: set[int] = set()
    for number in range(len(block.flows)):
        segments = block.segments[block.segments[:, SEGMENT_FLOW] == number]
        alone = Block(block.source, block.data, segments, block.origins, block.flows, sources=block.sources, spans=block.spans)
        try:
            spare().feed(alone)
        except Exception:  # whatever it is: it was raised before
            for start, stop in segments[:, [SEGMENT_START, SEGMENT_STOP]].tolist():
                first = np.searchsorted(block.origins[:, ORIGIN_START], start, side="right") - 1
                last = np.searchsorted(block.origins[:, ORIGIN_START], stop, side="left")
                guilty |= set((block.origins[first:last, ORIGIN_OFFSET] >> SOURCE_SHIFT).tolist())
    return [sources[number] for number in sorted(guilty)] or sources
