"""WebSockets in captures: payload out of frames, in both forms, against the frames of the library that peers use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.yamp import speech
from websockets.frames import Frame, Opcode

from wirelake.protocols.kernel import NO_ROOM, compiled
from wirelake.protocols.websocket import COMPRESSED, INCOMPLETE, PIECE_COLUMNS, TEXT, UNKNOWN, inside, opening, unframe
from wirelake.protocols.yamp.scanner import sniff

REQUEST = b"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n"
RESPONSE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"


def unframed(data, start=0, *, rows=64):
    """What comes out, plain and compiled: (payload, pieces, next offset, why)."""
    out, pieces = bytearray(len(data)), [0] * (rows * PIECE_COLUMNS)
    said = unframe(data, start, len(data), out, pieces)
    fast, fast_pieces = np.zeros(len(data), np.uint8), np.zeros(rows * PIECE_COLUMNS, np.int64)
    assert compiled(unframe)(np.frombuffer(data, np.uint8), start, len(data), fast, fast_pieces) == said
    used, count, at, why = said
    assert fast[:used].tobytes() == out[:used]
    assert fast_pieces.tolist() == pieces
    cells = [pieces[place : place + PIECE_COLUMNS] for place in range(0, count * PIECE_COLUMNS, PIECE_COLUMNS)]
    return bytes(out[:used]), cells, at, why


def frame(data, opcode=Opcode.BINARY, *, fin=True, mask=False):
    return Frame(opcode, data, fin).serialize(mask=mask)


SAID = st.lists(
    st.tuples(st.sampled_from((0, 1, 5, 125, 126, 127, 300, 65_535, 65_536)), st.booleans(), st.sampled_from(("whole", "parts", "ping"))),
    max_size=6,
)


@settings(max_examples=80)
@given(SAID, st.integers(0, 300_000))
def test_payload_comes_out_and_leads_back(said, cut):
    data, payload = b"", b""
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
    found, pieces, at, why = unframed(data)
    assert (found, at, why) == (payload, len(data), INCOMPLETE)
    assert [start for start, _, _ in pieces] == [sum(length for _, _, length in pieces[:place]) for place in range(len(pieces))]
    partly, _, at, why = unframed(data[:cut])
    assert (payload.startswith(partly), why) == (True, INCOMPLETE)
    assert unframed(data, at)[0] == payload[len(partly) :]


def test_pieces_are_where_the_bytes_were():
    data = REQUEST + frame(b"hello", mask=False) + frame(b"", mask=True) + frame(b"you", mask=True)
    _, pieces, _, _ = unframed(data, len(REQUEST))
    assert pieces == [[0, len(REQUEST) + 2, 5], [5, len(REQUEST) + 2 + 5 + 6 + 6, 3]]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (frame(b"x", Opcode.TEXT), TEXT),
        (b"\xc2\x01x", COMPRESSED),
        (b"\x92\x01x", COMPRESSED),
        (b"\x83\x00", UNKNOWN),
        (b"\x8b\x00", UNKNOWN),
        (b"\x82\x7f" + b"\xff" * 8, UNKNOWN),
        (b"\x82\x7f" + (1 << 40).to_bytes(8), INCOMPLETE),
        (b"\x82", INCOMPLETE),
        (b"\x82\x7e\x00", INCOMPLETE),
        (b"\x82\x7f\x00", INCOMPLETE),
        (b"\x82\x81mas", INCOMPLETE),
    ],
)
def test_where_and_why_reading_stops(bad, why):
    before = frame(b"before")
    assert unframed(before + bad)[0::2] == (b"before", len(before))
    assert unframed(before + bad)[3] == why


def test_tables_that_are_full_stop_it_and_lose_nothing():
    data = frame(b"a") + frame(b"b") + frame(b"c")
    found, at = b"", 0
    while at < len(data):
        more, _, at, why = unframed(data, at, rows=1)
        found += more
        assert why == (NO_ROOM if at < len(data) else INCOMPLETE)
    assert found == b"abc"


def test_the_opening_handshake():
    for head in (REQUEST, RESPONSE):
        assert opening(head + b"frames") == len(head)
        assert opening(head[:-1]) == 0
        assert opening(head.replace(b"ebsocket", b"h2c").replace(b"ebSocket", b"h2c")) == 0
        assert opening(b"x" + head) == 0
    assert opening(b"GET / HTTP/1.1\r\n\r\n") == 0
    assert opening(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n") == 0
    assert opening(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n") == 0


def test_yamp_is_found_inside():
    pieces = [b"\x00", b"\x00\x01", b"\x04", b"json"]
    by_field = b"".join(frame(piece, mask=True) for piece in pieces)
    assert inside(REQUEST + by_field, sniff)
    assert inside(RESPONSE + frame(speech.handshake(1, b"msgpack")), sniff)
    assert not inside(REQUEST + frame(b"chat", mask=True), sniff)
    assert not inside(REQUEST, sniff)
    assert not inside(speech.handshake(), sniff)
