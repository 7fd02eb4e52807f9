"""Splits: divide one file anywhere, so that many tasks read together exactly what one would.

A task that gets a byte range guesses where the first record in it begins, and the state of the container there. It walks the records of its
range. Then the guesses are reconciled in order: each must begin where the one before ended, with the same state. A range that was guessed
wrongly is walked again from the right offset. The result is a list of splits without gaps.

A compressed file cannot be read from its middle, and is one split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

import msgspec

from wirelake.capture.blocks.block import Source
from wirelake.capture.containers.detect import ContainerState, restore
from wirelake.capture.containers.records import KIND, RECORD_PACKET
from wirelake.capture.containers.walk import EVERYTHING, WINDOW, Damaged, Walk, begin
from wirelake.capture.files.source_file import Bytes, Compressed, open_source
from wirelake.capture.packets.ip_fragments import REACH

__all__ = ["OPENING", "WARM", "ByteRange", "Guess", "Split", "divide", "guess", "reconcile"]

OPENING: Final = 1 << 20
"""Bytes at the start of a file that are read for the container state that a guess begins with."""

WARM: Final = 4 * REACH
"""Bytes before a split that are read for IP fragments of datagrams that end in it.

More than `REACH`, because which fragment is the first of a datagram may depend on earlier ones of the same number.
"""


class Split(msgspec.Struct, frozen=True):
    """Records of a source from one offset to another, and the container state at the first."""

    begin: int
    end: int
    known: ContainerState | None
    """None at the start of the source."""
    warm: tuple[int, ContainerState | None] = (0, None)
    """An offset before the beginning, and the state there: from it, unfinished IP datagrams are read."""
    growing: bool = False
    """Whether the source may still grow: then the split ends exactly at `end`."""


class ByteRange(msgspec.Struct, frozen=True):
    """A part of a source, wherever records begin."""

    start: int
    stop: int


class Guess(msgspec.Struct, frozen=True):
    """The result of walking a byte range; it is right if it began where a record begins."""

    byte_range: ByteRange
    begin: int
    end: int
    before: ContainerState | None
    """The state assumed at the beginning."""
    after: ContainerState | None
    warm: tuple[int, ContainerState | None] = (0, None)
    """An offset `WARM` bytes or more before the end, and the state there; else the beginning."""


def divide(source: Source, size: int) -> list[ByteRange]:
    """Divide a source into byte ranges of about this size."""
    count = max(1, source.size // size)
    places = [source.size * number // count for number in range(count + 1)]
    return [ByteRange(start, stop) for start, stop in pairwise(places)]


def _opening(source: Source, file: Bytes, window: int) -> ContainerState | None:
    """Return the state where the first packet begins; None if the source is no capture."""
    walk = Walk(source.path, file, stop=OPENING, window=min(window, OPENING))
    for step in walk.steps():
        if isinstance(step, Damaged) or (step.rows[:, KIND] == RECORD_PACKET).any():
            break
    return walk.container.known() if walk.container else None


def guess(
    source: Source, byte_range: ByteRange, *, window: int = WINDOW, at: int | None = None, known: ContainerState | None = None
) -> Guess:
    """Walk a byte range: from offset `at` with the state `known`, or from the first likely record."""
    with open_source(source) as file:
        if isinstance(file, Compressed):
            return Guess(byte_range, 0, EVERYTHING, None, None)
        if at is None:
            at = byte_range.start
            if at > 0:
                known = _opening(source, file, window)
                found = begin(file, at, restore(known)) if known else None
                at = source.size if found is None else found
        container = restore(known) if known else None
        walk = Walk(source.path, file, at=at, stop=byte_range.stop - WARM, container=container, window=window)
        for _ in walk.steps():
            pass
        warm = (walk.at, walk.container.known()) if walk.container and walk.at > at else (at, known)
        for _ in walk.on(byte_range.stop).steps():
            pass
        after = walk.container.known() if walk.container else None
        return Guess(byte_range, at, walk.at, known, after, warm)


def reconcile(
    source: Source, guesses: Iterable[Guess], again: Callable[[ByteRange, int, ContainerState | None], Guess] | None = None
) -> list[Split]:
    """Return the splits of a source from guesses in order.

    `again` walks a range from an offset, in this process by default.
    """
    walk_again = again or (lambda byte_range, at, known: guess(source, byte_range, at=at, known=known))
    splits: list[Split] = []
    place, known = 0, None
    warm: list[tuple[int, ContainerState | None]] = [(0, None)]
    for attempt in guesses:
        if place >= attempt.byte_range.stop and place > 0:
            continue  # the record that began before it ends after it
        is_right = attempt.begin == place and (known is None or known == attempt.before)
        walked = attempt if is_right else walk_again(attempt.byte_range, place, known)
        splits.append(Split(place, walked.end, known, next(point for point in reversed(warm) if point[0] <= max(0, place - WARM))))
        warm.append(walked.warm)
        place, known = walked.end, walked.after
    return splits
