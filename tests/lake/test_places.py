"""Where connections are first seen in a block, compiled and plain, is what an obvious twin finds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wirelake.capture.blocks.block import Block, Endpoint, Flow, FlowEvent, Source, place
from wirelake.lake.decode import places
from wirelake.lake.decode.places import first_places
from wirelake.protocols.kernel import _over_views, compiled

FLOWS = [Flow(bytes([number]) * 16, "emp", "tcp", Endpoint("a", 1), Endpoint("b", 2), "port", "wire") for number in range(4)]


def block_of(dice: random.Random) -> Block:
    """A block of runs in several origins each, and events between them, some of which come in another order."""
    segments, origins, at = [], [], 0
    for _ in range(dice.randrange(6)):
        start = at
        for _ in range(dice.randrange(1, 4)):
            origins.append((at, place(dice.randrange(2), dice.randrange(99)), dice.randrange(99)))
            at += dice.randrange(1, 9)
        segments.append((start, at, dice.randrange(4), dice.randrange(2), 0))
    events = [
        FlowEvent(dice.randrange(4), dice.randrange(99), place(dice.randrange(2), dice.randrange(99)), "opened", "", "", after)
        for after in dice.choices([0, *(origin[0] for origin in origins), at], k=dice.randrange(7))
    ]
    if dice.random() < 0.7:
        events.sort(key=lambda event: event.after)
    tables = np.array(segments, np.int64).reshape(-1, 5), np.array(origins, np.int64).reshape(-1, 3)
    return Block(Source("", bytes(8), 0), bytes(at), *tables, FLOWS, events)


def twin(block: Block) -> list[list[int]]:
    came = [
        (start + 0.5, flow, ts, at)
        for start, at, ts in block.origins.tolist()
        for first, stop, flow, *_ in block.segments.tolist()
        if first <= start < stop
    ]
    came += [(event.after, event.flow, event.ts, event.offset) for event in block.events]
    first: dict[tuple[int, int], list[int]] = {}
    for _, flow, ts, at in sorted(came, key=lambda item: item[0]):
        first.setdefault((flow, at >> 48), [flow, ts, at])
    return list(first.values())


@pytest.mark.parametrize("form", [_over_views, compiled])
def test_connections_are_first_seen_where_they_come_first(monkeypatch, form):
    monkeypatch.setattr(places, "over_arrays", form)
    for seed in range(60):
        block = block_of(random.Random(seed))
        assert first_places(block, 2).tolist() == twin(block)
