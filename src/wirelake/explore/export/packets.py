"""Packets: the records of a source that carry selected messages.

Of a packet capture, these are its packets, whole and unchanged: those with bytes of a selected message, in its direction. A packet may
carry bytes of other messages, too. Of a recording, these are exported PDUs, one for each message, with exactly its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from wirelake.capture.blocks.block import Source
from wirelake.capture.blocks.from_packets import dissected
from wirelake.capture.blocks.from_recording import tags_size
from wirelake.capture.containers.records import DATA, KIND, LINK, RECORD_PACKET, SIZE, TS, WIRE_SIZE
from wirelake.capture.containers.walk import Damaged, Walk, Window
from wirelake.capture.files.identity import identify, namesake
from wirelake.capture.files.source_file import open_source
from wirelake.capture.packets.dissect import (
    DESTINATION,
    DESTINATION_PORT,
    IS_FRAGMENT,
    IS_OURS,
    PAYLOAD,
    PAYLOAD_SIZE,
    REASON,
    SOURCE,
    SOURCE_PORT,
    WIDTH,
)
from wirelake.capture.record.exported_pdu import LINK_EXPORTED
from wirelake.errors import CaptureError
from wirelake.explore.model.conditions import Condition, all_of

if TYPE_CHECKING:
    import duckdb

__all__ = ["Body", "Packet", "Place", "packets", "verified"]

WINDOW: Final = 1 << 20
"""Bytes of a source that are read at a time: several sources are read at once."""
PLACES: Final = 5_000
"""Messages whose places are read at a time."""
NAMESAKES: Final = 16
"""Files with the same beginning that are told apart."""

Flow = tuple[bytes, bytes, tuple[int, int] | None]
"""Source and destination of a packet, and its ports; a fragment has none."""


class Place(msgspec.Struct):
    """A selected message: where its bytes are, and who sent it to whom."""

    message_id: bytes
    ts: int | None
    offset: int
    length: int
    protocol: str
    name: str
    subject: str | None
    sender: str | None
    sender_port: int | None
    receiver: str | None
    receiver_port: int | None
    transport: str | None
    flow: Flow | None = None
    """The flow of the packet with its first byte."""
    tags: bytes | None = None
    """The tags of its first record in a recording."""
    is_found: bool = False
    """Whether a record with bytes of it was found."""

    @property
    def stop(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.length


class Packet(NamedTuple):
    """A record to write."""

    ts: int
    link: int
    data: bytes
    wire_size: int


class Body(NamedTuple):
    """A message of which no record was found: the lake has its body only."""

    ts: int
    place: Place


_PLACES: Final = """
SELECT m.message_id, epoch_us(m.ts), m."offset", m.length, m.protocol, m.name, m.subject,
    CASE WHEN m.direction = 'to_server' THEN e.client_host ELSE e.server_host END,
    CASE WHEN m.direction = 'to_server' THEN e.client_port ELSE e.server_port END,
    CASE WHEN m.direction = 'to_server' THEN e.server_host ELSE e.client_host END,
    CASE WHEN m.direction = 'to_server' THEN e.server_port ELSE e.client_port END, e.transport
