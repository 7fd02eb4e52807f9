"""Walk the records of a source, window by window, and skip what cannot be read.

Where records stop making sense, the walk searches for the next certain record (`Container.find`), and yields the bytes between as
`Damaged`. A walk ends before the first record that begins at or after its end; the next walk begins there. The same source gives the
same records whatever the window size. A growing source is walked only as far as later bytes cannot change the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from wirelake.capture.containers.detect import HEAD_SIZE, Container, recognise
from wirelake.capture.containers.records import FAULTS, LOOK_AHEAD, OTHER_CONTAINER, RECORD_COLUMNS
from wirelake.capture.files.source_file import Bytes
from wirelake.errors import CaptureError
from wirelake.protocols.kernel import array

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = [
    "CUT_SHORT",
    "EVERYTHING",
    "HASH_SIZE",
    "NOT_A_CAPTURE",
    "OLDER_HASH_SIZE",
    "ROWS",
    "WINDOW",
    "Damaged",
    "Walk",
    "Window",
    "begin",
    "new_digest",
]

WINDOW: Final = 2 << 20
"""Bytes of a file read at a time; a longer record is read whole.

Tables of packets fit into caches of a CPU: 8 MiB took a fifth more CPU a packet, and 90 MiB more memory.
"""
ROWS: Final = 1 << 17
"""Records scanned at a time."""
EVERYTHING: Final = 1 << 62
"""An end beyond the end of every source."""
HASH_SIZE: Final = 32
"""Bytes of a content hash: SHA-256, for which CPUs have instructions. It takes less than half the time of BLAKE2 there."""
OLDER_HASH_SIZE: Final = 16
"""Bytes of a content hash of older versions, which was BLAKE2. Lakes have such hashes, and files are still compared with them."""
CUT_SHORT: Final = "cut short"
NOT_A_CAPTURE: Final = "not a capture"


class Window(NamedTuple):
    """Whole records: the first `used` bytes of `data`, from byte `base` of the source on."""

    base: int
    data: bytes
    used: int
    rows: np.ndarray[Any, Any]
    layer: str


class Damaged(NamedTuple):
    """Bytes that are no records."""

    base: int
    raw: bytes
    layer: str
    reason: str


def new_digest(size: int = HASH_SIZE) -> _Hash | blake2b:
    """Return a new hash for the bytes of a source. The size chooses the algorithm."""
    return sha256() if size == HASH_SIZE else blake2b(digest_size=size)


class Walk:
    """One walk over one source: its offset `at`, its `container`, and with `hashed` a `digest`.

    The digest is that of the bytes it walked over.
    """

    def __init__(
        self,
        path: str,
        file: Bytes,
        *,
        at: int = 0,
        stop: int = EVERYTHING,
        container: Container | None = None,
        window: int = WINDOW,
        growing: bool = False,
        hashed: bool = False,
    ) -> None:
        self.at = at
        self.digest = new_digest() if hashed else None
        self.container = container
        self._path = path
        self._file = file
        self.stop = stop
        self.window = window
        """Bytes read at a time; may be changed between two steps."""
        self.growing = growing
        """Whether more bytes may come. When it ends, `steps` goes on to the end; it may be called again after each end."""

    def on(self, stop: int) -> Walk:
        """Set another end, and return the same walk."""
        self.stop = stop
        return self

    def steps(self) -> Iterator[Window | Damaged]:
        """Yield everything from `at` to the end, in order and without holes."""
        for step in self._steps():
            if self.digest is not None:
                self.digest.update(step.raw if isinstance(step, Damaged) else memoryview(step.data)[: step.used])
            yield step

    def _steps(self) -> Iterator[Window | Damaged]:
        if self.container is None and not self._recognise():
            if not self.growing:
                yield from self._rest()
            return
        rows = np.empty((ROWS, RECORD_COLUMNS), np.int64)
        want = self.window
        while self.at < self.stop and not self._file.is_end(self.at):
            assert self.container is not None  # noqa: S101 - recognised above
            data = self._file.window(self.at, want)
            count, used, end = self.container.scan(array(data), self.stop - self.at, rows)
            if used:
                base, self.at, want = self.at, self.at + used, self.window
                yield Window(base, data, used, rows[:count], self.container.layer)
            elif end == OTHER_CONTAINER and self._recognise():
                continue
            elif end > 0 and end > len(data) and not self._file.is_end(self.at + len(data)):
                want = end  # one record longer than a window
            elif self.growing and (end > 0 or not self._is_decidable()):
                return  # the rest of the record may still be written
            else:
                yield from self._skip(self.container, FAULTS.get(end, CUT_SHORT))

    def _recognise(self) -> bool:
        head = self._file.window(self.at, HEAD_SIZE)
        try:
            self.container = recognise(self._path, head, self.at)
        except CaptureError:
            return not head
        return True

    def _rest(self) -> Iterator[Damaged]:
        """Yield a source that is no capture, whole."""
        while raw := self._file.window(self.at, self.window):
            base, self.at = self.at, self.at + len(raw)
            yield Damaged(base, raw, "capture", NOT_A_CAPTURE)

    def _skip(self, container: Container, reason: str) -> Iterator[Damaged]:
        """Yield the bytes before the next certain record."""
        first = 1
        while True:
            data = self._file.window(self.at, 2 * LOOK_AHEAD)
            is_end = self._file.is_end(self.at + len(data)) and not self.growing
            place, decided = container.find(array(data), first, is_end)
            used = place if place >= 0 else decided
            if used:
                base, self.at = self.at, self.at + used
                yield Damaged(base, data[:used], container.layer, reason)
            if place >= 0 or is_end or (self.growing and not self._is_decidable()):
                return
            first = 0

    def _is_decidable(self) -> bool:
        """Whether the file has enough bytes ahead for a search to be certain."""
        return not self._file.is_end(self.at + 2 * LOOK_AHEAD - 1)


def begin(file: Bytes, at: int, container: Container) -> int | None:
    """Return the first offset from `at` on where records certainly begin; None if there is none."""
    while True:
        data = file.window(at, 2 * LOOK_AHEAD)
        is_end = file.is_end(at + len(data))
        place, decided = container.find(array(data), 0, is_end)
        if place >= 0:
            return at + place
        if is_end:
            return None
        at += decided
