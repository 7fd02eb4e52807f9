"""A buffer between a byte stream and the scanner: bytes go in as they arrive, whole lines come out, wherever the stream was cut (WOLP-11).

What arrived is looked at once for a line feed, and never again: a long line that comes in small pieces costs one copy. It refuses to know
what texts say.
"""

from __future__ import annotations

from collections.abc import Iterator

from wirelake.protocols.buffer import Buffer, Frames
from wirelake.protocols.kernel import KIND, LENGTH, active, array, table
from wirelake.protocols.wolpertinger.messages import TextKind
from wirelake.protocols.wolpertinger.scanner import ODD_PAYLOAD, ODDITIES, PART_COLUMNS, PAYLOAD, PAYLOAD_LENGTH, ROW_COLUMNS, Limits, scan

__all__ = ["Lines", "measure"]


def measure(data: bytes, start: int, stop: int, limits: Limits) -> list[int]:
    """The row of the one text that data[start:stop] is: what `scan` says of it, without walking through its payload."""
    cut = data.rfind(b";", start, stop) + 1 or stop
    if stop - start > limits.max_text_size:
        cut = stop
    flat = table(1, ROW_COLUMNS)
    active(scan)(array(data), start, cut, flat, flat, limits.for_text())
    row: list[int] = flat if isinstance(flat, list) else flat.tolist()
    if cut < stop:
        row[PAYLOAD], row[PAYLOAD_LENGTH], row[LENGTH] = cut, stop - cut, stop - start
        if row[KIND] == TextKind.RESULT:
            row[ODDITIES] |= ODD_PAYLOAD
    return row


class Lines(Buffer):
    """The unread end of a stream of lines."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(scan, ROW_COLUMNS, PART_COLUMNS, limits.for_scan(), 0)
        self._all_limits = limits

    def feed(self, data: bytes) -> Iterator[Frames]:
        """Take what arrived; give whole lines. After `lost`, what arrives is not kept."""
        if self.lost:
            self._last, self._end = self._last[self._end :], 0
            return
        if self._end < len(self._last):
            self._chunks.append(self._last[self._end :])
        self._last, self._end = b"", 0
        before = self._size
        self._chunks.append(data)
        self._size += len(data)
        last = data.rfind(b"\n")
        if last < 0 and self._size <= self._all_limits.max_text_size:
            return
        whole = data if len(self._chunks) == 1 else b"".join(self._chunks)
        rows, at = [], 0
        looked = before if last >= 0 else len(whole)
        while (end := whole.find(b"\n", max(at, looked))) >= 0 or len(whole) - at > self._all_limits.max_text_size:
            row = measure(whole, at, len(whole) if end < 0 else end, self._all_limits)
            self.lost = end < 0 or end - at > self._all_limits.max_text_size
            rows.append(row)
            if self.lost:  # WOLP-29: its end is not worth waiting for
                row[LENGTH] = len(whole) - at
                break
            row[LENGTH] += 1
            at = end + 1
        self._keep(whole, at, 0)
        if rows:
            yield whole, rows, []
