"""Dissect packets from the link layer (`links.py`) to TCP and UDP, as offsets.

IPv4 with options, IPv6 with extension headers, both with authentication headers, one inside the other; TCP, UDP. Fragments are marked
for `ip_fragments.py`. Any other packet gets a reason instead.

One packet at a time: `tcp_flows.py` knows connections. Checksums are not verified, because offloading leaves them wrong in captures.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.capture.containers.records import DATA, LINK, SIZE, START, TS, WIRE_SIZE
from wirelake.capture.packets.links import CUT, NOT_IP, TYPE_EITHER, TYPE_IPV4, TYPE_IPV6, carried
from wirelake.protocols.kernel import kernel, u16, u32

__all__ = [
    "ACK",
    "ACKNOWLEDGED",
    "DESTINATION",
    "DESTINATION_PORT",
    "FIN",
    "FLAGS",
    "IS_FRAGMENT",
    "IS_OURS",
    "MISSING",
    "PACKET_BATCH_COLUMNS",
    "PACKET_COLUMNS",
    "PAYLOAD",
    "PAYLOAD_AT",
    "PAYLOAD_SIZE",
    "REASON",
    "REASONS",
    "RECORD_AT",
    "RST",
    "SEQUENCE",
    "SOURCE",
    "SOURCE_PORT",
    "SYN",
    "TCP",
    "TRANSPORT",
    "TS_AT",
    "UDP",
    "WIDTH",
    "dissect",
    "transport",
]

REASON: Final = 0
"""0 for a TCP segment or a UDP datagram, 1 for a fragment, else an index into `REASONS`.

The other columns count only with 0 and 1.
"""
PAYLOAD: Final = 1
PAYLOAD_SIZE: Final = 2
SEQUENCE: Final = 3
"""Of a TCP segment: its sequence number; 0 in a datagram.

Of a fragment: the identification of its datagram.
"""
ACKNOWLEDGED: Final = 4
"""Of a TCP segment: its acknowledgement number. Of a fragment: its offset in its datagram."""
FLAGS: Final = 5
"""Of a fragment: 1 when more follow."""
SOURCE: Final = 6
"""Offset of the source address."""
DESTINATION: Final = 7
WIDTH: Final = 8
"""Bytes in an address: 4 or 16."""
SOURCE_PORT: Final = 9
DESTINATION_PORT: Final = 10
TRANSPORT: Final = 11
"""`TCP` or `UDP`; of a fragment, any protocol number."""
MISSING: Final = 12
"""Bytes of a TCP segment after its payload that the snap length cut off.

