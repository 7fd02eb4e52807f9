"""UDP flows: each datagram is a segment of its own, and two endpoints are one session."""

from __future__ import annotations

import pytest
from tests.capture.build import accounts, ethernet, events, ipv4, ipv6, pcap, read_checked, udp

from wirelake.capture.blocks.block import Endpoint
from wirelake.capture.packets import udp_flows

TS = 1_700_000_000_000_000
ONE, TWO = ("10.0.0.1", 40000), ("10.0.0.2", 5040)


def sent(source: tuple[str, int], destination: tuple[str, int], data: bytes, **options) -> bytes:
    """A datagram in its IP packet."""
    packed = ipv6 if source[0].startswith("6.") else ipv4
    return packed(source[0], destination[0], udp(source[1], destination[1], data, **options), protocol=17)


def read_packets(tmp_path, *packets: bytes, cut: int = 0, **options):
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap([(TS + 1000 * number, packet) for number, packet in enumerate(packets)], link=101, cut=cut))
    return read_checked(path, **options)


def segments(blocks) -> list[tuple[bytes, int, bytes]]:
    """(session, to server, bytes) of every run, not joined."""
    return [
        (one.flows[flow].session_id, to_server, bytes(one.data[start:stop]))
        for one in blocks
        for start, stop, flow, to_server, _ in one.segments.tolist()
    ]


@pytest.mark.parametrize("ends", [(ONE, TWO), (("6.1", 40000), ("6.2", 5040))], ids=["ipv4", "ipv6"])
def test_every_datagram_is_a_run_of_its_own_session(tmp_path, ends):
    one, two = ends
    packets = [sent(one, two, b"a"), sent(one, two, b"b"), sent(two, one, b"c"), sent(one, two, b"d")]
    blocks = read_packets(tmp_path, *packets)
    (flow,) = blocks[0].flows
    assert segments(blocks) == [
        (flow.session_id, 1, b"a"),
        (flow.session_id, 1, b"b"),
        (flow.session_id, 0, b"c"),
        (flow.session_id, 1, b"d"),
    ]
    assert (flow.protocol, flow.transport, flow.known_by, flow.observer_kind) == ("emp", "udp", "port", "wire")
    assert (flow.client.port, flow.server.port) == (40000, 5040)
    assert [piece[2] for piece in blocks[0].origins.tolist()] == [TS, TS + 1000, TS + 2000, TS + 3000]
    assert accounts(blocks)["headers", "link, ip and udp"] == sum(map(len, packets)) - 4
    assert events(blocks) == []


def test_datagrams_of_two_windows_stay_apart(tmp_path):
    packets = [sent(ONE, TWO, b"a"), sent(ONE, TWO, b"b")]
    for window in (1, 60, 8 << 20):
        assert [data for *_, data in segments(read_packets(tmp_path, *packets, window=window))] == [b"a", b"b"]


def test_a_known_port_tells_the_server_whoever_speaks_first(tmp_path):
    blocks = read_packets(tmp_path, sent(TWO, ONE, b"x"))
    assert [(to_server, data) for _, to_server, data in segments(blocks)] == [(0, b"x")]
    assert blocks[0].flows[0].client == Endpoint(*ONE)


@pytest.mark.parametrize("ports", [{40000: "emp", 5040: "emp"}, {}], ids=["both known", "none known"])
def test_without_a_port_that_tells_whoever_spoke_first_is_the_client(tmp_path, ports):
    for first, second in ((ONE, TWO), (TWO, ONE)):
        blocks = read_packets(tmp_path, sent(first, second, b"x"), sent(second, first, b"y"), ports=ports, sniff=lambda data: "emp")
        assert blocks[0].flows[0].client == Endpoint(*first)
        assert [to_server for _, to_server, _ in segments(blocks)] == [1, 0]


