"""TCP flows: segments become connections, with client, server, protocol and events."""

from __future__ import annotations

import struct

import pytest
from tests.capture.build import (
    ACK,
    CLIENT,
    FIN,
    RST,
    SERVER,
    SYN,
    Talk,
    accounts,
    ether_type,
    ethernet,
    events,
    interface,
    ipv4,
    ipv6,
    packet_block,
    pcap,
    read_checked,
    said,
    section,
    talk_of,
    tcp,
)

from wirelake.capture.blocks.block import Endpoint
from wirelake.capture.packets import tcp_flows
from wirelake.capture.packets.tcp_flows import UNDECIDED_BYTES
from wirelake.capture.record.exported_pdu import LINK_EXPORTED, Tags, build

TS = 1_700_000_000_000_000
SEGMENT = tcp(40000, 5040, 77, 0, ACK, b"data", options=b"\1\1\1\1")
V4 = ipv4("10.0.0.1", "10.0.0.2", SEGMENT)
V6 = ipv6("6.1", "6.2", SEGMENT)


def read_packets(tmp_path, packets, *, link: int = 1, cut: int = 0, **options):
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap(packets, link=link, cut=cut))
    return read_checked(path, **options)


def segments_of(blocks) -> list[tuple[int, bytes, int]]:
    """(to server, bytes, missing before them) of every run."""
    return [(run[3], bytes(one.data[run[0] : run[1]]), run[4]) for one in blocks for run in one.segments.tolist()]


def items(blocks) -> dict[tuple[str, str], int]:
    counted: dict[tuple[str, str], int] = {}
    for one in blocks:
        for account in one.accounts:
            key = (account.category, account.reason)
            counted[key] = counted.get(key, 0) + account.items
    return counted


def read_talk(tmp_path, *talks: Talk, **options):
    frames = [frame for talk in talks for frame in talk.frames()]
    return read_packets(tmp_path, frames, **options)


