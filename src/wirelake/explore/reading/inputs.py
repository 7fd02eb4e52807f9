"""Inputs: files, folders, standard input and named pipes, read window by window, whole or while they grow.

A capture continues the chain of one that ended before it began, such as the next file of a rotated recording. One that overlaps all
others in time has a chain of its own: its sessions are watched apart.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final, Self

from wirelake import protocols, scratch
from wirelake.capture.blocks.block import Block, Source, Span
from wirelake.capture.blocks.packet_batch import PacketBatch
from wirelake.capture.blocks.read_split import Partitioned, StepReader
from wirelake.capture.containers.records import NO_TIME
from wirelake.capture.containers.walk import NOT_A_CAPTURE, Walk
from wirelake.capture.files.identity import beginning, identify
from wirelake.capture.files.magic import HEAD_SIZE, compression_of
from wirelake.capture.files.source_file import Bytes, open_source
from wirelake.errors import CaptureError, CapturesMissing
from wirelake.explore.reading.analysis import Counter
from wirelake.explore.reading.engine import Chain, ReadOptions
from wirelake.explore.reading.records import Record
from wirelake.lake.sources.paths import expand
from wirelake.protocols.kernel import use_compiled, use_plain

__all__ = ["STDIN", "Pipe", "Reading", "items_of"]

STDIN: Final = "-"
FIRST_WINDOW: Final = 16 << 10
"""Bytes that are read first, so that the first lines come soon."""
LARGEST_WINDOW: Final = 1 << 20
"""Bytes that are read at a time later on. Messages are in order within a window."""
COMPILED_FROM: Final = 1 << 20
"""Bytes of input from which on loading compiled scanners pays."""
MAX_CHAINS: Final = 16
"""Captures that overlap in time and are watched apart; beyond this, the oldest ends."""
POLL_SECONDS: Final = 0.1
"""Seconds between two looks at files that grow."""
LOOK_SECONDS: Final = 0.2
"""Seconds between two looks at whether Ctrl-C was pressed while nothing comes from a stream."""


class Reading:
    """Reads inputs, and yields records. `counter` has the sums so far."""

    def __init__(self, options: ReadOptions | None = None) -> None:
        self._options = options or ReadOptions()
        self.counter = Counter()
        self.faults: list[str] = []
        """Inputs that could not be read, and why."""
        self.notes: list[str] = []
        """New remarks about inputs, such as a file that ends inside a record; the caller takes them out."""
        self._chains: list[Chain] = []
        self._is_compiled = False
        use_plain()

    def read(self, paths: Iterable[str]) -> Iterator[Record | None]:
        """All inputs to their ends: `-` is standard input; files in the order of their first packets.

        None comes after each window, before the next is waited for.
        """
        files = []
        for path in paths:
            if path == STDIN or _is_pipe(path):
                yield from self._pipe(path)
            else:
                files.append(path)
        sources = self._identified(expand(files, self.faults)) if files else []
        total = sum(source.size for _, source in sources)
        for begins, source in sources:
            yield from self._file(begins, source, compiled=total >= COMPILED_FROM)
        yield from self._end()

    def follow(self, paths: Iterable[str], *, wait: Callable[[float], object] = time.sleep) -> Iterator[Record | None]:
        """Files and folders while they grow, until the caller stops; None whenever nothing is left to read for now."""
        named, growing = list(paths), dict[str, _Growing]()
        while True:
            files = _present(named)
            fresh = self._identified([path for path in files if path not in growing])
            for begins, source in fresh:
                growing[source.path] = _Growing(source, self._chain(begins), begins)
            is_idle = True
            for path, one in list(growing.items()):
                for record in self._grown(one):
                    is_idle = False
                    yield record
                if one.is_gone:
                    one.close()
                    del growing[path]
            if is_idle:
                yield None
                wait(POLL_SECONDS)

    def end(self) -> Iterator[Record]:
        """What is left after `follow`."""
        return self._end()

    def _identified(self, files: Iterable[str]) -> list[tuple[int, Source]]:
        """The sources of files with their first times, in that order; those that cannot be read go to `faults`."""
        found = []
        for path in files:
            try:
                source = identify(path)
                begins = beginning(source)
            except CaptureError as error:
                self.faults.append(str(error))
                continue
            found.append((NO_TIME if begins is None else begins.ts, source))
        return sorted(found, key=lambda each: (each[0], each[1].path))

    def _chain(self, begins: int) -> Chain:
        """The chain that a capture continues, by the time of its first packet."""
        for chain in self._chains:
            if chain.newest <= begins:
                return chain
        chain = Chain(self._options, self.counter)
        self._chains.append(chain)
        return chain

    def _end(self) -> Iterator[Record]:
        chains, self._chains = self._chains, []
        for chain in chains:
            yield from chain.end()
        use_plain(False)

    def _file(self, begins: int, source: Source, *, compiled: bool) -> Iterator[Record | None]:
        if len(self._chains) >= MAX_CHAINS and all(chain.newest > begins for chain in self._chains):
            yield from self._chains.pop(0).end()
        chain = self._chain(begins)
        reader = _reader(source, chain)
        try:
            with open_source(source) as file:
                walk = Walk(source.path, file, window=FIRST_WINDOW)
                for step in walk.steps():
                    if walk.container is None:
                        self._refuse(source.path)
                        return
                    yield from chain.feed(items_of(reader.step(step)))
                    yield None
                    self._sized(step.base, walk, compiled=compiled)
                if not walk.at:
                    self.notes.append(f"{source.path} is empty")
                yield from chain.feed(items_of(reader.finish(walk.at, file, is_last=True)))
        except CaptureError as error:
            self.faults.append(str(error))

    def _sized(self, size: int, walk: Walk, *, compiled: bool) -> None:
        """Read on in larger windows, and with compiled scanners if there is much to read."""
        if not self._is_compiled and (compiled or size >= COMPILED_FROM):
            self._is_compiled = True
            use_compiled()
        walk.window = min(4 * walk.window, LARGEST_WINDOW)

    def _refuse(self, path: str) -> None:
        self.faults.append(f"{path}: {NOT_A_CAPTURE}: `wirelake decode PROTOCOL {path}` reads bytes without one")

    def _pipe(self, path: str) -> Iterator[Record | None]:
        if path == STDIN:
            yield from self._stream(path, "standard input", sys.stdin.buffer)
            return
        with Path(path).open("rb") as stream:
            yield from self._stream(path, path, stream)

    def _stream(self, path: str, label: str, stream: BinaryIO) -> Iterator[Record | None]:
        pipe = Pipe(stream)
        while len(pipe.buffer) < HEAD_SIZE and pipe.fill():
            pass
        if compression_of(bytes(pipe.buffer[:4])):
            yield from self._packed_pipe(pipe)
            return
        source = Source(label, blake2b(pipe.buffer[:FIRST_WINDOW], digest_size=8).digest(), 0)
        chain, walk = Chain(self._options, self.counter), Walk(label, pipe, window=FIRST_WINDOW, growing=True)
        reader = _reader(source, chain)
        if pipe.buffer:
            while True:
                for step in walk.steps():
                    yield from chain.feed(items_of(reader.step(step)))
                    self._sized(step.base, walk, compiled=False)
                if walk.container is None and len(pipe.buffer) >= HEAD_SIZE:
                    self._refuse(path)
                    return
                yield None
                if not pipe.fill():
                    break
            walk.growing = False
            for step in walk.steps():
                yield from chain.feed(items_of(reader.step(step)))
        else:
            self.notes.append(f"{label} is empty")
        yield from chain.feed(items_of(reader.finish(walk.at, pipe, is_last=True)))
        yield from chain.end()

    def _packed_pipe(self, pipe: Pipe) -> Iterator[Record | None]:
        """A compressed capture from a pipe becomes a file first."""
        with scratch.temporary("read") as folder:
            with (folder / "input.pcap").open("wb") as file:
                while pipe.buffer:
                    file.write(pipe.take())
                    pipe.fill()
            for begins, source in self._identified([file.name]):
                yield from self._file(begins, source, compiled=source.size >= COMPILED_FROM)
            yield from self._end()

    def _grown(self, one: _Growing) -> Iterator[Record]:
        """What was added to a file since the last look."""
        one.look()
        for step in one.walk.steps():
            yield from one.chain.feed(items_of(one.reader.step(step)))
            self._sized(step.base, one.walk, compiled=False)
        if one.is_gone:
            one.walk.growing = False
            for step in one.walk.steps():
                yield from one.chain.feed(items_of(one.reader.step(step)))


def _reader(source: Source, chain: Chain) -> StepReader:
    return StepReader(source, [Span(0, source.size)], ports=chain.ports, protocols=protocols.names())


def items_of(found: Iterable[PacketBatch | Partitioned | Block]) -> list[PacketBatch | Block]:
    """What a decoder takes; nothing is partitioned here."""
    return [one for one in found if not isinstance(one, Partitioned)]


def _is_pipe(path: str) -> bool:
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _present(paths: list[str]) -> list[str]:
    """The files there are now. A folder may be empty, and a file may not exist yet."""
    found: dict[str, None] = {}
    for path in paths:
        try:
            found.update(dict.fromkeys(expand([path], [])))
        except CapturesMissing:
            continue
    return list(found)


class Pipe:
    """Bytes that come front to back; `fill` waits for more of a stream, or a caller adds them."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream
        self._descriptor: int | None = None
        if stream is not None:
            with contextlib.suppress(OSError):  # it may be no file
                self._descriptor = stream.fileno()
        self._start = 0
        self.buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fill(self) -> bool:
        """Wait for more bytes; False at the end."""
        if self._stream is None:
            return False
        # A Ctrl-C that comes just before a read that waits would not be noticed until the read ends.
        while self._descriptor is not None and not select.select([self._descriptor], [], [], LOOK_SECONDS)[0]:
            pass
        read = getattr(self._stream, "read1", self._stream.read)
        data = read(LARGEST_WINDOW)
        self.buffer += data
        return bool(data)

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.buffer += data

    def take(self) -> bytes:
        """All bytes that are there."""
        data = bytes(self.buffer)
        self._start += len(data)
        self.buffer.clear()
        return data

    def is_end(self, at: int) -> bool:
        """See `Bytes.is_end`: so far."""
        return at >= self._start + len(self.buffer)

    def window(self, at: int, size: int) -> bytes:
        """See `Bytes.window`. Bytes before `at` are gone."""
        del self.buffer[: at - self._start]
        self._start = at
        return bytes(self.buffer[:size])


