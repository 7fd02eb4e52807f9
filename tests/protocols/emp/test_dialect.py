"""EMP-1: peers that leave the size field out of sizes: recognised by their hello, named in the error, followed on request."""

from __future__ import annotations

import random

import pytest
from tests.cases import seeds
from tests.protocols.emp import speech
from tests.protocols.emp.pair import CLIENT, SERVER, Pair, Side, options

from wirelake.protocols.dialects import dialect, settings
from wirelake.protocols.emp.dialect import recognise, shown_by_hello
from wirelake.protocols.emp.events import DataReceived, Opened
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.messages import Data, Hello, Ping, Pong, RequestResponse
from wirelake.protocols.emp.wire import buffer, encode

TEXT = Limits()
SHORT = Limits(sizes_exclude_themselves=True)
AUTO = Limits(sizes_exclude_themselves="auto")
FLAG = ("sizes_exclude_themselves",)

KINDS = pytest.mark.parametrize("limits", [TEXT, SHORT], ids=["text", "short"])
SPEAKERS = pytest.mark.parametrize("speaker", [CLIENT, SERVER])
CUTS = pytest.mark.parametrize("cut", [1, 3, 5, 12, 4096])


GARBAGE = pytest.mark.parametrize(
    "garbage", [b"", b"\x00", b"\x00\x00\x00\x08", b"\x00\x00\x00\x08\x01", b"\x15\x03\x03\x00\x02", b"GET / "]
)


@GARBAGE
def test_live_nothing_but_a_hello_tells_the_dialect(garbage):
    assert shown_by_hello(garbage) in (None, ())
    assert shown_by_hello(garbage + bytes(12)) in ((), FLAG if garbage == b"\x00\x00\x00\x08" else ())


@GARBAGE
def test_garbage_in_a_capture_tells_no_dialect(garbage):
    assert recognise(garbage) is None
    assert recognise(garbage + bytes(12)) in (None, FLAG if garbage == b"\x00\x00\x00\x08" else None)


@KINDS
def test_a_hello_tells_it_with_five_bytes(limits):
    said = encode(Hello(1), limits)
    assert recognise(said) == recognise(said[:5]) == shown_by_hello(said) == dialect(limits)


