"""Follow growing files: which files of a folder have new records, and how far each was read.

A `Position` has everything needed to continue reading a file where reading stopped. Only whole records are read while a file may grow, and
every file may: a writer that buffers can pause in the middle of a record for hours. So time alone never ends a file or a message. Only the
user ends them (`--once`): then the rest of each file is read as it is.

A file that was truncated may be written again, as `cp` and `scp` do over an existing file. While it is a prefix of what was read of it, it
waits (`Offset.cut`). When it has all these bytes again, reading goes on after them. With other bytes it is another file.

A file without a packet is read when it has not changed for a while. So is a compressed file whose stream is complete. Files are read in the
order of their first packets, so that a connection that continues in the next file is read in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wirelake.capture.blocks.block import Source, Span
from wirelake.capture.blocks.read_split import ReadTask
from wirelake.capture.containers.detect import ContainerState, restore
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
    base: tuple[int, ContainerState | None] = (0, None)
    """Where following it began, and the container state there: earlier bytes were ingested before."""
    at: int = 0
    size: int = 0
    """Its size when it was last looked at."""
    mark: bytes = b""
    """The hash of the last bytes before `at`; see `identity.mark`."""
    since: int = 0
    digest: bytes = b""
    """The hash of the bytes from `since` to `at`."""
    known: ContainerState | None = None
    """The container state here."""
    warm: tuple[int, ContainerState | None] = (0, None)
    """An earlier offset, and the state there; see `Split.warm`."""
    near: tuple[int, ContainerState | None] = (0, None)
    """The offset that becomes `warm` next."""
    spans: tuple[int, ...] = ()
    """Where micro-batches began that may hold IP fragments of unfinished datagrams."""
    is_over: bool = False
    """Whether it was read to its end, including a cut record."""
    is_quiet: bool = False
    """Whether it was read as a file that does not grow."""
    prefixes: bytes = b""
    """The hashes of its prefixes; see `identity.prefixes`."""
    observer: str = ""
    """The name of its observer, if one was given."""


class Offset(msgspec.Struct, frozen=True):
    """How far all files were read."""

    files: tuple[Position, ...] = ()
    settled: int = 0
    """How often the user ended following, so that all files were read to their ends."""
    is_open: bool = False
    """Whether anything was read since."""
    cut: tuple[str, ...] = ()
    """Files that are shorter now than what was read of them, with the same bytes so far."""


class Limits(msgspec.Struct, frozen=True):
    """How much one micro-batch reads; 0 is no limit."""

    files: int = 0
    bytes: int = 0


class _FileStat(NamedTuple):
    """Size, time and inode of a file."""

    size: int
    changed: float
    """When it was changed last."""
    number: int
    """Of its inode: another file under the same name mostly has another."""


class Follower:
    """Finds out, again and again, how far files can be read."""

    def __init__(
        self, known: Iterable[KnownFile] = (), *, settle: float = 0.0, now: Callable[[], float] = time.time, observer: str = ""
    ) -> None:
        """`observer` is the name of the observer of files that are not known."""
        self._observer = observer
        self._known = {one.source.id: one for one in known}
        self._settle = settle
        """Seconds without a change after which a compressed file, or one without a packet, is read."""
        self._is_last = settle < 0
        """Whether every file is read to its end now (`--once`)."""
        self._now = now
        self._looks: dict[str, tuple[_FileStat, Position | None, bytes]] = {}
        """Path -> its stat, its position, and the id of its beginning when it was last identified."""
        self._here: dict[bytes, tuple[KnownFile, Position]] = {}
        """Unread files found in this round so far, by id."""
        self._cut: dict[str, tuple[_FileStat, bool]] = {}
        """Files of this round that wait until they have again what was read of them: their stat, and whether they could be compared."""
        self._cut_before: dict[str, tuple[_FileStat, bool]] = {}
        """The same of the round before."""
        self._paths: dict[bytes, str] = {}
        """Id -> path, of files of this round that have all that was read of them."""
        self._torn: dict[bytes, _FileStat] = {}
        """Compressed files whose stream was not complete, with their stat then."""

    def latest(self, start: Offset, paths: Iterable[str], limits: Limits) -> Offset:
        """Return how far reading can go from an offset."""
        positions = list({position.id: position for position in reversed(self._look_at(paths, start))}.values())
        positions.sort(key=lambda position: (position.begins, position.path))
        # The last one first: a recorder that writes the next file has finished the one before.
        sizes = {position.id: stat for position in reversed(positions) if (stat := self._size(position.path)) is not None}
        files, left, count = [], limits.bytes or EVERYTHING, limits.files or EVERYTHING
        for position in positions:
            moved = position
            if position.id in sizes and left > 0 and count > 0:
                stat = sizes[position.id]
                moved = self._advance(position, stat, left)
            left -= moved.at - position.at
            count -= moved.at > position.at
            files.append(moved)
        self._known |= {position.id: self._as_known(position) for position in files if position.at}
        is_open = start.is_open or bool(micro_batches(start, Offset(tuple(files))))
        is_over = all(position.is_over and (position.id not in sizes or sizes[position.id].size <= position.at) for position in files)
        cut = tuple(sorted(self._cut))
        if is_open and is_over and self._is_last:
            return Offset(tuple(files), start.settled + 1, cut=cut)
        return Offset(tuple(files), start.settled, is_open, cut)

    def has_more(self, start: Offset, paths: Iterable[str]) -> bool:
        """Whether bytes wait, or a file has unread bytes."""
        places = {one.id: one for one in start.files}
        sizes = [(one, _measure(one.path)) for one in self._look_at(paths, start)]
        return start.is_open or any((stat and stat.size > one.at) or (not one.at and one.id not in places) for one, stat in sizes)

    def unread(self, start: Offset) -> list[tuple[str, int, int]]:
        """Return files that end in a cut record, or were truncated: path, how far each was read, and its size."""
        sizes = [(one, _measure(one.path)) for one in start.files]
        return [(one.path, one.at, stat.size) for one, stat in sizes if stat is not None and stat.size != one.at]

    def _size(self, path: str) -> _FileStat | None:
        """Return the stat of a file; of a truncated one, the stat that it was compared with."""
        return self._cut[path][0] if path in self._cut else _measure(path)

    def _is_quiet(self, stat: _FileStat) -> bool:
        return self._now() - stat.changed >= self._settle

    def _look_at(self, paths: Iterable[str], start: Offset) -> list[Position]:
        """Return the positions of files, the longest first: a shorter copy is the same file."""
        places, self._here, self._paths = {one.id: one for one in start.files}, {}, {}
        self._cut_before, self._cut = self._cut, {}
        measured = [(-stat.size, path, stat) for path in paths if (stat := _measure(path)) is not None]
        return [one for _, path, stat in sorted(measured) if (one := self._look(path, stat, places)) is not None]

    def _look(self, path: str, stat: _FileStat, places: dict[bytes, Position]) -> Position | None:
        """Return the position of a file; None while it cannot be identified."""
        before = self._looks.get(path)
        position: Position | None
        if self._cut_before.get(path) == (stat, True):
            self._cut[path] = (stat, True)
            return places.get(before[1].id) if before is not None and before[1] is not None else None
        if before is not None and before[0] == stat and before[1] is not None and path not in self._cut_before:
            position = places.get(before[1].id, before[1])
        else:
            try:
                source = identity.identify(path)
                position = self._grown(source, stat, places) or self._identify(source, places, stat)
            except CaptureError:  # it is gone again
                return None
            self._looks[path] = (stat, position, source.id)
        if position is not None and position.at <= stat.size:
            self._paths.setdefault(position.id, path)
        if position is not None and not position.at and position.path == path:
            self._here.setdefault(position.id, (KnownFile(Source(path, position.id, stat.size), stat.size, is_here=True), position))
        return position

    def _grown(self, source: Source, stat: _FileStat, places: dict[bytes, Position]) -> Position | None:
        """Return the position of a file that grew since it was last identified, by its mark.

        Returns None if it may be another file.
        """
        last_stat, position, began = self._looks.get(source.path, (None, None, b""))
        before = places.get(position.id) if position else None
        if (
            last_stat is None
            or before is None
            or not before.at
            or began != source.id
            or source.path in self._cut_before  # then all of it is compared
            or last_stat.number != stat.number
            or last_stat.size > stat.size
        ):
            return None
        return before if stat.size >= before.at and before.path == source.path and identity.mark(source, before.at) == before.mark else None

    def _identify(self, source: Source, places: dict[bytes, Position], stat: _FileStat) -> Position | None:
        begins = identity.beginning(source)
        known = self._known | {one.id: self._as_known(one) for one in places.values() if one.at}
        for id_, path in self._paths.items():  # it may have been renamed
            if id_ in known:
                known[id_] = msgspec.structs.replace(known[id_], source=msgspec.structs.replace(known[id_].source, path=path))
        by_path: dict[str, list[KnownFile]] = {}
        for one in known.values():
            by_path.setdefault(one.source.path, []).append(one)
        by_id = {id_: [one] for id_, one in known.items()}
        for id_, (waiting, _) in self._here.items():
            by_id[id_] = [*by_id.get(id_, []), waiting]
        match = identity.place(source, by_path, by_id)
        if not match.is_known and (cut := self._cut_of(source, by_path.get(source.path, []), stat)) is not None:
            return places.get(cut.source.id)
        if begins is None and not self._is_quiet(stat) and not match.end:
            return None  # its beginning is not written yet
        if match.source.id in places:
            return msgspec.structs.replace(places[match.source.id], path=source.path)
        if match.source.id in self._here:
            return self._here[match.source.id][1]
        here = (match.end, _walked(source, match.end)) if match.end else (0, None)
        mark, prefixes = (identity.mark(source, match.end), identity.prefixes(source, match.end)) if match.end else (b"", b"")
        fields = _at(here, match.end, mark)
        position = Position(source.path, match.source.id, begins.ts if begins else 0, here, *fields)
        observer = known[match.source.id].source.observer if match.source.id in known else self._observer
        return msgspec.structs.replace(position, prefixes=prefixes, observer=observer)

    def _cut_of(self, source: Source, here: list[KnownFile], stat: _FileStat) -> KnownFile | None:
        """Return the known file that was at this path and longer, if this may be a part of it.

        A compressed file of which nothing can be compared, with a complete stream, is another one. What was compared while it was even
        shorter is not compared again: when it is long enough, everything is.
        """
        last = self._cut_before.get(source.path, (stat, False))[0]
        since = last.size if last.number == stat.number and last.size < stat.size else 0
        for known in reversed(here):
            is_cut = identity.is_cut(source, known, since)
            if is_cut or (is_cut is None and not (self._is_quiet(stat) and self._is_whole(source, stat))):
                self._cut[source.path] = (stat, is_cut is not None)
                return known
        return None

    def _advance(self, position: Position, stat: _FileStat, limit: int) -> Position:
        """Move a position on: as far as whole records go, or to the end of a file that is complete."""
        size = stat.size
        if size <= position.at:
            here = (position.at, position.known)
            return (
                msgspec.structs.replace(position, is_over=True, is_quiet=True, warm=here, near=here, spans=())
                if self._is_last
                else position
            )
        source = Source(position.path, position.id, size)
        try:
            is_whole = self._is_last or self._is_complete(position, source, stat)
            end, container = self._walk(position, source, stat, limit, growing=not is_whole)
            if end == position.at:
                return position
            mark, digest = identity.mark(source, end), identity.content(source, position.at, end - position.at)
            is_long = position.prefixes and position.at >= identity.PREFIXES[-1]
            prefixes = position.prefixes if is_long else identity.prefixes(source, end)
        except CaptureError:  # it is gone, or was truncated: the next round identifies it again
            return position
        here = (end, container)
        if is_whole and end >= size:
            over = Position(position.path, position.id, position.begins, position.base, *_at(here, size, mark))
            return msgspec.structs.replace(
                over, observer=position.observer, is_over=True, is_quiet=True, since=position.at, digest=digest, prefixes=prefixes
            )
        warm, near = (position.near, here) if position.near[0] <= end - WARM else (position.warm, position.near)
        starts = (*position.spans, position.at)
        first = max((number for number, at in enumerate(starts) if at <= end - REACH), default=0)
        fields = (end, size, mark, position.at, digest, here[1], warm, near, starts[first:])
        moved = Position(position.path, position.id, position.begins, position.base, *fields, is_quiet=is_whole, prefixes=prefixes)
        return msgspec.structs.replace(moved, observer=position.observer)

    def _as_known(self, position: Position) -> KnownFile:
        """Return a position as a known file, with the hashes of its bytes."""
        old = self._known.get(position.id)
        spans = tuple(
            span for span in (old.spans if old else ()) if span[0] + span[1] <= (position.since if position.digest else position.at)
        )
        if position.digest and position.at > position.since:
            spans = (*spans, (position.since, position.at - position.since, position.digest))
        source = Source(position.path, position.id, position.at, position.observer)
        return KnownFile(source, position.at, position.mark, spans, position.prefixes)

    def _is_complete(self, position: Position, source: Source, stat: _FileStat) -> bool:
        """Whether a quiet file is read whole: it is compressed with a complete stream, or is no capture."""
        return self._is_quiet(stat) and not position.at and self._is_whole(source, stat)

    def _is_whole(self, source: Source, stat: _FileStat) -> bool:
        """Whether nothing is missing at the end of a file, as far as it shows: a complete stream, or no capture."""
        with open_source(source) as file:
            if not isinstance(file, Compressed):
                head = file.window(0, HEAD_SIZE)
                return len(head) == HEAD_SIZE and not capture_kind(head)
            if self._torn.get(source.id) == stat:
                return False
            at = 0
            while not file.is_end(at):
                at += len(file.window(at, WINDOW))
            if file.broken:
                self._torn[source.id] = stat
            return not file.broken

    def _walk(self, position: Position, source: Source, stat: _FileStat, limit: int, *, growing: bool) -> tuple[int, ContainerState | None]:
        """Return how far reading goes, and the container state there."""
        with open_source(source) as file:
            if isinstance(file, Compressed):  # it cannot be read from the middle
                return (position.at if growing else source.size), None
            if growing and position.begins == 0 and position.at == 0 and not self._is_quiet(stat):
                return position.at, None
            begin = restore(position.known) if position.known else None
            walk = Walk(position.path, file, at=position.at, stop=position.at + limit, container=begin, window=WINDOW, growing=growing)
            for _ in walk.steps():
                pass
        return walk.at, walk.container.known() if walk.container else None


def _at(here: tuple[int, ContainerState | None], size: int, mark: bytes) -> tuple[Any, ...]:
    """Return the fields of a position that needs no earlier bytes."""
    return here[0], size, mark, here[0], b"", here[1], here, here


def _measure(path: str) -> _FileStat | None:
    """Return the stat of a file; None if it is gone."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return _FileStat(status.st_size, status.st_mtime, status.st_ino)


