"""LedgerEntries and extents: held to an obvious twin that looks at every byte."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from wirelake.capture.blocks.block import OFFSET_MASK, Source, Span, place
from wirelake.lake.decode.accounting import LedgerEntries, Where

SOURCES = [Source("one", b"11111111", 10_000), Source("two", b"22222222", 5_000)]
SPANS = [Span(0, 4000), Span(4000, 6000), Span(place(1, 0), 2500), Span(place(1, 2500), 2500)]
WHERE = Where(SOURCES, SPANS)


def speech(dice: random.Random, count: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Pieces in an order that is mostly that of the sources, and (global place, time) of every byte."""
    cuts = sorted(dice.sample(range(0, 10_000, 25), count)) + [place(1, at) for at in sorted(dice.sample(range(0, 5000, 25), count))]
    for _ in range(dice.choice([0, 1, 5])):
        at = dice.randrange(len(cuts) - 1)
        cuts[at], cuts[at + 1] = cuts[at + 1], cuts[at]
    pieces, every, start = [], [], 0
    for number, offset in enumerate(cuts):
        size = dice.randint(1, 25)
        pieces.append((start, offset, number))
        every += [(offset + byte, number) for byte in range(size)]
        start += size
    return np.array(pieces, np.int64), every


def cut_up(dice: random.Random, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Messages that follow each other, some bytes between them."""
    starts, lengths, at = [], [], 0
    while at < size - 1:
        length = min(dice.choice([1, 7, 30, 120]), size - at)
        starts.append(at)
        lengths.append(length)
        at += length + dice.choice([0, 0, 3])
    return np.array(starts, np.int64), np.array(lengths, np.int64)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_are_accounted_for_where_they_are(seed):
    dice = random.Random(seed)
    pieces, every = speech(dice, 40)
    starts, lengths = cut_up(dice, len(every))
    ledger_entries = LedgerEntries()
    ledger_entries.spread(WHERE, "message", "emp", pieces, starts, lengths)
    expected: Counter = Counter()
    items: Counter = Counter()
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        for number, (at, _) in enumerate(every[start : start + length]):
            source, there = WHERE.source(at)
            span = max(span.at & OFFSET_MASK for span in SPANS if WHERE.source(span.at)[0] is source and span.at & OFFSET_MASK <= there)
            expected[source.path, span] += 1
            items[source.path, span] += not number
    found = ledger_entries.close()
    assert {(one.source.path, one.offset): one.bytes for one in found} == expected
    assert {(one.source.path, one.offset): one.items for one in found if one.items} == {key: count for key, count in items.items() if count}
    assert {(one.offset, one.length) for one in found} <= {(span.at & OFFSET_MASK, span.length) for span in SPANS}
    assert ledger_entries.close() == []


@pytest.mark.parametrize("seed", range(20))
def test_a_message_reaches_from_its_lowest_to_its_highest_byte(seed):
    dice = random.Random(seed)
    pieces, every = speech(dice, 40)
    starts, lengths = cut_up(dice, len(every))
    if seed % 3 == 2:  # messages in any order
        order = np.array(dice.sample(range(len(starts)), len(starts)))
        starts, lengths = starts[order], lengths[order]
    extent = WHERE.extent(pieces, starts, lengths)
    for index, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        mine = every[start : start + length]
        first = mine[0][0]
        here = [at & OFFSET_MASK for at, _ in mine if at >> 48 == first >> 48]
        assert (extent.numbers[index], extent.first[index], extent.ts[index]) == (first >> 48, first, mine[-1][1])
        assert (extent.offsets[index], extent.lengths[index]) == (min(here), max(here) - min(here) + 1)


def test_one_span_takes_all():
    where = Where([SOURCES[0]], [Span(0, 10_000)])
    ledger_entries = LedgerEntries()
    ledger_entries.spread(where, "message", "emp", np.array([[0, 5, 0]]), np.array([0, 10]), np.array([10, 20]))
    ledger_entries.add(where, 9999, "container", "packet record", 16, 1)
    assert [(one.category, one.bytes, one.items) for one in ledger_entries.close()] == [("container", 16, 1), ("message", 30, 2)]


def test_accounts_go_to_the_span_of_their_place():
    ledger_entries = LedgerEntries()
    for at in (0, 3999, 4000, 9999, place(1, 0), place(1, 2500), place(1, 4999)):
        ledger_entries.add(WHERE, at, "other", "why", 1, 1)
    assert [(one.source.path, one.offset, one.bytes) for one in ledger_entries.close()] == [
        ("one", 0, 2),
        ("one", 4000, 2),
        ("two", 0, 1),
        ("two", 2500, 2),
    ]


def test_an_empty_source_is_in_the_books_and_another_is_not():
    ledger_entries = LedgerEntries()
    ledger_entries.open(Where([Source("empty", b"00000000", 0)], [Span(0, 0)]))
    ledger_entries.open(Where([SOURCES[0]], [Span(0, 10_000)]))
    assert [(one.source.path, one.reason, one.bytes) for one in ledger_entries.close()] == [("empty", "empty file", 0)]
