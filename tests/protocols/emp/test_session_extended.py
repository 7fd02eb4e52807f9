"""What applications add to a session: types and extensions of their own."""

from __future__ import annotations

import pytest
from tests.protocols.emp import speech
from tests.protocols.emp.pair import EXTENDED, Pair, answer, established, options

from wirelake.errors import LocalProtocolError
from wirelake.protocols.emp.events import (
    DataReceived,
    RequestReceived,
    ResponseReceived,
)
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Application, Compression, Data, ErrorCode, OtherExtension, Pong, RequestResponse
from wirelake.protocols.emp.options import Refused
from wirelake.protocols.emp.wire import decode, encode, pack


def test_a_registered_type_is_delivered(cut):
    pair = Pair(cut, EXTENDED, EXTENDED).start()
    pair.client.session.send(b"own", type_id=200)
    request_id = pair.client.session.request(b"own", 0.0, type_id=128)
    pair.settle()
    assert pair.server.delivered == [DataReceived(b"own", 200), RequestReceived(request_id, b"own", 128)]
    pair.server.session.respond(request_id, b"back", type_id=200)
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(request_id, b"back", 200)]


@pytest.mark.parametrize("type_id", [129, 255])
def test_an_unregistered_application_type_ends_the_session(type_id, cut):
    result = answer(speech.envelope(type_id, b"own"), EXTENDED, cut=cut)
    assert (result.error.error_code, result.ended.fault, result.delivered) == (3, Fault.TYPE_UNREGISTERED, [])


@pytest.mark.parametrize("type_id", [0, 4, 6, 127, 256])
def test_a_type_that_is_not_the_applications_is_not_sent(type_id):
    side = established()
    with pytest.raises(LocalProtocolError) as caught:
        side.session.send(b"", type_id=type_id)
    assert caught.value.fault is Fault.TYPE_RESERVED
    side.drain()
    assert side.said == b""


def test_a_registered_extension_is_undone_from_the_last(cut):
    pair = Pair(cut, EXTENDED, EXTENDED).start()
    pair.client.session.send(b"desrever", extensions=(OtherExtension(200, b""),))
    pair.client.session.send(b"desrever", extensions=(OtherExtension(255, b""),), compress=True)
    pair.client.session.request(b"?yhw", 0.0, extensions=(OtherExtension(200, b"no"),))
    pair.settle()
    assert pair.server.delivered == [
        DataReceived(b"reversed", extensions=(OtherExtension(200, b""),)),
        DataReceived(b"reversed", extensions=(OtherExtension(255, b""),)),
        RequestReceived(1, b"why?", extensions=(OtherExtension(200, b"no"),)),
    ]
    mixed = speech.data(pack(b"x1")[::-1], speech.gz(1, more=True) + speech.block(200))
    pair.server.receive(mixed)
    assert pair.server.delivered[-1].body == b"x1"


def test_a_refused_block_is_answered_with_its_code(cut):
    result = answer(speech.data(b"no!", speech.block(200, b"no")), EXTENDED, cut=cut)
    assert (result.error.error_code, result.error.extension_id, result.error.extension_error_code) == (4, 200, 77)
    assert (result.ended.fault, result.delivered) == (Fault.EXTENSION_REFUSED, [])


@pytest.mark.parametrize("extension", [2, 127, 128, 254])
@pytest.mark.parametrize("kind", [speech.BYE, speech.PING, speech.PONG, speech.DATA, 200])
def test_an_unregistered_extension_ends_the_session_on_every_message_type(kind, extension, cut):
    result = answer(speech.envelope(kind, b"", speech.block(extension, b"x")), EXTENDED, cut=cut)
    assert result.ended is not None, "accepted"
    assert result.ended.fault is Fault.EXTENSION_UNKNOWN
    assert (result.error.error_code, result.error.extension_id) == (4, extension)
    assert result.delivered == []


def test_a_registered_extension_may_stand_on_a_ping(cut):
    side = established(EXTENDED, cut=cut)
    side.receive(speech.envelope(speech.PING, b"", speech.block(200, b"x")))
    assert side.messages == [Pong()]


def test_an_application_message_may_carry_everything():
    side = established(EXTENDED)
    body = pack(b"body")
    side.receive(speech.envelope(128, body, speech.rr(True, 9, more=True) + speech.gz(0, more=True) + speech.gz(1)))
    assert side.delivered == [RequestReceived(9, b"body", 128)]
    side.session.respond(9, b"back", type_id=128, compress=True)
    side.drain()
    assert side.messages == [Application(128, pack(b"back"), (RequestResponse(False, 9), Compression(1)))]


def test_a_request_without_a_handler_ends_the_session(cut):
    side = established(options(answers_requests=False), cut=cut)
    side.receive(speech.data(b"data is fine") + speech.request(1))
    assert side.ended.fault is Fault.REQUEST_UNHANDLED
    assert side.messages[-1].error_code == 0
    assert side.delivered == [DataReceived(b"data is fine")]


def test_a_codec_that_breaks_ends_the_session_and_nothing_escapes():
    class Broken:
        def undo(self, content: bytes, body: bytes) -> bytes:
            raise KeyError("oops")

    session = established(options(codecs={200: Broken()})).session
    session.output()
    session.receive(encode(Data(b"x", (OtherExtension(200, b""),))), 0.0)
    assert session.ended is not None
    assert session.ended.fault is Fault.HANDLER_FAILED
    assert decode(session.output()).error_code == ErrorCode.UNSPECIFIED


def test_a_refusal_code_over_a_byte_is_cut_to_one():
    class Picky:
        def undo(self, content: bytes, body: bytes) -> bytes:
            raise Refused(0x1FF, "no")

    session = established(options(codecs={200: Picky()})).session
    session.output()
    session.receive(encode(Data(b"x", (OtherExtension(200, b""),))), 0.0)
    assert decode(session.output()).extension_error_code == 0xFF


def test_an_applications_extension_below_128_and_too_many_blocks_are_not_sent():
    session = established().session
    session.output()
    with pytest.raises(LocalProtocolError) as reserved:
        session.send(b"x", extensions=(OtherExtension(99, b""),))
    assert reserved.value.fault is Fault.EXTENSION_UNKNOWN
    with pytest.raises(LocalProtocolError) as many:
        session.request(b"x", 0.0, extensions=(OtherExtension(200, b""),) * 16)
    assert many.value.fault is Fault.BLOCKS_OVER_LIMIT
    assert session.pending == 0
    assert session.output() == b""


def test_answered_requests_leave_nothing_behind():
    session = established().session
    session.output()
    session.request(b"never answered", 0.0, timeout=1.0)
    for number in range(2, 5000):
        session.request(b"", 0.0, timeout=100.0)
        session.receive(encode(Data(b"", (RequestResponse(False, number),))), 0.0)
    session.events()
    assert len(session._requests.expiries) < 3000


def test_after_a_lost_boundary_nothing_more_is_kept():
    session = established().session
    session.output()
    session.receive(b"\xff" * 8, 0.0)
    for _ in range(100):
        session.receive(bytes(1000), 0.0)
    assert len(session.rest) == 8
