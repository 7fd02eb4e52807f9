"""Windows, multicast, forms of messages; pings, silence and time."""

from __future__ import annotations

import pytest
from tests.protocols.relink.linking import A, B, post, say
from tests.protocols.relink.pair import C, L, Pair

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import (
    MessageReceived,
    Ponged,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import (
    Message,
    Nop,
    Ping,
    Pong,
    Resume,
)
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.wire import encode

# Pings and silence.


def test_every_ping_has_its_pong_in_order():
    """RELINK-25: also before resume; pongs owed at the end of a connection are dropped."""
    pair = Pair()
    say(pair, L, Ping(), Ping(), Ping())
    pair.out(L)
    assert pair.packets(L) == [Pong()] * 3
    say(pair, L, Ping())
    pair.ends[L].receive_eof(pair.now)
    assert pair.ends[L].output().count(encode(Pong())) <= 1
    pair.connect()
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L))
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L)[:16])
    say(pair, C, Ping())
    pair.out(C)
    assert pair.packets(C) == [Resume(), Pong()]


def test_silence_is_answered_by_a_ping_and_no_pong_ends_the_connection():
    """RELINK-25: 11 seconds, then 7, both longer by up to a quarter."""
    for chance, idle, wait in ((0.0, 11.0, 7.0), (1.0, 13.75, 8.75)):
        pair = Pair(options=Options(random=lambda chance=chance: chance))
        end = pair.ends[C]
        assert end.deadline == pytest.approx(idle)
        end.tick(idle - 0.01)
        assert end.output() == b""
        end.tick(idle)
        assert end.output() == encode(Ping())
        assert end.deadline == pytest.approx(idle + wait)
        end.tick(idle + wait - 0.01)
        assert end.ended is None
        end.tick(idle + wait)
        assert end.ended.fault is Fault.PONG_TIMEOUT
        assert not pair.connector.is_over


def test_a_pong_in_time_and_what_is_heard_put_it_off():
    pair = Pair(options=Options())
    pair.wait(11.0)
    assert pair.of(C, Ponged)
    assert pair.ends[C].ended is None
    pair.now += 5.0
    say(pair, C, Nop())
    assert pair.ends[C].deadline == pytest.approx(pair.now + 11.0)


def test_half_a_packet_for_too_long():
    """RELINK-25: thirty seconds for a packet that has begun."""
    pair = Pair()
    pair.give(L, encode(Message((A,), (b"x" * 20,)))[:-1])
    assert pair.ends[L].deadline == pytest.approx(30.0)
    pair.ends[L].tick(29.9)
    pair.give(L, b"\0")
    assert pair.ends[L].deadline is None
    pair.give(L, b"\x11")
    pair.ends[L].pause()
    assert pair.ends[L].deadline is None
    pair.ends[L].resume(100.0)
    pair.ends[L].tick(130.0)
    assert pair.ends[L].ended.fault is Fault.PACKET_TIMEOUT


def test_a_paused_reader_does_not_time_the_peer_out():
    """RELINK-17: while the owner has stopped reading, no pong is missed."""
    pair = Pair(options=Options())
    end = pair.ends[C]
    end.ping(0.0)
    end.pause()
    assert end.deadline is None
    end.tick(100.0)
    assert end.ended is None
    end.resume(100.0)
    end.tick(106.9)
    assert end.ended is None
    end.tick(107.0)
    assert end.ended.fault is Fault.PONG_TIMEOUT


def test_a_ping_needs_a_connection():
    """RELINK-25: it fails at once."""
    pair = Pair(connect=False)
    pair.connect()
    with pytest.raises(LocalProtocolError) as wrong:
        pair.ends[C].ping(0.0)
    assert wrong.value.fault is Fault.NOT_OPEN


# Sending.


def test_windows_are_per_channel():
    """RELINK-17."""
    pair = Pair(options=Options(ping_interval=None, window=2))
    post(pair, 2)
    assert pair.connector.outbox.free_window(A) == 0
    with pytest.raises(LocalProtocolError) as full:
        post(pair, 1)
    assert full.value.fault is Fault.WINDOW_FULL
    post(pair, 2, channel=B)
    with pytest.raises(LocalProtocolError):
        pair.connector.multicast([b"c", A], (b"x",))
    with pytest.raises(LocalProtocolError):
        pair.connector.multicast([b"c"] * 3, (b"x",))
    assert b"c" not in pair.connector.outbox.channels, "all of them, or none"


