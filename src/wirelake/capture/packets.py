"""Packets: from the link layer down to TCP and UDP, as offsets.

Ethernet with VLAN tags, Linux cooked 1 and 2, raw IP, BSD loopback; IPv4 with options, IPv6 with hop-by-hop, routing and destination
headers; TCP, UDP. A packet that does not lead to a whole segment or datagram gets a reason instead.

It refuses to know flows, sequence and time: one packet at a time, and checksums are not its business (offloading leaves them wrong).
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.capture.records import DATA, LINK, SIZE, WIRE_SIZE
from wirelake.protocols.kernel import kernel, u16, u32

__all__ = [
    "ACK",
    "ACKNOWLEDGED",
    "DESTINATION",
    "DESTINATION_PORT",
    "FIN",
    "FLAGS",
    "PACKET_COLUMNS",
    "PAYLOAD",
    "PAYLOAD_SIZE",
    "REASON",
    "REASONS",
    "RST",
    "SEQUENCE",
    "SOURCE",
    "SOURCE_PORT",
    "SYN",
    "TCP",
    "TRANSPORT",
    "UDP",
    "WIDTH",
    "dissect",
]

REASON: Final = 0
"""0 for a TCP segment or a UDP datagram, else an index into `REASONS`; the other columns count only with 0."""
PAYLOAD: Final = 1
PAYLOAD_SIZE: Final = 2
SEQUENCE: Final = 3
"""Of a TCP segment, as the two columns after it; 0 in a datagram."""
ACKNOWLEDGED: Final = 4
FLAGS: Final = 5
SOURCE: Final = 6
"""Offset of the source address."""
DESTINATION: Final = 7
WIDTH: Final = 8
"""Bytes in an address: 4 or 16."""
SOURCE_PORT: Final = 9
DESTINATION_PORT: Final = 10
TRANSPORT: Final = 11
"""`TCP` or `UDP`."""
PACKET_COLUMNS: Final = 12

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10

IS_OURS: Final = 0
UNKNOWN_LINK: Final = 1
NOT_IP: Final = 2
OTHER_TRANSPORT: Final = 3
FRAGMENT: Final = 4
SNAPPED: Final = 5
MALFORMED: Final = 6
REASONS: Final = (
    "tcp or udp",
    "unknown link type",
    "not ip",
    "neither tcp nor udp",
    "ip fragment",
    "cut by the snap length",
    "malformed packet",
)
"""What each reason is called in accounts."""

LINK_LOOPBACK: Final = 0
LINK_ETHERNET: Final = 1
LINK_RAW: Final = 101
LINK_OPEN_LOOPBACK: Final = 108
LINK_COOKED: Final = 113
LINK_IPV4: Final = 228
LINK_IPV6: Final = 229
LINK_COOKED_2: Final = 276

TYPE_IPV4: Final = 0x0800
TYPE_IPV6: Final = 0x86DD
TYPE_EITHER: Final = -1
"""Only the first four bits of the packet say which."""

TCP: Final = 6
UDP: Final = 17
IPV6_HOP_BY_HOP: Final = 0
IPV6_ROUTING: Final = 43
IPV6_FRAGMENT: Final = 44
IPV6_DESTINATION: Final = 60


@kernel
def _link(data: Any, at: int, stop: int, link: int) -> tuple[int, int]:
    """(what the link layer says it carries, where that begins); a negative place is minus the reason there is none."""
    if link == LINK_RAW:
        return TYPE_EITHER, at
    if link == LINK_IPV4:
        return TYPE_IPV4, at
    if link == LINK_IPV6:
        return TYPE_IPV6, at
    if link in (LINK_LOOPBACK, LINK_OPEN_LOOPBACK):
        if stop - at < 4:
            return 0, -MALFORMED
        # The family is in the byte order of the capturing machine, whatever the file's: one of the two readings is small.
        family = u32(data, at)
        if family > 0xFFFF:
            family = (0 + data[at]) | ((0 + data[at + 1]) << 8)
        if family == 2:
            return TYPE_IPV4, at + 4
        if family == 10 or family == 24 or family == 28 or family == 30:  # AF_INET6 of Linux, NetBSD, FreeBSD, macOS
            return TYPE_IPV6, at + 4
        return 0, -NOT_IP
    if link == LINK_ETHERNET:
        head, field = 14, 12
    elif link == LINK_COOKED:
        head, field = 16, 14
    elif link == LINK_COOKED_2:
        head, field = 20, 0
    else:
        return 0, -UNKNOWN_LINK
    if stop - at < head:
        return 0, -MALFORMED
    carried = u16(data, at + field)
    at += head
    while carried == 0x8100 or carried == 0x88A8 or carried == 0x9100:  # VLAN tags, nested or not
        if stop - at < 4:
            return 0, -MALFORMED
        carried = u16(data, at + 2)
        at += 4
    return carried, at


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
    return IS_OURS


@kernel
def _segment(data: Any, start: int, stop: int, link: int, row: Any) -> int:
    """Fill a row from the packet data[start:stop]; returns the reason. What runs past `stop` is malformed."""
    carried, at = _link(data, start, stop, link)
    if at < 0:
        return -at
    if carried != TYPE_IPV4 and carried != TYPE_IPV6 and carried != TYPE_EITHER:
        return NOT_IP
    if at >= stop:
        return MALFORMED
    version = (0 + data[at]) >> 4
    if carried == TYPE_EITHER and version != 4 and version != 6:
        return NOT_IP
    if (carried == TYPE_IPV4 and version != 4) or (carried == TYPE_IPV6 and version != 6):
        return MALFORMED
    if version == 4:
        if stop - at < 20:
            return MALFORMED
        head = ((0 + data[at]) & 15) * 4
        total = u16(data, at + 2)
        if total == 0:  # the network card was to fill it in: the capture ends where the packet does
            total = stop - at
        if head < 20 or total < head:
            return MALFORMED
        if u16(data, at + 6) & 0x3FFF:
            return FRAGMENT
        transport = 0 + data[at + 9]
        row[SOURCE] = at + 12
        row[DESTINATION] = at + 16
        row[WIDTH] = 4
        end = at + total
        at += head
    else:
        if stop - at < 40:
            return MALFORMED
        total = u16(data, at + 4)
        end = at + 40 + total
        if total == 0:
            end = stop
        transport = 0 + data[at + 6]
        row[SOURCE] = at + 8
        row[DESTINATION] = at + 24
        row[WIDTH] = 16
        at += 40
        while transport in (IPV6_HOP_BY_HOP, IPV6_ROUTING, IPV6_DESTINATION):
            if min(end, stop) - at < 8:
                return MALFORMED
            transport = 0 + data[at]
            at += ((0 + data[at + 1]) + 1) * 8
        if transport == IPV6_FRAGMENT:
            return FRAGMENT
    row[TRANSPORT] = transport
    if transport == UDP:
        return _datagram(data, at, end, stop, row)
    if transport != TCP:
        return OTHER_TRANSPORT
    if end > stop or end - at < 20:
        return MALFORMED
    head = ((0 + data[at + 12]) >> 4) * 4
    if head < 20 or end - at < head:
        return MALFORMED
    row[SOURCE_PORT] = u16(data, at)
    row[DESTINATION_PORT] = u16(data, at + 2)
    row[SEQUENCE] = u32(data, at + 4)
    row[ACKNOWLEDGED] = u32(data, at + 8)
    row[FLAGS] = 0 + data[at + 13]
    row[PAYLOAD] = at + head
    row[PAYLOAD_SIZE] = end - at - head
    return IS_OURS


@kernel
def dissect(data: Any, records: Any, packets: Any) -> None:
    """One row of `packets` per row of `records` (which must all be packets)."""
    for index in range(len(records)):
        start = int(records[index, DATA])
        size = int(records[index, SIZE])
        reason = _segment(data, start, start + size, int(records[index, LINK]), packets[index])
        if reason == MALFORMED and size < records[index, WIRE_SIZE]:
            reason = SNAPPED
        packets[index, REASON] = reason
