"""Every ruling on EMP, each with a test that names it. What it says is in docs and rulings; what it means is here."""

from __future__ import annotations

import re
import sys

import pytest
from tests.protocols.emp import speech
from tests.protocols.emp.pair import CLIENT, EXTENDED, QUIET, SERVER, Pair, Side, answer, established, options

from wirelake.errors import ConnectionLost, DecodeError, LocalProtocolError, SessionClosed
from wirelake.protocols.emp.events import DataReceived, Ending, Opened, RequestReceived, ResponseReceived
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import (
    DEFAULT_PORT,
    Bye,
    Compression,
    Data,
    Error,
    ErrorCode,
    ExtensionId,
    Hello,
    Ping,
    Pong,
    RequestResponse,
)
from wirelake.protocols.emp.options import DEFAULT_OPTIONS, Limits
from wirelake.protocols.emp.requests import LAST_ID
from wirelake.protocols.emp.wire import decode, encode, pack, plain

RULINGS = range(1, 48)
LIVE = {
    34: "tests/peers: write the error, shut down the write side, drain briefly, close",
    42: "tests/peers: TLS inside which the framing is the same",
}
"""What a session without sockets cannot show, and where it is tested."""


def codes(result):
    """(error code, extension id, extension error code) of the answer; None if nothing was said."""
    assert result.ended is not None, "accepted"
    assert result.delivered == []
    return None if result.error is None else (result.error.error_code, result.error.extension_id, result.error.extension_error_code)


def test_every_ruling_has_a_test_that_names_it():
    named = {
        int(number) for name in vars(sys.modules[__name__]) if name.startswith("test_emp_") for number in re.findall(r"emp_(\d+)", name)
    }
    missing = sorted(set(RULINGS) - named - set(LIVE))
    assert missing == []
    assert named <= set(RULINGS)
    assert not named & set(LIVE), "tested here after all: take it off the list"


# The envelope and its blocks.


def test_emp_1_an_envelope_counts_its_own_size():
    assert encode(Ping()) == bytes.fromhex("00000008 02000000")
    for size in range(8):
        assert codes(answer(size.to_bytes(4) + speech.ping)) == (3, 0, 0)
    assert answer(speech.ping).ended is None


def test_emp_1_emp_2_the_option_for_peers_that_count_otherwise():
    exclusive = Limits(sizes_exclude_themselves=True)
    said = Data(b"x", (RequestResponse(True, 1),))
    assert encode(said, exclusive) == bytes.fromhex("00000019 05800000 00000010 00000000 80000000 0000000000000001 78")
    assert decode(encode(said, exclusive), exclusive) == said
    assert DEFAULT_OPTIONS.limits.sizes_exclude_themselves is False


def test_emp_2_a_block_counts_its_own_size_and_ends_inside_its_envelope():
    for size in range(8):
        assert codes(answer(speech.data(bytes(20), speech.block(200, size=size)), EXTENDED)) == (3, 0, 0)
    assert codes(answer(speech.data(bytes(20), speech.block(200, size=29)), EXTENDED)) == (3, 0, 0)
    assert answer(speech.data(bytes(20), speech.block(200, size=28)), EXTENDED).ended is None


def test_emp_3_an_extension_error_is_4():
    assert (ErrorCode.PROTOCOL, ErrorCode.EXTENSION) == (3, 4)
    assert codes(answer(speech.request(0)))[0] == 4


def test_emp_4_extension_ids():
    assert (ExtensionId.REQUEST_RESPONSE, ExtensionId.COMPRESSION) == (0, 1)
    assert codes(answer(speech.data(b"", speech.block(2)), EXTENDED)) == (4, 2, 0)
    assert codes(answer(speech.data(b"", speech.block(127)), EXTENDED)) == (4, 127, 0)
    assert answer(speech.data(b"", speech.block(255)), EXTENDED).ended is None


