"""Identify a file, though it may have grown, moved, or been replaced since it was read.

The id of a capture is the hash of its beginning: everything up to the end of its first packet. That includes the packet's time, and stays
the same while the file grows. Content decides whether it is the file that was read before: each span that was read has a hash. So a file
that grew is recognised, files that differ in one byte are two, and a copy is deduplicated. Files with the same beginning are numbered.

A *mark* is a hash of the last bytes before an offset: enough for a file that is being followed, and all that older versions kept.
A file that is no capture, or is compressed, or has no packet yet, is identified by its size and the bytes at both ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from wirelake.capture.blocks.block import Source
from wirelake.capture.containers.records import KIND, LENGTH, RECORD_PACKET, START, TS
from wirelake.capture.containers.walk import HASH_SIZE, OLDER_HASH_SIZE, Damaged, Walk, new_digest
from wirelake.capture.files.source_file import Bytes, Compressed, measure, open_plain, open_source
from wirelake.errors import CaptureError

__all__ = [
    "BEGINNING",
    "PREFIXES",
    "Beginning",
    "Hashed",
    "KnownFile",
    "SourcePosition",
    "beginning",
    "content",
    "identify",
    "is_cut",
    "mark",
    "namesake",
    "place",
    "prefixes",
]

BEGINNING: Final = 64 << 10
"""Bytes at the start of a file that are searched for its first packet.

