"""Traffic: the packets of a capture on their way to those who know connections, and an account of every other one.

It refuses to know containers and files, and what belongs together: `flows.py`, `datagrams.py` and `fragments.py` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wirelake.capture.datagrams import Datagrams
from wirelake.capture.flows import Tracker
from wirelake.capture.fragments import Fragments, Part
from wirelake.capture.gather import Gathering
from wirelake.capture.packets import (
    ACKNOWLEDGED,
    DESTINATION,
    DESTINATION_PORT,
    FIN,
    FLAGS,
    IS_FRAGMENT,
    IS_OURS,
    MISSING,
    PACKET_COLUMNS,
    PAYLOAD,
    PAYLOAD_SIZE,
    REASON,
    REASONS,
    SEQUENCE,
    SOURCE,
    SOURCE_PORT,
    SYN,
    TCP,
    TRANSPORT,
    WIDTH,
    dissect,
    transport,
)
from wirelake.capture.records import SIZE, START, TS
from wirelake.capture.tally import HEADERS, OTHER, Tally
from wirelake.protocols.kernel import active, array

__all__ = ["Traffic", "account", "dissected"]

Array = np.ndarray[Any, Any]
_PLACES = (SOURCE, DESTINATION, WIDTH, PAYLOAD, PAYLOAD_SIZE)
_VALUES = (REASON, TRANSPORT, SOURCE_PORT, DESTINATION_PORT, SEQUENCE, ACKNOWLEDGED, FLAGS, MISSING)


def dissected(data: bytes, records: Array) -> Array:
    """One row of `packets.py` for each record of a window."""
    packets = np.zeros((len(records), PACKET_COLUMNS), np.int64)
    active(dissect)(array(data), records, packets)
    return packets


def account(records: Array, packets: Array, tally: Tally) -> Array:
    """Account for headers, and for packets that lead nowhere; says which of them lead somewhere."""
    kinds = packets[:, REASON]
    for reason in np.unique(kinds).tolist():
        sizes = records[kinds == reason, SIZE]
        if reason == IS_FRAGMENT:
            rest = sizes - packets[kinds == reason, PAYLOAD_SIZE]
            tally.add(HEADERS, "link and ip of a fragment", int(rest.sum()), len(rest))
        elif reason != IS_OURS:
            tally.add(OTHER, REASONS[reason], int(sizes.sum()), len(sizes))
    is_ours = kinds == IS_OURS
    for name, is_one in (("tcp", packets[:, TRANSPORT] == TCP), ("udp", packets[:, TRANSPORT] != TCP)):
        heads = (records[:, SIZE] - packets[:, PAYLOAD_SIZE])[is_ours & is_one]
        tally.add(HEADERS, f"link, ip and {name}", int(heads.sum()), len(heads))
    leads: Array = kinds <= IS_FRAGMENT
    return leads


class Traffic:
    """All connections of a capture, or of the part of it that one task has."""

    def __init__(self, ports: Mapping[int, str], sniff: Callable[[bytes], str | None], gathering: Gathering, tally: Tally) -> None:
        self._tally = tally
        self._tracker = Tracker(ports, sniff, gathering, tally)
        self._datagrams = Datagrams(ports, sniff, gathering, tally)
        self._fragments = Fragments(tally)

    def window(self, base: int, data: bytes, records: Array) -> None:
        """The packets of a window, byte `base` of its source on."""
        packets = dissected(data, records)
        leads = account(records, packets, self._tally)
        records, packets = records[leads], packets[leads]
        self.packets(data, packets, records[:, TS], base + records[:, START], base + packets[:, PAYLOAD])

    def packets(self, data: bytes, packets: Array, times: Array, records: Array, payloads: Array) -> None:
        """Packets whose offsets lead into `data`; `records` and `payloads` are their places in the source."""
        # Column by column: a list per packet would keep Python's garbage collector busy.
        places = (packets[:, column].tolist() for column in _PLACES)
        values = (packets[:, column].tolist() for column in _VALUES)
        origins = (times.tolist(), records.tolist(), payloads.tolist())
        for (
            source,
            destination,
            width,
            start,
            size,
            reason,
            carried,
            port,
            other,
            sequence,
            acknowledged,
            flags,
            missing,
            ts,
            record,
            at,
        ) in zip(*places, *values, *origins, strict=True):
            here, there = data[source : source + width], data[destination : destination + width]
            chunk = data[start : start + size]
            if reason == IS_FRAGMENT:
                parts = self._fragments.part(here, there, carried, sequence, acknowledged, not flags, ts, at, chunk)
                if parts is not None:
                    self._whole(here, there, carried, parts, ts, record)
            elif carried == TCP:
                self._tracker.packet(here, port, there, other, sequence, acknowledged, flags, ts, record, at, chunk, missing)
            elif chunk:
                self._datagrams.packet(here, port, there, other, ts, ((at, chunk),))
        self._tracker.settle()

    def finish(self) -> None:
        """Nothing more comes."""
        self._fragments.finish()
        self._tracker.finish()

    def _whole(self, here: bytes, there: bytes, carried: int, parts: list[Part], ts: int, record: int) -> None:
        """A datagram that was put together."""
        body = b"".join(part.chunk for part in parts)
        row = [0] * PACKET_COLUMNS
        row[TRANSPORT] = carried
        reason = transport(body, 0, len(body), len(body), row)
        if reason != IS_OURS:
            self._tally.add(OTHER, REASONS[reason], len(body), 1)
            return
        start, stop = row[PAYLOAD], row[PAYLOAD] + row[PAYLOAD_SIZE]
        self._tally.add(HEADERS, f"{'tcp' if carried == TCP else 'udp'} of a fragmented datagram", len(body) - row[PAYLOAD_SIZE], 1)
        chunks = []
        for part in parts:
            first, last = max(start, part.place), min(stop, part.place + len(part.chunk))
            if first < last:
                chunks.append((part.offset + first - part.place, part.chunk[first - part.place : last - part.place]))
        ends = (here, row[SOURCE_PORT], there, row[DESTINATION_PORT])
        if carried != TCP:
            if chunks:
                self._datagrams.packet(*ends, ts, chunks)
            return
        # As if each part had been a segment: the first opens, the last closes.
        sequence, flags = row[SEQUENCE], row[FLAGS]
        for number, (at, chunk) in enumerate(chunks or [(0, b"")]):
            said = flags & ~(0 if number == 0 else SYN) & ~(0 if number >= len(chunks) - 1 else FIN)
            self._tracker.packet(*ends, sequence, row[ACKNOWLEDGED], said, ts, record, at, chunk)
            sequence = (sequence + len(chunk) + bool(said & SYN)) & 0xFFFFFFFF