def test_a_session_has_the_same_id_whoever_is_seen_first(tmp_path):
    ids = [
        read_packets(tmp_path, sent(a, b, b"x"), ports={}, sniff=lambda data: "emp")[0].flows[0].session_id
        for a, b in ((ONE, TWO), (TWO, ONE))
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 16
    other = read_packets(tmp_path, sent(ONE, ("10.0.0.2", 5041), b"x"), ports={}, sniff=lambda data: "emp")
    assert other[0].flows[0].session_id != ids[0]


def test_a_protocol_is_known_from_the_datagram_on_that_tells_it(tmp_path):
    asked = []

    def sniff(data: bytes) -> str | None:
        asked.append(data)
        return "emp" if data == b"EMP" else None

    packets = [sent(ONE, TWO, data) for data in (b"what", b"EMP", b"more")] + [sent(TWO, ONE, b"back")]
    blocks = read_packets(tmp_path, *packets, ports={}, sniff=sniff)
    assert [(to_server, data) for _, to_server, data in segments(blocks)] == [(1, b"EMP"), (1, b"more"), (0, b"back")]
    assert asked == [b"what", b"EMP"]
    assert blocks[0].flows[0].known_by == "bytes"
    assert accounts(blocks)["other", "unrecognised"] == 4


def test_a_pair_nobody_knows_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(udp_flows, "UNDECIDED_DATAGRAMS", 3)
    asked = []
    blocks = read_packets(tmp_path, *[sent(ONE, TWO, b"what")] * 5, ports={}, sniff=asked.append)
    assert len(asked) == 3
    assert accounts(blocks)["other", "unrecognised"] == 20


def test_pairs_beyond_the_limit_are_forgotten_and_met_again(tmp_path, monkeypatch):
    monkeypatch.setattr(udp_flows, "MAX_PAIRS", 4)
    packets = [sent(("10.0.0.1", port), TWO, b"x") for port in range(100, 140)]
    blocks = read_packets(tmp_path, *packets, *packets)
    assert len(segments(blocks)) == 80
    assert len({session for session, *_ in segments(blocks)}) == 40


def test_an_empty_datagram_is_all_headers(tmp_path):
    packet = sent(ONE, TWO, b"")
    blocks = read_packets(tmp_path, packet)
    assert accounts(blocks)["headers", "link, ip and udp"] == len(packet)
    assert segments(blocks) == []


def test_who_talks_to_itself_is_read(tmp_path):
    blocks = read_packets(tmp_path, sent(TWO, TWO, b"x"), sent(TWO, TWO, b"y"))
    assert [(to_server, data) for _, to_server, data in segments(blocks)] == [(1, b"x"), (1, b"y")]


@pytest.mark.parametrize(("size", "read"), [(0, b"data"), (8, b""), (7, None), (12, b"data"), (11, b"dat"), (13, None)], ids=str)
def test_the_length_of_a_datagram_is_believed_only_inside_its_packet(tmp_path, size, read):
    packet = sent(ONE, TWO, b"data", size=size)
    blocks = read_packets(tmp_path, packet)
    if read is None:
        assert accounts(blocks)["other", "malformed packet"] == len(packet)
    else:
        assert b"".join(data for *_, data in segments(blocks)) == read
        assert accounts(blocks)["headers", "link, ip and udp"] == len(packet) - len(read)


def test_a_datagram_of_less_than_a_header_is_malformed(tmp_path):
    packet = ipv4("10.0.0.1", "10.0.0.2", bytes(7), protocol=17)
    assert accounts(read_packets(tmp_path, packet))["other", "malformed packet"] == len(packet)


def test_a_datagram_cut_by_the_snap_length_is_not_read_as_whole(tmp_path):
    packet = sent(ONE, TWO, b"data")
    for cut in (1, 4, 5, 12, 13, len(packet)):
        blocks = read_packets(tmp_path, packet, cut=cut)
        assert segments(blocks) == []
        assert accounts(blocks).get(("other", "cut by the snap length"), 0) == len(packet) - cut


def test_padding_after_a_datagram_is_not_read(tmp_path):
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap([(TS, ethernet(sent(ONE, TWO, b"data"), trailer=b"padding"))]))
    assert [data for *_, data in segments(read_checked(path))] == [b"data"]