Without a packet, so many bytes are hashed at each end.
"""
MARKED: Final = 4 << 10
"""Bytes before an offset that a mark hashes."""
PREFIXES: Final = tuple(1 << power for power in range(4, 17))
"""Lengths of prefixes that are hashed: a truncated file is compared with what was read of it, by half of its bytes or 64 KiB."""
_ID_SIZE: Final = 8
_PREFIX_SIZE: Final = 4
_CHUNK: Final = 4 << 20
"""Bytes that are compared or hashed at a time."""
_HASH_SIZES: Final = (HASH_SIZE, OLDER_HASH_SIZE)
"""Sizes of the hashes of whole spans; marks are shorter."""
_SPARE: Final = 16
"""Numbers of files with the same beginning that may be unused between two used ones."""

Hashed = tuple[int, int, bytes]
"""A span that was read: offset, length, and the hash of its bytes, or an older mark, or nothing."""


class KnownFile(msgspec.Struct, frozen=True):
    """How far a source was read, and the hashes of its bytes."""

    source: Source
    end: int
    mark: bytes = b""
    """The hash of its last bytes, if only that is to be compared."""
    spans: tuple[Hashed, ...] = ()
    """What was read, in order."""
    prefixes: bytes = b""
    """The hashes of its prefixes, if it was followed; see `prefixes`."""
    is_here: bool = False
    """Whether it is about to be read: then its file is compared itself."""


class SourcePosition(msgspec.Struct, frozen=True):
    """The identity of a file: its source, and how far that was read before.

    `is_other` says that another file had its name.
    """

    source: Source
    end: int = 0
    is_known: bool = False
    is_other: bool = False
    like: str = ""
    """The path of the known source that it matches."""
    is_part: bool = False
    """Whether it is only the beginning of that source."""


def identify(path: str | os.PathLike[str]) -> Source:
    """Identify a file by its beginning, or by its size and ends if it has none.

    Raises CaptureError if it cannot be read.
    """
    name, size = measure(path)
    source = Source(name, b"", size)
    if begins := beginning(source):
        content_bytes = begins.data
    else:
        with open_plain(source) as plain:
            content_bytes = size.to_bytes(8, "big") + plain.window(0, BEGINNING) + plain.window(max(0, size - BEGINNING), BEGINNING)
    return Source(name, blake2b(content_bytes, digest_size=_ID_SIZE).digest(), size)


class Beginning(msgspec.Struct, frozen=True):
    """Everything of a capture up to the end of its first packet, and the time of that."""

    data: bytes
    ts: int


def beginning(source: Source) -> Beginning | None:
    """Return the beginning of a file; None if it is compressed, or has no packet near its start."""
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
    """Hash the last bytes before an offset of a file, as stored."""
    with open_plain(source) as plain:
        return _mark(plain, at)


def _mark(plain: Bytes, at: int) -> bytes:
    start = max(0, at - MARKED)
    return blake2b(at.to_bytes(8, "big") + plain.window(start, at - start), digest_size=_ID_SIZE).digest()


def content(source: Source, at: int, length: int) -> bytes:
    """Hash a span of a file, as stored."""
    with open_plain(source) as plain:
        return _content(plain, at, length)


def _content(plain: Bytes, at: int, length: int, size: int = HASH_SIZE) -> bytes:
    digest, stop = new_digest(size), at + length
    while at < stop:
        data = plain.window(at, min(_CHUNK, stop - at))
        if not data:
            break
        digest.update(data)
        at += len(data)
    return digest.digest()


def prefixes(source: Source, end: int) -> bytes:
    """Hash the prefixes of a file, of all lengths in `PREFIXES` up to `end`."""
    with open_plain(source) as plain:
        data = plain.window(0, min(end, PREFIXES[-1]))
    return b"".join(blake2b(data[:length], digest_size=_PREFIX_SIZE).digest() for length in PREFIXES if length <= len(data))


def is_cut(source: Source, known: KnownFile, since: int = 0) -> bool | None:
    """Whether a file is shorter than what was read of it, and has the same bytes so far: it was truncated, and may be written again.

    Spans that end by `since` were compared before. None: nothing of the file can be compared.
    """
    inside = [span for span in known.spans if span[0] + span[1] <= source.size]
    if source.size >= known.end or not _agrees(source, [span for span in inside if span[0] + span[1] > since]):
        return False
    if beginning(source) and known.source.id not in {namesake(source, number).id for number in range(_SPARE)}:
        return False
    there = prefixes(source, source.size)
    if not source.size or known.prefixes:
        return known.prefixes.startswith(there)
    return True if inside or beginning(source) else None


def namesake(source: Source, number: int) -> Source:
    """Return the source with the id of the file number `number` among those with the same beginning."""
    numbered = source.id + number.to_bytes(4, "big")
    return msgspec.structs.replace(source, id=blake2b(numbered, digest_size=_ID_SIZE).digest()) if number else source


def _older_namesake(source: Source) -> Source:
    """Return the source with the id that older versions gave: by its path, too."""
    return msgspec.structs.replace(source, id=blake2b(source.id + source.path.encode(), digest_size=_ID_SIZE).digest())


def place(source: Source, by_path: dict[str, list[KnownFile]], by_id: dict[bytes, list[KnownFile]]) -> SourcePosition:
    """Match a file with what was read before, by path and by id, the furthest last. Contents decide."""
    here = by_path.get(source.path, [])
    others = by_id.get(_older_namesake(source).id, [])
    free, number, last = None, 0, 0
    while number <= last + _SPARE:  # ids in between may be unused
        candidate = namesake(source, number)
        alike = by_id.get(candidate.id, [])
        free = free or (None if alike else candidate)
        others, last = [*alike, *others], number if alike else last
        number += 1
    for near in (*reversed(here), *reversed(others)):
        end = _common(source, near)
        furthest = max((other.end for other in by_id.get(near.source.id, ())), default=0)
        if end is not None and (end == source.size or end >= furthest):  # else both began alike and grew differently
            known = msgspec.structs.replace(source, id=near.source.id)
            return SourcePosition(known, end, is_known=True, like=near.source.path, is_part=end < near.end)
    return SourcePosition(free or source, is_other=any(near.end for near in here))


def _common(source: Source, candidate: KnownFile) -> int | None:
    """Return how far a file has the same bytes as a known one: to the end of either.

    None: it is another file.
    """
    if not candidate.end:
        return 0 if source.id == candidate.source.id and not source.size else None
    if candidate.is_here:
        shorter = min(source.size, candidate.end)
        return shorter if _is_alike(source, candidate.source, shorter) else None
    if source.size >= candidate.end:
        return candidate.end if _has_read(source, candidate) else None
    if source.path == candidate.source.path:
        return None  # it was truncated
    inside = [span for span in candidate.spans if span[0] + span[1] <= source.size]
    if inside and sum(inside[-1][:2]) == source.size and all(len(span[2]) in _HASH_SIZES for span in inside):
        return source.size if _agrees(source, inside) else None
    try:
        name, size = measure(candidate.source.path)
        there = Source(name, candidate.source.id, size)
        is_copy = size >= candidate.end and _is_alike(source, there, source.size) and _has_read(there, candidate)
    except CaptureError:  # the longer one is gone
        return None
    return source.size if is_copy else None


def _has_read(source: Source, candidate: KnownFile) -> bool:
    """Whether a file still has the bytes that were read of it; without hashes its size must be the same."""
    if candidate.mark and mark(source, candidate.end) != candidate.mark:
        return False
    if not candidate.mark and not any(span[2] for span in candidate.spans):
        return source.id == candidate.source.id and source.size == candidate.end
    return _agrees(source, candidate.spans)


def _agrees(source: Source, spans: Iterable[Hashed]) -> bool:
    """Whether the spans of a file have these hashes. Older versions kept marks of their last bytes only."""
    with open_plain(source) as plain:
        return all(
            not digest
            or digest == (_content(plain, at, length, size) if (size := len(digest)) in _HASH_SIZES else _mark(plain, at + length))
            for at, length, digest in spans
        )


def _is_alike(one: Source, other: Source, size: int) -> bool:
    """Whether two files have the same first bytes."""
    with open_plain(one) as mine, open_plain(other) as theirs:
        return all(mine.window(at, _CHUNK)[: size - at] == theirs.window(at, _CHUNK)[: size - at] for at in range(0, size, _CHUNK))