def test_emp_5_unused_bits_are_sent_as_zero_and_ignored():
    said = speech.envelope(
        *(
            speech.DATA,
            b"x",
            speech.block(0, b"\xff\xff\xff\xff" + bytes(7) + b"\x05", more=True, unused=b"\x7f\xff\xff")
            + speech.gz(0, unused=b"\xff\xff\xff"),
        ),
        unused=b"\x7f\xff\xff",
    )
    result = answer(said)
    assert result.delivered == [RequestReceived(5, b"x")]
    assert result.noticed == [Fault.UNUSED_BITS_SET]
    assert encode(decode(said)) == speech.data(b"x", speech.rr(True, 5, more=True) + speech.gz(0))
    assert answer(speech.envelope(speech.HELLO, b"\x01\xff\xff\xff"), handshake=True).ended is None


def test_emp_6_extension_fields_of_an_error_count_only_with_code_4():
    assert codes(answer(speech.envelope(6))) == (3, 0, 0)
    result = answer(speech.error(3, b"", extension_id=7, extension_error_code=9))
    assert (result.error, result.ended.error.error_code, result.ended.fault) == (None, 3, None)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (speech.data(b"", speech.block(0, bytes(11))), (4, 0, 1)),
        (speech.data(b"", speech.block(1, bytes(3))), (4, 1, 1)),
        (speech.request(0), (4, 0, 2)),
        (speech.data(b"", speech.rr(True, 1, more=True) + speech.rr(True, 2)), (4, 0, 3)),
        (speech.data(b"", speech.gz(2)), (4, 1, 2)),
        (speech.data(b"no", speech.gz(1)), (4, 1, 3)),
        (speech.data(pack(bytes(1001)), speech.gz(1)), (4, 1, 4)),
        (speech.data(b"", speech.gz(0, more=True) * 4 + speech.gz(0)), (4, 1, 5)),
    ],
)
def test_emp_7_extension_error_codes(said, expected):
    assert codes(answer(said, options(max_body_size=1000))) == expected


def test_emp_7_any_extension_error_code_is_accepted():
    for code in (0, 6, 255):
        assert answer(speech.error(4, b"", extension_id=200, extension_error_code=code)).ended.error.extension_error_code == code


def test_emp_8_several_blocks_of_one_extension():
    two = speech.rr(True, 1, more=True) + speech.rr(True, 1)
    assert codes(answer(speech.data(b"", two))) == (4, 0, 3)
    body = b"deep"
    for depth in range(1, 5):
        body = pack(body)
        blocks = speech.gz(1, more=True) * (depth - 1) + speech.gz(1)
        assert answer(speech.data(body, blocks)).delivered == [DataReceived(b"deep")]
    assert codes(answer(speech.data(pack(body), speech.gz(1, more=True) * 4 + speech.gz(1)))) == (4, 1, 5)


@pytest.mark.parametrize("kind", [speech.BYE, speech.PING, speech.PONG, speech.DATA])
def test_emp_9_an_unknown_extension_is_not_skipped(kind):
    assert codes(answer(speech.envelope(kind, b"", speech.block(9)))) == (4, 9, 0)
    assert codes(answer(speech.envelope(kind, b"", speech.block(201)))) == (4, 201, 0)
    assert codes(answer(speech.envelope(kind, b"", speech.block(200, more=True) + speech.block(201)), EXTENDED)) == (4, 201, 0)


def test_emp_9_a_registered_extension_is_undone():
    assert answer(speech.data(b"abc", speech.block(200)), EXTENDED).delivered[0].body == b"cba"


def test_emp_10_the_e_bit_announces_a_block():
    for room in range(8):
        assert codes(answer(speech.envelope(speech.DATA, bytes(room), e=True))) == (3, 0, 0)
    assert answer(speech.envelope(speech.DATA, speech.rr(True, 0), e=False)).delivered == [DataReceived(speech.rr(True, 0))]


def test_emp_11_the_m_bit_announces_another_block():
    for room in range(8):
        assert codes(answer(speech.data(bytes(room), speech.rr(True, 1, more=True)))) == (3, 0, 0)
    assert codes(answer(speech.data(b"", speech.rr(True, 1, more=True) + speech.block(200, size=9)))) == (3, 0, 0)


