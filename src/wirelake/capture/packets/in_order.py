"""Follow TCP packets that come in order, many flows in one kernel call.

`advance` takes packets as long as each is simply the next of its flow: a handshake, bytes that follow those before, a goodbye. It does with
them what `tcp_flows.Tracker.packet` does, and tests compare the two. It stops before the first packet that is anything else: out of order,
repeated, cut off, of a flow that Python owns or must begin, in a fragment, or UDP. Nothing of that packet is done then.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.capture.blocks.builder import FLOWS, append, note
from wirelake.capture.packets.dissect import (
    ACK,
    ACKNOWLEDGED,
    DESTINATION,
    DESTINATION_PORT,
    FIN,
    FLAGS,
    IS_OURS,
    MISSING,
    PAYLOAD,
    PAYLOAD_AT,
    PAYLOAD_SIZE,
    REASON,
    RECORD_AT,
    RST,
    SEQUENCE,
    SOURCE,
    SOURCE_PORT,
    SYN,
    TCP,
    TRANSPORT,
    TS_AT,
    WIDTH,
)
from wirelake.capture.packets.flow_table import (
    BY_BYTE,
    BY_SEQUENCE,
    BY_TIME,
    CLOSED,
    DIALECT,
    FAST,
    FINISHED,
    FIRST,
    FROM_START,
    HELD_AT,
    HELD_TS,
    KEYS,
    LOST,
    NEXT,
    NUMBER,
    OWNED,
    PROTOCOL,
    ROWS,
    SINCE,
    SINCE_KIND,
    STATE,
    TO_SERVER,
    UNDECIDED,
    search,
    start,
)
from wirelake.capture.packets.remembered import RING_BYTES, RING_COLUMNS, TOTAL, remember
from wirelake.protocols.kernel import kernel

__all__ = ["LIMITS", "MASK", "OPENING_BYTES", "OPENING_COLUMNS", "advance"]

MASK: Final = (1 << 32) - 1
BASE: Final = 1 << 40
"""Added to the first sequence number, so that earlier positions are not negative."""
NO_TIME: Final = -1

LIMITS: Final = 4
"""Numbers in the limits of `advance`: keys of the flow table, remembered bytes of a direction, offset added to places in the source, and
whether so much is held that Python must begin flows.
"""

OPENING_BYTES: Final = 64
"""Bytes of the longest first segment that is recognised by a kernel."""
OPENING_COLUMNS: Final = 3 + OPENING_BYTES
"""An opening: protocol, dialect, size, and the bytes of a first segment that showed the dialect before."""

SPECIAL: Final = 0
"""Python must take the packet."""
STARTS: Final = 1
FOLLOWS: Final = 2

OPENED, FINISHED_EVENT, CLOSED_EVENT, RESET = 0, 1, 2, 3
"""Codes of `flow_events.EVENT_WHAT`."""


@kernel
def _is_new(halves: Any, row: int, to_server: int, data_at: int, acknowledged: int, flags: int) -> bool:
    """Whether a SYN on the ports of a flow belongs to a new connection; as `Tracker._is_new`."""
    here, there = 2 * row + to_server, 2 * row + 1 - to_server
    answers = halves[there, NEXT] < 0 or halves[there, FIRST] & MASK == acknowledged
    if flags & ACK and halves[there, FROM_START] and answers:
        return False
    if not flags & ACK and halves[there, NEXT] >= 0 and not halves[there, FROM_START]:
        return True
    return bool(halves[here, NEXT] >= 0 and halves[here, FIRST] & MASK != data_at)


@kernel
def _dialect(openings: Any, protocol: int, data: Any, at: int, size: int) -> int:
    """The dialect of a flow whose first segment was seen before in another one; -1: Python must recognise it."""
    for index in range(len(openings)):
        if openings[index, 0] != protocol or openings[index, 2] != size:
            continue
        is_same = True
        for byte in range(size):
            if openings[index, 3 + byte] != data[at + byte]:
                is_same = False
                break
        if is_same:
            return int(openings[index, 1])
    return -1


@kernel
def _number(flows: Any, numbered: Any, counts: Any, row: int) -> int:
    """The number of a flow in the block."""
    if flows[row, NUMBER] < 0:
        flows[row, NUMBER] = counts[FLOWS]
        numbered[counts[FLOWS]] = row
        counts[FLOWS] += 1
    return int(flows[row, NUMBER])


@kernel
def _forget(rings: Any, counts: Any, slot: int) -> None:
    counts[TOTAL] -= rings[slot, RING_BYTES]
    for column in range(RING_COLUMNS):
        rings[slot, column] = 0


@kernel
def _is_client(ports: Any, port: int, other: int) -> int:
    """Whether the end on `port` is the client, by ports alone; as `tracked.is_client`."""
    if (ports[port, 0] != 0) != (ports[other, 0] != 0):
        return 1 if ports[other, 0] else 0
    return 1 if port >= other else 0


@kernel
def _protocol(ports: Any, port: int, other: int, to_server: int) -> int:
    """The protocol of a known port, the server's first; 0 if neither is known."""
    server, client = (other, port) if to_server else (port, other)
    return int(ports[server, 0]) if ports[server, 0] else int(ports[client, 0])