def _walked(source: Source, end: int) -> ContainerState | None:
    """Return the container state at an offset of a file, by walking up to it."""
    with open_source(source) as file:
        walk = Walk(source.path, file, stop=end)
        for _ in walk.steps():
            pass
    return walk.container.known() if walk.container else None


def micro_batches(start: Offset, end: Offset) -> list[ReadTask]:
    """Return the read tasks that lead from one offset to another."""
    before = {position.id: position for position in start.files}
    tasks = []
    for rank, position in enumerate(end.files):
        fresh = Position(position.path, position.id, position.begins, position.base, *_at(position.base, position.base[0], b""))
        old = before.get(position.id, fresh)
        if position.at < old.at or (position.at == old.at and (position.is_over == old.is_over or position.path in end.cut)):
            continue
        starts = [*old.spans, old.at]
        spans = [Span(at, stop - at) for at, stop in zip(starts, [*starts[1:], position.at], strict=True)]
        if position.since == old.at:
            spans[-1] = msgspec.structs.replace(spans[-1], mark=position.digest)
        split = Split(old.at, EVERYTHING if position.is_over else position.at, old.known, old.warm, growing=not position.is_quiet)
        tasks.append(
            ReadTask(
                Source(position.path, position.id, position.size, position.observer, position.begins), split, spans, position.is_over, rank
            )
        )
    return tasks
