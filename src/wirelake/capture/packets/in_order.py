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
    LOST,
    NEXT,
    NUMBER,
    OWNED,
    PROTOCOL,
    SINCE,
    SINCE_KIND,
    STATE,
    TO_SERVER,
    UNDECIDED,
    find,
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
def _number(flows: Any, out: Any, row: int) -> int:
    """The number of a flow in the block."""
    if flows[row, NUMBER] < 0:
        numbered, counts = out[4], out[5]
        flows[row, NUMBER] = counts[FLOWS]
        numbered[counts[FLOWS]] = row
        counts[FLOWS] += 1
    return int(flows[row, NUMBER])


@kernel
def _forget(kept: Any, slot: int) -> None:
    rings, counts = kept[0], kept[3]
    counts[TOTAL] -= rings[slot, RING_BYTES]
    for column in range(RING_COLUMNS):
        rings[slot, column] = 0


@kernel
def _begin(table: Any, data: Any, packet: Any, ports: Any) -> int:
    """Add a flow that begins with this packet, if its port is known; as `Tracker._start`. Returns its row."""
    flags, port, other = packet[FLAGS], packet[SOURCE_PORT], packet[DESTINATION_PORT]
    width = int(packet[WIDTH])
    row = start(table, data, int(packet[SOURCE]), int(packet[DESTINATION]), width, int(port), int(other))
    flows = table[0]
    if flags & SYN:
        to_server = 0 if flags & ACK else 1
        flows[row, SINCE_KIND] = BY_SEQUENCE
        flows[row, SINCE] = packet[SEQUENCE] if to_server else (packet[ACKNOWLEDGED] - 1) & MASK
    else:
        to_server = _is_client(ports, int(port), int(other))
        flows[row, SINCE_KIND] = BY_TIME if packet[TS_AT] != NO_TIME else BY_BYTE
        flows[row, SINCE] = packet[TS_AT] if packet[TS_AT] != NO_TIME else packet[SEQUENCE]
    protocol = _protocol(ports, int(port), int(other), to_server)
    flows[row, TO_SERVER] = to_server
    flows[row, PROTOCOL] = protocol
    flows[row, STATE] = UNDECIDED if ports[protocol, 1] else FAST
    return row


@kernel
def _is_client(ports: Any, port: int, other: int) -> int:
    """Whether the end on `port` is the client, by ports alone; as `tcp_flows.is_client`."""
    if (ports[port, 0] != 0) != (ports[other, 0] != 0):
        return 1 if ports[other, 0] else 0
    return 1 if port >= other else 0


@kernel
def _protocol(ports: Any, port: int, other: int, to_server: int) -> int:
    """The protocol of a known port, the server's first; 0 if neither is known."""
    server, client = (other, port) if to_server else (port, other)
    return int(ports[server, 0]) if ports[server, 0] else int(ports[client, 0])


@kernel
def _is_known(ports: Any, packet: Any) -> bool:
    """Whether a kernel may begin a flow with this packet: its port is known."""
    return bool(ports[packet[SOURCE_PORT], 0] != 0 or ports[packet[DESTINATION_PORT], 0] != 0)


