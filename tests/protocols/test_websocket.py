"""WebSockets in captures: payload out of frames, in both forms and cut anywhere, against the frames of the library that peers use."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.protocols.yamp import speech
from websockets.frames import Frame, Opcode

from wirelake.protocols.kernel import compiled
from wirelake.protocols.websocket import FRAME, LOST, PAYLOAD, PHASE, STATE_COLUMNS, find, inside, opening, unframe
from wirelake.protocols.yamp.scanner import sniff


@pytest.fixture(autouse=True)
def _masks(monkeypatch):
    """The same masks every time: what looks like a frame by chance must not depend on chance."""
    monkeypatch.setattr("secrets.token_bytes", random.Random(9).randbytes)


REQUEST = b"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n"
RESPONSE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"


def unframed(data, cuts=(), phase=FRAME):
    """What comes out of a direction that arrives in pieces, plain and compiled: (payload, where it was, where it stopped, the state)."""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    plain, fast = bytearray(data), np.frombuffer(data, np.uint8).copy()
    state, fast_state = [0] * STATE_COLUMNS, np.zeros(STATE_COLUMNS, np.int64)
    state[PHASE] = fast_state[PHASE] = phase
    found, at = [], 0
    for start, stop in itertools.pairwise(edges):
        spans, fast_spans = [0] * (2 * (stop - start)), np.zeros(2 * (stop - start), np.int64)
        count, at = unframe(plain, start, stop, state, spans)
        assert compiled(unframe)(fast, start, stop, fast_state, fast_spans) == (count, at)
        assert fast_spans.tolist() == spans
        found += [(spans[2 * one], spans[2 * one + 1]) for one in range(count)]
        if at < stop:
            break
    assert fast_state.tolist() == state
    assert fast.tobytes() == plain
    return b"".join(bytes(plain[start:stop]) for start, stop in found), found, at, state


def frame(data, opcode=Opcode.BINARY, *, fin=True, mask=False):
    return Frame(opcode, data, fin).serialize(mask=mask)


SAID = st.lists(
    st.tuples(st.sampled_from((0, 1, 5, 125, 126, 127, 300, 65_535, 65_536)), st.booleans(), st.sampled_from(("whole", "parts", "ping"))),
    max_size=6,
)


@examples(80)
@given(SAID, st.lists(st.integers(0, 200_000), max_size=8), st.booleans())
def test_payload_comes_out_wherever_the_stream_is_cut(said, cuts, opens):
    data, payload = REQUEST if opens else b"", b""
    for number, (size, mask, how) in enumerate(said):
        body = bytes((number + 1,)) * size
        if how == "ping":
            data += frame(body[:125], Opcode.PING, mask=mask)
        elif how == "parts":
            data += frame(body, fin=False, mask=mask) + frame(b"more", Opcode.CONT, mask=mask)
            payload += body + b"more"
        else:
            data += frame(body, mask=mask)
            payload += body
    found, spans, at, state = unframed(data, cuts, phase=0 if opens else FRAME)
    assert (found, at) == (payload, len(data))
    assert spans == sorted(spans)
    assert state[PHASE] == FRAME


@pytest.mark.parametrize("size", [0, 1, 125, 126, 200])
def test_every_cut_of_a_short_conversation(size):
    data = RESPONSE + frame(b"a" * size, mask=True) + frame(b"p", Opcode.PING) + frame(b"b" * size) + frame(b"", mask=True) + frame(b"end")
    for cut in range(len(data)):
        assert unframed(data, [cut], phase=0)[0] == b"a" * size + b"b" * size + b"end"
    assert unframed(data, range(len(data)), phase=0)[0] == b"a" * size + b"b" * size + b"end"


def test_payload_is_where_it_was():
    data = REQUEST + frame(b"hello") + frame(b"", mask=True) + frame(b"you", mask=True)
    _, spans, _, _ = unframed(data, phase=0)
    start = len(REQUEST) + 2
    assert spans == [(start, start + 5), (start + 5 + 6 + 6, start + 5 + 6 + 6 + 3)]


@pytest.mark.parametrize(
    "bad", [frame(b"x", Opcode.TEXT), b"\xc2\x01x", b"\x92\x01x", b"\x83\x01x", b"\x8b\x01x", b"\x82\x7f" + b"\xff" * 8]
)
def test_what_cannot_be_read_ends_it(bad):
    before = frame(b"before")
    found, _, at, state = unframed(before + bad + frame(b"after"))
    assert (found, state[PHASE]) == (b"before", LOST)
    assert len(before) < at <= len(before) + len(bad)
    assert unframed(before + bad, range(60))[0] == b"before"


def test_a_frame_of_any_size_is_taken_as_it_comes():
    head = b"\x82\x7f" + (1 << 40).to_bytes(8)
    found, _, at, state = unframed(head + b"and so on")
    assert (found, at, state[PHASE]) == (b"and so on", len(head) + 9, PAYLOAD)


def test_the_opening_handshake():
    for head in (REQUEST, RESPONSE):
        assert opening(head + b"frames") == len(head)
        assert opening(head[:-1]) == 0
        assert opening(head.replace(b"ebsocket", b"h2c").replace(b"ebSocket", b"h2c")) == 0
        assert opening(b"x" + head) == 0
    assert opening(b"GET / HTTP/1.1\r\n\r\n") == 0
    assert opening(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n") == 0
    assert opening(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n") == 0


def test_the_end_of_an_opening_handshake_is_found_among_its_likes():
    for head in (b"\r\n\r\n", b"\r\r\n\r\n", b"\r\n\r\r\n\r\n", b"\n\r\nx\r\n\r\n", b"\r\n\n\r\n\r\n"):
        assert unframed(head + frame(b"x"), phase=0)[0] == b"x"


def test_yamp_is_found_inside():
    pieces = [b"\x00", b"\x00\x01", b"\x04", b"json"]
    by_field = b"".join(frame(piece, mask=True) for piece in pieces)
    assert inside(REQUEST + by_field, sniff)
    assert inside(RESPONSE + frame(speech.handshake(1, b"msgpack")), sniff)
    assert not inside(REQUEST + frame(b"chat", mask=True), sniff)
    assert not inside(REQUEST, sniff)
    assert not inside(speech.handshake(), sniff)


def found(data, masked, *, is_end=False, start=0):
    """Where frames begin again, plain and compiled."""
    place = find(data, start, len(data), masked, int(is_end))
    assert compiled(find)(np.frombuffer(data, np.uint8), start, len(data), masked, int(is_end)) == place
    return place


@pytest.mark.parametrize("mask", [False, True])
def test_frames_are_found_again_behind_the_rest_of_another(mask):
    frames = [frame(b"a" * 200, mask=mask), frame(b"p", Opcode.PING, mask=mask), frame(b"b" * 70_000, fin=False, mask=mask)]
    frames += [frame(b"c", Opcode.CONT, mask=mask), frame(b"d" * 300, mask=mask)]
    whole = b"".join(frames)
    for rest in (b"", b"z", b"what was left of it", b"\0" * 300, b"\xff" * 300):
        assert found(rest + whole, mask) == len(rest)
        assert found(rest + whole, not mask) == len(rest + whole)
        assert found(rest + frames[0], mask) == len(rest + frames[0])  # one is not enough, unless it ends where the stream does
        assert found(rest + frames[0], mask, is_end=True) == len(rest)
        assert found(rest + frames[3] + frames[4], mask, is_end=True) == len(rest + frames[3])  # a continuation is no beginning


@pytest.mark.parametrize(
    "bad",
    [
        b"\x81\x01x",  # text
        b"\xc2\x01x",  # compressed
        b"\x83\x01x",  # unknown
        b"\x08\x01x",  # a control frame that goes on
        b"\x89\x7e\x00\x80" + b"x" * 128,  # a long one
        b"\x82\x7e\x00\x05hello",  # a length in more bytes than it needs
        b"\x82\x7f" + (300).to_bytes(8) + b"x" * 300,
        b"\x82\x7f" + b"\xff" * 8,
        b"\x02\x00",  # nothing, and more of it to come
        b"\x02\x01x" + frame(b"another message"),
        frame(b"done") + b"\x80\x01x",
    ],
)
def test_what_is_no_frame_is_no_place_to_begin(bad):
    assert found(bad, 0, is_end=True) > 0
    assert found(bad + frame(b"x") * 4, 0) > 0


def test_no_frames_are_found_in_zeros_text_and_noise():
    dice = random.Random(3)
    for data in (bytes(5000), b"\xff" * 5000, b"text, and nothing but text. " * 200, dice.randbytes(4096)):
        for masked in (0, 1):
            assert found(data, masked) == len(data)