@pytest.mark.parametrize("packet", [V4, V6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(
    ("link", "wrap"),
    [
        (1, ethernet),
        (1, lambda packet: ethernet(packet, vlans=[0x8100])),
        (1, lambda packet: ethernet(packet, vlans=[0x88A8, 0x8100])),
        (1, lambda packet: ethernet(packet, trailer=b"padding")),
        (113, lambda packet: bytes(14) + struct.pack(">H", ether_type(packet)) + packet),
        (276, lambda packet: struct.pack(">H", ether_type(packet)) + bytes(18) + packet),
        (101, lambda packet: packet),
        (0, lambda packet: struct.pack("<I", 2 if packet[0] >> 4 == 4 else 30) + packet),
        (0, lambda packet: struct.pack(">I", 2 if packet[0] >> 4 == 4 else 24) + packet),
        (108, lambda packet: struct.pack(">I", 2 if packet[0] >> 4 == 4 else 28) + packet),
    ],
)
def test_every_link_layer_leads_to_the_segment(tmp_path, packet, link, wrap):
    blocks = read_packets(tmp_path, [(TS, wrap(packet))], link=link)
    assert talk_of(blocks) == [(1, b"data")]
    assert blocks[0].flows[0].client == Endpoint("10.0.0.1" if packet is V4 else "2001:db8::1", 40000)
    assert accounts(blocks)["headers", "link, ip and tcp"] == len(wrap(packet)) - 4


def test_raw_ipv4_and_ipv6_have_their_own_link_types(tmp_path):
    assert talk_of(read_packets(tmp_path, [(TS, V4)], link=228)) == [(1, b"data")]
    assert talk_of(read_packets(tmp_path, [(TS, V6)], link=229)) == [(1, b"data")]
    assert accounts(read_packets(tmp_path, [(TS, V6)], link=228))["other", "malformed packet"] == len(V6)


def test_ip_options_and_extension_headers_are_passed_over(tmp_path):
    for packet in (
        ipv4("10.0.0.1", "10.0.0.2", SEGMENT, options=bytes(12)),
        ipv6("6.1", "6.2", SEGMENT, extensions=[0, 43, 60]),
        ipv4("10.0.0.1", "10.0.0.2", SEGMENT, total=0),
    ):
        assert talk_of(read_packets(tmp_path, [(TS, packet)], link=101)) == [(1, b"data")]


@pytest.mark.parametrize(
    ("packet", "link", "reason"),
    [
        (ethernet(V4, kind=0x0806), 1, "not ip"),
        (b"\x50" + bytes(30), 101, "not ip"),
        (struct.pack("<I", 7) + V4, 0, "not ip"),
        (V4, 147, "unknown link type"),
        (ipv4("10.0.0.1", "10.0.0.2", SEGMENT, protocol=1), 101, "neither tcp nor udp"),
        (ipv6("6.1", "6.2", SEGMENT, protocol=50), 101, "neither tcp nor udp"),
        (ipv4("10.0.0.1", "10.0.0.2", SEGMENT, total=19), 101, "malformed packet"),
        (ipv4("10.0.0.1", "10.0.0.2", SEGMENT[:19]), 101, "malformed packet"),
        (ipv4("10.0.0.1", "10.0.0.2", SEGMENT[:12] + b"\x40" + SEGMENT[13:]), 101, "malformed packet"),
        (ipv4("10.0.0.1", "10.0.0.2", SEGMENT[:12] + b"\xf0" + SEGMENT[13:]), 101, "malformed packet"),
        (b"", 101, "malformed packet"),
        (b"", 1, "malformed packet"),
        (ethernet(V4, vlans=[0x8100])[:17], 1, "malformed packet"),
    ],
)
def test_other_packets_are_accounted_for_by_what_they_are(tmp_path, packet, link, reason):
    blocks = read_packets(tmp_path, [(TS, packet)], link=link)
    assert accounts(blocks).get(("other", reason)) == len(packet)
    assert [account.items for one in blocks for account in one.accounts if account.reason == reason] == [1]


@pytest.mark.parametrize("packet", [V4, V6], ids=["ipv4", "ipv6"])
def test_of_a_packet_cut_by_the_snap_length_what_is_there_is_read(tmp_path, packet):
    for cut in range(1, len(packet) + 1):
        blocks = read_packets(tmp_path, [(TS, packet)], link=101, cut=cut)
        if cut <= 4:
            assert b"".join(data for _, data in talk_of(blocks)) == b"data"[: 4 - cut]
            assert accounts(blocks)["headers", "link, ip and tcp"] == len(packet) - 4
        else:
            assert accounts(blocks).get(("other", "cut by the snap length"), 0) == len(packet) - cut


def test_what_the_snap_length_cut_off_is_missing_before_what_comes_next(tmp_path):
    talk = Talk().open().say(0, b"abcdef").say(0, b"ghijkl")
    path = tmp_path / "cut.pcapng"
    frames = [frame for _, frame in talk.frames()]
    cut = [packet_block(TS, frame[:-2] if b"abcdef" in frame else frame, wire=len(frame)) for frame in frames]
    path.write_bytes(section() + interface() + b"".join(cut))
    blocks = read_checked(path)
    assert segments_of(blocks) == [(1, b"abcd", 0), (1, b"ghijkl", 2)]
    assert items(blocks)["gap", "bytes missing from a tcp stream"] == 1


def test_a_conversation_keeps_its_order_and_its_ends(tmp_path):
    blocks = read_talk(tmp_path, Talk().open().say(0, b"a").say(0, b"b").say(1, b"c").say(0, b"d").close())
    assert talk_of(blocks) == [(1, b"ab"), (0, b"c"), (1, b"d")]
    assert [run[:2] for run in blocks[0].segments.tolist()] == [[0, 2], [2, 3], [3, 4]]
    assert events(blocks) == [("opened", "client"), ("finished", "client"), ("finished", "server"), ("closed", "")]
    (flow,) = blocks[0].flows
    assert (flow.client, flow.server) == (Endpoint(*CLIENT), Endpoint(*SERVER))
    assert (flow.protocol, flow.known_by, flow.observer_kind, flow.transport) == ("emp", "port", "wire", "tcp")


def test_times_lead_back_to_their_own_packet(tmp_path):
    talk = Talk().say(0, b"a").say(0, b"b")
    assert [piece[2] for piece in read_talk(tmp_path, talk)[0].origins.tolist()] == [TS, TS + 1000]


def test_windows_of_any_size_give_the_same_flows(tmp_path):
    talk = Talk(("10.0.0.1", 1), ("10.0.0.2", 2)).open().say(0, b"q" * 50).say(1, b"emp" * 70).close()
    sniff = {b"emp" * 70: "emp"}.get
    expected = read_talk(tmp_path, talk, sniff=sniff)
    for window in (1, 90, 200):
        blocks = read_talk(tmp_path, talk, sniff=sniff, window=window)
        assert talk_of(blocks) == talk_of(expected) == [(1, b"q" * 50), (0, b"emp" * 70)]
        assert events(blocks) == events(expected)
        assert accounts(blocks) == accounts(expected)


def test_interleaved_flows_stay_apart(tmp_path):
    one, two = Talk().open(), Talk(("10.0.0.1", 40001)).open()
    one.say(0, b"a").say(0, b"b")
    two.say(0, b"x").say(1, b"y")
    frames = [frame for pair in zip(one.frames(), two.frames(), strict=True) for frame in pair]
    blocks = read_packets(tmp_path, frames)
    first, second = (flow.session_id for flow in blocks[0].flows)
    assert said(blocks) == [(first, 1, b"a"), (second, 1, b"x"), (first, 1, b"b"), (second, 0, b"y")]


@pytest.mark.parametrize("first", [1000, 2**32 - 3])
def test_repeated_bytes_are_retransmission_and_only_new_ones_are_read(tmp_path, first):
    talk = Talk(first=first).open()
    talk.say(0, b"abcd")
    talk.segment(0, ACK, b"abcd", seq=first + 1)
    talk.segment(0, ACK, b"cdef", seq=first + 3)  # half of it is new
    talk.segment(0, ACK, b"x", seq=first)  # a keep-alive probe
    talk.next[0] += 2
    talk.say(0, b"gh")
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(1, b"abcdefgh")]
    assert accounts(blocks)["other", "retransmission"] == 4 + 2 + 1


def test_a_capture_that_starts_in_mid_stream_is_read_from_its_first_segment(tmp_path):
    talk = Talk().say(1, b"answer").say(0, b"next")
    talk.segment(0, ACK, b"before", seq=990)  # never seen, and too late now
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(0, b"answer"), (1, b"next")]
    assert events(blocks) == []
    assert [stretch.raw for stretch in blocks[0].unreadable] == [b"before"]


