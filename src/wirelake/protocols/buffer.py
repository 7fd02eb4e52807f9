"""Buffer between a stream and a scanner: bytes in as they arrive, whole frames out.

The frames are the same wherever the stream was cut. The scanner sees a frame again only when all its announced bytes are there. So a
large message that arrives in small chunks is copied once, not once for each chunk.

The buffer chooses how to scan by the number of bytes that wait: plain Python below `COMPILED_BYTES`, compiled from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from wirelake.protocols import kernel
from wirelake.protocols.kernel import FAULT, LENGTH, START, Numbers, Octets, Scan, active

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["LARGE", "Buffer", "Bulk", "Frames", "Glance", "Run", "TakeRun"]

BATCH: Final = 256
"""Frames scanned in one call."""
LARGE: Final = 128 * 1024
"""Bytes above which the sizes of the frames in them are kept, so that a recorder can split them again."""
PIECE: Final = 64
"""Bytes of memory that a piece of an unfinished frame takes beside its bytes."""
PINNED: Final = 64 * 1024
"""Bytes of whole frames that are kept until the next `feed`, above which they count."""

Frames = tuple[bytes, list[list[int]], list[int]]
"""Bytes, the rows of the frames in them, and their parts."""


Glance = Callable[[bytes, tuple[int, ...]], tuple[list[int], list[int]] | None]
"""Reads bytes that are exactly one message of the commonest forms: the row and parts that `scan` would write; else None.

It takes a tenth of the time of a plain scan. A test for each protocol compares the two.
"""

Run = Callable[[bytes, int, int, tuple[int, ...]], tuple[list[int], list[tuple[bytes, ...]]]]
"""Reads messages of the commonest form, one after the other, until another comes: their sizes and parts, as `scan` would give them.

