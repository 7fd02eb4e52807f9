"""A recording that comes in pieces, and is judged as it comes: what the process of a `Watcher` does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from wirelake.capture.blocks.block import Source, Span
from wirelake.capture.blocks.read_split import StepReader
from wirelake.capture.containers.walk import Walk
from wirelake.capture.record.recorder import Recorder
from wirelake.explore.reading.analysis import Counter
from wirelake.explore.reading.engine import Chain, ReadOptions
from wirelake.explore.reading.inputs import Pipe, items_of
from wirelake.explore.reading.records import Record
from wirelake.protocols import names

__all__ = ["LiveReading", "warm_up"]

_NOBODY: Final = ("127.0.0.1", 1)
_SOURCE: Final = Source("live", blake2b(b"live", digest_size=8).digest(), 0)


class LiveReading:
    """Reads what a live peer records."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._counter = Counter()
        self.begin(b"")

    def begin(self, preamble: bytes) -> None:
        """Read from here on, with no session known; `preamble` is how recordings begin."""
        self._pipe = Pipe()
        self._chain = Chain(self._options, self._counter)
        self._walk = Walk(_SOURCE.path, self._pipe, growing=True)
        self._reader = StepReader(_SOURCE, [Span(0, 0)], ports=self._chain.ports, protocols=names())
        self._pipe.add(preamble)

    def read(self, data: bytes) -> Iterator[Record]:
        """The records of the next bytes."""
        self._pipe.add(data)
        for step in self._walk.steps():
            yield from self._chain.feed(items_of(self._reader.step(step)))

    def overdue(self, now: int) -> Iterator[Record]:
        """Rules that are broken because something did not come until now."""
        return self._chain.overdue(now)

    def end(self) -> Iterator[Record]:
        """The records of what is left when nothing more comes."""
        return self._chain.end()


def warm_up() -> None:
    """Read a recording of nothing: what the first bytes need is loaded before there are any."""
    pieces: list[bytes] = []
    with Recorder(os.devnull, protocol=names()[0], watch=pieces.append) as recorder:
        recorder.connection(role="server", local=_NOBODY, remote=_NOBODY).received(b"\n" * 128)
    scratch = LiveReading(ReadOptions())
    for _ in (*scratch.read(b"".join(pieces)), *scratch.end()):
        pass
