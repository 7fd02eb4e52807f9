"""Following: files of a folder that grow, come and go, and how far each was read.

A position is what must be known to read a file on from where reading stopped. Only whole records are read while a file may grow, and
every file may: a writer that buffers can pause in the middle of a record for hours. So time alone never ends a file, nor a message. Only
the user ends them (`--once`): then the rest of each file is read as what it is. A file without a packet is read when it has been quiet for
a while, and so is a packed one whose stream is complete. Files are read in the order of their first packets, so that a connection that goes
on in the next file is read in its order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wirelake.capture.blocks.block import Source, Span
from wirelake.capture.blocks.read_split import ReadTask
from wirelake.capture.containers.detect import ContainerState as Container
from wirelake.capture.containers.detect import restore
from wirelake.capture.containers.walk import EVERYTHING, WINDOW, Walk
from wirelake.capture.files import identity
from wirelake.capture.files.identity import KnownFile
from wirelake.capture.files.magic import HEAD_SIZE, capture_kind
from wirelake.capture.files.source_file import Compressed, open_source
from wirelake.capture.files.split import WARM, Split
from wirelake.capture.packets.ip_fragments import REACH
from wirelake.errors import CaptureError

__all__ = ["Follower", "Limits", "Offset", "Position", "micro_batches"]


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one file was read."""

    path: str
    id: bytes
    begins: int
    """When its first packet was seen, microseconds since 1970; 0 if it has none."""
    base: tuple[int, Container | None] = (0, None)
    """Where following it began, and what is known there: what comes before was read by others."""
    at: int = 0
    size: int = 0
    """Bytes in it when it was looked at."""
    mark: bytes = b""
    """What the last bytes before `at` say."""
    since: int = 0
    digest: bytes = b""
    """The hash of the bytes from `since` to `at`."""
    known: Container | None = None
    """What a reader knows here."""
    warm: tuple[int, Container | None] = (0, None)
    """A place well before, and what is known there; see `Split`."""
    near: tuple[int, Container | None] = (0, None)
    """One that will be well before soon."""
    spans: tuple[int, ...] = ()
    """Where portions began that parts of datagrams may be of."""
    is_over: bool = False
    """Whether it was read to its end, whole records or not."""
    is_quiet: bool = False
    """Whether it was read as a file that does not grow."""


class Offset(msgspec.Struct, frozen=True):
    """How far all files were read."""

    files: tuple[Position, ...] = ()
    settled: int = 0
    """How often the user ended following, so that nothing needed to wait any more."""
    is_open: bool = False
    """Whether something was read since."""


class Limits(msgspec.Struct, frozen=True):
    """How much is read at a time; 0 is no limit."""

    files: int = 0
    bytes: int = 0


class _Looks(NamedTuple):
    """What a file looks like from outside."""

    size: int
    changed: float
    """When it was changed last."""
    number: int
    """Of its inode: another file under the same name has another, mostly."""


