"""Bytes to messages and back: the two readers of a row are total, the encoder is their mirror, and bodies unpack within their limit."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each, examples
from tests.protocols.emp import speech
from tests.protocols.emp.scanning import scanned
from tests.protocols.emp.speech import PRIMITIVES, mutated

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.emp import wire
from wirelake.protocols.emp.faults import UNREADABLE, Fault
from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.messages import (
    TYPES,
    Application,
    Bye,
    Compression,
    Data,
    Error,
    Hello,
    OtherExtension,
    Ping,
    Pong,
    RequestResponse,
    name_of,
)
from wirelake.protocols.emp.scanner import BODY, BODY_LENGTH, ODDITIES
from wirelake.protocols.emp.wire import decode, encode, message, pack, plain, unpack
from wirelake.protocols.kernel import FAULT, LENGTH, START

EXCLUSIVE = Limits(sizes_exclude_themselves=True)

PAIRS = {
    "hello": (Hello(1), speech.hello()),
    "hello-255": (Hello(255), speech.hello(255)),
    "bye": (Bye(), speech.bye),
    "ping": (Ping(), speech.ping),
    "pong": (Pong(), speech.pong),
    "error": (Error(4, 1, 2, "été"), speech.error(4, "été".encode(), extension_id=1, extension_error_code=2)),
    "data": (Data(b"hello"), speech.data(b"hello")),
    "application": (Application(128, b"own"), speech.envelope(128, b"own")),
    "request": (Data(b"?", (RequestResponse(True, 2**64 - 1),)), speech.request(2**64 - 1, b"?")),
    "response": (Application(255, b"!", (RequestResponse(False, 1),)), speech.response(1, b"!", 255)),
    "all-three": (
        Data(b"z", (RequestResponse(True, 3), OtherExtension(200, b"abc"), Compression(1))),
        speech.data(b"z", speech.rr(True, 3, more=True) + speech.block(200, b"abc", more=True) + speech.gz(1)),
    ),
    "ping-with-block": (Ping((RequestResponse(True, 3),)), speech.envelope(speech.PING, b"", speech.rr(True, 3))),
}


@pytest.mark.parametrize(("said", "data"), PAIRS.values(), ids=PAIRS)
def test_a_message_and_its_bytes(said, data):
    assert encode(said) == data
    assert decode(data) == said


def test_sizes_that_exclude_themselves_are_four_less_everywhere():
    said = Data(b"z", (RequestResponse(True, 3), OtherExtension(200, b"abc"), Compression(1)))
    blocks = speech.rr(True, 3, more=True, bias=4) + speech.block(200, b"abc", more=True, bias=4) + speech.gz(1, bias=4)
    data = speech.envelope(speech.DATA, b"z", blocks, bias=4)
    assert encode(said, EXCLUSIVE) == data
    assert decode(data, EXCLUSIVE) == said
    with pytest.raises(DecodeError) as caught:
        decode(data)
    assert caught.value.fault is not None


@examples(300)
@given(speech.messages, st.booleans())
def test_every_message_survives_its_bytes(said, exclusive):
    limits = EXCLUSIVE if exclusive else Limits()
    assert decode(encode(said, limits), limits) == said


def utf8(text):
    return text.decode(errors="replace").encode() == text


@examples(300)
@given(mutated(st.lists(PRIMITIVES, max_size=4).map(b"".join)))
def test_every_readable_row_becomes_a_message_that_encodes_to_its_bytes(data):
    """Total over what the scanner accepted; unused bits and ignored bodies are all that may be lost on the way back."""
    one = scanned(data, rows=len(data) // 8 + 2, parts=len(data) // 8 + 16)
    parts = [cell for part in one.parts for cell in part]
    for row in one.rows:
        frame = data[row[START] : row[START] + row[LENGTH]]
        if row[FAULT] in UNREADABLE:
            with pytest.raises(DecodeError) as caught:
                message(data, row, parts)
            assert caught.value.fault == row[FAULT]
            continue
        if frame[4] == speech.ERROR and not utf8(data[row[BODY] + 6 : row[BODY] + row[BODY_LENGTH]]):
            with pytest.raises(DecodeError) as caught:
                message(data, row, parts)
            assert caught.value.fault is Fault.ERROR_NOT_UTF8
            continue
        said = message(data, row, parts)
        again = encode(said)
        assert decode(again) == said
        if not row[ODDITIES]:
            assert again == frame


@pytest.mark.parametrize(
    ("data", "fault", "offset"),
    [
        (b"", Fault.MESSAGE_CUT, 0),
        (b"\x00\x00\x00", Fault.MESSAGE_CUT, 3),
        (speech.hello()[:-1], Fault.MESSAGE_CUT, 11),
        (b"\x00\x00\x00\x07", Fault.SIZE_TOO_SMALL, 0),
        (speech.ping + b"x", Fault.SIZE_TOO_SMALL, 8),
        (b"\xff\xff\xff\xff", Fault.SIZE_OVER_LIMIT, 0),
        (speech.envelope(6), Fault.TYPE_RESERVED, 4),
        (speech.hello() + speech.ping, Fault.SIZE_TOO_SMALL, 12),
        (speech.error(3, b"ok\xff"), Fault.ERROR_NOT_UTF8, 16),
        (speech.error(3, "é".encode()[:1]), Fault.ERROR_NOT_UTF8, 14),
        (speech.data(b"", speech.gz(1, more=True)), Fault.NEXT_BLOCK_MISSING, 20),
    ],
)
def test_what_is_not_one_message_is_refused_with_its_place(data, fault, offset):
    with pytest.raises(DecodeError) as caught:
        decode(data)
    assert (caught.value.fault, caught.value.offset, caught.value.clause) == (fault, offset, fault.clause)
    assert f"at byte {offset}" in str(caught.value)
    assert str(caught.value).endswith(f"({fault.name})")


# What cannot be written.


@pytest.mark.parametrize(
    "said",
    [
        Hello(256),
        Hello(-1),
        Error(256),
        Error(0, 256),
        Error(0, 0, -1),
        Error(0, 0, 0, "\ud800"),
        Data(b"", (RequestResponse(True, 2**64),)),
        Data(b"", (RequestResponse(True, -1),)),
        Data(b"", (Compression(256),)),
        Data(b"", (OtherExtension(256, b""),)),
    ],
    ids=repr,
)
def test_a_value_its_field_cannot_hold_is_refused(said):
    with pytest.raises(LocalProtocolError) as caught:
        encode(said)
    assert caught.value.fault is Fault.FIELD_OUT_OF_RANGE


@pytest.mark.parametrize("type_id", [-1, 0, 5, 6, 127, 256])
def test_an_application_has_no_type_below_128_or_above_255(type_id):
    with pytest.raises(LocalProtocolError) as caught:
        encode(Application(type_id))
    assert caught.value.fault is Fault.TYPE_RESERVED


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("size", [99, 100, 101])
def test_the_sender_keeps_to_the_size_limit(size, exclusive):
    limits = Limits(max_message_size=100, sizes_exclude_themselves=exclusive)
    said = Data(bytes(size - 8 - 12), (Compression(0),))
    if size <= 100:
        assert len(encode(said, limits)) == size
        assert decode(encode(said, limits), limits) == said
    else:
        with pytest.raises(LocalProtocolError) as caught:
            encode(said, limits)
        assert caught.value.fault is Fault.SIZE_OVER_LIMIT


@each("character", ["x", "é", "€", "𝄞"])
@each("before", range(5))
def test_an_error_text_is_cut_between_characters(character, before):
    width = len(character.encode())
    text = "a" * before + character * (0xFFFF // width + 2)
    cut = decode(encode(Error(0, 0, 0, text))).message
    assert text.startswith(cut)
    assert 0xFFFF - width < len(cut.encode()) <= 0xFFFF


def test_an_error_text_that_just_fits_is_whole():
    assert decode(encode(Error(0, 0, 0, "x" * 0xFFFF))).message == "x" * 0xFFFF


# Compression.

LIMITS = Limits(max_body_size=1000)


def member(data, **options):
    return gzip.compress(data, mtime=0, **options)


def packed(body, *schemes):
    return Data(body, tuple(Compression(scheme) for scheme in schemes))


def test_packing_is_undone_and_always_gives_the_same_bytes():
    for body in (b"", b"x", b"hello" * 1000):
        assert unpack(1, pack(body), 10_000) == body
        assert gzip.decompress(pack(body)) == body
        assert pack(body) == pack(body)


def test_identity_is_the_body_itself():
    assert unpack(0, b"as it is", 3) == b"as it is"
    assert plain(packed(b"as it is", 0)) == b"as it is"
    assert plain(Data(b"as it is")) == b"as it is"


@pytest.mark.parametrize("members", [[b"one"], [b"one", b"two"], [b"", b"", b"x"], [b"a" * 500, b"", b"b" * 500], [b"x"] * 300])
def test_members_are_joined(members):
    assert unpack(1, b"".join(member(one) for one in members), 1000) == b"".join(members)


@pytest.mark.parametrize("size", [998, 999, 1000])
def test_a_body_may_fill_the_limit(size):
    assert len(plain(packed(member(bytes(size)), 1), LIMITS)) == size
    assert len(unpack(1, member(bytes(size - 1)) + member(b"x"), 1000)) == size


@pytest.mark.parametrize("members", [[1001], [1000, 1], [500, 501], [0, 1001], [100_000], [1] * 1001])
def test_one_byte_over_the_limit_is_refused(members):
    with pytest.raises(DecodeError) as caught:
        unpack(1, b"".join(member(bytes(size)) for size in members), 1000)
    assert caught.value.fault is Fault.INFLATED_OVER_LIMIT


def test_a_limit_of_nothing_is_a_limit():
    assert unpack(1, member(b""), 0) == b""
    with pytest.raises(DecodeError) as caught:
        unpack(1, member(b"x"), 0)
    assert caught.value.fault is Fault.INFLATED_OVER_LIMIT


GOOD = member(b"good")


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (b"", 0),
        (b"not gzip", 0),
        (GOOD + b"x", len(GOOD) + 1),
        (GOOD + b"xyz", len(GOOD)),
        (GOOD + bytes(9), len(GOOD)),
        (GOOD + GOOD + b"garbage", 2 * len(GOOD)),
        (b"x" + GOOD, 0),
        (zlib.compress(b"zlib, not gzip"), 0),
        (GOOD[:-4] + bytes(4), 0),
    ],
    ids=["empty", "garbage", "one-trailing", "trailing", "zero-padding", "after-two", "before", "zlib", "wrong-length"],
)
def test_what_is_not_gzip_from_end_to_end_is_refused(body, offset):
    with pytest.raises(DecodeError) as caught:
        unpack(1, body, 1000)
    assert (caught.value.fault, caught.value.offset) == (Fault.GZIP_INVALID, offset)


def test_every_cut_of_a_member_is_refused():
    two = GOOD + member(b"second")
    for at in range(len(two)):
        if at != len(GOOD):
            with pytest.raises(DecodeError) as caught:
                unpack(1, two[:at], 1000)
            assert caught.value.fault is Fault.GZIP_INVALID


@pytest.mark.parametrize("scheme", [2, 127, 255])
def test_an_unknown_scheme_is_refused(scheme):
    with pytest.raises(DecodeError) as caught:
        plain(packed(b"x", scheme))
    assert (caught.value.fault, caught.value.detail) == (Fault.SCHEME_UNKNOWN, f"scheme {scheme}")


def test_compression_is_undone_from_the_last_block():
    body = pack(pack(b"twice"))
    assert plain(packed(body, 1, 1)) == b"twice"
    assert plain(packed(body, 1)) == pack(b"twice")
    assert plain(Data(pack(b"x"), (Compression(0), RequestResponse(True, 1), Compression(1)))) == b"x"
    for schemes, fault in (((1, 2), Fault.SCHEME_UNKNOWN), ((2, 1), Fault.GZIP_INVALID)):
        with pytest.raises(DecodeError) as caught:
            plain(packed(b"not gzip", *schemes))
        assert caught.value.fault is fault, "the last block is undone first"


def test_a_bomb_costs_no_more_memory_than_the_limit():
    bomb = pack(pack(bytes(64 * 1024 * 1024)))
    assert len(bomb) < 1000
    limits = Limits(max_body_size=1024 * 1024)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError) as caught:
            plain(packed(bomb, 1, 1), limits)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.fault is Fault.INFLATED_OVER_LIMIT
    assert peak < 4 * 1024 * 1024


class Meter:
    """zlib, counting every byte a decompressor is handed and hands back unused."""

    error = zlib.error

    def __init__(self):
        self.bytes = 0

    def decompressobj(self, wbits):
        meter, inner = self, zlib.decompressobj(wbits)

        class Decompressor:
            def decompress(self, data, most):
                piece = inner.decompress(data, most)
                meter.bytes += len(data) - len(inner.unused_data) + 2 * len(inner.unused_data)
                return piece

            def __getattr__(self, name):
                return getattr(inner, name)

        return Decompressor()


@pytest.mark.slow
def test_many_tiny_members_take_linear_time(monkeypatch):
    """A member of nothing takes 20 bytes, so a small message can unpack to a million of them; each must not copy all that follow."""
    meter = Meter()
    monkeypatch.setattr("wirelake.protocols.gzip.zlib", meter)
    body = member(b"") * 20_000
    assert unpack(1, body, 1000) == b""
    assert meter.bytes < 150 * len(body)


# Names.


def test_every_message_has_its_name_and_number():
    assert {name_of(one): int(number) for one, number in TYPES.items()} == {
        "hello": 0,
        "bye": 1,
        "ping": 2,
        "pong": 3,
        "error": 4,
        "data": 5,
    }
    assert name_of(Application) == "application"


@pytest.mark.parametrize("limits", [Limits(), Limits(sizes_exclude_themselves=True)])
@pytest.mark.parametrize("body", [b"", b"x", bytes(1000)])
def test_what_is_sent_most_often_is_written_as_any_message(limits, body):
    assert wire.data(body, limits) == wire.encode(Data(body), limits)
    for is_request in (False, True):
        for number in (1, (1 << 64) - 1):
            message = Data(body, (RequestResponse(is_request, number),))
            assert wire.exchange(is_request, number, body, limits) == wire.encode(message, limits)


@pytest.mark.parametrize("bias", [False, True])
def test_what_is_sent_most_often_has_the_same_limit(bias):
    limits = Limits(max_message_size=100, sizes_exclude_themselves=bias)
    assert len(wire.data(bytes(92), limits)) == len(wire.exchange(True, 1, bytes(72), limits)) == 100
    for write in (lambda: wire.data(bytes(93), limits), lambda: wire.exchange(False, 1, bytes(73), limits)):
        with pytest.raises(LocalProtocolError) as caught:
            write()
        assert caught.value.fault is Fault.SIZE_OVER_LIMIT
