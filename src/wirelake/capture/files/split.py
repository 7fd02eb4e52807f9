"""Splits: one file cut anywhere, so that many tasks read it, and read together exactly what one would have read.

Whoever is given a stretch guesses where in it the first record begins, and what a reader would know there, and walks its records: a
claim. Then claims are compared in order: where one ended the next must have begun, with the same knowledge. One that guessed wrong is
walked again from the right place. What remains are splits that touch each other.

It refuses to know what is in records; a compressed file has no places in the middle, and is one split.
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
"""Bytes at the start of a file in which the knowledge is looked for that a guess begins with."""


WARM: Final = 4 * REACH
"""How far before a split parts of datagrams are looked for that it may finish: further than they reach, because which part is the first
of a datagram may depend on earlier ones of the same number."""


class Split(msgspec.Struct, frozen=True):
    """Records of a source from one place to another, and what a reader knows at the first."""

    begin: int
    end: int
    known: ContainerState | None
    """None at the start of the source."""
    warm: tuple[int, ContainerState | None] = (0, None)
    """A place some way before the beginning, and what is known there: where to look for what is not finished at the beginning."""
    growing: bool = False
    """Whether more of the source may come: then it ends exactly where it was found to."""


class ByteRange(msgspec.Struct, frozen=True):
    """A part of a source as it was cut, wherever records begin."""

    start: int
    stop: int


class Guess(msgspec.Struct, frozen=True):
    """What walking a stretch found: whether it is right depends on where it began."""

    byte_range: ByteRange
    begin: int
    end: int
    before: ContainerState | None
    """What was assumed at the beginning."""
    after: ContainerState | None
    warm: tuple[int, ContainerState | None] = (0, None)
    """A place `WARM` bytes or more before the end, and what is known there; the beginning, if there is none."""


def divide(source: Source, size: int) -> list[ByteRange]:
    """Stretches of about this size; a source that is not much larger is one."""
    count = max(1, source.size // size)
    places = [source.size * number // count for number in range(count + 1)]
    return [ByteRange(start, stop) for start, stop in pairwise(places)]


def _opening(source: Source, file: Bytes, window: int) -> ContainerState | None:
    """What is known where the first packet begins; None when the source is no capture."""
    walk = Walk(source.path, file, stop=OPENING, window=min(window, OPENING))
    for step in walk.steps():
        if isinstance(step, Damaged) or (step.rows[:, KIND] == RECORD_PACKET).any():
            break
    return walk.container.known() if walk.container else None


def guess(
    source: Source, byte_range: ByteRange, *, window: int = WINDOW, at: int | None = None, known: ContainerState | None = None
) -> Guess:
    """Walk a stretch: from its start if that is the source's, from `at` with what is `known` there, or from the first place it guesses."""
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
    """The splits of a source, from claims in order; `again` walks a stretch from a place, here unless somebody else is asked to."""
    walk_again = again or (lambda byte_range, at, known: guess(source, byte_range, at=at, known=known))
    splits: list[Split] = []
    place, known = 0, None
    warm: list[tuple[int, ContainerState | None]] = [(0, None)]
    for told in guesses:
        if place >= told.byte_range.stop and place > 0:
            continue  # the record that began before it ends after it
        is_right = told.begin == place and (known is None or known == told.before)
        one = told if is_right else walk_again(told.byte_range, place, known)
        splits.append(Split(place, one.end, known, next(point for point in reversed(warm) if point[0] <= max(0, place - WARM))))
        warm.append(one.warm)
        place, known = one.end, one.after
    return splits