# Requests.


def test_emp_12_identifier_zero_is_refused():
    assert codes(answer(speech.request(0))) == (4, 0, 2)
    assert codes(answer(speech.response(0))) == (4, 0, 2)


def test_emp_13_identifiers_are_per_connection_and_direction():
    pair = Pair().start()
    assert [pair.client.session.request(b"", 0.0), pair.server.session.request(b"", 0.0)] == [1, 1]
    pair.settle()
    assert [side.session.ended for side in pair.sides] == [None, None]
    assert established().session.request(b"", 0.0) == 1, "a new connection counts anew"
    side = established()
    side.session._requests._last_id = LAST_ID
    with pytest.raises(LocalProtocolError) as caught:
        side.session.request(b"", 0.0)
    assert caught.value.fault is Fault.IDENTIFIERS_EXHAUSTED


@pytest.mark.parametrize("kind", [speech.BYE, speech.PING, speech.PONG])
def test_emp_14_requests_only_on_data(kind):
    assert codes(answer(speech.envelope(kind, b"", speech.rr(True, 1)))) == (3, 0, 0)
    assert answer(speech.request(1, kind=200), EXTENDED).ended is None


@pytest.mark.parametrize("kind", [speech.BYE, speech.PING, speech.PONG])
def test_emp_15_compression_only_on_data(kind):
    assert codes(answer(speech.envelope(kind, b"", speech.gz(0)))) == (3, 0, 0)
    assert answer(speech.envelope(200, b"x", speech.gz(0)), EXTENDED).ended is None


def test_emp_16_an_unmatched_response_ends_the_session():
    assert codes(answer(speech.response(1))) == (3, 0, 0)


def test_emp_16_one_late_answer_is_swallowed():
    side = established(options(request_timeout=1.0))
    side.session.request(b"", 0.0)
    side.wait(1)
    side.receive(speech.response(1))
    assert (side.session.ended, side.noticed, side.delivered) == (None, [Fault.RESPONSE_LATE], [])
    side.receive(speech.response(1))
    assert side.ended.fault is Fault.RESPONSE_UNMATCHED


def test_emp_16_a_second_answer_to_an_answered_request_is_unmatched():
    side = established()
    side.session.request(b"", 0.0)
    side.receive(speech.response(1) * 2)
    assert side.delivered == [ResponseReceived(1, b"")]
    assert side.ended.fault is Fault.RESPONSE_UNMATCHED


@pytest.mark.parametrize("in_order", [False, True])
def test_emp_17_any_order_or_the_order_asked(in_order):
    side = established(options(in_order=in_order))
    side.receive(speech.request(1) + speech.request(2))
    side.session.respond(2, b"")
    side.session.respond(1, b"")
    side.drain()
    assert [one.extensions[0].request_id for one in side.messages] == ([1, 2] if in_order else [2, 1])
    asker = established()
    asker.session.request(b"", 0.0)
    asker.session.request(b"", 0.0)
    asker.receive(speech.response(2) + speech.response(1))
    assert [event.request_id for event in asker.delivered] == [2, 1], "any order is accepted"


def test_emp_18_an_identifier_in_flight_is_refused_and_later_reuse_is_not():
    side = established()
    side.receive(speech.request(7))
    side.session.respond(7, b"")
    side.receive(speech.request(7))
    assert side.session.ended is None
    side.receive(speech.request(7))
    assert side.ended.fault is Fault.REQUEST_ID_IN_FLIGHT
    assert side.messages[-1].error_code == 3


def test_emp_19_a_request_without_a_handler_is_answered_with_an_error():
    assert codes(answer(speech.request(1), options(answers_requests=False))) == (0, 0, 0)
    side = established()
    side.receive(speech.request(1))
    side.session.fail(Fault.HANDLER_FAILED)
    side.drain()
    assert side.messages[-1].error_code == 0
    side = established()
    side.receive(speech.request(1))
    side.session.fail(Fault.HANDLER_FAILED, error_code=130)
    side.drain()
    assert side.messages[-1].error_code == 130, "the application's own code"


