"""Packets to blocks: route each packet to its TCP or UDP flow, and account for the others.

`tcp_flows.py`, `udp_flows.py` and `ip_fragments.py` know which packets belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from wirelake.capture.blocks.accounting import HEADERS, OTHER, Accounting
from wirelake.capture.blocks.builder import BlockBuilder
from wirelake.capture.containers.records import SIZE, TS
from wirelake.capture.packets.dissect import (
    ACKNOWLEDGED,
    DESTINATION_PORT,
    FIN,
    FLAGS,
    IS_FRAGMENT,
    IS_OURS,
    PACKET_BATCH_COLUMNS,
    PACKET_COLUMNS,
    PAYLOAD,
    PAYLOAD_SIZE,
    REASON,
    REASONS,
    SEQUENCE,
    SOURCE_PORT,
    SYN,
    TCP,
    TRANSPORT,
    dissect,
    transport,
)
from wirelake.capture.packets.filter import EVERYTHING, PacketFilter
from wirelake.capture.packets.ip_fragments import Fragments, Part
from wirelake.capture.packets.tcp_flows import Tracker
from wirelake.capture.packets.tracked import Dialect, one_dialect
from wirelake.capture.packets.udp_flows import Datagrams
from wirelake.protocols.kernel import active, array

__all__ = ["FlowAssembler", "account", "dissected", "opened"]

Array = np.ndarray[Any, Any]
PLAIN_PACKETS: Final = 4096
"""Packets that are made Python numbers at a time: more would keep Python's garbage collector busy."""


def dissected(data: bytes, records: Array) -> Array:
    """Return one row (`PACKET_BATCH_COLUMNS`) for each record of a window; its offsets in the source count from the window."""
    packets = np.empty((len(records), PACKET_BATCH_COLUMNS), np.int64)
    active(dissect)(array(data), records, packets)
    return packets


def account(records: Array, packets: Array, accounting: Accounting, at: int = 0) -> Array:
    """Account for headers and for packets without TCP or UDP; returns which packets have it.

    `at` is an offset in their span.
    """
    kinds = np.ascontiguousarray(packets[:, REASON])
    is_tcp = packets[:, TRANSPORT] == TCP
    if not kinds.any() and is_tcp.all():  # as in most captures
        size = int(records[:, SIZE].sum() - packets[:, PAYLOAD_SIZE].sum())
        accounting.add(HEADERS, "link, ip and tcp", size, len(records), at)
        return np.ones(len(records), np.bool_)
    for reason in np.unique(kinds).tolist():
        sizes = records[kinds == reason, SIZE]
        if reason == IS_FRAGMENT:
            rest = sizes - packets[kinds == reason, PAYLOAD_SIZE]
            accounting.add(HEADERS, "link and ip of a fragment", int(rest.sum()), len(rest), at)
        elif reason != IS_OURS:
            accounting.add(OTHER, REASONS[reason], int(sizes.sum()), len(sizes), at)
    is_ours = kinds == IS_OURS
    for name, is_one in (("tcp", is_tcp), ("udp", ~is_tcp)):
        heads = (records[:, SIZE] - packets[:, PAYLOAD_SIZE])[is_ours & is_one]
        accounting.add(HEADERS, f"link, ip and {name}", int(heads.sum()), len(heads), at)
    leads: Array = kinds <= IS_FRAGMENT
    return leads


