"""IP fragments: datagrams are reassembled, and every byte of them is accounted for."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from tests.capture.build import ACK, CLIENT, SERVER, Talk, accounts, events, fragment_v4, fragment_v6, ipv4, ipv6, tcp, udp
from tests.capture.test_tcp_flows import TS, read_packets
from tests.capture.test_udp_flows import segments
from tests.cases import seeds

from wirelake.capture.packets import ip_fragments

BODY = bytes(range(100))
V4 = ipv4(CLIENT[0], SERVER[0], udp(40000, 5040, BODY), protocol=17)
V6 = ipv6("6.1", "6.2", udp(40000, 5040, BODY), protocol=17)
PARTS = {"ipv4": fragment_v4(V4, [24, 64]), "ipv6": fragment_v6(V6, [24, 64])}


def read_parts(tmp_path, parts: list[bytes], step: int = 1000, **options):
    return read_packets(tmp_path, [(TS + step * number, part) for number, part in enumerate(parts)], link=101, **options)


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_parts_in_any_order_make_the_datagram(tmp_path, parts):
    for order in permutations(parts):
        for window in (1, 8 << 20):
            blocks = read_parts(tmp_path, list(order), window=window)
            assert [data for *_, data in segments(blocks)] == [BODY]
            assert {piece[2] for one in blocks for piece in one.origins.tolist()} == {TS + 2000}  # there when its last part is
            assert accounts(blocks)["headers", "udp of a fragmented datagram"] == 8


@pytest.mark.parametrize("cuts", [[8], [8, 16, 24, 32, 40, 48, 56], [96]])
def test_headers_and_payload_may_be_cut_anywhere(tmp_path, cuts):
    assert [data for *_, data in segments(read_parts(tmp_path, fragment_v4(V4, cuts)))] == [BODY]
    segment = ipv4(CLIENT[0], SERVER[0], tcp(40000, 5040, 77, 0, ACK, BODY))
    blocks = read_parts(tmp_path, fragment_v4(segment, cuts))
    assert b"".join(data for *_, data in segments(blocks)) == BODY
    assert accounts(blocks)["headers", "tcp of a fragmented datagram"] == 20


def test_a_fragmented_segment_takes_its_place_in_the_stream(tmp_path):
    talk = Talk().open().say(0, bytes(50)).say(0, BODY).say(0, b"after").close()
    packets = []
    for ts, packet in talk.packets:
        packets += [(ts, part) for part in (fragment_v4(packet, [48, 96]) if BODY in packet else [packet])]
    blocks = read_packets(tmp_path, packets, link=101)
    assert b"".join(data for *_, data in segments(blocks)) == bytes(50) + BODY + b"after"
    assert [what for what, _ in events(blocks)] == ["opened", "finished", "finished", "closed"]


def test_a_syn_and_a_fin_in_parts_count_once(tmp_path):
    opening = ipv4(CLIENT[0], SERVER[0], tcp(40000, 5040, 999, 0, 2, BODY))
    closing = ipv4(CLIENT[0], SERVER[0], tcp(40000, 5040, 1100, 0, 17, BODY))
    blocks = read_parts(tmp_path, fragment_v4(opening, [48], 1) + fragment_v4(closing, [48], 2))
    assert b"".join(data for *_, data in segments(blocks)) == BODY + BODY
    assert events(blocks) == [("opened", "client"), ("finished", "client")]
    bare = ipv4(CLIENT[0], SERVER[0], tcp(40000, 5040, 999, 0, 2, b"", options=bytes(12)))
    assert events(read_parts(tmp_path, fragment_v4(bare, [16]))) == [("opened", "client")]


def test_overlapping_parts_count_once_and_the_first_wins(tmp_path):
    first, second, third = PARTS["ipv4"]
    wrong = second[:20] + bytes(len(second) - 20)
    blocks = read_parts(tmp_path, [first, second, wrong, second, third])
    assert [data for *_, data in segments(blocks)] == [BODY]
    assert accounts(blocks)["other", "repeated fragment"] == 2 * (len(second) - 20)
    wide = fragment_v4(V4, [16, 80])
    for order in permutations([first, third, wide[1]]):
        assert [data for *_, data in segments(read_parts(tmp_path, list(order)))] == [BODY]


@pytest.mark.parametrize("lost", range(3))
def test_a_datagram_that_stays_incomplete_is_accounted_for(tmp_path, lost):
    parts = [part for number, part in enumerate(PARTS["ipv4"]) if number != lost]
    blocks = read_parts(tmp_path, parts)
    assert segments(blocks) == []
    assert accounts(blocks)["other", "incomplete datagram"] == sum(len(part) - 20 for part in parts)


def test_parts_that_are_too_far_apart_in_time_are_two_datagrams(tmp_path):
    first, second, third = PARTS["ipv4"]
    blocks = read_parts(tmp_path, [first, second, third], step=ip_fragments.MAX_AGE + 1)
    assert segments(blocks) == []
    assert accounts(blocks)["other", "incomplete datagram"] == 108


def test_parts_that_are_too_far_apart_in_their_file_are_two_datagrams(tmp_path, monkeypatch):
    monkeypatch.setattr(ip_fragments, "REACH", 500)
    first, second, third = PARTS["ipv4"]
    other = ipv4("10.0.0.8", "10.0.0.9", bytes(30), protocol=1)
    assert [data for *_, data in segments(read_parts(tmp_path, [first, second, *[other] * 4, third]))] == [BODY]
    blocks = read_parts(tmp_path, [first, second, *[other] * 8, third])
    assert segments(blocks) == []
    assert accounts(blocks)["other", "incomplete datagram"] == 108


def test_parts_of_two_datagrams_do_not_mix(tmp_path):
    other = fragment_v4(ipv4(CLIENT[0], SERVER[0], udp(40000, 5040, BODY[::-1]), protocol=17), [24, 64], 100)
    mixed = [part for pair in zip(PARTS["ipv4"], other, strict=True) for part in pair]
    assert [data for *_, data in segments(read_parts(tmp_path, mixed))] == [BODY, BODY[::-1]]


def test_only_so_many_datagrams_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(ip_fragments, "MAX_WAITING", 3)
    started = [fragment_v4(V4, [24], number)[0] for number in range(10)]
    ended = [fragment_v4(V4, [24], number)[1] for number in range(10)]
    assert len(segments(read_parts(tmp_path, started + ended[7:]))) == 3
    assert segments(read_parts(tmp_path, started + ended[:7])) == []


def test_of_other_protocols_and_broken_datagrams_nothing_is_read(tmp_path):
    ping = fragment_v4(ipv4(CLIENT[0], SERVER[0], BODY, protocol=1), [24])
    assert accounts(read_parts(tmp_path, ping))["other", "neither tcp nor udp"] == 100
    broken = fragment_v4(ipv4(CLIENT[0], SERVER[0], udp(1, 2, BODY, size=500), protocol=17), [24])
    assert accounts(read_parts(tmp_path, broken))["other", "malformed packet"] == 108


def test_parts_beyond_the_end_of_a_datagram_spoil_it(tmp_path):
    parts = fragment_v4(V4, [24, 64])
    shorter = fragment_v4(ipv4(CLIENT[0], SERVER[0], V4[20:84], protocol=17), [24])
    blocks = read_parts(tmp_path, [shorter[1], parts[2], parts[0]])
    assert segments(blocks) == []
    assert accounts(blocks)["other", "incomplete datagram"] == 108


def test_no_fragment_reaches_beyond_the_largest_datagram(tmp_path):
    head = fragment_v4(V4, [24])[1]
    far = head[:6] + (0x1FFF).to_bytes(2, "big") + head[8:]
    assert accounts(read_parts(tmp_path, [far]))["other", "malformed packet"] == len(far)


@pytest.mark.parametrize("seed", seeds(5, quick=1))
def test_no_shuffle_of_parts_breaks_the_sum(tmp_path, seed):
    dice = random.Random(seed)
    for _ in range(40):
        parts = [part for number in range(3) for part in fragment_v4(V4, sorted(dice.sample(range(8, 104, 8), 3)), number % 2)]
        dice.shuffle(parts)
        read_parts(tmp_path, parts[: dice.randint(1, len(parts))], window=dice.choice([1, 500]))