# Messages.


@pytest.mark.parametrize(("kind", "said"), [(speech.BYE, Bye()), (speech.PING, Ping()), (speech.PONG, Pong())])
def test_emp_20_no_body_is_sent_and_one_is_ignored(kind, said):
    assert len(encode(said)) == 8
    assert decode(speech.envelope(kind, b"body")) == said
    assert Fault.BODY_IGNORED in answer(speech.envelope(kind, b"body")).noticed


@pytest.mark.parametrize("size", [0, 3, 5, 8])
def test_emp_21_a_hello_has_four_bytes(size):
    assert codes(
        answer(speech.envelope(speech.HELLO, b"\x01" + bytes(7))[: 8 + size].replace(b"\x10", bytes((8 + size,)), 1), handshake=True)
    ) == (3, 0, 0)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (speech.error(3, b"bad \xff\xfe"), "bad \ufffd\ufffd"),
        (speech.error(3, b"short", length=99), "short"),
        (speech.envelope(speech.ERROR, b"\x03\x00"), ""),
        (speech.envelope(speech.ERROR), ""),
        (speech.envelope(speech.ERROR, bytes(6), speech.block(99)), ""),
        (speech.envelope(speech.ERROR, bytes(6), e=True), None),
    ],
)
@pytest.mark.parametrize("handshake", [False, True])
def test_emp_22_an_error_is_never_answered(said, text, handshake):
    result = answer(said, handshake=handshake)
    assert codes(result) is None
    assert (result.ended.how, result.ended.by, result.ended.here) == (Ending.ERROR, CLIENT, False)
    if text is not None:
        assert result.ended.error.message == text


@pytest.mark.parametrize("code", [0, 4, 5, 127, 128, 255])
def test_emp_23_unknown_error_codes_are_accepted(code):
    result = answer(speech.error(code, b"why"))
    assert codes(result) is None
    assert result.ended.error == Error(code, 0, 0, "why")
    assert str(code) in str(result.ended.reason())


@pytest.mark.parametrize("kind", [6, 127])
def test_emp_24_reserved_types_are_refused(kind):
    assert codes(answer(speech.envelope(kind), EXTENDED)) == (3, 0, 0)


def test_emp_24_application_types_need_a_handler():
    assert codes(answer(speech.envelope(200))) == (3, 0, 0)
    assert answer(speech.envelope(200, b"x"), EXTENDED).delivered == [DataReceived(b"x", 200)]


# The handshake.


def test_emp_25_a_second_hello_ends_the_session():
    assert codes(answer(speech.hello())) == (3, 0, 0)
    side = Side(SERVER)
    side.start()
    side.receive(speech.hello() * 2)
    assert side.ended.fault is Fault.HELLO_REPEATED


@pytest.mark.parametrize("said", [speech.bye, speech.error(0)], ids=["bye", "error"])
def test_emp_26_bye_and_error_may_come_first(said):
    assert codes(answer(said, handshake=True)) is None


@pytest.mark.parametrize("said", [speech.ping, speech.pong, speech.data(b"x"), speech.envelope(200), speech.envelope(6), bytes(4)])
def test_emp_26_nothing_else_may(said):
    assert codes(answer(said, EXTENDED, handshake=True)) == (3, 0, 0)


@pytest.mark.parametrize("version", [0, 2, 255])
def test_emp_27_the_version_is_1(version):
    """The text asks to close; error 3 is an option."""
    result = answer(speech.hello(version), handshake=True)
    assert (result.ended.fault, result.error) == (Fault.VERSION_UNSUPPORTED, None)
    result = answer(speech.hello(version), options(answers_other_versions=True), handshake=True)
    assert codes(result) == (3, 0, 0)
    assert "a version that is not supported here" in result.error.message
    assert encode(Hello()) == speech.hello(1)


