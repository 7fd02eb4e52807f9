"""A buffer between a stream and a scanner: bytes go in as they arrive, whole frames come out, wherever the stream was cut.

It never asks the scanner about a frame before all its announced bytes are there, so a large message that arrives in small pieces costs
one copy, not one for each piece. It refuses to know any protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from wirelake.protocols.kernel import FAULT, LENGTH, START, active, array, table

__all__ = ["LARGE", "Buffer", "Frames"]

BATCH: Final = 256
"""Frames scanned in one go."""
LARGE: Final = 128 * 1024
"""Bytes above which the sizes of the frames in them are kept, for whoever must split them again."""

Frames = tuple[bytes, list[list[int]], list[int]]
"""Bytes, the rows of the frames in them, and their parts."""


class Buffer:
    """The unread end of a stream."""

    takes_datagrams = False
    """Whether what it is fed must be whole messages, one at a time."""

    def __init__(self, scan: Callable[..., Any], columns: int, part_columns: int, limits: tuple[int, ...], parts_per_frame: int) -> None:
        self._scan = active(scan)
        self._columns = columns
        self._part_columns = part_columns
        self.limits = limits
        """What the scanner is given; may be changed between two batches, where what was read decides how to read on."""
        self._rows = table(BATCH, columns)
        self._parts = table(BATCH + parts_per_frame, part_columns)
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = 1
        self._last = b""
        self._end = 0
        self._sizes: list[int] = []
        self.lost = False
        """The scanner met a frame whose end cannot be known: nothing after it can be read."""

    @property
    def rest(self) -> bytes:
        """What is buffered and not yet a whole frame."""
        return self._last[self._end :] + b"".join(self._chunks)

    @property
    def size(self) -> int:
        """How many bytes that is."""
        return self._size

    def clear(self) -> None:
        """Forget what is buffered: nothing more will be read."""
        self._chunks, self._last, self._end, self._size = [], b"", 0, 0
        self._rows = self._parts = None
        self.lost = True

    @property
    def taken(self) -> bytes:
        """The bytes of the whole frames that the last `feed` gave."""
        return self._last[: self._end]

    def sizes(self) -> list[int]:
        """How long the frames of `taken` are, one after the other; all of it in one if it is not large."""
        return self._sizes or [self._end]

    def feed(self, data: bytes) -> Iterator[Frames]:
        """Take what arrived; give whole frames, in batches. After `lost`, what arrives is not kept."""
        self._sizes = []
        if self.lost:
            self._last, self._end = self._last[self._end :], 0
            return
        if self._end < len(self._last):
            self._chunks.append(self._last[self._end :])
        self._last, self._end = b"", 0
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        whole = data if len(self._chunks) == 1 else b"".join(self._chunks)
        view, at, stop = array(whole), 0, len(whole)
        while True:
            count, used, end, need = self._scan(view, at, stop, self._rows, self._parts, self.limits)
            if count:
                rows = self._table(self._rows, count)
                self.lost = rows[-1][FAULT] != 0 and rows[-1][START] == end
                self._keep(whole, end, need)
                if stop > LARGE:
                    self._sizes += [row[LENGTH] for row in rows]
                yield whole, rows, self._flat(self._parts, used * self._part_columns)
            if self.lost or need >= 0:
                self._keep(whole, end, need)
                return
            at = end

    def _keep(self, whole: bytes, end: int, need: int) -> None:
        """What was not taken stays in `whole`, and is cut off by the next `feed`: once, however many batches there were."""
        self._chunks = []
        self._size = len(whole) - end
        self._needed = max(need, self._size + 1)
        self._last, self._end = whole, end

    def _table(self, flat: Any, count: int) -> list[list[int]]:
        width = self._columns
        if isinstance(flat, list):
            return [flat[at : at + width] for at in range(0, count * width, width)]
        rows: list[list[int]] = flat[: count * width].reshape(count, width).tolist()
        return rows

    def _flat(self, flat: Any, size: int) -> list[int]:
        values: list[int] = flat[:size] if isinstance(flat, list) else flat[:size].tolist()
        return values
