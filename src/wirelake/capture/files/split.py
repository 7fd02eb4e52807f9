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
from wirelake.capture.containers.detect import Known, restore
from wirelake.capture.containers.records import KIND, RECORD_PACKET
from wirelake.capture.containers.walk import EVERYTHING, WINDOW, Spoilt, Walk, begin
from wirelake.capture.files.source_file import Bytes, Packed, open_source
from wirelake.capture.packets.ip_fragments import REACH

__all__ = ["OPENING", "WARM", "Claim", "Split", "Stretch", "claim", "cut", "settle"]

OPENING: Final = 1 << 20
"""Bytes at the start of a file in which the knowledge is looked for that a guess begins with."""


WARM: Final = 4 * REACH
"""How far before a split parts of datagrams are looked for that it may finish: further than they reach, because which part is the first
of a datagram may depend on earlier ones of the same number."""


class Split(msgspec.Struct, frozen=True):
    """Records of a source from one place to another, and what a reader knows at the first."""

    begin: int
    end: int
    known: Known | None
    """None at the start of the source."""
    warm: tuple[int, Known | None] = (0, None)
    """A place some way before the beginning, and what is known there: where to look for what is not finished at the beginning."""
    growing: bool = False
    """Whether more of the source may come: then it ends exactly where it was found to."""


class Stretch(msgspec.Struct, frozen=True):
    """A part of a source as it was cut, wherever records begin."""

    start: int
    stop: int


class Claim(msgspec.Struct, frozen=True):
    """What walking a stretch found: whether it is right depends on where it began."""

    stretch: Stretch
    begin: int
    end: int
    before: Known | None
    """What was assumed at the beginning."""
    after: Known | None
    warm: tuple[int, Known | None] = (0, None)
    """A place `WARM` bytes or more before the end, and what is known there; the beginning, if there is none."""


def cut(source: Source, size: int) -> list[Stretch]:
    """Stretches of about this size; a source that is not much larger is one."""
    count = max(1, source.size // size)
    places = [source.size * number // count for number in range(count + 1)]
    return [Stretch(start, stop) for start, stop in pairwise(places)]


def _opening(source: Source, file: Bytes, window: int) -> Known | None:
    """What is known where the first packet begins; None when the source is no capture."""
    walk = Walk(source.path, file, stop=OPENING, window=min(window, OPENING))
    for step in walk.steps():
        if isinstance(step, Spoilt) or (step.rows[:, KIND] == RECORD_PACKET).any():
            break
    return walk.container.known() if walk.container else None


def claim(source: Source, stretch: Stretch, *, window: int = WINDOW, at: int | None = None, known: Known | None = None) -> Claim:
    """Walk a stretch: from its start if that is the source's, from `at` with what is `known` there, or from the first place it guesses."""
    with open_source(source) as file:
        if isinstance(file, Packed):
            return Claim(stretch, 0, EVERYTHING, None, None)
        if at is None:
            at = stretch.start
            if at > 0:
                known = _opening(source, file, window)
                found = begin(file, at, restore(known)) if known else None
                at = source.size if found is None else found
        container = restore(known) if known else None
        walk = Walk(source.path, file, at=at, stop=stretch.stop - WARM, container=container, window=window)
        for _ in walk.steps():
            pass
        warm = (walk.at, walk.container.known()) if walk.container and walk.at > at else (at, known)
        for _ in walk.on(stretch.stop).steps():
            pass
        after = walk.container.known() if walk.container else None
        return Claim(stretch, at, walk.at, known, after, warm)


def settle(source: Source, claims: Iterable[Claim], again: Callable[[Stretch, int, Known | None], Claim] | None = None) -> list[Split]:
    """The splits of a source, from claims in order; `again` walks a stretch from a place, here unless somebody else is asked to."""
    walk_again = again or (lambda stretch, at, known: claim(source, stretch, at=at, known=known))
    splits: list[Split] = []
    place, known = 0, None
    warm: list[tuple[int, Known | None]] = [(0, None)]
    for told in claims:
        if place >= told.stretch.stop and place > 0:
            continue  # the record that began before it ends after it
        is_right = told.begin == place and (known is None or known == told.before)
        one = told if is_right else walk_again(told.stretch, place, known)
        splits.append(Split(place, one.end, known, next(point for point in reversed(warm) if point[0] <= max(0, place - WARM))))
        warm.append(one.warm)
        place, known = one.end, one.after
    return splits