class _Growing:
    """A file that is read while it grows."""

    def __init__(self, source: Source, chain: Chain, begins: int) -> None:
        self.chain = chain
        self.begins = begins
        self.reader = _reader(source, chain)
        self._path = source.path
        self._file = _GrowingFile(source.path) if not compression_of(_head(source)) else None
        self._packed = open_source(source).__enter__() if self._file is None else None
        file: Bytes | None = self._file or self._packed
        assert file is not None  # noqa: S101 - one of both
        self.walk = Walk(source.path, file, window=FIRST_WINDOW, growing=self._file is not None)
        self.is_gone = False

    def look(self) -> None:
        """Measure the file; it is gone if another one has its name, or if it was truncated."""
        if self._file is not None:
            self._file.measure()
            self.is_gone = not self._file.is_at(self._path) or self._file.size < self.walk.at

    def close(self) -> None:
        """Close the file."""
        for file in (self._file, self._packed):
            if file is not None:
                file.__exit__()


def _head(source: Source) -> bytes:
    with Path(source.path).open("rb") as file:
        return file.read(4)


class _GrowingFile:
    """A local file as long as it is now."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.size = 0
        self._number = os.fstat(self._descriptor).st_ino

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def measure(self) -> None:
        """Look how long the file is."""
        self.size = os.fstat(self._descriptor).st_size

    def is_at(self, path: str) -> bool:
        """Whether the path still leads to this file."""
        try:
            return Path(path).stat().st_ino == self._number
        except OSError:
            return False

    def is_end(self, at: int) -> bool:
        """See `Bytes.is_end`: so far."""
        return at >= self.size

    def window(self, at: int, size: int) -> bytes:
        """See `Bytes.window`."""
        return os.pread(self._descriptor, max(0, min(size, self.size - at)), at)
