"""A buffer that cuts a byte stream into lines for the scanner (WOLP-11).

Each byte is searched for a line feed once: a long line that arrives in small pieces costs one copy. Most texts have one of three kinds of
metadata. `common` reads one of those, `Lines.texts` all that arrived together; tests hold both equal to `scan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from wirelake.protocols.buffer import LARGE, Buffer, Frames
from wirelake.protocols.kernel import KIND, LENGTH, active, array, table
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.messages import Encryption, TextKind
from wirelake.protocols.wolpertinger.scanner import (
    MESSAGE_ID,
    ODD_PAYLOAD,
    ODDITIES,
    PART_COLUMNS,
    PAYLOAD,
    PAYLOAD_LENGTH,
    ROW_COLUMNS,
    Limits,
    scan,
)

__all__ = ["Lines", "Text", "common", "measure", "row_of"]

Text = tuple[bytes, bytes, bytes, bytes, bytes]
"""A common text: message_id, what says that it is encrypted, and payload; or code and message_id of a result. Others are empty."""

_METADATA: Final = rb"message_id:([0-9]{1,9});(encryption:(?i:aes);)?"
_OUTCOME: Final = rb"result:([0-5]);message_id:([0-9]{1,9});"
_COMMON: Final = re.compile(rb"(?:%b|%b)" % (_METADATA, _OUTCOME))
_TEXTS: Final = re.compile(rb"(?m:^)(?:%b(.*+)|%b)\n" % (_METADATA, _OUTCOME))

# Members of enums that every text reads.
_MESSAGE: Final = TextKind.MESSAGE.value
_RESULT: Final = TextKind.RESULT.value
_NONE: Final = Encryption.NONE.value
_AES: Final = Encryption.AES.value


def measure(data: bytes, start: int, stop: int, limits: Limits) -> list[int]:
    """The row of the one text data[start:stop]: as `scan` gives it, without walking through its payload."""
    if stop - start > limits.max_text_size:
        cut = stop
    elif (row := common(data, start, stop)) is not None:
        return row
    else:
        cut = data.rfind(b";", start, stop) + 1 or stop
    flat = table(1, ROW_COLUMNS)
    active(scan)(array(data), start, cut, flat, flat, limits.for_text())
    row = flat if isinstance(flat, list) else flat.tolist()
    if cut < stop:
        row[PAYLOAD], row[PAYLOAD_LENGTH], row[LENGTH] = cut, stop - cut, stop - start
        if row[KIND] == TextKind.RESULT:
            row[ODDITIES] |= ODD_PAYLOAD
    return row


def common(data: bytes, start: int, stop: int) -> list[int] | None:
    """The row of a common text: a whole message, encrypted or not, or a result.

    None: `scan` has to read it.
    """
    if (found := _COMMON.match(data, start, stop)) is None:
        return None
    end = found.end()
    message_id, encrypted, code, of = found.groups()
    if message_id is None:
        return [start, stop - start, _RESULT, 0, start, 0, 0, int(of), int(code), -1, 0, -1, -1, end, 0, 0] if end == stop else None
    if data.find(b";", end, stop) >= 0:  # there is more
        return None
    encryption = _NONE if encrypted is None else _AES
    return [start, stop - start, _MESSAGE, 0, start, 0, 0, int(message_id), -1, -1, encryption, -1, -1, end, stop - end, 0]


class Lines(Buffer):
    """The unread end of a stream of lines."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(scan, ROW_COLUMNS, PART_COLUMNS, limits.for_scan(), 0)
        self._all_limits = limits

    def texts(self, data: bytes) -> list[Text] | None:
        """Take what arrived if it is whole lines, and all of them are common texts; None: `feed` has to take it."""
        if self.size or self.lost or len(data) > self._all_limits.max_text_size:
            return None
        texts: list[Text] = _TEXTS.findall(data)
        if len(texts) != data.count(b"\n") or not data.endswith(b"\n"):
            return None
        for text in texts:
            if b";" in text[2]:  # more metadata
                return None
        self._sizes, self._chunks, self._last, self._end, self._needed = [], [], data, len(data), 1
        return texts

    def feed(self, data: bytes) -> Iterator[Frames]:
        """Take bytes; give whole lines. After `lost`, bytes are dropped."""
        self._sizes = []
        if self.lost:
            self._last, self._end = self._last[self._end :], 0
            return
        if self._end < len(self._last):
            self._chunks.append(self._last[self._end :])
        self._last, self._end = b"", 0
        before = self.size
        self._chunks.append(data)
        self.size += len(data)
        last = data.rfind(b"\n")
        if last < 0 and self.size <= self._all_limits.max_text_size:
            return
        whole = data if len(self._chunks) == 1 else b"".join(self._chunks)
        rows, at = [], 0
        looked = before if last >= 0 else len(whole)
        while (end := whole.find(b"\n", max(at, looked))) >= 0 or len(whole) - at > self._all_limits.max_text_size:
            row = row_of(whole, at, len(whole) if end < 0 else end, self._all_limits)
            self.lost = end < 0 or end - at > self._all_limits.max_text_size
            rows.append(row)
            if self.lost:  # WOLP-29: its end is not worth waiting for
                row[LENGTH] = len(whole) - at
                break
            row[LENGTH] += 1
            at = end + 1
        self._keep(whole, at, 0)
        if len(whole) > LARGE:
            self._sizes = [row[LENGTH] for row in rows]
        if rows:
            yield whole, rows, []


def row_of(data: bytes, start: int, stop: int, limits: Limits) -> list[int]:
    """As `measure`; of a text over the limit only the metadata is read, because any peer can send one."""
    most = start + limits.max_text_size
    if stop <= most:
        return measure(data, start, stop, limits)
    cut = data.rfind(b";", start, most + 1) + 1 or start
    begun = measure(data, start, cut, msgspec.structs.replace(limits, max_text_size=limits.max_text_size + 1))
    row = [start, stop - start, -1, Fault.TEXT_OVER_LIMIT.value, most, 0, 0, begun[MESSAGE_ID], -1, -1, 0, -1, -1, stop, 0, 0]
    if begun[KIND] == TextKind.RESULT:
        row[KIND] = begun[KIND]
    return row