It is 0 where IP claims more than a whole frame has.
"""
PACKET_COLUMNS: Final = 13
"""Columns that the bytes of a packet give. Three more say where it comes from."""
TS_AT: Final = PACKET_COLUMNS
RECORD_AT: Final = PACKET_COLUMNS + 1
"""Offset of the record in the source."""
PAYLOAD_AT: Final = PACKET_COLUMNS + 2
"""Offset of the payload in the source."""
PACKET_BATCH_COLUMNS: Final = PACKET_COLUMNS + 3
"""Columns of a packet with its time and offsets."""

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10

IS_OURS: Final = 0
IS_FRAGMENT: Final = 1
UNKNOWN_LINK: Final = 2
NO_IP: Final = 3
OTHER_TRANSPORT: Final = 4
SNAPPED: Final = 5
MALFORMED: Final = 6
REASONS: Final = (
    "tcp or udp",
    "ip fragment",
    "unknown link type",
    "not ip",
    "neither tcp nor udp",
    "cut by the snap length",
    "malformed packet",
)
"""The name of each reason in accounts."""

TCP: Final = 6
UDP: Final = 17
INNER_IPV4: Final = 4
INNER_IPV6: Final = 41
NESTED: Final = 8
"""The most IP headers inside each other."""
AUTHENTICATION: Final = 51
IPV6_HOP_BY_HOP: Final = 0
IPV6_ROUTING: Final = 43
IPV6_FRAGMENT: Final = 44
IPV6_DESTINATION: Final = 60
IPV6_MOBILITY: Final = 135


@kernel
def _datagram(data: Any, at: int, end: int, stop: int, row: Any) -> int:
    """Fill a row from the UDP header at `at` of an IP packet that ends at `end`; returns the reason."""
    if end > stop or end - at < 8:
        return MALFORMED
    size = u16(data, at + 4)
    if size == 0:  # the network card was to fill it in, or it is a jumbogram
        size = end - at
    if size < 8 or size > end - at:
        return MALFORMED
    row[SOURCE_PORT] = u16(data, at)
    row[DESTINATION_PORT] = u16(data, at + 2)
    row[PAYLOAD] = at + 8
    row[PAYLOAD_SIZE] = size - 8
    row[SEQUENCE] = 0
    row[ACKNOWLEDGED] = 0
    row[FLAGS] = 0
    row[MISSING] = 0
    return IS_OURS


@kernel
def _segment(data: Any, at: int, end: int, stop: int, row: Any) -> int:
    """Fill a row from the TCP header at `at` of an IP packet that ends at `end`; returns the reason."""
    if min(end, stop) - at < 20:
        return MALFORMED
    head = ((0 + data[at + 12]) >> 4) * 4
    if head < 20 or min(end, stop) - at < head:
        return MALFORMED
    row[SOURCE_PORT] = u16(data, at)
    row[DESTINATION_PORT] = u16(data, at + 2)
    row[SEQUENCE] = u32(data, at + 4)
    row[ACKNOWLEDGED] = u32(data, at + 8)
    row[FLAGS] = 0 + data[at + 13]
    row[PAYLOAD] = at + head
    row[PAYLOAD_SIZE] = min(end, stop) - at - head
    row[MISSING] = max(0, end - stop)
    return IS_OURS


@kernel
def transport(data: Any, at: int, end: int, stop: int, row: Any) -> int:
    """Fill a row from the payload of IP at `at`, by the row's `TRANSPORT`; returns the reason.

    IP ends at `end`, the data at `stop`.
    """
    if row[TRANSPORT] == TCP:
        return _segment(data, at, end, stop, row)
    if row[TRANSPORT] == UDP:
        return _datagram(data, at, end, stop, row)
    row[PAYLOAD] = at
    return OTHER_TRANSPORT


@kernel
def _fragment(row: Any, at: int, end: int, stop: int, number: int, place: int, more: int) -> int:
    """Fill a row for a fragment whose part of the datagram begins at `at`; returns the reason."""
    if end > stop or end - at < 1 or place + end - at > 0xFFFF:
        return MALFORMED
    row[PAYLOAD] = at
    row[PAYLOAD_SIZE] = end - at
    row[SEQUENCE] = number
    row[ACKNOWLEDGED] = place
    row[FLAGS] = more
    return IS_FRAGMENT


@kernel
def _ipv4(data: Any, at: int, stop: int, row: Any) -> int:
    if stop - at < 20:
        return MALFORMED
    head = ((0 + data[at]) & 15) * 4
    total = u16(data, at + 2)
    if total == 0:  # the network card was to fill it in: the capture ends where the packet does
        total = stop - at
    if head < 20 or total < head:
        return MALFORMED
    row[SOURCE] = at + 12
    row[DESTINATION] = at + 16
    row[WIDTH] = 4
    row[TRANSPORT] = 0 + data[at + 9]
    end = at + total
    place = u16(data, at + 6)
    if place & 0x3FFF:
        return _fragment(row, at + head, end, stop, u16(data, at + 4), (place & 0x1FFF) * 8, (place >> 13) & 1)
    at += head
    if row[TRANSPORT] == AUTHENTICATION:
        if min(end, stop) - at < 8:
            return MALFORMED
        row[TRANSPORT] = 0 + data[at]
        at += ((0 + data[at + 1]) + 2) * 4
    return transport(data, at, end, stop, row)


@kernel
def _ipv6(data: Any, at: int, stop: int, row: Any) -> int:
    if stop - at < 40:
        return MALFORMED
    total = u16(data, at + 4)
    end = at + 40 + total
    if total == 0:
        end = stop
    following = 0 + data[at + 6]
    row[SOURCE] = at + 8
    row[DESTINATION] = at + 24
    row[WIDTH] = 16
    at += 40
    while following in (IPV6_HOP_BY_HOP, IPV6_ROUTING, IPV6_DESTINATION, IPV6_MOBILITY, AUTHENTICATION, IPV6_FRAGMENT):
        if min(end, stop) - at < 8:
            return MALFORMED
        kind = following
        following = 0 + data[at]
        if kind == IPV6_FRAGMENT:
            place = u16(data, at + 2)
            if place & 0xFFF9:
                row[TRANSPORT] = following
                return _fragment(row, at + 8, end, stop, u32(data, at + 4), place & 0xFFF8, place & 1)
            at += 8  # a fragment that is the whole
        elif kind == AUTHENTICATION:
            at += ((0 + data[at + 1]) + 2) * 4
        else:
            at += ((0 + data[at + 1]) + 1) * 8
    row[TRANSPORT] = following
    return transport(data, at, end, stop, row)


@kernel
def _packet(data: Any, start: int, stop: int, link: int, row: Any) -> int:
    """Fill a row from the packet data[start:stop]; returns the reason.

    Bytes beyond `stop` make it malformed, or count as missing.
    """
    kind, at, stop = carried(data, start, stop, link)
    if at == CUT:
        return MALFORMED
    if at == NOT_IP:
        return NO_IP
    if at < 0:
        return UNKNOWN_LINK
    if at >= stop:
        return MALFORMED
    version = (0 + data[at]) >> 4
    if kind == TYPE_EITHER and version != 4 and version != 6:
        return NO_IP
    if (kind == TYPE_IPV4 and version != 4) or (kind == TYPE_IPV6 and version != 6):
        return MALFORMED
    for _ in range(NESTED):
        reason = _ipv4(data, at, stop, row) if version == 4 else _ipv6(data, at, stop, row)
        if reason != OTHER_TRANSPORT or (row[TRANSPORT] != INNER_IPV4 and row[TRANSPORT] != INNER_IPV6):
            return reason
        at = int(row[PAYLOAD])
        version = 4 if row[TRANSPORT] == INNER_IPV4 else 6
        if at >= stop or (0 + data[at]) >> 4 != version:
            return MALFORMED
    return OTHER_TRANSPORT


@kernel
def dissect(data: Any, records: Any, packets: Any) -> None:
    """Write one row of `packets` (`PACKET_BATCH_COLUMNS`) for each row of `records`, which must all be packets."""
    for index in range(len(records)):
        for column in range(PACKET_BATCH_COLUMNS):
            packets[index, column] = 0
        start = int(records[index, DATA])
        size = int(records[index, SIZE])
        reason = _packet(data, start, start + size, int(records[index, LINK]), packets[index])
        is_whole = size >= records[index, WIRE_SIZE]
        if reason == IS_OURS and is_whole:  # an IP length beyond the frame may be wrong: sequence numbers show what is missing
            packets[index, MISSING] = 0
        elif reason == MALFORMED and not is_whole:
            reason = SNAPPED
        packets[index, REASON] = reason
        packets[index, TS_AT] = records[index, TS]
        packets[index, RECORD_AT] = records[index, START]
        packets[index, PAYLOAD_AT] = packets[index, PAYLOAD]