@pytest.mark.parametrize(
    ("source", "destination", "ports", "client"),
    [(5040, 40000, {5040: "emp"}, 40000), (5040, 80, {5040: "emp"}, 80), (9, 8, {9: "emp", 8: "emp"}, 9), (8, 9, {9: "emp", 8: "emp"}, 9)],
)
def test_without_a_syn_ports_tell_the_client(tmp_path, source, destination, ports, client):
    blocks = read_talk(tmp_path, Talk(("10.0.0.1", source), ("10.0.0.2", destination)).say(0, b"x"), ports=ports)
    assert blocks[0].flows[0].client.port == client


def test_the_syn_tells_the_client_against_all_ports(tmp_path):
    ends = ("10.0.0.1", 5040), ("10.0.0.2", 40000)
    assert read_talk(tmp_path, Talk(*ends).open().say(0, b"x"))[0].flows[0].client.port == 5040
    answer = Talk(*ends)
    answer.segment(1, SYN | ACK)
    answer.say(1, b"x")
    assert read_talk(tmp_path, answer)[0].flows[0].client.port == 5040


def test_a_new_syn_on_the_same_ports_is_a_new_session(tmp_path):
    again = Talk(first=900_000, ts=TS + 10**6).open().say(0, b"two")
    blocks = read_talk(tmp_path, Talk().open().say(0, b"one").close(), again)
    (one, _, first), (two, _, second) = said(blocks)
    assert (first, second) == (b"one", b"two")
    assert one != two
    assert [what for what, _ in events(blocks)].count("opened") == 2


def test_a_syn_after_a_mid_stream_answer_is_a_new_session(tmp_path):
    blocks = read_talk(tmp_path, Talk(first=700_000).say(1, b"old"), Talk().open().say(0, b"new"))
    (one, _, _), (two, to_server, second) = said(blocks)
    assert (one != two, to_server, second) == (True, 1, b"new")
    assert [(event.what, blocks[0].flows[event.flow].session_id) for event in blocks[0].events] == [("opened", two)]