@kernel
def _name(flows: Any, row: int, packets: Any, at: int, ports: Any) -> int:
    """Note how a flow began with this packet, whose port is known; as `Tracker._start`. Returns whether the client sent it."""
    flags, port, other = int(packets[at, FLAGS]), int(packets[at, SOURCE_PORT]), int(packets[at, DESTINATION_PORT])
    if flags & SYN:
        to_server = 0 if flags & ACK else 1
        flows[row, SINCE_KIND] = BY_SEQUENCE
        flows[row, SINCE] = packets[at, SEQUENCE] if to_server else (packets[at, ACKNOWLEDGED] - 1) & MASK
    else:
        to_server = _is_client(ports, port, other)
        has_time = packets[at, TS_AT] != NO_TIME
        flows[row, SINCE_KIND] = BY_TIME if has_time else BY_BYTE
        flows[row, SINCE] = packets[at, TS_AT] if has_time else packets[at, SEQUENCE]
    protocol = _protocol(ports, port, other, to_server)
    flows[row, TO_SERVER] = to_server
    flows[row, PROTOCOL] = protocol
    flows[row, STATE] = UNDECIDED if ports[protocol, 1] else FAST
    return to_server


@kernel
def _is_known(ports: Any, packets: Any, at: int) -> bool:
    """Whether a kernel may begin a flow with this packet: its port is known."""
    return bool(ports[packets[at, SOURCE_PORT], 0] != 0 or ports[packets[at, DESTINATION_PORT], 0] != 0)


@kernel
def _verdict(
    flows: Any, halves: Any, counts: Any, ports: Any, openings: Any, limits: Any, data: Any, packets: Any, at: int, entry: int
) -> tuple[int, int]:
    """Return what a packet is to the flow with this key, or without one (-1): `SPECIAL`, `STARTS` or `FOLLOWS`; and a new dialect."""
    size, flags = int(packets[at, PAYLOAD_SIZE]), int(packets[at, FLAGS])
    is_syn = flags & SYN != 0
    if packets[at, MISSING] or (size and flags & (RST | SYN)):
        return SPECIAL, -1
    data_at = (int(packets[at, SEQUENCE]) + is_syn) & MASK
    row = entry >> 1
    is_start, to_server = entry < 0, 0
    if not is_start:
        to_server = int(flows[row, TO_SERVER]) if entry & 1 else 1 - int(flows[row, TO_SERVER])
        if flows[row, STATE] == OWNED:
            return SPECIAL, -1
        # Bytes without a SYN that begin a connection are far from the next ones: Python takes those.
        if is_syn and _is_new(halves, row, to_server, data_at, int(packets[at, ACKNOWLEDGED]), flags):
            if flows[row, STATE] == UNDECIDED:
                return SPECIAL, -1
            is_start = True
    if is_start:
        is_full = counts[KEYS] >= limits[0] or counts[ROWS] >= len(flows)
        if size or limits[3] or is_full or flags & (RST | FIN) or not _is_known(ports, packets, at):
            return SPECIAL, -1
        return STARTS, -1
    here = 2 * row + to_server
    if size and (halves[here, NEXT] < 0 or data_at != halves[here, NEXT] & MASK or halves[here, LOST] != 0):
        return SPECIAL, -1
    if flags & (RST | FIN) and (halves[here, NEXT] < 0 or data_at != halves[here, NEXT] & MASK):
        return SPECIAL, -1
    if flows[row, STATE] != UNDECIDED:
        return FOLLOWS, -1
    if flags & (RST | FIN) or (is_syn and limits[3]):
        return SPECIAL, -1
    if not size:
        return FOLLOWS, -1
    dialect = _dialect(openings, int(flows[row, PROTOCOL]), data, int(packets[at, PAYLOAD]), size)
    return (FOLLOWS if dialect >= 0 else SPECIAL), dialect