class Follower:
    """Looks at files, again and again."""

    def __init__(self, known: Iterable[KnownFile] = (), *, settle: float = 0.0, now: Callable[[], float] = time.time) -> None:
        self._known = {one.source.id: one for one in known}
        self._settle = settle
        """Seconds without a change after which a packed file, or one without a packet, is read."""
        self._is_last = settle < 0
        """Whether every file ends where it ends now."""
        self._now = now
        self._looks: dict[str, tuple[_Looks, Position | None, bytes]] = {}
        """Path -> what it looked like, what it was then, and what its beginning was called."""
        self._here: dict[bytes, tuple[KnownFile, Position]] = {}
        """Files that this look has found so far and of which nothing was read, by id."""
        self._torn: dict[bytes, _Looks] = {}
        """Compressed files whose stream was not complete when they looked like this."""

    def latest(self, start: Offset, paths: Iterable[str], limits: Limits) -> Offset:
        """How far reading can go from here."""
        found = list({one.id: one for one in reversed(self._look_at(paths, start))}.values())
        found.sort(key=lambda one: (one.begins, one.path))
        # The last one first: who writes the next file has finished the one before.
        sizes = {one.id: told for one in reversed(found) if (told := _measure(one.path)) is not None}
        files, left, count = [], limits.bytes or EVERYTHING, limits.files or EVERYTHING
        for one in found:
            moved = one
            if one.id in sizes and left > 0 and count > 0:
                told = sizes[one.id]
                moved = self._advance(one, told, left)
            left -= moved.at - one.at
            count -= moved.at > one.at
            files.append(moved)
        self._known |= {one.id: self._as_known(one) for one in files if one.at}
        is_open = start.is_open or bool(micro_batches(start, Offset(tuple(files))))
        is_over = all(one.is_over and (one.id not in sizes or sizes[one.id].size <= one.at) for one in files)
        if is_open and is_over and self._is_last:
            return Offset(tuple(files), start.settled + 1)
        return Offset(tuple(files), start.settled, is_open)

    def has_more(self, start: Offset, paths: Iterable[str]) -> bool:
        """Whether anything waits, or there is anything to read that was not."""
        places = {one.id: one for one in start.files}
        sizes = [(one, _measure(one.path)) for one in self._look_at(paths, start)]
        return start.is_open or any((told and told.size > one.at) or (not one.at and one.id not in places) for one, told in sizes)

    def unread(self, start: Offset) -> list[tuple[str, int, int]]:
        """Files that have bytes which wait for more: path, how far each was read, and its size."""
        sizes = [(one, _measure(one.path)) for one in start.files]
        return [(one.path, one.at, told.size) for one, told in sizes if told is not None and told.size > one.at]

    def _is_quiet(self, told: _Looks) -> bool:
        return self._now() - told.changed >= self._settle

    def _look_at(self, paths: Iterable[str], start: Offset) -> list[Position]:
        """What files are, the longest first: a shorter copy of one is the same."""
        places, self._here = {one.id: one for one in start.files}, {}
        measured = [(-told.size, path, told) for path in paths if (told := _measure(path)) is not None]
        return [one for _, path, told in sorted(measured) if (one := self._look(path, told, places)) is not None]

    def _look(self, path: str, told: _Looks, places: dict[bytes, Position]) -> Position | None:
        """What a file is; None while nobody can tell."""
        before = self._looks.get(path)
        made: Position | None
        if before is not None and before[0] == told and before[1] is not None:
            made = places.get(before[1].id, before[1])
        else:
            try:
                source = identity.identify(path)
                made = self._grown(source, told, places) or self._identify(source, places, is_quiet=self._is_quiet(told))
            except CaptureError:  # it is gone again
                return None
            self._looks[path] = (told, made, source.id)
        if made is not None and not made.at and made.path == path:
            self._here.setdefault(made.id, (KnownFile(Source(path, made.id, told.size), told.size, is_here=True), made))
        return made

    def _grown(self, source: Source, told: _Looks, places: dict[bytes, Position]) -> Position | None:
        """What a file is that has grown since the last look: then its last bytes that were read tell; None if it may be another."""
        looks, made, began = self._looks.get(source.path, (None, None, b""))
        one = places.get(made.id) if made else None
        if looks is None or one is None or not one.at or began != source.id or looks.number != told.number or looks.size > told.size:
            return None
        return one if told.size >= one.at and one.path == source.path and identity.mark(source, one.at) == one.mark else None

    def _identify(self, source: Source, places: dict[bytes, Position], *, is_quiet: bool) -> Position | None:
        begins = identity.beginning(source)
        known = self._known | {one.id: self._as_known(one) for one in places.values() if one.at}
        by_path: dict[str, list[KnownFile]] = {}
        for one in known.values():
            by_path.setdefault(one.source.path, []).append(one)
        by_id = {id_: [one] for id_, one in known.items()}
        for id_, (waiting, _) in self._here.items():
            by_id[id_] = [*by_id.get(id_, []), waiting]
        told = identity.place(source, by_path, by_id)
        if begins is None and not is_quiet and not told.end:
            return None  # it is not known yet by what
        if told.source.id in places:
            return msgspec.structs.replace(places[told.source.id], path=source.path)
        if told.source.id in self._here:
            return self._here[told.source.id][1]
        here = (told.end, _walked(source, told.end)) if told.end else (0, None)
        mark = identity.mark(source, told.end) if told.end else b""
        return Position(source.path, told.source.id, begins.ts if begins else 0, here, *_at(here, told.end, mark))

    def _advance(self, one: Position, told: _Looks, limit: int) -> Position:
        """Read on as far as whole records go, or to the end of what does not grow any more."""
        size = told.size
        if size <= one.at:
            here = (one.at, one.known)
            return msgspec.structs.replace(one, is_over=True, is_quiet=True, warm=here, near=here, spans=()) if self._is_last else one
        source = Source(one.path, one.id, size)
        try:
            is_whole = self._is_last or self._is_complete(one, source, told)
            end, container = self._walk(one, source, told, limit, growing=not is_whole)
            if end == one.at:
                return one
            mark, digest = identity.mark(source, end), identity.content(source, one.at, end - one.at)
        except CaptureError:  # it is gone, or was cut: what it is now is found out by the next look
            return one
        here = (end, container)
        if is_whole and end >= size:
            over = Position(one.path, one.id, one.begins, one.base, *_at(here, size, mark))
            return msgspec.structs.replace(over, is_over=True, is_quiet=True, since=one.at, digest=digest)
        warm, near = (one.near, here) if one.near[0] <= end - WARM else (one.warm, one.near)
        starts = (*one.spans, one.at)
        first = max((number for number, at in enumerate(starts) if at <= end - REACH), default=0)
        told_of = (end, size, mark, one.at, digest, here[1], warm, near, starts[first:])
        return Position(one.path, one.id, one.begins, one.base, *told_of, is_quiet=is_whole)

    def _as_known(self, one: Position) -> KnownFile:
        """A position as what was read: with the hashes of all of it that are known."""
        old = self._known.get(one.id)
        spans = tuple(span for span in (old.spans if old else ()) if span[0] + span[1] <= (one.since if one.digest else one.at))
        if one.digest and one.at > one.since:
            spans = (*spans, (one.since, one.at - one.since, one.digest))
        return KnownFile(Source(one.path, one.id, one.at), one.at, one.mark, spans)

    def _is_complete(self, one: Position, source: Source, told: _Looks) -> bool:
        """Whether a quiet file is read whole, though it may grow: a packed one to the end of its stream, or one that is no capture."""
        if not self._is_quiet(told) or one.at:
            return False
        with open_source(source) as file:
            if not isinstance(file, Compressed):
                head = file.window(0, HEAD_SIZE)
                return len(head) == HEAD_SIZE and not capture_kind(head)
            if self._torn.get(one.id) == told:
                return False
            at = 0
            while not file.is_end(at):
                at += len(file.window(at, WINDOW))
            if file.broken:
                self._torn[one.id] = told
            return not file.broken

    def _walk(self, one: Position, source: Source, told: _Looks, limit: int, *, growing: bool) -> tuple[int, Container | None]:
        """How far reading goes, and what is known there."""
        with open_source(source) as file:
            if isinstance(file, Compressed):  # it cannot be read from its middle
                return (one.at if growing else source.size), None
            if growing and one.begins == 0 and one.at == 0 and not self._is_quiet(told):
                return one.at, None
            begin = restore(one.known) if one.known else None
            walk = Walk(one.path, file, at=one.at, stop=one.at + limit, container=begin, window=WINDOW, growing=growing)
            for _ in walk.steps():
                pass
        return walk.at, walk.container.known() if walk.container else None