def test_a_repeated_syn_is_the_same_session(tmp_path):
    talk = Talk()
    talk.segment(0, SYN, seq=1000)
    talk.open().say(0, b"x")
    talk.segment(0, SYN, seq=1000)
    talk.segment(1, SYN | ACK, seq=5_001_000)
    talk.say(0, b"y")
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(1, b"xy")]
    assert events(blocks) == [("opened", "client")]


def test_a_session_has_the_same_id_in_every_capture_of_it(tmp_path):
    ids = [read_talk(tmp_path, Talk(ts=ts).open().say(0, b"x"))[0].flows[0].session_id for ts in (TS, TS + 5)]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 16
    answered = Talk()
    answered.next[0] += 1
    answered.segment(1, SYN | ACK)
    answered.say(0, b"x")
    assert read_talk(tmp_path, answered)[0].flows[0].session_id == ids[0]


def test_a_reset_is_told_and_its_text_is_not_read(tmp_path):
    talk = Talk().open().say(0, b"x")
    talk.segment(1, RST, b"go away")
    talk.segment(1, RST)
    talk.segment(0, FIN)
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(1, b"x")]
    assert events(blocks) == [("opened", "client"), ("reset", "server"), ("finished", "client")]
    assert accounts(blocks)["other", "text of a reset"] == 7


def test_a_protocol_known_by_its_bytes_gives_all_that_was_held(tmp_path):
    talk = Talk(("10.0.0.1", 1), ("10.0.0.2", 2)).open().say(1, b"banner").say(0, b"E").say(0, b"MP").say(0, b"rest")
    asked = []

    def sniff(data: bytes) -> str | None:
        asked.append(data)
        return "emp" if data.startswith(b"EMP") else None

    blocks = read_talk(tmp_path, talk, sniff=sniff)
    assert talk_of(blocks) == [(0, b"banner"), (1, b"EMPrest")]
    assert events(blocks) == [("opened", "client")]
    assert blocks[0].flows[0].known_by == "bytes"
    assert asked == [b"banner", b"E", b"EMP"]


def test_a_flow_nobody_knows_is_accounted_as_unrecognised(tmp_path):
    talk = Talk(("10.0.0.1", 1), ("10.0.0.2", 2)).open().say(0, b"what").say(1, b"ever").close()
    blocks = read_talk(tmp_path, talk)
    assert accounts(blocks)["other", "unrecognised"] == 8
    assert events(blocks) == []


