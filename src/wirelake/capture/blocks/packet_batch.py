"""Packet batches: the packets of a window for one task, packed into one row.

Connections are partitioned into buckets by a hash of their endpoints, the same for both directions. The task of a bucket gets every
packet of its connections, from all files. So the shuffle moves a few large rows, not packets. IP fragments are joined here, because only
the first has ports. `assemble.py` reads the batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from wirelake.capture.blocks.accounting import Accounting
from wirelake.capture.blocks.block import Source, Span
from wirelake.capture.blocks.from_packets import account, dissected, opened
from wirelake.capture.containers.records import START, TS
from wirelake.capture.packets.dissect import (
    ACKNOWLEDGED,
    DESTINATION,
    DESTINATION_PORT,
    FLAGS,
    IS_FRAGMENT,
    PACKET_BATCH_COLUMNS,
    PAYLOAD,
    PAYLOAD_AT,
    PAYLOAD_SIZE,
    REASON,
    RECORD_AT,
    SEQUENCE,
    SOURCE,
    SOURCE_PORT,
    TRANSPORT,
    TS_AT,
    WIDTH,
)
from wirelake.capture.packets.ip_fragments import Fragments
from wirelake.protocols.kernel import active, array, copy, kernel

__all__ = ["PACKET_BATCH_COLUMNS", "PAYLOAD_AT", "RECORD_AT", "TS_AT", "Packer", "PacketBatch", "pack", "route", "route_rows"]

Array = np.ndarray[Any, Any]

_PRIME: Final = 0x01000193
_FACTOR: Final = 0x2C1B3C6D
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
"""Of the hash that chooses buckets. A stored state belongs to its bucket: with another hash, lakes could not go on."""


class PacketBatch(msgspec.Struct):
    """Packets of one bucket, in the order of their source."""

    source: Source
    rank: int
    """The order of sources in time."""
    place: int
    """Its offset in the source: batches of one bucket are read in the order of rank and place."""
    bucket: int
    data: bytes | memoryview
    """Addresses and payloads; offsets of `packets` lead into it."""
    packets: Array
    spans: list[Span]
    """Its span, last, and those before it that may hold IP fragments of its datagrams."""


def route(data: bytes | memoryview, packets: Array, buckets: int) -> Array:
    """Return the bucket of each packet: the same for both directions of a connection."""
    numbers = np.zeros(len(packets), np.int64)
    if buckets == 1:
        return numbers
    octets, find_buckets = np.frombuffer(data, np.uint8), active(route_rows)
    if find_buckets is route_rows:
        find_buckets = _route_plain
    find_buckets(octets, packets, buckets, numbers)
    return numbers


@kernel
def route_rows(data: Any, packets: Any, buckets: int, numbers: Any) -> None:
    """Write the bucket of each packet: hashes of both ends, added up."""
    for row in range(packets.shape[0]):
        width = packets[row, WIDTH]
        total = packets[row, TRANSPORT]
        for start, port in ((SOURCE, SOURCE_PORT), (DESTINATION, DESTINATION_PORT)):
            mixed = packets[row, port] + width
            for index in range(packets[row, start], packets[row, start] + width):
                mixed = ((mixed ^ int(data[index])) * _PRIME) & _WORD
            mixed ^= mixed >> 15
            total += (mixed * _FACTOR) & _WORD
        numbers[row] = ((total ^ (total >> 13)) & _POSITIVE) % buckets


def _route_plain(data: Array, packets: Array, buckets: int, numbers: Array) -> None:
    """As `route_rows`, without a kernel."""
    for width in np.unique(packets[:, WIDTH]).tolist():
        mine = np.flatnonzero(packets[:, WIDTH] == width)
        some = packets[mine]
        total = some[:, TRANSPORT]
        for start, port in ((SOURCE, SOURCE_PORT), (DESTINATION, DESTINATION_PORT)):
            mixed = some[:, port] + width
            for index in range(width):
                mixed = ((mixed ^ data[some[:, start] + index]) * _PRIME) & _WORD
            mixed ^= mixed >> 15
            total = total + ((mixed * _FACTOR) & _WORD)
        numbers[mine] = ((total ^ (total >> 13)) & _POSITIVE) % buckets


@kernel
def pack(data: Any, packets: Any, chosen: Any, out: Any, table: Any, base: int) -> None:
    """Copy addresses and payloads of the chosen packets, and point their rows to the copies.

    `base` is added to their offsets in the source.
    """
    at = 0
    for row in range(len(chosen)):
        index = int(chosen[row])
        for column in range(PACKET_BATCH_COLUMNS):
            table[row, column] = packets[index, column]
        table[row, RECORD_AT] += base
        table[row, PAYLOAD_AT] += base
        width = int(packets[index, WIDTH])
        for column, size in ((SOURCE, width), (DESTINATION, width), (PAYLOAD, int(packets[index, PAYLOAD_SIZE]))):
            copy(out, at, data, int(packets[index, column]), size)
            table[row, column] = at
            at += size


def pack_plain(data: bytes, packets: Array, chosen: Array, base: int) -> tuple[bytes, Array]:
    """As `pack`, without a kernel: returns the bytes, and the rows."""
    table = packets[chosen]
    table[:, [RECORD_AT, PAYLOAD_AT]] += base
    columns = [SOURCE, DESTINATION, PAYLOAD]
    starts, sizes = table[:, columns], table[:, [WIDTH, WIDTH, PAYLOAD_SIZE]]
    stops = np.cumsum(sizes.reshape(-1)).reshape(-1, len(columns))
    table[:, columns] = stops - sizes
    out = b"".join(
        [data[start:stop] for start, stop in zip(starts.reshape(-1).tolist(), (starts + sizes).reshape(-1).tolist(), strict=True)]
    )
    return out, table


class Packer:
    """Packs the packets of one split of a source, which is the last of `spans`."""

    def __init__(self, source: Source, rank: int, buckets: int, spans: list[Span], accounting: Accounting) -> None:
        self._source = source
        self._rank = rank
        self._buckets = buckets
        self._spans = spans
        self._accounting = accounting
        self._fragments = Fragments(accounting)

    def warm(self, steps: Iterator[tuple[int, bytes, Array]]) -> None:
        """Add the IP fragments of windows before the split (base, data, records).

        Datagrams that end in it may begin there.
        """
        self._fragments.account_to(Accounting())  # another task accounts for them
        for base, data, records in steps:
            packets = dissected(data, records)
            for index in np.flatnonzero(packets[:, REASON] == IS_FRAGMENT):
                self._part(base, data, packets[index].tolist(), int(records[index, TS]))
        self._fragments.expire(self._spans[-1].at)
        self._fragments.account_to(self._accounting)

    def window(self, base: int, data: bytes, records: Array) -> list[PacketBatch]:
        """Return the packet batches of a window, from byte `base` of the source on."""
        packets = dissected(data, records)
        account(records, packets, self._accounting, base)
        whole = packets[:, REASON] < IS_FRAGMENT
        ours = packets if whole.all() else packets[whole]
        numbers = route(data, ours, self._buckets)
        packet_batches = {}
        for bucket in np.unique(numbers).tolist() if self._buckets > 1 else [0] if len(ours) else []:
            chosen = np.flatnonzero(numbers == bucket)
            body, table = self._packed(base, data, ours, chosen)
            packet_batches[bucket] = PacketBatch(self._source, self._rank, base, bucket, body, table, self._spans)
        for index in np.flatnonzero(packets[:, REASON] == IS_FRAGMENT):
            self._fragment(base, data, packets[index].tolist(), records[index].tolist(), packet_batches)
        return list(packet_batches.values())

    def _packed(self, base: int, data: bytes, packets: Array, chosen: Array) -> tuple[bytes | memoryview, Array]:
        """Return addresses and payloads of the chosen packets, and their rows."""
        copy_packets = active(pack)
        if copy_packets is pack:
            return pack_plain(data, packets, chosen, base)
        size = int(2 * packets[chosen, WIDTH].sum() + packets[chosen, PAYLOAD_SIZE].sum())
        out, table = np.empty(size, np.uint8), np.empty((len(chosen), PACKET_BATCH_COLUMNS), np.int64)
        copy_packets(array(data), packets, chosen, out, table, base)
        return out.data, table

    def finish(self, end: int, *, is_last: bool) -> None:
        """End the split: incomplete datagrams are left to the next split, or dropped if it is the last."""
        if is_last:
            self._fragments.finish()
        else:
            self._fragments.expire(end)

    def _part(self, base: int, data: bytes, packet: list[int], ts: int) -> Any:
        here, there = (data[packet[column] : packet[column] + packet[WIDTH]] for column in (SOURCE, DESTINATION))
        chunk = data[packet[PAYLOAD] : packet[PAYLOAD] + packet[PAYLOAD_SIZE]]
        is_last, at = not packet[FLAGS], base + packet[PAYLOAD]
        return self._fragments.part(here, there, packet[TRANSPORT], packet[SEQUENCE], packet[ACKNOWLEDGED], is_last, ts, at, chunk)

    def _fragment(self, base: int, data: bytes, packet: list[int], record: list[int], packet_batches: dict[int, PacketBatch]) -> None:
        """Add a datagram to its packet batch if this fragment completes it."""
        parts = self._part(base, data, packet, record[TS])
        if parts is None:
            return
        width = packet[WIDTH]
        ends = data[packet[SOURCE] : packet[SOURCE] + width] + data[packet[DESTINATION] : packet[DESTINATION] + width]
        port, other, segments = opened(packet[TRANSPORT], parts, self._accounting)
        rows = []
        body = bytearray(ends)
        for sequence, acknowledged, flags, at, chunk in segments:
            row = [0] * PACKET_BATCH_COLUMNS
            row[SOURCE], row[DESTINATION], row[WIDTH] = 0, width, width
            row[SOURCE_PORT], row[DESTINATION_PORT], row[TRANSPORT] = port, other, packet[TRANSPORT]
            row[SEQUENCE], row[ACKNOWLEDGED], row[FLAGS] = sequence, acknowledged, flags
            row[PAYLOAD], row[PAYLOAD_SIZE] = len(body), len(chunk)
            row[TS_AT], row[RECORD_AT], row[PAYLOAD_AT] = record[TS], base + record[START], at
            body += chunk
            rows.append(row)
        if rows:
            self._add(base, bytes(body), np.array(rows, np.int64), packet_batches)

    def _add(self, base: int, body: bytes, rows: Array, packet_batches: dict[int, PacketBatch]) -> None:
        number = int(route(body, rows[:1], self._buckets)[0])
        batch = packet_batches.get(number)
        if batch is None:
            empty = np.empty((0, PACKET_BATCH_COLUMNS), np.int64)
            batch = packet_batches[number] = PacketBatch(self._source, self._rank, base, number, b"", empty, self._spans)
        rows[:, [SOURCE, DESTINATION, PAYLOAD]] += len(batch.data)
        batch.data = bytes(batch.data) + body
        joined = np.concatenate((batch.packets, rows))
        batch.packets = joined[np.argsort(joined[:, RECORD_AT], kind="stable")]
