"""Read the bytes of a message from its source file, and scan them again.

Bytes in one piece are read from their place. Others are found by decoding the file again: pieces in several packets, WebSocket and XMPP,
compressed files. Either way the scanned result is compared with the row of the lake, so bytes that are shown are the right ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake import protocols
from wirelake.capture.blocks.block import Block, Source
from wirelake.capture.blocks.read_file import read as read_blocks
from wirelake.capture.files.source_file import Compressed, measure, open_source
from wirelake.errors import CaptureError
from wirelake.explore.bytes.dissect import fields_of
from wirelake.explore.bytes.layout import Field
from wirelake.explore.model.rows import Missing, plain
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.streams import ScanInput
from wirelake.protocols.kernel import LENGTH, PART, PARTS, START, ScanLimits
from wirelake.protocols.protocol import ColumnBuilder, Limits

__all__ = ["SEARCH_BYTES", "Frame", "Place", "SourceGone", "read"]

Rows = npt.NDArray[np.int64]

SEARCH_BYTES: Final = 256 << 20
"""Bytes of a file that are decoded again at most to find a message."""
MAX_PLAIN_BYTES: Final = 1 << 30
"""Bytes that a compressed body may have when it is compared; limits of the protocol are lower."""
_STATE: Final = frozenset(("fault", "oddities", "decrypted", "root", "component", "method", "call_id", "parameters", "value"))
"""Columns that depend on earlier messages or on keys: not compared."""


class SourceGone(Missing):
    """The bytes of a message cannot be read: the file is gone or has changed, or has them too far from its beginning."""


class Place(msgspec.Struct, frozen=True):
    """Where the bytes of a message are, and the columns to recognise them by."""

    protocol: str
    source: str
    offset: int
    length: int
    size: int
    own: Mapping[str, Any]
    """The row of its protocol's table, as `messages.one` returns it."""


class Frame(msgspec.Struct):
    """The bytes of a message as its scanner saw them, and their fields."""

    data: bytes
    fields: list[Field]
    is_contiguous: bool
    """Whether they are in the file in one piece."""


def read(place: Place, *, search_bytes: int = SEARCH_BYTES) -> Frame:
    """Read the bytes of a message. Raises SourceGone, which says why, if they are not to be had."""
    try:
        source = Source(*_named(place.source))
        with open_source(source) as file:
            is_plain = not isinstance(file, Compressed)
            raw = file.window(place.offset, place.length) if is_plain and place.length == place.size else b""
    except (CaptureError, OSError) as error:
        raise SourceGone(f"the file with its bytes cannot be read: {error}. The lake has the fields only") from error
    if len(raw) == place.size and raw:
        for limits, scan_limits in _ways(place, raw):
            if (frame := _scanned(place, raw, limits, scan_limits)) is not None:
                return frame
    if source.size > search_bytes and place.offset > search_bytes:
        raise SourceGone(
            f"its bytes are in several pieces of {place.source}, from offset {place.offset} on. To join them the file is decoded again, but"
            f" only its first {search_bytes >> 20} MiB. `wirelake read -V` shows it"
        )
    frame = _searched(place, source)
    if frame is None:
        raise SourceGone(
            f"{place.source} no longer has this message at offset {place.offset}: the file has changed, or was read with other limits."
            " The lake has the fields only"
        )
    return frame


def _named(path: str) -> tuple[str, bytes, int]:
    name, size = measure(path)
    return name, b"", size


def _ways(place: Place, raw: bytes) -> Iterator[tuple[Limits, ScanLimits]]:
    """How the bytes of a message may have been scanned."""
    descriptor = protocols.get(place.protocol)
    options = DecodeOptions()
    if "channel_id_size" in place.own:
        yield from _ways_of_relink(place, options)
        return
    for flags in product((False, True), repeat=len(descriptor.dialects)):
        spoken = [name for name, is_set in zip(descriptor.dialects, flags, strict=True) if is_set]
        limits = options.limits(place.protocol, spoken)
        if descriptor.xmpp is not None and not raw.endswith(b"\n"):
            yield limits, descriptor.xmpp.scan_limits(limits)
        yield limits, limits.for_scan()


def _ways_of_relink(place: Place, options: DecodeOptions) -> Iterator[tuple[Limits, ScanLimits]]:
    """RELINK-6: by the part of the handshake that it is, or by the size of the channel ids."""
    from wirelake.protocols.relink.limits import DEFAULT_LIMITS, Stage  # noqa: PLC0415 - only for Relink

    stages = {"version": Stage.VERSION, "request": Stage.REQUEST, "reply": Stage.REPLY}
    stage = stages.get(str(place.own.get("type_name")), Stage.PACKETS)
    size = int(place.own.get("channel_id_size") or 0)
    yield options.limits(place.protocol), DEFAULT_LIMITS.for_scan(stage, size, size)