@kernel
def advance(
    table: Any, kept: Any, out: Any, ports: Any, openings: Any, limits: Any, data: Any, packets: Any, entries: Any, at: int
) -> tuple[int, int]:
    """Take packets from `at` on; returns (first packet that Python must take, the one after the last that it must take).

    `entries` gets the key numbers of these packets, -1 for none. They hold as long as keys of the table stay as they are. Arrays are taken
    out of their tuples once: Numba counts references to each array that is taken out, or that is a slice of another.
    """
    flows, halves, ends, alive, slots, counts, secret = table
    rings, pieces, held, kept_counts = kept
    collected, origins, segments, events, numbered, out_counts = out
    while at < len(packets):
        if packets[at, REASON] != IS_OURS or packets[at, TRANSPORT] != TCP:
            break
        source, destination, width = int(packets[at, SOURCE]), int(packets[at, DESTINATION]), int(packets[at, WIDTH])
        port, other = int(packets[at, SOURCE_PORT]), int(packets[at, DESTINATION_PORT])
        entry = search(flows, ends, alive, slots, secret, data, source, destination, width, port, other)[0]
        verdict, dialect = _verdict(flows, halves, counts, ports, openings, limits, data, packets, at, entry)
        if verdict == SPECIAL:
            entries[at] = entry
            break
        if verdict == STARTS:
            if entry >= 0:
                _forget(rings, kept_counts, entry & -2)
                _forget(rings, kept_counts, entry | 1)
            row = start(flows, halves, ends, alive, slots, counts, secret, data, source, destination, width, port, other)
            to_server = _name(flows, row, packets, at, ports)
        else:
            row = entry >> 1
            to_server = int(flows[row, TO_SERVER]) if entry & 1 else 1 - int(flows[row, TO_SERVER])
        size, flags = int(packets[at, PAYLOAD_SIZE]), int(packets[at, FLAGS])
        ts, record = packets[at, TS_AT], packets[at, RECORD_AT] + limits[2]
        here, there = 2 * row + to_server, 2 * row + 1 - to_server
        if flags & SYN and not halves[here, FROM_START]:
            if halves[here, NEXT] < 0:
                first = BASE + ((packets[at, SEQUENCE] + 1) & MASK)
                halves[here, NEXT] = first
                halves[here, FIRST] = first
                halves[here, LOST] = 0
            halves[here, FROM_START] = 1
            if not halves[there, FROM_START]:
                if flows[row, STATE] == UNDECIDED:
                    flows[row, HELD_TS] = ts
                    flows[row, HELD_AT] = record
                else:
                    note(events, out_counts, _number(flows, numbered, out_counts, row), ts, record, OPENED, 1)
        if size:
            number = _number(flows, numbered, out_counts, row)
            if dialect >= 0:
                flows[row, STATE] = FAST
                flows[row, DIALECT] = dialect
                if flows[row, HELD_AT] >= 0:
                    note(events, out_counts, number, flows[row, HELD_TS], flows[row, HELD_AT], OPENED, 1)
                    flows[row, HELD_AT] = -1
            payload, place = int(packets[at, PAYLOAD]), packets[at, PAYLOAD_AT] + limits[2]
            append(collected, origins, segments, out_counts, number, to_server, ts, place, 0, data, payload, size)
            remember(rings, pieces, held, kept_counts, here, halves[here, NEXT], data, payload, size, limits[1])
            halves[here, NEXT] += size
        side = 1 if to_server else 2
        if flags & RST:
            if not flows[row, CLOSED]:
                flows[row, CLOSED] = 1
                note(events, out_counts, _number(flows, numbered, out_counts, row), ts, record, RESET, side)
        elif flags & FIN and not halves[here, FINISHED]:
            number = _number(flows, numbered, out_counts, row)
            halves[here, FINISHED] = 1
            note(events, out_counts, number, ts, record, FINISHED_EVENT, side)
            if halves[there, FINISHED] and not flows[row, CLOSED]:
                flows[row, CLOSED] = 1
                note(events, out_counts, number, ts, record, CLOSED_EVENT, 0)
        at += 1
    stop = at + 1
    while stop < len(packets):
        if packets[stop, REASON] == IS_OURS and packets[stop, TRANSPORT] == TCP:
            source, destination, width = int(packets[stop, SOURCE]), int(packets[stop, DESTINATION]), int(packets[stop, WIDTH])
            port, other = int(packets[stop, SOURCE_PORT]), int(packets[stop, DESTINATION_PORT])
            entry = search(flows, ends, alive, slots, secret, data, source, destination, width, port, other)[0]
            if entry < 0 or flows[entry >> 1, STATE] != OWNED:
                break
            entries[stop] = entry
        stop += 1
    return at, min(stop, len(packets))