class FlowAssembler:
    """All flows of a capture, or of the part of it that one task has."""

    def __init__(
        self,
        ports: Mapping[int, str],
        sniff: Callable[[bytes], str | None],
        builder: BlockBuilder,
        accounting: Accounting,
        packet_filter: PacketFilter = EVERYTHING,
        dialect: Dialect = one_dialect,
    ) -> None:
        self._accounting = accounting
        self._packet_filter = packet_filter
        self._tracker = Tracker(ports, sniff, builder, accounting, dialect)
        self._datagrams = Datagrams(ports, sniff, builder, accounting)
        self._fragments = Fragments(accounting)
        self._parts_before: list[tuple[int, bytes]] = []

    def window(self, base: int, data: bytes, records: Array) -> None:
        """Add the packets of a window, from byte `base` of its source on."""
        packets = dissected(data, records)
        leads = account(records, packets, self._accounting)
        if self._packet_filter is not EVERYTHING:  # earlier packets may begin a wanted connection
            leads &= self._packet_filter.on_ports(packets) & PacketFilter(until=self._packet_filter.until).in_time(records[:, TS])
        self.packets(data, packets[leads], base)

    def packets(self, data: bytes | memoryview, packets: Array, base: int = 0) -> None:
        """Add packets (`PACKET_BATCH_COLUMNS`) with offsets into `data`; `base` is added to their offsets in the source."""
        if not len(packets):
            return
        packets = np.ascontiguousarray(packets)
        entries = np.full(len(packets), -1, np.int64)
        at, self._parts_before = 0, []
        self._tracker.is_following = self._tracker.uses_kernels
        if self._tracker.is_following:
            sizes = np.cumsum(packets[::-1, PAYLOAD_SIZE])[::-1]  # of a packet and all after it
            while at < len(packets):
                at, stop = self._tracker.advance(data, packets, base, at, int(sizes[at]), entries)
                at = self._special(data, packets, base, at, stop, entries)
        plain = bytes(data) if at < len(packets) else b""  # its slices are bytes already
        while at < len(packets):
            at = self._special(plain, packets, base, at, min(at + PLAIN_PACKETS, len(packets)), None)
        self._tracker.settle()

    def _special(self, data: bytes | memoryview, packets: Array, base: int, first: int, stop: int, entries: Array | None) -> int:
        """Add packets one by one; returns the first that was not added, because key numbers (`entries`) do not hold any more."""
        version = self._tracker.version
        for number, packet in enumerate(packets[first:stop].tolist(), first):
            if entries is not None and self._tracker.version != version:
                return number
            self._packet(data, packet, base, None if entries is None else int(entries[number]))
        return stop

    def _packet(self, data: bytes | memoryview, packet: list[int], base: int, entry: int | None) -> None:
        reason, start, size, sequence, acknowledged, flags, source, destination, width, port, other, carried, missing, ts, record, at = (
            packet
        )
        here, there = bytes(data[source : source + width]), bytes(data[destination : destination + width])
        chunk = bytes(data[start : start + size])
        record, at = base + record, base + at
        if reason == IS_FRAGMENT:
            parts = self._fragments.part(here, there, carried, sequence, acknowledged, not flags, ts, at, chunk)
            if parts is not None:
                self._whole(here, there, carried, parts, ts, record)
        elif carried == TCP:
            self._tracker.packet(here, port, there, other, sequence, acknowledged, flags, ts, record, at, chunk, missing, entry)
        elif flags or self._parts_before:  # a datagram in parts, which follow each other
            self._parts_before.append((at, chunk))
            if not flags:
                self._datagrams.packet(here, port, there, other, ts, tuple(self._parts_before))
                self._parts_before.clear()
        elif chunk:
            self._datagrams.packet(here, port, there, other, ts, ((at, chunk),))

    def finish(self) -> None:
        """End all flows: the capture is over."""
        self._fragments.finish()
        self._tracker.finish()

    def places(self) -> list[int]:
        """Return the source offsets of everything held of connections; fragments are joined before."""
        return self._tracker.places()

    def move(self, moved: Callable[[int], int]) -> None:
        """Renumber the source offsets of everything held."""
        self._tracker.move(moved)

    def _whole(self, here: bytes, there: bytes, carried: int, parts: list[Part], ts: int, record: int) -> None:
        """Add a reassembled IP datagram."""
        port, other, segments = opened(carried, parts, self._accounting)
        if carried == TCP:
            for sequence, acknowledged, flags, at, chunk in segments:
                self._tracker.packet(here, port, there, other, sequence, acknowledged, flags, ts, record, at, chunk)
        elif segments:
            self._datagrams.packet(here, port, there, other, ts, [(at, chunk) for *_, at, chunk in segments])


Segments = list[tuple[int, int, int, int, bytes]]
"""(sequence, acknowledged, flags, source offset, bytes) each."""


def opened(carried: int, parts: list[Part], accounting: Accounting) -> tuple[int, int, Segments]:
    """Return the ports of a reassembled IP datagram, and its payload as one packet per part.

    Of TCP, the first part keeps SYN and the last keeps FIN; of UDP, the flags count the parts that follow.
    """
    body = b"".join(part.chunk for part in parts)
    row = [0] * PACKET_COLUMNS
    row[TRANSPORT] = carried
    reason = transport(body, 0, len(body), len(body), row)
    start, stop = (row[PAYLOAD], row[PAYLOAD] + row[PAYLOAD_SIZE]) if reason == IS_OURS else (0, 0)
    chunks = []
    for part in parts:
        first, last = max(start, part.place), min(stop, part.place + len(part.chunk))
        if first < last:
            chunks.append((part.offset + first - part.place, part.chunk[first - part.place : last - part.place]))
        rest = len(part.chunk) - max(0, last - first)
        if reason == IS_OURS:
            accounting.add(
                HEADERS, f"{'tcp' if carried == TCP else 'udp'} of a fragmented datagram", rest, 0 if part.place else 1, part.offset
            )
        else:
            accounting.add(OTHER, REASONS[reason], rest, 0 if part.place else 1, part.offset)
    if reason != IS_OURS:
        return 0, 0, []
    ports = row[SOURCE_PORT], row[DESTINATION_PORT]
    if carried != TCP:
        return *ports, [(0, 0, len(chunks) - 1 - number, at, chunk) for number, (at, chunk) in enumerate(chunks)]
    sequence, segments = row[SEQUENCE], []
    for number, (at, chunk) in enumerate(chunks or [(parts[0].offset, b"")]):
        flags = row[FLAGS] & ~(0 if number == 0 else SYN) & ~(0 if number >= len(chunks) - 1 else FIN)
        segments.append((sequence, row[ACKNOWLEDGED], flags, at, chunk))
        sequence = (sequence + len(chunk) + bool(flags & SYN)) & 0xFFFFFFFF
    return *ports, segments
