"""Link layers and IP encapsulation: all lead to the same TCP segment."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from tests.capture.build import ACK, accounts, ether_type, ethernet, ipv4, ipv6, talk_of, tcp
from tests.capture.test_containers import both
from tests.capture.test_tcp_flows import SEGMENT, TS, V4, V6, read_packets, segments_of

from wirelake.capture.containers.records import DATA, LINK, RECORD_COLUMNS, SIZE, WIRE_SIZE
from wirelake.capture.packets.dissect import PACKET_BATCH_COLUMNS, dissect


def ppp_type(packet: bytes) -> int:
    return 0x21 if packet[0] >> 4 == 4 else 0x57


def pppoe(packet: bytes) -> bytes:
    return bytes([0x11, 0, 0, 9]) + struct.pack(">HH", len(packet) + 2, ppp_type(packet)) + packet


def mpls(packet: bytes, labels: int = 1) -> bytes:
    return b"".join(struct.pack(">I", (100 + n) << 12 | (n == labels - 1) << 8 | 64) for n in range(labels)) + packet


def backbone(frame: bytes) -> bytes:
    """802.1ah: a customer's frame behind the tag of a service instance."""
    return struct.pack(">I", 0x20000000 | 4711) + frame


WRAPPED = [
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
    (219, mpls),
    (219, lambda packet: mpls(packet, 5)),
    (1, lambda packet: ethernet(mpls(packet), kind=0x8847)),
    (1, lambda packet: ethernet(mpls(packet, 3), kind=0x8848, vlans=[0x8100])),
    (9, lambda packet: b"\x02\x81" + mpls(packet)),
    (9, lambda packet: b"\xff\x03\x02\x83" + mpls(packet, 2)),
    (104, lambda packet: b"\x0f\x00\x88\x47" + mpls(packet)),
    (1, lambda packet: ethernet(backbone(ethernet(packet)), kind=0x88E7)),
    (1, lambda packet: ethernet(backbone(ethernet(packet, vlans=[0x8100])), kind=0x88E7, vlans=[0x88A8])),
    (1, lambda packet: ethernet(backbone(ethernet(pppoe(packet), kind=0x8864)), kind=0x88E7)),
]
"""(link type, what it puts around an IP packet)."""


@pytest.mark.parametrize("packet", [V4, V6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(("link", "wrap"), WRAPPED)
def test_every_link_layer_leads_to_the_segment(tmp_path, packet, link, wrap):
    blocks = read_packets(tmp_path, [(TS, wrap(packet))], link=link)
    assert talk_of(blocks) == [(1, b"data")]
    assert accounts(blocks)["headers", "link, ip and tcp"] == len(wrap(packet)) - 4


def test_compiled_and_plain_kernels_see_the_same_in_every_link_layer():
    dice = random.Random(5)
    for link, wrap in WRAPPED:
        for packet in (V4, V6):
            frame = wrap(packet) + b"\xee" * 5
            cuts = [frame[: dice.randrange(len(frame))] for _ in range(10)]
            spoilt = [frame[:at] + dice.randbytes(2) + frame[at + 2 :] for at in (dice.randrange(len(frame)) for _ in range(10))]
            frames = [frame, *cuts, *spoilt]
            records = np.zeros((len(frames), RECORD_COLUMNS), np.int64)
            records[:, SIZE] = [len(one) for one in frames]
            records[:, DATA] = np.cumsum(records[:, SIZE]) - records[:, SIZE]
            records[:, WIRE_SIZE], records[:, LINK] = len(frame), link
            both(dissect, b"".join(frames), records, np.zeros((len(frames), PACKET_BATCH_COLUMNS), np.int64))


@pytest.mark.parametrize("padding", [b"", b"\0" * 6, b"\xee" * 20])
@pytest.mark.parametrize("offloaded", [False, True])
@pytest.mark.parametrize(("packet", "length_at"), [(V4, 2), (V6, 4)], ids=["ipv4", "ipv6"])
def test_what_follows_the_length_of_pppoe_is_padding(tmp_path, packet, length_at, offloaded, padding):
    if offloaded:  # the network card was to fill in the length of IP
        packet = packet[:length_at] + b"\0\0" + packet[length_at + 2 :]
    for link, frame in ((51, pppoe(packet)), (1, ethernet(pppoe(packet), kind=0x8864))):
        blocks = read_packets(tmp_path, [(TS, frame + padding)], link=link)
        assert talk_of(blocks) == [(1, b"data")]
        assert accounts(blocks)["headers", "link, ip and tcp"] == len(frame + padding) - 4


@pytest.mark.parametrize("inside", [b"\0\0\0\0" + ethernet(V4), b"\x10\0\0\x07", b"\xff" * 30])
def test_a_pseudowire_behind_labels_is_not_ip(tmp_path, inside):
    frame = ethernet(mpls(inside), kind=0x8847)
    assert accounts(read_packets(tmp_path, [(TS, frame)]))["other", "not ip"] == len(frame)


def test_labels_and_tags_that_end_with_the_packet_are_malformed(tmp_path):
    tagged = ethernet(backbone(ethernet(V4))[:17], kind=0x88E7)
    for frame in (ethernet(b"\0\0\0\0" * 9, kind=0x8847), ethernet(mpls(b""), kind=0x8847), ethernet(b"", kind=0x8847), tagged):
        assert accounts(read_packets(tmp_path, [(TS, frame)]))["other", "malformed packet"] == len(frame)


@pytest.mark.slow
@pytest.mark.parametrize("link", [0, 1, 9, 50, 51, 101, 104, 113, 204, 219, 228, 276])
def test_no_link_layer_reads_beyond_a_packet_that_ends(tmp_path, link):
    """Lengths of zeros, of ones and of what looks like IP: a packet that ends early is malformed or not IP, never anything else."""
    for filler in (b"\0", b"\xff", b"\x45", b"\x08"):
        for size in range(link % 3, 40, 3):  # every length for some link layer, and each in turn with the others
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
    for packet in (V4, V6, ipv6("6.1", "6.2", SEGMENT, extensions=[0, 43, 60]), ipv4("10.0.0.1", "10.0.0.2", tcp(1, 5040, 3, 4, 16, b"x"))):
        head = len(packet) - (4 if packet.endswith(b"data") else 1)
        for size in range(head):
            found = accounts(read_packets(tmp_path, [(TS, packet[:size])], link=101))
            assert found.get(("other", "malformed packet"), 0) == size
        for size in range(head + 1, len(packet)):  # IP claims more than the frame has: what is there counts
            assert talk_of(read_packets(tmp_path, [(TS, packet[:size])], link=101)) == [(1, packet[head:size])]


def test_a_segment_that_claims_more_than_its_frame_has_costs_what_is_not_there(tmp_path):
    def segment(at: int, data: bytes) -> bytes:
        return ipv4("10.0.0.1", "10.0.0.2", tcp(40000, 5040, at, 0, ACK, data))

    cut = [(TS, segment(100, b"0123456789")[:-4]), (TS, segment(110, b"next"))]
    assert segments_of(read_packets(tmp_path, cut, link=101)) == [(1, b"012345", -1), (1, b"next", 4)]
    lie = [(TS, segment(100, b"012345" + bytes(60000))[:-60000]), (TS, segment(106, b"next"))]
    assert talk_of(read_packets(tmp_path, lie, link=101)) == [(1, b"012345next")]
