"""Identity: which file this is, though it may have grown, moved, or been replaced by another since.

A capture is known by its beginning: everything up to the end of its first packet, which has the time of that packet and stays the same
while the file grows. Whether a file is still the one that was read up to some place is told by a *mark*: what the last bytes before that
place say. A file that does not begin like a capture, or is packed, or has no packet yet, is known by its whole content.

It refuses to know who has read what.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Final

import msgspec

from wirelake.capture.blocks import Source
from wirelake.capture.files import Bytes, Packed, measure, open_plain, open_source
from wirelake.capture.records import KIND, LENGTH, RECORD_PACKET, START, TS
from wirelake.capture.walking import Spoilt, Walk

__all__ = ["BEGINNING", "Beginning", "Known", "Place", "beginning", "identify", "mark", "namesake", "place"]

BEGINNING: Final = 64 << 10
"""Bytes at the start of a file that are looked at for its first packet, and at each end of one that has none there."""
MARKED: Final = 4 << 10
"""Bytes before a place that a mark tells."""
_ID_SIZE: Final = 8


class Known(msgspec.Struct, frozen=True):
    """How far a source was read, and what its last bytes said."""

    source: Source
    end: int
    mark: bytes


class Place(msgspec.Struct, frozen=True):
    """What a file is: a source, and how far that was read before; `is_other` if another file had its name."""

    source: Source
    end: int = 0
    is_known: bool = False
    is_other: bool = False


def identify(path: str | os.PathLike[str]) -> Source:
    """Name a file by its beginning, or by its content if it has none; one that cannot be read raises CaptureError."""
    name, size = measure(path)
    source = Source(name, b"", size)
    if begins := beginning(source):
        told = begins.data
    else:
        with open_plain(source) as plain:
            told = size.to_bytes(8, "big") + plain.window(0, BEGINNING) + plain.window(max(0, size - BEGINNING), BEGINNING)
    return Source(name, blake2b(told, digest_size=_ID_SIZE).digest(), size)


class Beginning(msgspec.Struct, frozen=True):
    """Everything of a capture up to the end of its first packet, and the time of that."""

    data: bytes
    ts: int


def beginning(source: Source) -> Beginning | None:
    """How a file begins; None if it is packed, or has no packet near its start."""
    with open_source(source) as file:
        if isinstance(file, Packed):
            return None
        walk = Walk(source.path, file, stop=BEGINNING, window=BEGINNING)
        for step in walk.steps():
            if isinstance(step, Spoilt):
                return None
            packets = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            if len(packets):
                end = step.base + int(packets[0, START] + packets[0, LENGTH])
                return Beginning(file.window(0, min(end, 2 * BEGINNING)), int(packets[0, TS]))
    return None


def mark(source: Source, at: int) -> bytes:
    """What the last bytes before a place of a file say, as it lies there."""
    with open_plain(source) as plain:
        return _mark(plain, at)


def _mark(plain: Bytes, at: int) -> bytes:
    start = max(0, at - MARKED)
    return blake2b(at.to_bytes(8, "big") + plain.window(start, at - start), digest_size=_ID_SIZE).digest()


def namesake(source: Source) -> Source:
    """A file that begins like another one and goes on differently: known by its path, too."""
    return msgspec.structs.replace(source, id=blake2b(source.id + source.path.encode(), digest_size=_ID_SIZE).digest())


def place(source: Source, by_path: dict[str, list[Known]], by_id: dict[bytes, list[Known]]) -> Place:
    """What a file is, given what was read before under its name and elsewhere, the furthest last."""
    here = by_path.get(source.path, [])
    for one in reversed(here):
        if _is_same(source, one):
            return Place(msgspec.structs.replace(source, id=one.source.id), one.end, is_known=True)
    for candidate in (source, namesake(source)):
        there = by_id.get(candidate.id, [])
        if not there:
            return Place(candidate, is_other=any(one.end for one in here))
        # A copy of a file that has grown since has nothing new, either.
        for one in (there[-1], *(one for one in there if one.end == source.size)):
            if _is_same(source, one):
                return Place(msgspec.structs.replace(source, id=candidate.id), one.end, is_known=True)
    return Place(candidate, is_known=True, is_other=True)


def _is_same(source: Source, one: Known) -> bool:
    """Whether a file still has what was read of it; one whose mark nobody kept must be as long as it was."""
    if not one.mark or not one.end:
        return source.id == one.source.id and source.size == one.end
    return source.size >= one.end and mark(source, one.end) == one.mark