def _scanned(place: Place, raw: bytes, limits: Limits, scan_limits: ScanLimits) -> Frame | None:
    """Scan bytes; None if they are not exactly the message of the lake's row."""
    descriptor = protocols.get(place.protocol)
    columns = descriptor.columns()
    row, parts = [0] * columns.ROW_COLUMNS, [0] * (columns.PART_COLUMNS * (limits.max_parts + 1))
    count, used, _, _ = descriptor.scan(raw, 0, len(raw), row, parts, scan_limits)
    if count != 1 or row[START] != 0 or row[LENGTH] != len(raw):
        return None
    rows = np.array([row], np.int64)
    if not columns.readable(rows).all():
        return None
    some = np.array(parts[: used * columns.PART_COLUMNS], np.int64).reshape(-1, columns.PART_COLUMNS)
    if not _is_equal(place, columns, np.frombuffer(raw, np.uint8), rows, some, limits):
        return None
    return Frame(raw, fields_of(place.protocol, raw, row, parts), is_contiguous=True)


def _is_equal(place: Place, columns: ColumnBuilder[Limits], data: npt.NDArray[np.uint8], rows: Rows, parts: Rows, limits: Limits) -> bool:
    """Whether a scanned row has the columns of the lake's row, as far as one message alone can tell."""
    found = columns.columns(data, rows, parts, limits, False, MAX_PLAIN_BYTES)
    for name, values in found.own.items():
        value = plain(values[0].as_py())
        if name not in _STATE and value is not None and name in place.own and place.own[name] != value:
            return False
    return True


def _searched(place: Place, source: Source) -> Frame | None:
    """Decode a file again, up to the message at an offset."""
    finder = _Finder(place)
    ports = {port: name for port, name in protocols.ports().items() if name == place.protocol}
    try:
        for block in read_blocks(source, ports=ports, sniff=protocols.sniff, dialect=protocols.dialect):
            if (frame := finder.look(block)) is not None:
                return frame if len(frame.data) == place.size else None
        frame = finder.last()
    except (CaptureError, OSError) as error:
        raise SourceGone(f"the file with its bytes cannot be read: {error}. The lake has the fields only") from error
    return frame if frame is not None and len(frame.data) == place.size else None


class _Finder(Decoder):
    """A decoder that keeps the one message at an offset."""

    def __init__(self, place: Place) -> None:
        super().__init__(DecodeOptions(json_bodies=False))
        self._place = place
        self._frame: Frame | None = None

    def look(self, block: Block) -> Frame | None:
        """Decode one more block; returns the message if it was in it."""
        self.feed(block)
        return self._frame

    def last(self) -> Frame | None:
        """Decode what is left."""
        self.finish()
        return self._frame

    def _add(self, *_: object) -> None:
        """Rows of tables are not wanted."""

    def _note_connections(self, block: Block) -> None:
        """Neither are those of connections."""

    def _put(self, scanner: Scanner, scan_input: ScanInput, scanned: Rows, parts: Rows, segment_of: Rows) -> None:  # noqa: ARG002 - as it is called
        if scanner.protocol.name != self._place.protocol:
            return
        extent = self._where.extent(scan_input.origins, scanned[:, START], scanned[:, LENGTH])
        for index in np.flatnonzero(extent.offsets == self._place.offset).tolist():
            row = scanned[index : index + 1]
            mine = parts[row[0, PART] : row[0, PART] + row[0, PARTS]]
            if not scanner.columns.readable(row).all() or not _is_equal(
                self._place, scanner.columns, scan_input.data, row, mine, scanner.limits
            ):
                continue
            self._frame = _frame(self._place.protocol, scan_input.data.tobytes(), row[0].tolist(), parts.ravel().tolist())


def _frame(protocol: str, data: bytes, row: list[int], parts: list[int]) -> Frame:
    """The frame of a scanned row, which is somewhere in data."""
    start, stop = row[START], row[START] + row[LENGTH]
    fields = [
        msgspec.structs.replace(field, start=field.start - start, stop=field.stop - start)
        for field in fields_of(protocol, data, row, parts)
    ]
    return Frame(data[start:stop], fields, is_contiguous=False)