def test_multicast_is_one_packet_and_replayed_one_by_one():
    """RELINK-19: numbers on each channel, duplicates counted; a retransmission may be unicast."""
    pair = Pair()
    assert pair.connector.multicast([A, B, A], (b"x",)) == [0, 0, 1]
    pair.out(C)
    assert pair.packets(C) == [Message((A, B, A), (b"x",), True)]
    pair.reconnect()
    assert pair.packets(C)[1:] == [Message((A,), (b"x",))] * 2 + [Message((B,), (b"x",))]
    assert pair.connector.multicast([B], (b"y",)) == [1]
    pair.out(C)
    assert pair.packets(C)[-1] == Message((B,), (b"y",)), "one id is unicast"


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda link: link.send(b"xx", (b"",)), Fault.ID_SIZE_WRONG),
        (lambda link: link.send(b"", (b"",)), Fault.ID_SIZE_WRONG),
        (lambda link: link.multicast([], (b"",)), Fault.MULTICAST_OVER_LIMIT),
        (lambda link: link.multicast([A] * 65_537, (b"",)), Fault.MULTICAST_OVER_LIMIT),
        (lambda link: link.multicast([A, b"xx"], (b"",)), Fault.ID_SIZE_WRONG),
        (lambda link: link.send(A, (b"",) * 1025), Fault.PARTS_OVER_LIMIT),
        (lambda link: link.send(A, (bytes(16 * 1024 * 1024 + 1),)), Fault.PART_OVER_LIMIT),
        (lambda link: link.send(A, (bytes(16 * 1024 * 1024),) * 5), Fault.MESSAGE_OVER_LIMIT),
    ],
)
def test_what_cannot_be_sent(act, expected):
    """RELINK-6, RELINK-19, RELINK-24: strict in what we send; nothing is opened by it."""
    pair = Pair()
    with pytest.raises(LocalProtocolError) as wrong:
        act(pair.connector)
    assert wrong.value.fault is expected
    assert [one for one in pair.connector.outbox.channels.values() if one.outstanding] == []


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 255])
def test_every_id_size_and_message_form_goes_through(size):
    """RELINK-6, RELINK-30: minimal forms, at 255 and 256 parts, at 65535 and 65536 bytes."""
    pair = Pair(Endpoint("demo", size, size))
    channel = b"i" * size
    sent = [(), (b"",), (b"x" * 65535,), (b"x" * 65536,), (b"",) * 255, (b"p",) * 256, (b"abc", b"", b"hello")]
    for speaker in (C, L):
        for parts in sent:
            pair.link(speaker).send(channel, parts)
        pair.run()
        assert [one.parts for one in pair.of(speaker.other, MessageReceived)] == sent
        forms = [(one.long, one.large, one.multicast) for one in pair.packets(speaker) if isinstance(one, Message)]
        expected = [(False, False), (False, False), (False, False), (False, True), (False, False), (True, False), (False, False)]
        assert forms == [(*one, False) for one in expected]
        pair.consume_all(speaker.other)


# RELINK-25 on slow lines, as EMP-32.


def test_a_large_packet_may_take_as_long_as_a_slow_line_needs():
    pair = Pair(options=Options())
    end = pair.ends[L]
    end.ping(0.0)
    large, now = encode(Message((A,), (bytes(8_000_000),))), 0.0
    for at in range(0, len(large) - 1, 200_000):  # 200 KB/s: 40 s
        end.receive(large[at : at + 200_000], now)
        now += 1.0
        end.tick(now)
    end.receive(encode(Pong()), now)
    assert end.ended is None


def test_a_packet_that_trickles_is_late_all_the_same():
    pair = Pair()
    end = pair.ends[L]
    large = encode(Message((A,), (bytes(8_000_000),)))
    end.receive(large[:20], 0.0)
    for second in range(1, 30):
        end.receive(b"\0", float(second))
        end.tick(float(second))
        assert end.ended is None
    end.tick(30.1)
    assert end.ended.fault is Fault.PACKET_TIMEOUT


def test_a_ping_behind_our_own_output_has_its_time_when_that_has_left():
    pair = Pair(options=Options())
    end = pair.ends[C]
    end.ping(0.0)
    for second in (6.0, 18.0, 42.0):
        end.drained(1_000_000, second)
        end.tick(second)
    assert end.ended is None
    end.tick(42.0 + 7.0 + 41.9)
    assert end.ended is None
    end.tick(42.0 + 7.0 + 42.0)
    assert end.ended.fault is Fault.PONG_TIMEOUT
