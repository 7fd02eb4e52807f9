"""EMP-1, EMP-2: recognise peers that leave the size field out of sizes.

A hello has a fixed size: 12 by the text, 8 in the dialect. Neither value is legal for a hello of the other kind. A capture may begin after
the hello. Then sizes are followed both ways: in the wrong one, they soon lead to bytes that are no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from wirelake.protocols.buffer import Buffer, Frames
from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.scanner import PART_COLUMNS, ROW_COLUMNS, glance, longest_row, run, scan
from wirelake.protocols.kernel import active, array

__all__ = ["Following", "hint", "recognise", "shown_by_hello"]

HELLO: Final = b"\x00\x00\x00\x0c\x00"
"""Size and type of a hello, as the text has them."""
SHORT_HELLO: Final = b"\x00\x00\x00\x08\x00"
"""The same by a peer that leaves the size field out."""
WHOLE_HELLO: Final = 12
"""Bytes of a hello, whatever its size field says."""
_SHORT: Final = ("sizes_exclude_themselves",)
_READINGS: Final = tuple(Limits(sizes_exclude_themselves=short).for_scan() for short in (False, True))


def shown_by_hello(first: bytes) -> tuple[str, ...] | None:
    """The dialect of a peer that begins like this, as names of `Limits`; None: more bytes are needed.

    Everything but a hello without the size field counts as the text.
    """
    if len(first) < len(HELLO):
        return None if SHORT_HELLO.startswith(first) else ()
    return _SHORT if first.startswith(SHORT_HELLO) else ()


def recognise(first: bytes, is_all: bool = False) -> tuple[str, ...] | None:
    """The dialect of bytes that were captured, as names of `Limits`; None: more bytes are needed. With `is_all`, no more come.

    Without a hello, it is the reading under which more messages follow each other; if no more come, one message may be all.
    """
    if first.startswith((HELLO, SHORT_HELLO)):
        return shown_by_hello(first)
    data = array(first)
    by_text, short = (active(longest_row)(data, len(first), is_all, limits) for limits in _READINGS)
    return None if by_text == short else () if by_text > short else _SHORT


def hint(first: bytes, limits: Limits) -> str:
    """A hint for the error text if the peer's first bytes are of the other dialect; empty if they are not."""
    if limits.sizes_exclude_themselves is True and first.startswith(HELLO) and len(first) >= WHOLE_HELLO:
        return "this peer counts the size field in sizes: set sizes_exclude_themselves=false"
    if limits.sizes_exclude_themselves is False and first.startswith(SHORT_HELLO):
        return "this peer leaves the size field out of sizes: set sizes_exclude_themselves=true"
    return ""


class Following(Buffer):
    """A buffer that finds out from the first bytes whether sizes count the size field.

    It is used for `sizes_exclude_themselves="auto"`.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(scan, ROW_COLUMNS, PART_COLUMNS, limits.for_scan(), limits.max_parts, glance, run)
        self._told = limits
        self._first: bytes | None = b""
        """Bytes received before the dialect was known; None once they are read."""
        self._excludes: bool | None = None
        """Whether sizes leave the size field out; None: not known yet."""

    @property
    def rest(self) -> bytes:
        """Buffered bytes that are no whole frame yet."""
        return self._first or super().rest

    def settled(self) -> Limits:
        """The limits in the dialect that was found out; if there was none yet, it is the text's from now on."""
        if self._excludes is None:
            self._settle(False)
        return msgspec.structs.replace(self._told, sizes_exclude_themselves=self._excludes is True)

    def _settle(self, excludes: bool) -> None:
        self._excludes = excludes
        self.limits = self.settled().for_scan()

    def glance(self, data: bytes) -> tuple[list[int], list[int]] | None:
        """See Buffer."""
        return super().glance(data) if self._first is None else None

    def feed(self, data: bytes) -> Iterator[Frames]:
        """See Buffer."""
        if self._first is not None:
            data = self._first + data
            if self._excludes is None and (spoken := shown_by_hello(data)) is not None:
                self._settle(bool(spoken))
            self._first = data if self._excludes is None else None
        if self._excludes is not None:
            yield from super().feed(data)