For such messages it takes less time than a compiled scan whose rows are then read. A test for each protocol compares the two.
"""
TakeRun = Callable[[bytes, int, list[tuple[bytes, ...]]], bool]
"""Takes what `Run` read: bytes, where the first message begins, and the parts of each; returns False if it wants them one by one."""

Bulk: TypeAlias = "Callable[[bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]], bool]"
"""Takes many messages at once: bytes, a row for each message, a row for each part; returns False if it wants them one by one."""
BULK: Final = 16
"""Messages from which they are many."""


class Buffer:
    """The unread end of a stream."""

    takes_datagrams = False
    """Whether `feed` takes datagrams, each one whole message."""

    def __init__(
        self,
        scan: Scan,
        columns: int,
        part_columns: int,
        limits: tuple[int, ...],
        parts_per_frame: int,
        glance: Glance | None = None,
        run: Run | None = None,
    ) -> None:
        self._scan = scan
        self._compiled_scan = active(scan)
        self._has_compiled = self._compiled_scan is not scan
        self._columns = columns
        self._part_columns = part_columns
        self.limits = limits
        """Limits for the scanner.

        They may change between two batches, where what was read decides how to read on.
        """
        self._sizes_of_tables = (BATCH * columns, (BATCH + parts_per_frame) * part_columns)
        self._lists: tuple[list[int], list[int]] | None = None
        """Rows and parts that plain scans write to; made when first needed."""
        self._arrays: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        """Rows and parts that compiled scans write to; made when first needed."""
        self._chunks: list[bytes] = []
        self.size = 0
        """How many bytes `rest` has."""
        self._needed = 1
        self._last = b""
        self._end = 0
        self._sizes: list[int] = []
        self._glance = glance
        self._run = run
        self.walked = 0
        """Bytes of the last `feed` that the scanner walked through as plain Python: compiling it would help."""
        self.take_run: TakeRun | None = None
        """Sessions may take the messages of `Run` here, instead of what `feed` gives."""
        self.bulk: Bulk | None = None
        """Sessions may take the messages of a compiled scan here, instead of what `feed` gives."""
        self.lost = False
        """True after a frame whose end cannot be known: nothing after it can be read."""

    @property
    def rest(self) -> bytes:
        """What is buffered and not yet a whole frame."""
        return self._last[self._end :] + b"".join(self._chunks)

    def clear(self) -> None:
        """Drop what is buffered: nothing more will be read."""
        self._chunks, self._last, self._end, self.size = [], b"", 0, 0
        self._lists = self._arrays = self.bulk = self.take_run = None
        self.lost = True

    @property
    def memory(self) -> int:
        """Bytes of memory that are kept, about: `rest` in its pieces, and whole frames if they are large."""
        pinned = len(self._last)
        if not self.size and pinned < PINNED:
            return 0
        return max(pinned, self.size) + PIECE * len(self._chunks)

    def forget_taken(self) -> None:
        """Free the whole frames that the last `feed` gave."""
        self._last, self._end = self._last[self._end :], 0

    @property
    def taken(self) -> bytes:
        """The bytes of the whole frames that the last `feed` gave."""
        return self._last[: self._end]

    def sizes(self) -> list[int]:
        """How long the frames of `taken` are, one after the other; all of it in one if it is not large."""
        return self._sizes or [self._end]

    def feed(self, data: bytes) -> Iterable[Frames]:
        """Take what arrived; give whole frames, in batches. After `lost`, what arrives is not kept."""
        if (seen := self.glance(data)) is not None:
            return ((data, [seen[0]], seen[1]),)
        return self._scan_all(data)

    def glance(self, data: bytes) -> tuple[list[int], list[int]] | None:
        """The row and parts of what arrived, if it is exactly one message of the commonest forms; else None, and `feed` takes it."""
        if self._glance is None or self.size or self.lost or (seen := self._glance(data, self.limits)) is None:
            return None
        self._last, self._end, self._needed = data, len(data), 1
        if self._sizes:
            self._sizes = []
        return seen

    def _scan_all(self, data: bytes) -> Iterator[Frames]:
        self._sizes, self.walked = [], 0
        if self.lost:
            self._last, self._end = self._last[self._end :], 0
            return
        if self._end < len(self._last):
            self._chunks.append(self._last[self._end :])
        self._last, self._end = b"", 0
        self._chunks.append(data)
        self.size += len(data)
        if self.size < self._needed:
            return
        whole = data if len(self._chunks) == 1 else b"".join(self._chunks)
        scan, view, row_table, part_table = self._choose(whole)
        at, stop = 0, len(whole)
        while True:
            if self.take_run is not None:
                at = self._take_plain_run(whole, at)
            count, used, end, need = scan(view, at, stop, row_table, part_table, self.limits)
            if isinstance(row_table, list):
                self.walked += end - at
            if (
                count >= BULK
                and self.bulk is not None
                and not isinstance(row_table, list)
                and self._take_bulk(whole, count, used, end, need)
            ):
                pass
            elif count:
                rows = self._table(row_table, count)
                self.lost = rows[-1][FAULT] != 0 and rows[-1][START] == end
                self._keep(whole, end, need)
                if stop > LARGE:
                    self._sizes += [row[LENGTH] for row in rows]
                yield whole, rows, self._flat(part_table, used * self._part_columns)
            if self.lost or need >= 0:
                self._keep(whole, end, need)
                return
            at = end

    def _take_plain_run(self, whole: bytes, at: int) -> int:
        """Take messages of the commonest form without the scanner; returns where the others begin."""
        if self._run is None or self.take_run is None:
            return at
        sizes, payloads = self._run(whole, at, len(whole), self.limits)
        if len(sizes) < BULK or not self.take_run(whole, at, payloads):
            return at
        if len(whole) > LARGE:
            self._sizes += sizes
        return at + sum(sizes)

    def _take_bulk(self, whole: bytes, count: int, used: int, end: int, need: int) -> bool:
        if self._arrays is None or self.bulk is None:
            return False
        rows = self._arrays[0][: count * self._columns].reshape(count, self._columns)
        parts = self._arrays[1][: used * self._part_columns].reshape(used, self._part_columns)
        if rows[-1, FAULT] or not self.bulk(whole, rows, parts):
            return False
        self._keep(whole, end, need)
        if len(whole) > LARGE:
            self._sizes += rows[:, LENGTH].tolist()
        return True

    def compile(self) -> None:
        """Compile the scanner, or load it from Numba's cache, for all buffers of this protocol that are in use.

        This takes a second, so it is for a thread. It does nothing without Numba, or where it is done.
        """
        if self._has_compiled or self._scan in kernel.ready:
            return
        try:
            import numpy as np  # noqa: PLC0415 - see `_choose`

            scan = kernel.compiled(self._scan)
        except ImportError:
            return
        rows, parts = (np.zeros(size, np.int64) for size in self._sizes_of_tables)
        scan(np.frombuffer(bytes(kernel.COMPILED_BYTES), np.uint8), 0, 0, rows, parts, self.limits)
        kernel.ready[self._scan] = scan

    def _choose(self, whole: bytes) -> tuple[Scan, Octets, Numbers, Numbers]:
        """Choose how to scan so many bytes: the scanner, and bytes, rows and parts in the form it takes."""
        if not self._has_compiled and (scan := kernel.ready.get(self._scan)) is not None:
            self._has_compiled, self._compiled_scan = True, cast(Scan, scan)
        if not self._has_compiled or len(whole) < kernel.compiled_from:
            if self._lists is None:
                rows, parts = self._sizes_of_tables
                self._lists = [0] * rows, [0] * parts
            return self._scan, whole, *self._lists
        import numpy as np  # noqa: PLC0415 - only where scanners run compiled

        if self._arrays is None:
            rows, parts = self._sizes_of_tables
            self._arrays = np.zeros(rows, np.int64), np.zeros(parts, np.int64)
        return self._compiled_scan, np.frombuffer(whole, np.uint8), *self._arrays

    def _keep(self, whole: bytes, end: int, need: int) -> None:
        """Keep what was not taken in `whole`.

        The next `feed` cuts it off once, however many batches there were.
        """
        self._chunks = []
        self.size = len(whole) - end
        self._needed = max(need, self.size + 1)
        self._last, self._end = whole, end

    def _table(self, flat: Numbers, count: int) -> list[list[int]]:
        width = self._columns
        if isinstance(flat, list):
            return [flat[at : at + width] for at in range(0, count * width, width)]
        rows: list[list[int]] = flat[: count * width].reshape(count, width).tolist()
        return rows

    def _flat(self, flat: Numbers, size: int) -> list[int]:
        values: list[int] = flat[:size] if isinstance(flat, list) else flat[:size].tolist()
        return values
