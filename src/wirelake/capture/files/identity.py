"""Identity: which file this is, though it may have grown, moved, or been replaced by another since.

A capture is named by its beginning: everything up to the end of its first packet, which has the time of that packet and stays the same
while the file grows. Whether it is the one that was read up to some place is told by its content: each stretch that was read has a hash.
So a file that grew is known by the hashes of what was read of it, and files that differ in one byte are two. Files that begin alike have
numbers. A *mark* is a hash of the last bytes before a place: enough for a file that is watched, and all that an older wirelake kept.
A file that does not begin like a capture, or is packed, or has no packet yet, is named by its size and both its ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from wirelake.capture.blocks.block import Source
from wirelake.capture.containers.records import KIND, LENGTH, RECORD_PACKET, START, TS
from wirelake.capture.containers.walk import HASH_SIZE as _HASH_SIZE
from wirelake.capture.containers.walk import Damaged, Walk, new_digest
from wirelake.capture.files.source_file import Bytes, Compressed, measure, open_plain, open_source
from wirelake.errors import CaptureError

__all__ = [
    "BEGINNING",
    "Beginning",
    "Hashed",
    "KnownFile",
    "SourcePosition",
    "beginning",
    "content",
    "identify",
    "mark",
    "namesake",
    "place",
]

BEGINNING: Final = 64 << 10
"""Bytes at the start of a file that are looked at for its first packet, and at each end of one that has none there."""
MARKED: Final = 4 << 10
"""Bytes before a place that a mark tells."""
_ID_SIZE: Final = 8
_CHUNK: Final = 4 << 20
"""Bytes that are compared or hashed at a time."""
_SPARE: Final = 16
"""Numbers of files that begin alike which may be unused between two that are used."""

Hashed = tuple[int, int, bytes]
"""A stretch that was read: where it begins, its length, and the hash of its bytes; or an older mark; or nothing."""


class KnownFile(msgspec.Struct, frozen=True):
    """How far a source was read, and what its bytes were."""

    source: Source
    end: int
    mark: bytes = b""
    """What its last bytes said, if only that is to be looked at."""
    spans: tuple[Hashed, ...] = ()
    """What was read, in order."""
    is_here: bool = False
    """Whether it is about to be read: then its file tells what its bytes are."""


class SourcePosition(msgspec.Struct, frozen=True):
    """What a file is: a source, and how far that was read before; `is_other` if another file had its name."""

    source: Source
    end: int = 0
    is_known: bool = False
    is_other: bool = False
    like: str = ""
    """The path of the source that it is known as."""
    is_part: bool = False
    """Whether it is but the beginning of that source."""


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
        if isinstance(file, Compressed):
            return None
        walk = Walk(source.path, file, stop=BEGINNING, window=BEGINNING)
        for step in walk.steps():
            if isinstance(step, Damaged):
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


def content(source: Source, at: int, length: int) -> bytes:
    """Hash a stretch of a file, as it lies there."""
    with open_plain(source) as plain:
        return _content(plain, at, length)


def _content(plain: Bytes, at: int, length: int) -> bytes:
    digest, stop = new_digest(), at + length
    while at < stop:
        data = plain.window(at, min(_CHUNK, stop - at))
        if not data:
            break
        digest.update(data)
        at += len(data)
    return digest.digest()


def namesake(source: Source, number: int) -> Source:
    """A file that begins like `number` others and goes on differently."""
    told = source.id + number.to_bytes(4, "big")
    return msgspec.structs.replace(source, id=blake2b(told, digest_size=_ID_SIZE).digest()) if number else source


def _older_namesake(source: Source) -> Source:
    """How an older wirelake named one: by its path, too."""
    return msgspec.structs.replace(source, id=blake2b(source.id + source.path.encode(), digest_size=_ID_SIZE).digest())


def place(source: Source, by_path: dict[str, list[KnownFile]], by_id: dict[bytes, list[KnownFile]]) -> SourcePosition:
    """What a file is, given what was read before under its name and elsewhere, the furthest last. Contents decide."""
    here = by_path.get(source.path, [])
    others = by_id.get(_older_namesake(source).id, [])
    free, number, last = None, 0, 0
    while number <= last + _SPARE:  # ids in between may have been given up
        candidate = namesake(source, number)
        alike = by_id.get(candidate.id, [])
        free = free or (None if alike else candidate)
        others, last = [*alike, *others], number if alike else last
        number += 1
    for one in (*reversed(here), *reversed(others)):
        end = _common(source, one)
        furthest = max((other.end for other in by_id.get(one.source.id, ())), default=0)
        if end is not None and (end == source.size or end >= furthest):  # else it grew otherwise than the one that was read on
            known = msgspec.structs.replace(source, id=one.source.id)
            return SourcePosition(known, end, is_known=True, like=one.source.path, is_part=end < one.end)
    return SourcePosition(free or source, is_other=any(one.end for one in here))


def _common(source: Source, one: KnownFile) -> int | None:
    """How far a file is what was read of another: to the end of what was read, or to its own, if it is a shorter copy. None: it is not."""
    if not one.end:
        return 0 if source.id == one.source.id and not source.size else None
    if one.is_here:
        shorter = min(source.size, one.end)
        return shorter if _is_alike(source, one.source, shorter) else None
    if source.size >= one.end:
        return one.end if _has_read(source, one) else None
    if source.path == one.source.path:
        return None  # it was cut
    inside = [span for span in one.spans if span[0] + span[1] <= source.size]
    if inside and sum(inside[-1][:2]) == source.size and all(len(span[2]) == _HASH_SIZE for span in inside):
        return source.size if _agrees(source, inside) else None
    try:
        name, size = measure(one.source.path)
        there = Source(name, one.source.id, size)
        is_copy = size >= one.end and _is_alike(source, there, source.size) and _has_read(there, one)
    except CaptureError:  # the longer one is gone
        return None
    return source.size if is_copy else None


def _has_read(source: Source, one: KnownFile) -> bool:
    """Whether a file still has what was read of it; one of which no mark was kept must be as long as it was."""
    if one.mark and mark(source, one.end) != one.mark:
        return False
    if not one.mark and not any(span[2] for span in one.spans):
        return source.id == one.source.id and source.size == one.end
    return _agrees(source, one.spans)


def _agrees(source: Source, spans: Iterable[Hashed]) -> bool:
    """Whether a file has these bytes. An older wirelake kept marks of their last ones only."""
    with open_plain(source) as plain:
        return all(
            not told or told == (_content(plain, at, length) if len(told) == _HASH_SIZE else _mark(plain, at + length))
            for at, length, told in spans
        )


def _is_alike(one: Source, other: Source, size: int) -> bool:
    """Whether two files have the same first bytes."""
    with open_plain(one) as mine, open_plain(other) as theirs:
        return all(mine.window(at, _CHUNK)[: size - at] == theirs.window(at, _CHUNK)[: size - at] for at in range(0, size, _CHUNK))