def test_emp_28_nothing_is_sent_before_the_peers_hello():
    side = Side(CLIENT)
    side.start()
    with pytest.raises(LocalProtocolError) as caught:
        side.session.send(b"")
    assert caught.value.fault is Fault.SPOKE_TOO_SOON
    side.receive(speech.hello() + speech.data(b"same segment"))
    assert side.heard == [Opened(1), DataReceived(b"same segment")]


def test_emp_29_five_seconds_for_the_handshake():
    assert DEFAULT_OPTIONS.handshake_timeout == 5.0
    side = Side(CLIENT)
    side.start()
    side.wait(5)
    assert [one.error_code for one in side.messages[1:]] == [2]


# Ping and pong.


def test_emp_30_an_unsolicited_pong_is_ignored():
    side = established()
    side.receive(speech.pong * 3)
    assert (side.session.ended, side.said, side.noticed) == (None, b"", [Fault.PONG_UNSOLICITED] * 3)


def test_emp_31_pings_do_not_overlap_but_every_one_is_answered():
    side = established(options(pong_timeout=1000.0))
    side.wait(500)
    assert side.messages == [Ping()], "one, however long the pong takes"
    side.receive(speech.ping * 3)
    assert side.messages == [Ping(), Pong(), Pong(), Pong()]


def test_emp_32_ping_after_ten_seconds_and_ten_for_the_pong():
    assert (DEFAULT_OPTIONS.ping_interval, DEFAULT_OPTIONS.pong_timeout) == (10.0, 10.0)
    side = established()
    side.wait(10)
    assert side.messages == [Ping()]
    side.wait(9)
    side.receive(speech.data(b"other traffic"))
    side.wait(1)
    assert [one.error_code for one in side.messages[1:]] == [2]


# The end.


def test_emp_33_a_bye_is_not_answered_and_fails_what_is_pending():
    side = established()
    side.session.request(b"?", 0.0)
    side.drain()
    said = side.said
    side.receive(speech.bye)
    assert (side.said, side.session.pending, side.ended.how, side.ended.here) == (said, 0, Ending.BYE, False)
    assert type(side.ended.reason()) is SessionClosed


def test_emp_33_after_our_bye_what_comes_is_discarded():
    side = established()
    side.session.bye()
    side.receive(speech.data(b"late") + speech.ping + speech.envelope(6))
    assert (side.messages, side.delivered) == ([Bye()], [])


def test_emp_35_the_size_is_checked_on_its_four_bytes():
    assert DEFAULT_OPTIONS.limits.max_message_size == 16 * 1024 * 1024
    assert codes(answer((16 * 1024 * 1024 + 1).to_bytes(4))) == (3, 0, 0)
    assert answer((16 * 1024 * 1024).to_bytes(4)).ended is None
    with pytest.raises(LocalProtocolError) as caught:
        encode(Data(bytes(93)), Limits(max_message_size=100))
    assert caught.value.fault is Fault.SIZE_OVER_LIMIT


def test_emp_36_sixteen_blocks():
    assert DEFAULT_OPTIONS.limits.max_extension_blocks == 16
    assert answer(speech.data(b"", speech.blocks(16)), EXTENDED).ended is None
    assert codes(answer(speech.data(b"", speech.blocks(17)), EXTENDED)) == (3, 0, 0)


@pytest.mark.parametrize(
    "body", [b"", b"x", pack(b"a") + b"x", pack(b"a")[:-1], b"x" + pack(b"a")], ids=["empty", "no", "trailing", "cut", "leading"]
)
def test_emp_37_what_is_not_gzip_is_refused(body):
    assert codes(answer(speech.data(body, speech.gz(1)))) == (4, 1, 3)