@kernel
def _follow(table: Any, kept: Any, out: Any, ports: Any, openings: Any, limits: Any, data: Any, packet: Any, entry: int) -> bool:
    """Take a packet of the flow with this key, or of a new one (-1); returns False if Python must take it."""
    flows, halves = table[0], table[1]
    size, flags, sequence = int(packet[PAYLOAD_SIZE]), int(packet[FLAGS]), int(packet[SEQUENCE])
    is_syn = flags & SYN != 0
    if packet[MISSING] or (size and flags & (RST | SYN)):
        return False
    data_at = (sequence + 1) & MASK if is_syn else sequence
    row, to_server, is_start = 0, 0, entry < 0
    if not is_start:
        row = entry >> 1
        to_server = flows[row, TO_SERVER] if entry & 1 else 1 - flows[row, TO_SERVER]
        if flows[row, STATE] == OWNED:
            return False
        # Bytes without a SYN that begin a connection are far from the next ones: Python takes those.
        if is_syn and _is_new(halves, row, to_server, data_at, int(packet[ACKNOWLEDGED]), flags):
            if flows[row, STATE] == UNDECIDED:
                return False
            is_start = True
    if is_start and (size or limits[3] or not _is_known(ports, packet) or table[5][1] >= limits[0]):
        return False
    if is_start and table[5][0] >= len(flows):
        return False
    here = 2 * row + to_server
    dialect = -1
    if not is_start:
        is_next = halves[here, NEXT] >= 0 and data_at == halves[here, NEXT] & MASK and halves[here, LOST] == 0
        if size and not is_next:
            return False
        if flows[row, STATE] == UNDECIDED:
            if flags & (RST | FIN) or (is_syn and limits[3]):
                return False
            if size:
                dialect = _dialect(openings, int(flows[row, PROTOCOL]), data, int(packet[PAYLOAD]), size)
                if dialect < 0:
                    return False
    elif flags & (RST | FIN):
        return False
    # From here on the packet is taken.
    ts, record = packet[TS_AT], packet[RECORD_AT] + limits[2]
    if is_start:
        if entry >= 0:
            _forget(kept, 2 * row)
            _forget(kept, 2 * row + 1)
        row = _begin(table, data, packet, ports)
        to_server = flows[row, TO_SERVER]
        here = 2 * row + to_server
    there = 2 * row + 1 - to_server
    if is_syn and not halves[here, FROM_START]:
        if halves[here, NEXT] < 0:
            halves[here, NEXT] = BASE + data_at
            halves[here, FIRST] = BASE + data_at
            halves[here, LOST] = 0
        halves[here, FROM_START] = 1
        if not halves[there, FROM_START]:
            if flows[row, STATE] == UNDECIDED:
                flows[row, HELD_TS] = ts
                flows[row, HELD_AT] = record
            else:
                note(out, _number(flows, out, row), ts, record, OPENED, 1)
    if size:
        if dialect >= 0:
            flows[row, STATE] = FAST
            flows[row, DIALECT] = dialect
            if flows[row, HELD_AT] >= 0:
                note(out, _number(flows, out, row), flows[row, HELD_TS], flows[row, HELD_AT], OPENED, 1)
                flows[row, HELD_AT] = -1
        payload = int(packet[PAYLOAD])
        append(out, _number(flows, out, row), to_server, ts, packet[PAYLOAD_AT] + limits[2], 0, data, payload, size)
        remember(kept, here, halves[here, NEXT], data, payload, size, limits[1])
        halves[here, NEXT] += size
    side = 1 if to_server else 2
    if flags & RST:
        if not flows[row, CLOSED]:
            flows[row, CLOSED] = 1
            note(out, _number(flows, out, row), ts, record, RESET, side)
    elif flags & FIN and not halves[here, FINISHED]:
        halves[here, FINISHED] = 1
        note(out, _number(flows, out, row), ts, record, FINISHED_EVENT, side)
        if halves[there, FINISHED] and not flows[row, CLOSED]:
            flows[row, CLOSED] = 1
            note(out, _number(flows, out, row), ts, record, CLOSED_EVENT, 0)
    return True


@kernel
def _entry(table: Any, data: Any, packet: Any) -> int:
    """The key number of a TCP packet's flow; -1: it has none."""
    source, destination, width = int(packet[SOURCE]), int(packet[DESTINATION]), int(packet[WIDTH])
    return int(find(table, data, source, destination, width, int(packet[SOURCE_PORT]), int(packet[DESTINATION_PORT]))[0])


@kernel
def advance(
    table: Any, kept: Any, out: Any, ports: Any, openings: Any, limits: Any, data: Any, packets: Any, entries: Any, at: int
) -> tuple[int, int]:
    """Take packets from `at` on; returns (first packet that Python must take, the one after the last that it must take).

    `entries` gets the key numbers of these packets, -1 for none. They hold as long as keys of the table stay as they are.
    """
    while at < len(packets):
        packet = packets[at]
        if packet[REASON] != IS_OURS or packet[TRANSPORT] != TCP:
            break
        entry = _entry(table, data, packet)
        if not _follow(table, kept, out, ports, openings, limits, data, packet, entry):
            entries[at] = entry
            break
        at += 1
    stop = at + 1
    while stop < len(packets):
        packet = packets[stop]
        if packet[REASON] == IS_OURS and packet[TRANSPORT] == TCP:
            entry = _entry(table, data, packet)
            if entry < 0 or table[0][entry >> 1, STATE] != OWNED:
                break
            entries[stop] = entry
        stop += 1
    return at, min(stop, len(packets))
