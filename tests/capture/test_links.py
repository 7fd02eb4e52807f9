"""Link layers and what IP may be wrapped in: all lead to the same segment."""

from __future__ import annotations

import struct

import pytest
from tests.capture.build import accounts, ether_type, ethernet, ipv4, ipv6, talk_of, tcp
from tests.capture.test_flows import SEGMENT, TS, V4, V6, read_packets


def ppp_type(packet: bytes) -> int:
    return 0x21 if packet[0] >> 4 == 4 else 0x57


def pppoe(packet: bytes) -> bytes:
    return bytes([0x11, 0, 0, 9]) + struct.pack(">HH", len(packet) + 2, ppp_type(packet)) + packet


@pytest.mark.parametrize("packet", [V4, V6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(
    ("link", "wrap"),
    [
        (9, lambda packet: struct.pack(">H", ppp_type(packet)) + packet),
        (9, lambda packet: bytes([ppp_type(packet)]) + packet),
        (9, lambda packet: b"\xff\x03" + struct.pack(">H", ppp_type(packet)) + packet),
        (50, lambda packet: b"\xff\x03" + struct.pack(">H", ppp_type(packet)) + packet),
        (50, lambda packet: b"\x0f\x00" + struct.pack(">H", ether_type(packet)) + packet),
        (104, lambda packet: b"\x0f\x00" + struct.pack(">H", ether_type(packet)) + packet),
        (204, lambda packet: b"\x01\xff\x03" + struct.pack(">H", ppp_type(packet)) + packet),
        (51, pppoe),
        (1, lambda packet: ethernet(pppoe(packet), kind=0x8864)),
        (1, lambda packet: ethernet(pppoe(packet), kind=0x8864, vlans=[0x8100])),
        (1, lambda packet: ethernet(packet, vlans=[0x9200, 0x9100, 0x88A8, 0x8100])),
        (1, lambda packet: ethernet(b"\xaa\xaa\x03\0\0\0" + struct.pack(">H", ether_type(packet)) + packet, kind=len(packet) + 8)),
        (12, lambda packet: packet),
        (14, lambda packet: packet),
    ],
)
def test_every_link_layer_leads_to_the_segment(tmp_path, packet, link, wrap):
    blocks = read_packets(tmp_path, [(TS, wrap(packet))], link=link)
    assert talk_of(blocks) == [(1, b"data")]
    assert accounts(blocks)["headers", "link, ip and tcp"] == len(wrap(packet)) - 4


@pytest.mark.parametrize("link", [0, 1, 9, 50, 51, 101, 104, 113, 204, 228, 276])
def test_no_link_layer_reads_beyond_a_packet_that_ends(tmp_path, link):
    """Every length of zeros and of ones: a packet that ends early is malformed or not IP, never anything else."""
    for filler in (b"\0", b"\xff", b"\x45", b"\x08"):
        for size in range(40):
            blocks = read_packets(tmp_path, [(TS, filler * size)], link=link)
            found = {key: value for key, value in accounts(blocks).items() if key[0] == "other"}
            assert set(found) <= {("other", "malformed packet"), ("other", "not ip"), ("other", "neither tcp nor udp")}
            assert sum(found.values()) == size


@pytest.mark.parametrize(
    "packet",
    [
        ipv4("10.9.9.9", "10.8.8.8", V4, protocol=4),
        ipv4("10.9.9.9", "10.8.8.8", V6, protocol=41),
        ipv6("6.8", "6.9", V4, protocol=4),
        ipv6("6.8", "6.9", V6, protocol=41),
        ipv6("6.8", "6.9", ipv6("6.8", "6.9", ipv6("6.8", "6.9", V6, protocol=41), protocol=41), protocol=41, extensions=[43]),
        ipv4("10.0.0.1", "10.0.0.2", bytes([6, 4]) + bytes(22) + SEGMENT, protocol=51),
        ipv6("6.1", "6.2", bytes([6, 4]) + bytes(22) + SEGMENT, protocol=51),
        ipv6("6.1", "6.2", SEGMENT, extensions=[0, 60, 43, 135]),
    ],
)
def test_ip_inside_ip_and_authenticated_ip_are_looked_through(tmp_path, packet):
    blocks = read_packets(tmp_path, [(TS, packet)], link=101)
    assert talk_of(blocks) == [(1, b"data")]
    assert blocks[0].flows[0].client.address in ("10.0.0.1", "2001:db8::1")


def test_ip_inside_ip_has_an_end(tmp_path):
    packet = V4
    for _ in range(40):
        packet = ipv4("10.9.9.9", "10.8.8.8", packet, protocol=4)
    assert accounts(read_packets(tmp_path, [(TS, packet)], link=101))["other", "neither tcp nor udp"] == len(packet)
    broken = ipv4("10.9.9.9", "10.8.8.8", V6, protocol=4)
    assert accounts(read_packets(tmp_path, [(TS, broken)], link=101))["other", "malformed packet"] == len(broken)


def test_an_ipv6_fragment_that_is_the_whole_is_no_fragment(tmp_path):
    packet = ipv6("6.1", "6.2", SEGMENT, extensions=[44])
    assert talk_of(read_packets(tmp_path, [(TS, packet)], link=101)) == [(1, b"data")]


def test_no_cut_of_a_packet_is_read_beyond_its_end(tmp_path):
    for packet in (V4, V6, ipv6("6.1", "6.2", SEGMENT, extensions=[0, 43, 60]), ipv4("10.0.0.1", "10.0.0.2", tcp(1, 2, 3, 4, 16, b"x"))):
        for size in range(len(packet)):
            found = accounts(read_packets(tmp_path, [(TS, packet[:size])], link=101))
            assert found.get(("other", "malformed packet"), 0) == size