def test_no_more_than_the_limit_is_held_of_a_flow_nobody_knows(tmp_path):
    talk = Talk(("10.0.0.1", 1), ("10.0.0.2", 2)).open()
    for _ in range(20):
        talk.say(0, bytes(UNDECIDED_BYTES // 8))
    asked = []
    blocks = read_talk(tmp_path, talk, sniff=asked.append)
    assert len(asked) == 9
    assert max(len(data) for data in asked) == UNDECIDED_BYTES
    assert accounts(blocks)["other", "unrecognised"] == 20 * (UNDECIDED_BYTES // 8)


def test_forgotten_flows_are_accounted_for_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tcp_flows, "MAX_FLOWS", 4)
    talks = [Talk(("10.0.0.1", port), ("10.0.0.2", 2)).open().say(0, b"what") for port in range(100, 140)]
    assert accounts(read_talk(tmp_path, *talks))["other", "unrecognised"] == 4 * 40
    monkeypatch.setattr(tcp_flows, "UNDECIDED_TOTAL", 10)
    assert accounts(read_talk(tmp_path, *talks))["other", "unrecognised"] == 4 * 40


def test_exported_pdus_of_others_are_known_by_tag_or_port(tmp_path):
    def path(*records: bytes):
        made = tmp_path / "foreign.pcapng"
        made.write_bytes(section(">") + interface(LINK_EXPORTED, ">") + b"".join(packet_block(TS, one, ">") for one in records))
        return made

    ends = {"source": "10.0.0.2", "destination": "10.0.0.1", "port_type": 2, "source_port": 5040, "destination_port": 40000}
    tagged = build(Tags(dissector="yamp", **ends)) + b"tagged"
    by_port = build(Tags(**ends)) + b"ported"
    unknown = build(Tags(source="10.0.0.1", destination="10.0.0.2")) + b"what"
    blocks = read_checked(path(tagged, by_port, unknown, b"\0\x0c\xff"))
    assert [(to_server, data) for _, to_server, data in said(blocks)] == [(0, b"tagged"), (0, b"ported")]
    assert [(flow.protocol, flow.known_by, flow.observer_kind) for flow in blocks[0].flows] == [
        ("yamp", "tag", "wire"),
        ("emp", "port", "wire"),
    ]
    assert accounts(blocks)["other", "unrecognised"] == 4
    assert accounts(blocks)["quarantine", "tags do not end"] == 3
    assert [data for *_, data in said(read_checked(path(tagged), protocols={"emp"}))] == []


@pytest.mark.parametrize("end", ["source_port", "destination_port"])
@pytest.mark.parametrize("port", [65536, 5040 | 1 << 31, 0xFFFFFFFF])
def test_a_record_whose_port_cannot_be_one_is_quarantined_alone(tmp_path, end, port):
    """One flipped bit in a tag that has four bytes for a port."""
    ends = {"source": "10.0.0.2", "destination": "10.0.0.1", "port_type": 2, "source_port": 65535, "destination_port": 5040}
    good = build(Tags(dissector="emp", **ends)) + b"good"
    bad = build(Tags(dissector="emp", **ends | {end: port})) + b"bad"
    path = tmp_path / "a.pcapng"
    path.write_bytes(section() + interface(LINK_EXPORTED) + b"".join(packet_block(TS, one) for one in (good, bad, good, bad)))
    blocks = read_checked(path)
    assert [data for *_, data in said(blocks)] == [b"goodgood"]
    assert accounts(blocks)["quarantine", "port over 65535"] == 2 * len(bad)
    assert [one.raw for block in blocks for one in block.unreadable] == [bad, bad]


def test_a_file_may_hold_recordings_and_packets(tmp_path):
    path = tmp_path / "mixed.pcapng"
    record = build(Tags(dissector="emp")) + b"recorded"
    frame = ethernet(Talk().segment(0, ACK, b"captured"))
    path.write_bytes(
        section() + interface(LINK_EXPORTED) + interface(1) + packet_block(TS, frame, number=1) + packet_block(TS, record, number=0)
    )
    assert sorted(data for *_, data in said(read_checked(path))) == [b"captured", b"recorded"]


def test_a_recorded_payload_cut_by_the_snap_length_is_quarantined(tmp_path):
    path = tmp_path / "cut.pcapng"
    record = build(Tags(dissector="emp")) + b"recorded"
    path.write_bytes(section() + interface(LINK_EXPORTED) + packet_block(TS, record) + packet_block(TS, record[:-1], wire=len(record)))
    blocks = read_checked(path)
    assert talk_of(blocks) == [(1, b"recorded")]
    assert accounts(blocks)["quarantine", "cut by the snap length"] == len(record) - 1


def test_ports_used_again_by_a_flow_nobody_knows_lose_no_byte(tmp_path):
    ends = ("10.0.0.1", 1), ("10.0.0.2", 2)
    blocks = read_talk(tmp_path, Talk(*ends).open().say(0, b"one"), Talk(*ends, first=900_000).open().say(0, b"three"))
    assert accounts(blocks)["other", "unrecognised"] == 8


def test_when_too_much_is_held_of_all_flows_new_ones_are_decided_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tcp_flows, "UNDECIDED_TOTAL", 10)
    talks = [Talk(("10.0.0.1", port), ("10.0.0.2", 2)).open().say(0, b"what").say(0, b"else") for port in (7, 8, 9)]
    asked = []
    read_talk(tmp_path, *talks, sniff=asked.append)
    assert asked == [b"what", b"whatelse", b"what", b"what"]


def test_a_repeated_fin_is_told_once(tmp_path):
    talk = Talk().open().say(0, b"x").close()
    talk.segment(0, FIN | ACK, seq=1002)
    assert [what for what, _ in events(read_talk(tmp_path, talk))] == ["opened", "finished", "finished", "closed"]