def test_emp_37_members_are_joined_and_the_output_has_a_limit():
    assert answer(speech.data(pack(b"a") + pack(b"b"), speech.gz(1))).delivered == [DataReceived(b"ab")]
    assert answer(speech.data(b"as it is", speech.gz(0))).delivered == [DataReceived(b"as it is")]
    small = options(max_body_size=10)
    assert answer(speech.data(pack(bytes(10)), speech.gz(1)), small).ended is None
    assert codes(answer(speech.data(pack(bytes(11)), speech.gz(1)), small)) == (4, 1, 4)
    assert DEFAULT_OPTIONS.limits.max_body_size == DEFAULT_OPTIONS.limits.max_message_size


@pytest.mark.parametrize("scheme", [2, 255])
def test_emp_38_an_unknown_scheme(scheme):
    assert codes(answer(speech.data(b"x", speech.gz(scheme)))) == (4, 1, 2)


def test_emp_39_request_first_compression_last_undone_from_the_end():
    side = established()
    side.session.request(b"x", 0.0, compress=True)
    side.drain()
    assert side.messages == [Data(pack(b"x"), (RequestResponse(True, 1), Compression(1)))]
    swapped = speech.data(pack(b"x"), speech.gz(1, more=True) + speech.rr(True, 1))
    assert answer(swapped).delivered == [RequestReceived(1, b"x")]
    with pytest.raises(DecodeError) as caught:
        plain(Data(b"not gzip", (Compression(1), Compression(2))))
    assert caught.value.fault is Fault.SCHEME_UNKNOWN, "the last is undone first"
    assert codes(answer(speech.data(b"not gzip", speech.gz(1, more=True) + speech.gz(2)))) == (4, 1, 2)
    assert codes(answer(speech.data(b"not gzip", speech.gz(2, more=True) + speech.gz(1)))) == (4, 1, 3)
    identity_last = Data(pack(b"x"), (Compression(1), Compression(0)))
    assert plain(identity_last) == b"x"


def test_emp_40_strings_count_bytes_and_are_cut_between_characters():
    assert encode(Error(0, 0, 0, "hello"))[12:] == bytes.fromhex("0005 68656c6c6f")
    assert encode(Error(0, 0, 0, "é"))[12:14] == b"\x00\x02"
    assert decode(encode(Error(0, 0, 0, "é" * 40_000))).message == "é" * 32_767
    assert len(encode(Error(0, 0, 0, "abc"))) == 8 + 6 + 3, "no padding"


def test_emp_41_bytes_after_an_errors_text_close_without_a_word():
    result = answer(speech.error(3, b"text and more", length=4))
    assert codes(result) is None
    assert result.ended.fault is Fault.ERROR_TRAILING_BYTES


def test_emp_43_the_end_of_the_stream_is_abnormal():
    for held, fault in ((0, Fault.CLOSED_WITHOUT_PARTING), (5, Fault.CLOSED_INSIDE_MESSAGE)):
        side = established()
        side.session.request(b"?", 0.0)
        side.receive(speech.ping[:held])
        side.eof()
        assert (side.ended.how, side.ended.fault, side.session.pending) == (Ending.CLOSED, fault, 0)
        assert type(side.ended.reason()) is ConnectionLost


def test_emp_44_application_types_are_128_to_255():
    every = options(application_types=frozenset(range(256)))
    accepted = [kind for kind in range(6, 256) if answer(speech.envelope(kind), every).ended is None]
    assert accepted == list(range(128, 256))


def test_emp_45_an_io_error_is_accepted():
    result = answer(speech.error(1, b"disk"))
    assert codes(result) is None
    assert result.ended.error.error_code == ErrorCode.IO


def test_emp_46_the_first_identifier_is_1():
    side = established(QUIET)
    assert [side.session.request(b"", 0.0) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    "blocks", [speech.rr(True, 1), speech.gz(0), speech.block(200), speech.block(9)], ids=["rr", "gz", "own", "unknown"]
)
def test_emp_47_a_hello_carries_no_extension(blocks):
    assert codes(answer(speech.envelope(speech.HELLO, b"\x01\x00\x00\x00", blocks), EXTENDED, handshake=True)) == (3, 0, 0)


def test_the_default_port_is_5040():
    assert DEFAULT_PORT == 5040
