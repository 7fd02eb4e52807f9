"""TCP reassembly: segments in any order, retransmitted or overlapping, give one stream; gaps are reported."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.capture.build import ACK, FIN, PSH, SYN, Talk, accounts, events, said, talk_of
from tests.capture.test_tcp_flows import items, read_packets, read_talk, segments_of
from tests.cases import examples

from wirelake.capture.packets import tcp_flows, tcp_stream
from wirelake.capture.packets.tcp_stream import DISPUTED, EARLY, FRESH, LATE, REPEATED, UNKNOWN, Budget, Half


def place(half: Half, sequence: int, chunk: bytes, ts: int = 0, offset: int = 0) -> list[tuple[str, bytes, int]]:
    return [(bit.what, bit.chunk, bit.missing) for bit in half.place(sequence % 2**32, ts, offset, chunk)]


def opened(first: int = 1000) -> Half:
    half = Half(Budget())
    half.opens_at(first)
    return half


@pytest.mark.parametrize("first", [0, 1000, 2**32 - 3, 2**31 - 2])
def test_segments_in_any_order_give_the_stream(first):
    text = bytes(range(60))
    dice = random.Random(first)
    for _ in range(200):
        half = opened(first)
        cuts = sorted(dice.sample(range(1, 60), dice.randint(0, 12)))
        segments = list(zip([0, *cuts], [*cuts, 60], strict=True))
        segments += dice.choices(segments, k=3)  # some come twice
        dice.shuffle(segments)
        bits = [bit for start, stop in segments for bit in place(half, first + start, text[start:stop])]
        assert b"".join(chunk for what, chunk, _ in bits if what == FRESH) == text
        assert all(missing == 0 for what, _, missing in bits if what == FRESH)
        assert {what for what, *_ in bits} <= {FRESH, REPEATED}
        assert sum(len(chunk) for _, chunk, _ in bits) == sum(stop - start for start, stop in segments)
        assert not half.is_waiting


@given(st.data())
@examples(200)
def test_a_stream_is_what_an_obvious_twin_says(data):
    """A twin that holds every byte by its position, the first one counting."""
    half = opened(5)
    seen: dict[int, int] = {}
    given_out = bytearray()
    for _ in range(data.draw(st.integers(1, 20))):
        start = data.draw(st.integers(0, 40))
        chunk = data.draw(st.binary(min_size=1, max_size=12))
        for position, value in enumerate(chunk, start):
            seen.setdefault(position, value)
        bits = place(half, 5 + start, chunk)
        for what, part, missing in bits:
            if what == FRESH:
                assert missing == 0
                given_out += part
        expected = bytearray()
        while len(expected) in seen:
            expected.append(seen[len(expected)])
        assert given_out == expected


def test_what_lies_behind_a_gap_waits_until_the_gap_is_filled():
    half = opened()
    assert place(half, 1003, b"def") == []
    assert half.is_waiting
    assert place(half, 1000, b"abc") == [(FRESH, b"abc", 0), (FRESH, b"def", 0)]
    assert not half.is_waiting


def test_each_byte_keeps_the_time_and_place_of_its_own_segment():
    half = opened()
    half.place(1003, 7, 700, b"def")
    bits = half.place(1000, 8, 800, b"abcde")  # the end of it was there already
    assert [(bit.what, bit.ts, bit.offset, bit.chunk) for bit in bits] == [
        (REPEATED, 8, 803, b"de"),
        (FRESH, 8, 800, b"abc"),
        (FRESH, 7, 700, b"def"),
    ]


def test_a_gap_is_declared_when_asked_for_and_what_fills_it_then_is_late():
    half = opened()
    place(half, 1005, b"later")
    assert [(bit.what, bit.chunk, bit.missing) for bit in half.skip()] == [(FRESH, b"later", 5)]
    assert half.skip() == []
    assert place(half, 1000, b"early") == [(LATE, b"early", 0)]
    assert place(half, 1003, b"lylat") == [(LATE, b"ly", 0), (REPEATED, b"lat", 0)]
    assert place(half, 1010, b"on") == [(FRESH, b"on", 0)]


def test_a_gap_is_declared_when_too_much_waits(monkeypatch):
    monkeypatch.setattr(tcp_stream, "MAX_AHEAD", 10)
    half = opened()
    assert place(half, 1005, b"12345") == []
    assert place(half, 1020, b"67890") == []
    assert place(half, 1030, b"x") == [(FRESH, b"12345", 5)]
    monkeypatch.setattr(tcp_stream, "MAX_AHEAD_SEGMENTS", 1)
    assert place(half, 1040, b"y") == [(FRESH, b"67890", 10), (FRESH, b"x", 5)]


def test_two_gaps_in_a_row_are_told_one_by_one():
    half = opened()
    place(half, 1002, b"b")
    place(half, 1005, b"c")
    assert [(bit.chunk, bit.missing) for bit in half.skip()] == [(b"b", 2)]
    assert [(bit.chunk, bit.missing) for bit in half.skip()] == [(b"c", 2)]


@pytest.mark.parametrize("first", [1000, 2**32 - 4])
def test_a_retransmission_that_says_something_else_is_disputed(first):
    half = opened(first)
    assert place(half, first, b"abcdef") == [(FRESH, b"abcdef", 0)]
    assert place(half, first + 2, b"cd") == [(REPEATED, b"cd", 0)]
    assert place(half, first + 2, b"cX") == [(DISPUTED, b"cX", 0)]
    assert place(half, first + 4, b"efgh") == [(REPEATED, b"ef", 0), (FRESH, b"gh", 0)]
    assert place(half, first + 7, b"Z") == [(REPEATED, b"Z", 0)]  # a keep-alive may carry anything
    assert place(half, first + 20, b"wait") == []
    assert place(half, first + 19, b"XwaiX") == [(DISPUTED, b"waiX", 0)]


def test_only_so_much_is_remembered_for_disputes(monkeypatch):
    monkeypatch.setattr(tcp_stream, "REMEMBERED", 8)
    budget = Budget()
    half = Half(budget)
    half.opens_at(0)
    for number in range(100):
        assert half.follows(number * 4, b"abcd")
        assert budget.remembered <= 12
    assert place(half, 392, b"XXXX") == [(DISPUTED, b"XXXX", 0)]
    assert place(half, 100, b"XXXX") == [(REPEATED, b"XXXX", 0)]
    half.forget()
    assert budget.remembered == 0
    assert place(half, 392, b"XXXX") == [(REPEATED, b"XXXX", 0)]


def test_a_stream_seen_from_the_middle_says_so_and_quarantines_what_came_before():
    half = Half(Budget())
    assert place(half, 500, b"mid") == [(FRESH, b"mid", UNKNOWN)]
    assert place(half, 503, b"dle") == [(FRESH, b"dle", 0)]
    assert place(half, 496, b"beforemid"[:7]) == [(EARLY, b"befo", 0), (DISPUTED, b"rem", 0)]


def test_what_was_cut_off_is_not_waited_for():
    half = opened()
    place(half, 1000, b"abc")
    half.lose(1003, 7)
    assert place(half, 1010, b"next") == [(FRESH, b"next", 7)]
    half.lose(1014, 2)
    assert place(half, 1020, b"behind another gap") == []
    assert [(bit.chunk, bit.missing) for bit in half.skip()] == [(b"behind another gap", 6)]
    place(half, 1050, b"waits")
    half.lose(1038, 6)  # something waits already: it may still be found
    assert half.is_waiting


def test_the_budget_knows_what_waits():
    budget = Budget()
    half = Half(budget)
    half.opens_at(0)
    place(half, 10, b"12345")
    place(half, 12, b"3456789")
    assert budget.ahead == 9
    half.skip()
    assert budget.ahead == 0


def lossy(seed: int, text: bytes) -> tuple[Talk, list]:
    """A talk whose segments come reordered and repeated, and its frames."""
    dice = random.Random(seed)
    talk = Talk(first=dice.choice([1000, 2**32 - 20])).open()
    at = 0
    while at < len(text):
        size = dice.randint(1, 9)
        talk.say(0, text[at : at + size])
        at += size
    frames = talk.frames()
    head, body = frames[:3], frames[3:]
    body += dice.choices(body, k=5)
    dice.shuffle(body)
    return talk, head + body


@pytest.mark.parametrize("seed", range(8))
def test_a_capture_of_a_shuffled_connection_is_read_in_order(tmp_path, seed):
    text = bytes(random.Random(seed).randbytes(200))
    _, frames = lossy(seed, text)
    for window in (1, 300, 8 << 20):
        blocks = read_packets(tmp_path, frames, window=window)
        assert b"".join(data for _, data in talk_of(blocks)) == text
        assert all(run[4] == 0 for one in blocks for run in one.segments.tolist())


def test_a_loss_is_told_and_both_directions_are_read_on(tmp_path):
    talk = Talk().open().say(0, b"abc")
    talk.next[0] += 5  # lost
    talk.say(0, b"later").say(1, b"answer")
    talk.segment(0, ACK, b"abc", seq=1001)
    blocks = read_talk(tmp_path, talk)
    assert segments_of(blocks) == [(1, b"abc", 0), (0, b"answer", 0), (1, b"later", 5)]
    assert accounts(blocks)["other", "retransmission"] == 3
    assert items(blocks)["gap", "bytes missing from a tcp stream"] == 1


def test_a_loss_that_is_found_again_costs_nothing(tmp_path):
    talk = Talk().open().say(0, b"abc")
    talk.next[0] += 5
    talk.say(0, b"later").say(1, b"answer")
    talk.segment(0, ACK, b"lost!", seq=1004)
    blocks = read_talk(tmp_path, talk)
    assert segments_of(blocks) == [(1, b"abc", 0), (0, b"answer", 0), (1, b"lost!later", 0)]
    assert not [key for key in accounts(blocks) if key[0] in ("gap", "quarantine")]


def test_a_dispute_goes_to_quarantine_and_the_first_counts(tmp_path):
    talk = Talk().open().say(0, b"abcdef")
    talk.segment(0, ACK, b"cXef", seq=1003)
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(1, b"abcdef")]
    assert [(s.layer, s.reason, s.raw) for s in blocks[0].unreadable] == [("tcp", "retransmission says something else", b"cXef")]


def test_a_keep_alive_is_no_news(tmp_path):
    talk = Talk().open().say(0, b"abc")
    talk.segment(0, ACK, b"\0", seq=1003)
    talk.segment(0, ACK, b"", seq=1003)
    talk.say(0, b"def")
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(1, b"abcdef")]
    assert accounts(blocks)["other", "retransmission"] == 1
    assert not blocks[0].unreadable


def test_a_probe_of_a_zero_window_is_data_that_comes_again(tmp_path):
    talk = Talk().open().say(0, b"abc")
    talk.segment(0, ACK, b"d", seq=1004)
    talk.say(0, b"def")
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(1, b"abcdef")]


def test_data_with_the_syn_and_with_the_fin_is_read(tmp_path):
    talk = Talk()
    talk.segment(0, SYN, b"fast")
    talk.segment(1, SYN | ACK)
    talk.segment(0, FIN | ACK, b"bye")
    blocks = read_talk(tmp_path, talk)
    assert talk_of(blocks) == [(1, b"fastbye")]
    assert events(blocks) == [("opened", "client"), ("finished", "client")]


def test_a_second_answer_to_the_same_syn_changes_nothing(tmp_path):
    talk = Talk().open().say(0, b"ask")
    talk.segment(1, SYN | ACK, seq=77)
    talk.say(1, b"answer")
    # Its acknowledgement is that of the SYN, as in the first answer.
    frames = talk.frames()
    again = bytearray(frames[4][1])
    again[14 + 20 + 8 : 14 + 20 + 12] = (1001).to_bytes(4, "big")
    frames[4] = (frames[4][0], bytes(again))
    blocks = read_packets(tmp_path, frames)
    assert talk_of(blocks) == [(1, b"ask"), (0, b"answer")]
    assert events(blocks) == [("opened", "client")]


def test_data_before_its_syn_is_the_same_session(tmp_path):
    talk = Talk().open().say(0, b"ask")
    frames = talk.frames()
    blocks = read_packets(tmp_path, [frames[3], *frames[:3]])
    assert [(to_server, data) for _, to_server, data in said(blocks)] == [(1, b"ask")]


def test_after_a_close_numbers_far_away_are_another_connection(tmp_path):
    one = Talk().open().say(0, b"one").close()
    two = Talk(first=900_000_000)
    two.segment(0, ACK | PSH, b"two")
    spoken = said(read_talk(tmp_path, one, two))
    assert [data for *_, data in spoken] == [b"one", b"two"]
    assert spoken[0][0] != spoken[1][0]


def test_what_waits_in_all_flows_together_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(tcp_flows, "HELD_TOTAL", 1000)
    talks = []
    for port in range(100):
        talk = Talk(("10.0.0.1", 1000 + port)).open()
        talk.next[0] += 5
        talks.append(talk.say(0, bytes(100)))
    blocks = read_talk(tmp_path, *talks, window=4000)
    assert sum(len(data) for *_, data in said(blocks)) == 100 * 100
    assert items(blocks)["gap", "bytes missing from a tcp stream"] == 100
    assert len(blocks) > 3  # given out on the way, not at the end


def test_what_waits_of_a_flow_nobody_knows_is_accounted_for(tmp_path):
    talk = Talk(("10.0.0.1", 1), ("10.0.0.2", 2)).open()
    talk.next[0] += 5
    talk.say(0, b"what")
    assert accounts(read_talk(tmp_path, talk))["other", "unrecognised"] == 4


def test_a_protocol_may_be_known_by_what_comes_after_a_gap(tmp_path):
    talk = Talk(("10.0.0.1", 1), ("10.0.0.2", 2)).open().say(0, b"E")
    talk.next[0] += 5
    talk.say(0, b"EMP")
    blocks = read_talk(tmp_path, talk, sniff=lambda data: "emp" if data == b"EMP" else None)
    assert segments_of(blocks) == [(1, b"E", 0), (1, b"EMP", 5)]


def test_forgotten_flows_give_out_what_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(tcp_flows, "MAX_FLOWS", 4)
    talks = []
    for port in range(20):
        talk = Talk(("10.0.0.1", 1000 + port)).open()
        talk.next[0] += 5
        talks.append(talk.say(0, b"what"))
    assert sum(len(data) for *_, data in said(read_talk(tmp_path, *talks))) == 80