@KINDS
@pytest.mark.parametrize("seed", seeds(50, 5))
def test_without_a_hello_the_reading_counts_under_which_messages_follow_each_other(limits, seed):
    """Wherever the capture begins, and however little it has: never the other one."""
    dice = random.Random(seed)
    kinds = [Ping(), Pong(), Data(b""), Data(b"x" * 8), Data(bytes(100)), Data(dice.randbytes(300), (RequestResponse(True, 7),))]
    said = b"".join(encode(one, limits) for one in dice.choices(kinds, k=20))
    assert recognise(said) == dialect(limits)
    for _ in range(50):
        start = dice.randrange(len(said))
        assert recognise(said[start : dice.randint(start, len(said))]) in (dialect(limits), None)
    alone = encode(dice.choice(kinds), limits)
    assert (recognise(alone), recognise(alone, True)) == (None, dialect(limits))
    assert recognise(said[dice.randrange(len(said) // 2) :]) == dialect(limits)


@CUTS
def test_a_peer_of_the_dialect_is_named_in_the_error(cut):
    side = Side(SERVER, cut=cut)
    side.start()
    side.receive(encode(Hello(1), SHORT))
    assert side.ended.fault is Fault.HELLO_SIZE
    assert str(side.ended.reason()).startswith(
        "EMP-21: the body of a hello is 4 bytes: this peer leaves the size field out of sizes: set siz"
    )


@CUTS
def test_a_peer_by_the_text_is_named_to_a_session_in_the_dialect(cut):
    side = Side(SERVER, options(sizes_exclude_themselves=True), cut=cut)
    side.start()
    side.receive(encode(Hello(1)) + encode(Data(b"x")))
    assert "this peer counts the size field in sizes" in side.ended.detail
    silent = Side(SERVER, options(sizes_exclude_themselves=True), cut=cut)
    silent.start()
    silent.receive(encode(Hello(1)))
    assert "this peer counts the size field in sizes" in silent.ended.detail, "it must not wait for four bytes that never come"


@pytest.mark.parametrize("limits", [TEXT, SHORT, AUTO], ids=["text", "short", "auto"])
def test_garbage_is_not_blamed_on_a_dialect(limits):
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46", bytes(20), speech.ping, b"\xff" * 20):
        side = Side(SERVER, options(sizes_exclude_themselves=limits.sizes_exclude_themselves))
        side.start()
        side.receive(garbage)
        side.wait(10)
        assert "size field" not in side.ended.detail


def test_an_empty_hello_after_the_handshake_is_just_wrong():
    side = Side(SERVER)
    side.start()
    side.receive(encode(Hello(1)) + encode(Hello(1), SHORT))
    assert (side.ended.fault, side.ended.detail) == (Fault.HELLO_SIZE, "byte 8 of a message")


# Followed on request.


@SPEAKERS
@KINDS
@CUTS
def test_auto_follows_the_peer(speaker, limits, cut):
    side = Side(speaker, options(sizes_exclude_themselves="auto"), cut)
    side.start()
    assert side.said == b"", "the peer's hello decides how ours is written"
    side.receive(encode(Hello(1), limits) + encode(Data(b"one"), limits))
    assert side.said == encode(Hello(1), limits)
    assert side.heard == [Opened(1), DataReceived(b"one")]
    assert side.session.options.sizes_exclude_themselves is limits.sizes_exclude_themselves
    side.said = b""
    side.session.send(b"two", compress=True)
    side.drain()
    assert side.messages[0].extensions, "blocks have sizes, too"
    assert side.session.rest == b""


@KINDS
def test_auto_gets_on_with_both_kinds(limits, cut):
    pair = Pair(cut, options(sizes_exclude_themselves="auto"), options(sizes_exclude_themselves=limits.sizes_exclude_themselves)).start()
    pair.client.session.send(b"x")
    pair.settle()
    assert pair.server.delivered == [DataReceived(b"x")]


def test_two_that_wait_for_each_other_speak_by_the_text():
    pair = Pair(3, options(sizes_exclude_themselves="auto"), options(sizes_exclude_themselves="auto")).start()
    assert [side.said for side in pair.sides] == [b"", b""]
    pair.wait(1)
    assert [side.said for side in pair.sides] == [encode(Hello(1))] * 2
    assert [side.session.options.sizes_exclude_themselves for side in pair.sides] == [False, False]


def test_a_peer_that_shows_its_dialect_too_late_is_named():
    side = Side(CLIENT, options(sizes_exclude_themselves="auto", dialect_wait=0.5))
    side.start()
    side.receive(b"\x00\x00\x00")
    side.wait(0.5)
    assert side.said == encode(Hello(1))
    side.receive(encode(Hello(1), SHORT)[3:])
    assert "set sizes_exclude_themselves=true" in side.ended.detail


def test_a_silent_peer_ends_the_handshake_of_auto():
    side = Side(CLIENT, options(sizes_exclude_themselves="auto"))
    side.start()
    side.wait(6)
    assert side.ended.fault is Fault.HANDSHAKE_TIMEOUT


def test_a_session_that_parts_before_it_knows_says_bye_by_the_text():
    side = Side(CLIENT, options(sizes_exclude_themselves="auto"))
    side.start()
    side.session.bye()
    side.drain()
    assert (side.said, side.session.deadline) == (speech.bye, None)


@KINDS
def test_a_stream_is_read_in_its_dialect_wherever_it_is_cut(limits):
    said = encode(Hello(1), limits) + encode(Data(b"x"), limits)
    for cut in range(1, len(said)):
        reader = buffer(AUTO)
        rows = [row for piece in (said[:cut], said[cut:]) for _, found, _ in reader.feed(piece) for row in found]
        assert (len(rows), reader.rest) == (2, b"")


def test_a_dialect_flag_that_is_set_wins_over_the_recognised_dialect():
    assert settings(Limits.DIALECT, {}, FLAG) == {"sizes_exclude_themselves": True}
    assert settings(Limits.DIALECT, {"sizes_exclude_themselves": "auto", "max_body_size": 5}, FLAG) == {
        "sizes_exclude_themselves": True,
        "max_body_size": 5,
    }
    assert settings(Limits.DIALECT, {"sizes_exclude_themselves": False}, FLAG) == {"sizes_exclude_themselves": False}
    assert settings(Limits.DIALECT, {"sizes_exclude_themselves": True}, ()) == {"sizes_exclude_themselves": True}
    assert (dialect(AUTO), dialect(SHORT), dialect(TEXT)) == (None, FLAG, ())