def _at(here: tuple[int, Container | None], size: int, mark: bytes) -> tuple[Any, ...]:
    """The rest of a position of which nothing before is needed any more."""
    return here[0], size, mark, here[0], b"", here[1], here, here


def _measure(path: str) -> _Looks | None:
    """What a file looks like; None if it is gone."""
    try:
        told = Path(path).stat()
    except OSError:
        return None
    return _Looks(told.st_size, told.st_mtime, told.st_ino)


def _walked(source: Source, end: int) -> Container | None:
    """What a reader knows at a place of a file, by reading up to it."""
    with open_source(source) as file:
        walk = Walk(source.path, file, stop=end)
        for _ in walk.steps():
            pass
    return walk.container.known() if walk.container else None


def micro_batches(start: Offset, end: Offset) -> list[ReadTask]:
    """What is to be read to get from one offset to another."""
    before = {one.id: one for one in start.files}
    tasks = []
    for rank, one in enumerate(end.files):
        fresh = Position(one.path, one.id, one.begins, one.base, *_at(one.base, one.base[0], b""))
        old = before.get(one.id, fresh)
        if one.at < old.at or (one.at == old.at and one.is_over == old.is_over):
            continue
        starts = [*old.spans, old.at]
        spans = [Span(at, stop - at) for at, stop in zip(starts, [*starts[1:], one.at], strict=True)]
        if one.since == old.at:
            spans[-1] = msgspec.structs.replace(spans[-1], mark=one.digest)
        split = Split(old.at, EVERYTHING if one.is_over else one.at, old.known, old.warm, growing=not one.is_quiet)
        tasks.append(ReadTask(Source(one.path, one.id, one.size), split, spans, one.is_over, rank))
    return tasks
