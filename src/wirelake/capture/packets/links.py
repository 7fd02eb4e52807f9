"""Link layers: find the IP packet inside a frame of a link type.

Ethernet with VLAN tags and provider backbone tags (802.1ah), nested or not, 802.3 with SNAP, MPLS and PPPoE; Linux cooked 1 and 2; raw IP;
BSD loopback; PPP with and without HDLC framing; Cisco HDLC.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.protocols.kernel import kernel, u16, u32

__all__ = ["CUT", "NOT_IP", "TYPE_EITHER", "TYPE_IPV4", "TYPE_IPV6", "UNKNOWN_LINK", "carried"]

LINK_LOOPBACK: Final = 0
LINK_ETHERNET: Final = 1
LINK_PPP: Final = 9
LINK_BSD_RAW: Final = 12
LINK_OPENBSD_RAW: Final = 14
LINK_PPP_HDLC: Final = 50
LINK_PPP_ETHER: Final = 51
LINK_RAW: Final = 101
LINK_CISCO_HDLC: Final = 104
LINK_OPEN_LOOPBACK: Final = 108
LINK_COOKED: Final = 113
LINK_PPP_DIRECTION: Final = 204
LINK_MPLS: Final = 219
LINK_IPV4: Final = 228
LINK_IPV6: Final = 229
LINK_COOKED_2: Final = 276

TYPE_IPV4: Final = 0x0800
TYPE_IPV6: Final = 0x86DD
TYPE_PPPOE: Final = 0x8864
TYPE_MPLS: Final = 0x8847
TYPE_MPLS_UPSTREAM: Final = 0x8848
"""Labels that the upstream router chose: multicast, or RFC 5332's other use of the same type."""
TYPE_BACKBONE: Final = 0x88E7
"""802.1ah: a tag of four bytes, then the customer's own Ethernet header."""
PPP_MPLS: Final = 0x0281
PPP_MPLS_MULTICAST: Final = 0x0283
TYPE_EITHER: Final = -1
"""IPv4 or IPv6, by the first four bits of the packet."""

UNKNOWN_LINK: Final = -1
NOT_IP: Final = -2
CUT: Final = -3
"""In place of an offset: why there is none."""


@kernel
def _mpls(data: Any, at: int, stop: int) -> tuple[int, int, int]:
    """Skip a stack of labels.

    Only the first four bits show what follows: 4 or 6 for IP; a pseudowire begins with 0.
    """
    while True:
        if stop - at < 4:
            return 0, CUT, stop
        is_bottom = (0 + data[at + 2]) & 1
        at += 4
        if is_bottom:
            return TYPE_EITHER, at, stop


@kernel
def _ppp(data: Any, at: int, stop: int) -> tuple[int, int, int]:
    """Find the payload of PPP: address and control may be left out, and the protocol may be one byte."""
    if stop - at >= 2 and data[at] == 0xFF and data[at + 1] == 0x03:
        at += 2
    if stop - at < 1:
        return 0, CUT, stop
    protocol = 0 + data[at]
    at += 1
    if protocol % 2 == 0:
        if stop - at < 1:
            return 0, CUT, stop
        protocol = (protocol << 8) | (0 + data[at])
        at += 1
    if protocol == 0x21:
        return TYPE_IPV4, at, stop
    if protocol == 0x57:
        return TYPE_IPV6, at, stop
    if protocol in (PPP_MPLS, PPP_MPLS_MULTICAST):
        return _mpls(data, at, stop)
    return 0, NOT_IP, stop


@kernel
def _pppoe(data: Any, at: int, stop: int) -> tuple[int, int, int]:
    """Find what a session of PPP over Ethernet carries; bytes beyond its length are padding."""
    if stop - at < 6:
        return 0, CUT, stop
    return _ppp(data, at + 6, min(stop, at + 6 + u16(data, at + 4)))


@kernel
def _loopback(data: Any, at: int, stop: int) -> tuple[int, int, int]:
    if stop - at < 4:
        return 0, CUT, stop
    # The family is in the byte order of the capturing machine, whatever the file's: one of the two readings is small.
    family = u32(data, at)
    if family > 0xFFFF:
        family = (0 + data[at]) | ((0 + data[at + 1]) << 8)
    if family == 2:
        return TYPE_IPV4, at + 4, stop
    if family == 10 or family == 24 or family == 28 or family == 30:  # AF_INET6 of Linux, NetBSD, FreeBSD, macOS
        return TYPE_IPV6, at + 4, stop
    return 0, NOT_IP, stop


@kernel
def _ether(data: Any, at: int, stop: int, kind: int) -> tuple[int, int, int]:
    """Find what follows the type field of Ethernet or of a cooked header."""
    while kind in (0x8100, 0x88A8, 0x9100, 0x9200, TYPE_BACKBONE):  # tags, nested or not
        size = 18 if kind == TYPE_BACKBONE else 4
        if stop - at < size:
            return 0, CUT, stop
        at += size
        kind = u16(data, at - 2)
    if kind <= 1500 and stop - at >= 8 and u32(data, at) == 0xAAAA0300 and u16(data, at + 4) == 0:  # a length, then SNAP
        kind = u16(data, at + 6)
        at += 8
    if kind == TYPE_PPPOE:
        return _pppoe(data, at, stop)
    if kind in (TYPE_MPLS, TYPE_MPLS_UPSTREAM):
        return _mpls(data, at, stop)
    if kind in (TYPE_IPV4, TYPE_IPV6):
        return kind, at, stop
    return 0, NOT_IP, stop


@kernel
def carried(data: Any, at: int, stop: int, link: int) -> tuple[int, int, int]:
    """Return (`TYPE_…`, start, end) of the IP packet in the frame data[at:stop].

    A negative start says why there is none.

    It ends at `stop`, or earlier where a link layer has a length: then padding follows.
    """
    if link == LINK_ETHERNET:
        if stop - at < 14:
            return 0, CUT, stop
        return _ether(data, at + 14, stop, u16(data, at + 12))
    if link in (LINK_RAW, LINK_BSD_RAW, LINK_OPENBSD_RAW):
        return TYPE_EITHER, at, stop
    if link == LINK_IPV4:
        return TYPE_IPV4, at, stop
    if link == LINK_IPV6:
        return TYPE_IPV6, at, stop
    if link == LINK_MPLS:
        return _mpls(data, at, stop)
    if link in (LINK_LOOPBACK, LINK_OPEN_LOOPBACK):
        return _loopback(data, at, stop)
    if link == LINK_COOKED:
        if stop - at < 16:
            return 0, CUT, stop
        return _ether(data, at + 16, stop, u16(data, at + 14))
    if link == LINK_COOKED_2:
        if stop - at < 20:
            return 0, CUT, stop
        return _ether(data, at + 20, stop, u16(data, at))
    if link == LINK_PPP:
        return _ppp(data, at, stop)
    if link == LINK_PPP_DIRECTION:
        if stop - at < 1:
            return 0, CUT, stop
        return _ppp(data, at + 1, stop)
    if link == LINK_PPP_ETHER:
        return _pppoe(data, at, stop)
    if link in (LINK_PPP_HDLC, LINK_CISCO_HDLC):
        if stop - at < 4:
            return 0, CUT, stop
        if u16(data, at) == 0xFF03:
            return _ppp(data, at, stop)
        return _ether(data, at + 4, stop, u16(data, at + 2))  # Cisco's framing on a serial line
    return 0, UNKNOWN_LINK, stop
