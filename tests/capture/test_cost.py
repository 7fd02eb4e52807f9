"""Cost is linear: twice the packets take about twice the work, counted in lines and bytes copied."""

from __future__ import annotations

import pytest
from tests.capture.build import CLIENT, SERVER, Talk, fragment_v4, ipv4, pcap, read_checked, udp
from tests.line_count import lines_run
from tests.protocols.test_websocket import REQUEST, frame

from wirelake import protocols
from wirelake.capture.packets import ip_fragments, tcp_flows, tcp_stream
from wirelake.protocols import websocket

ABOUT_TWICE = 2.3


def segments(count: int) -> list[tuple[int, bytes]]:
    """Frames of a connection that says so many times 8 bytes."""
    talk = Talk().open()
    for number in range(count):
        talk.say(0, b"%08d" % number)
    return talk.frames()


def twice_each(count):
    return [frame for frame in segments(count) for _ in range(2)]


def twice_in_turn(count):
    return segments(count) * 2


def first_lost(count):
    head, rest = segments(count)[:3], segments(count)[4:]
    return head + rest


def first_lost_and_backwards(count):
    head, rest = segments(count)[:3], segments(count)[4:]
    return head + rest[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("made", [twice_each, twice_in_turn, first_lost, first_lost_and_backwards])
def test_twice_the_segments_take_twice_the_work(tmp_path, made):
    def work(count: int) -> int:
        path = tmp_path / f"{count}.pcap"
        path.write_bytes(pcap(made(count)))
        return lines_run(lambda: read_checked(path), tcp_stream, tcp_flows)

    assert work(600) < ABOUT_TWICE * work(300)


@pytest.mark.parametrize("step", [1, -1])
def test_twice_the_fragments_take_twice_the_work(tmp_path, step):
    def work(count: int) -> int:
        packet = ipv4(CLIENT[0], SERVER[0], udp(40000, 5040, bytes(8 * count)), protocol=17)
        parts = fragment_v4(packet, list(range(8, 8 * count + 8, 8)))[::step]
        path = tmp_path / f"{count}.pcap"
        path.write_bytes(pcap([(number, part) for number, part in enumerate(parts)], link=101))
        return lines_run(lambda: read_checked(path), ip_fragments)

    assert work(600) < ABOUT_TWICE * work(300)


def opening(size: int) -> bytes:
    """The request of a WebSocket, as long as this."""
    head, end = REQUEST[:-2], b"\r\n\r\n"
    return head + b"Cookie: ".ljust(size - len(head) - len(end), b"x") + end


def test_twice_the_opening_in_twice_the_segments_is_looked_at_twice_as_much(tmp_path):
    def looked_at(count: int) -> int:
        sizes = []

        def sniff(data: bytes) -> str | None:
            sizes.append(len(data))
            return protocols.sniff(data)

        talk, said = Talk(server=(SERVER[0], 8080)).open(), opening(200 * count)
        for at in range(0, len(said), 200):
            talk.say(0, said[at : at + 200])
        path = tmp_path / f"{count}.pcap"
        path.write_bytes(pcap(talk.close().frames()))
        read_checked(path, sniff=sniff)
        return sum(sizes)

    assert looked_at(56) < ABOUT_TWICE * looked_at(28)


def test_an_opening_is_not_walked_through_for_every_segment_behind_it():
    def work(size: int) -> int:
        said = opening(size) + frame(b"nothing we know", mask=True)
        return lines_run(lambda: protocols.sniff(said), websocket)

    assert work(15_000) == work(1_000)


@pytest.mark.parametrize("behind", [0, 30])
def test_a_stream_behind_a_long_opening_in_many_segments_is_still_recognised(tmp_path, behind):
    hello = b"\x00\x00\x01\x00"
    talk, said = Talk(server=(SERVER[0], 8080)).open(), opening(10_000)
    for at in range(0, len(said), 300):
        talk.say(0, said[at : at + 300])
    inside = frame(hello, mask=True)
    for at in range(0, len(inside), 2):
        talk.say(0, inside[at : at + 2])
    for _ in range(behind):
        talk.say(0, frame(b"", mask=True))
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(talk.close().frames()))
    blocks = read_checked(path, sniff=protocols.sniff)
    assert {flow.protocol for block in blocks for flow in block.flows} == {"yamp"}
    taken = b"".join(bytes(block.data) for block in blocks)
    assert taken.startswith(said + inside)


def test_what_was_said_before_a_gap_is_looked_at_once_more(tmp_path, monkeypatch):
    monkeypatch.setattr(tcp_flows, "UNDECIDED_SNIFFED", 3_000)
    talk, said = Talk(server=(SERVER[0], 8080)).open(), opening(2_000) + frame(b"\x00\x00\x01\x00", mask=True)
    for at in range(0, len(said), 500):
        talk.say(0, said[at : at + 500])
    talk.next[0] += 10
    talk.say(0, b"more").close()
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(talk.frames()))
    assert {flow.protocol for block in read_checked(path, sniff=protocols.sniff) for flow in block.flows} == {"yamp"}