FROM messages m LEFT JOIN ends e USING (connection_id)
WHERE {where} ORDER BY m."offset" LIMIT {limit:d}
"""


def verified(path: str, source_id: bytes) -> Source:
    """Return a source if it is still the file that was read. Raises CaptureError, which says why it is not."""
    source = identify(path)
    if all(namesake(source, number).id != source_id for number in range(NAMESAKES + 1)):
        raise CaptureError(path, 0, "this is another file than the one that was read")
    return source


def packets(connection: duckdb.DuckDBPyConnection, where: Condition, path: str, source_id: bytes) -> Iterator[Packet | Body]:
    """Yield what carries the messages of a condition in one source, in the order of the file.

    Messages of which nothing is found come as `Body` at their place.
    """
    places = _places(connection, where, path, source_id)
    try:
        source = verified(path, source_id)
    except (CaptureError, OSError):
        yield from (Body(place.ts or 0, place) for place in places)
        return
    matcher = _Matcher(places)
    try:
        with open_source(source) as file:
            for step in Walk(source.path, file, window=WINDOW).steps():
                if not isinstance(step, Damaged):
                    yield from matcher.window(step)
                if matcher.is_over:
                    break
    except (CaptureError, OSError):  # it ended early, or changed while it was read
        pass
    yield from matcher.rest()


def _places(connection: duckdb.DuckDBPyConnection, where: Condition, path: str, source_id: bytes) -> Iterator[Place]:
    """The selected messages of a source in order of their offsets."""
    mine = all_of([where, Condition("m.source = ? AND m.message_id[1:8] = ?", (path, source_id))])
    last = -1
    while True:
        chosen = all_of([mine, Condition('m."offset" > ?', (last,))])
        found = connection.execute(_PLACES.format(where=chosen.sql, limit=PLACES), list(chosen.values)).fetchall()
        yield from (Place(*row) for row in found)
        if len(found) < PLACES:
            return
        last = found[-1][2]


class _Matcher:
    """Finds the records that carry selected messages, window by window."""

    def __init__(self, places: Iterator[Place]) -> None:
        self._places = places
        self._next = next(places, None)
        self._open: deque[Place] = deque()
        """Messages that begin before the record at hand, and may go on in it."""

    @property
    def is_over(self) -> bool:
        """Whether no message is left to find."""
        return self._next is None and not self._open

    def rest(self) -> Iterator[Body]:
        """Yield the messages that are left, of which no record was found."""
        while self._next is not None:
            self._open.append(self._next)
            self._next = next(self._places, None)
        yield from self._drop(None)

    def window(self, window: Window) -> Iterator[Packet | Body]:
        """Yield what carries messages in a window."""
        records = np.ascontiguousarray(window.rows[window.rows[:, KIND] == RECORD_PACKET])
        begins = records[:, DATA] + window.base
        first = min((place.offset for place in self._open), default=None if self._next is None else self._next.offset)
        if first is not None:  # records before the first message are not looked at
            records = records[np.searchsorted(begins + records[:, SIZE], first, side="right") :]
        if not len(records):
            return
        recorded = records[:, LINK] == LINK_EXPORTED
        rows = dissected(window.data, records)
        for record, row, is_recorded in zip(records.tolist(), rows.tolist(), recorded.tolist(), strict=True):
            begin = window.base + record[DATA]
            yield from self._advance(begin, begin + record[SIZE])
            if not self._open:
                if self._next is None:
                    return
                continue
            data = window.data[record[DATA] : record[DATA] + record[SIZE]]
            if is_recorded:
                yield from self._recorded(record, begin, data)
            elif self._carries(row, window):
                yield Packet(max(0, record[TS]), record[LINK], data, record[WIRE_SIZE])

    def _advance(self, begin: int, end: int) -> Iterator[Body]:
        """Open messages that begin before the end of a record, and drop those that end before its beginning."""
        while self._next is not None and self._next.offset < end:
            self._open.append(self._next)
            self._next = next(self._places, None)
        yield from self._drop(begin)

    def _drop(self, begin: int | None) -> Iterator[Body]:
        if begin is not None and all(place.stop > begin for place in self._open):
            return
        kept: deque[Place] = deque()
        for place in self._open:
            if begin is not None and place.stop > begin:
                kept.append(place)
            elif not place.is_found:
                yield Body(place.ts or 0, place)
        self._open = kept

    def _carries(self, row: list[int], window: Window) -> bool:
        """Whether a packet has bytes of an open message: the first of them tells the flow of the others. Fragments have no ports."""
        if row[REASON] not in (IS_OURS, IS_FRAGMENT) or not row[PAYLOAD_SIZE]:
            return False
        begin = window.base + row[PAYLOAD]
        end = begin + row[PAYLOAD_SIZE]
        source = window.data[row[SOURCE] : row[SOURCE] + row[WIDTH]]
        destination = window.data[row[DESTINATION] : row[DESTINATION] + row[WIDTH]]
        ports = (row[SOURCE_PORT], row[DESTINATION_PORT]) if row[REASON] == IS_OURS else None
        flow, is_carrier = (source, destination, ports), False
        for place in self._open:
            if place.offset >= end or place.stop <= begin:
                continue
            if place.flow is None and place.offset >= begin:
                place.flow = flow
            if place.flow is not None and place.flow[:2] == flow[:2] and (ports is None or place.flow[2] in (None, ports)):
                place.is_found = is_carrier = True
        return is_carrier

    def _recorded(self, record: list[int], begin: int, data: bytes) -> Iterator[Packet]:
        """Exported PDUs with exactly the bytes of the open messages in a record."""
        size = max(0, tags_size(data, 0, len(data)))
        tags, payload = data[:size], data[size:]
        for place in self._open:
            start, stop = place.offset - begin - size, place.stop - begin - size
            piece = payload[max(0, start) : max(0, stop)]
            if not piece or (place.tags is not None and place.tags != tags):
                continue
            place.tags, place.is_found = tags, True
            yield Packet(max(0, record[TS]), LINK_EXPORTED, tags + piece, size + len(piece))
