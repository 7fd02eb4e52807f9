"""Every ruling on YAMP that a session without sockets can show, each with a test that names it; the others are in tests/peers."""

from __future__ import annotations

import math
import uuid

import pytest
from tests.cases import each
from tests.protocols.yamp import speech
from tests.protocols.yamp.pair import CLIENT, SERVER, Pair, Side, answer, established, options, quiet
from tests.protocols.yamp.speech import OTHER, UID

from wirelake.errors import LocalProtocolError, Redirected, RemoteProtocolError, SessionClosed, UsageError
from wirelake.protocols.yamp import DEFAULT_PORT
from wirelake.protocols.yamp.events import (
    CancelReceived,
    Ended,
    Ending,
    EventReceived,
    Opened,
    RequestExpired,
    RequestReceived,
    ResponseReceived,
    ResponseUnreadable,
)
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import (
    Cancel,
    Close,
    CloseRedirect,
    Event,
    Handshake,
    MessageType,
    Ping,
    Pong,
    Request,
    Response,
    name_of,
)
from wirelake.protocols.yamp.options import DEFAULT_OPTIONS, Limits
from wirelake.protocols.yamp.redirect import MAX_HOPS, follow
from wirelake.protocols.yamp.serializers.registry import STANDARD
from wirelake.protocols.yamp.state_machine import State
from wirelake.protocols.yamp.wire import buffer, decode, encode

REFUSED_FIRST = (speech.ping(), speech.pong(), speech.close(), speech.event(), speech.request(), speech.cancel(), speech.response())


# The handshake.


def test_yamp_1_a_close_redirect_has_two_bytes_of_size_unless_a_switch_says_one():
    said, short = CloseRedirect("tcp://a:1"), Limits(one_byte_redirect_size=True)
    assert encode(said) == b"\x04\x00\x09tcp://a:1"
    assert encode(said, short) == b"\x04\x09tcp://a:1"
    assert decode(b"\x04\x09tcp://a:1", short) == said
    side = established(options(one_byte_redirect_size=True), speaker=CLIENT)
    side.receive(b"\x04\x09tcp://a:1")
    assert side.ended.detail == "tcp://a:1"


def test_yamp_2_version_one_is_00_01():
    assert encode(Handshake()) == b"\x00\x00\x01\x04json"
    assert answer(b"\x00\x01\x00\x04json", handshake=True).reason == "Version 256 not supported. Use 1"


@pytest.mark.parametrize("version", [0, 2, 256, 65535])
def test_yamp_3_an_unsupported_version_is_closed_and_a_connect_error_to_the_client(version):
    result = answer(speech.handshake(version), handshake=True)
    assert result.reason == f"Version {version} not supported. Use 1"
    client = Side(CLIENT)
    client.start()
    client.receive(speech.close(result.reason.encode()))
    assert client.session.state is State.SERVER_LEFT
    assert result.reason in str(client.ended.reason())
    assert not any(isinstance(event, Opened) for event in client.heard)


def test_yamp_4_an_unsupported_serializer_is_closed_and_told_which_to_use():
    result = answer(speech.handshake(1, b"yaml"), handshake=True)
    assert result.reason == "Serializer yaml not supported. Use json, msgpack"
    assert result.ended.fault is Fault.SERIALIZER_UNSUPPORTED


def test_yamp_5_an_empty_serializer_is_never_sent_and_taken_for_the_default_unless_switched_off():
    side = Side(SERVER, options(serializer="msgpack"))
    side.start()
    side.receive(speech.handshake(1, b"") + speech.event(body=b"\xc3"))
    assert side.messages == [Handshake(1, "")], "echoed as it is"
    assert side.heard[1:2] == [Opened(1, "")]
    assert side.delivered[0].body is True
    assert side.noticed == [Fault.SERIALIZER_EMPTY]
    off = answer(speech.handshake(1, b""), options(accept_empty_serializer=False), handshake=True)
    assert off.reason == "Serializer  not supported. Use json, msgpack"
    with pytest.raises(UsageError, match="no serializer ''"):
        Side(CLIENT, options(serializer=""))


def test_yamp_6_serializers_have_exact_names_of_up_to_255_bytes():
    assert list(STANDARD) == ["json", "msgpack"]
    for name in (b"JSON", b"json ", b"Json"):
        assert answer(speech.handshake(1, name), handshake=True).ended is not None
    name = "é" * 127
    own = options(serializer=name, serializers={name: STANDARD["json"]})
    assert Pair(client=own, server=own).start().client.heard == [Opened(1, name)]


def test_yamp_7_one_name_is_offered_and_echoed_or_refused():
    pair = Pair(client=options(serializer="msgpack"), server=options(serializers={"json": STANDARD["json"]})).start()
    assert pair.client.ended.detail == "Serializer msgpack not supported. Use json"
    assert len(pair.client.said) == 1, "no second attempt"
    assert Pair(client=options(serializer="msgpack")).start().server.heard == [Opened(1, "msgpack")]


@pytest.mark.parametrize(
    "echo", [speech.handshake(2), speech.handshake(1, b"msgpack"), speech.handshake(1, b""), speech.handshake(1, b"jso")]
)
def test_yamp_8_a_client_wants_back_what_it_sent(echo):
    result = answer(echo, handshake=True, speaker=CLIENT)
    assert result.reason.startswith("handshake differs: ")
    assert (result.ended.fault, result.delivered) == (Fault.ECHO_DIFFERS, [])


@pytest.mark.parametrize("said", REFUSED_FIRST, ids=lambda said: name_of(type(decode(said))))
def test_yamp_9_yamp_53_the_first_thing_a_client_says_is_a_handshake(said):
    result = answer(said + speech.handshake(), handshake=True)
    assert (result.reason, result.delivered) == ("handshake expected", [])
    assert result.ended.fault is Fault.HANDSHAKE_EXPECTED


@pytest.mark.parametrize(
    "said", [one for one in REFUSED_FIRST if one[0] != MessageType.CLOSE], ids=lambda said: name_of(type(decode(said)))
)
def test_yamp_9_before_its_echo_a_server_may_only_close_or_redirect(said):
    result = answer(said, handshake=True, speaker=CLIENT)
    assert (result.reason, result.ended.here) == ("handshake expected", True)
    for parting, how in ((speech.close(b"no"), Ending.CLOSE), (speech.redirect(), Ending.REDIRECT)):
        result = answer(parting, handshake=True, speaker=CLIENT)
        assert (result.reason, result.ended.how, result.ended.here) == (None, how, False)


def test_yamp_10_a_client_waits_for_the_echo_and_a_server_takes_what_is_queued(cut):
    side = Side(SERVER, cut=cut)
    side.start()
    side.receive(speech.handshake() + speech.event() + speech.request())
    assert [type(event) for event in side.heard] == [Opened, EventReceived, RequestReceived]
    client = Side(CLIENT)
    client.start()
    with pytest.raises(LocalProtocolError) as caught:
        client.session.send("foo")
    assert caught.value.fault is Fault.SPOKE_TOO_SOON


@pytest.mark.parametrize("speaker", [CLIENT, SERVER])
@pytest.mark.parametrize("again", [speech.handshake(), speech.handshake(2), speech.handshake(1, b"yaml")])
def test_yamp_11_a_second_handshake_is_ignored(speaker, again):
    result = answer(again + speech.event(), speaker=speaker)
    assert (result.noticed, result.ended, result.messages) == ([Fault.HANDSHAKE_REPEATED], None, [])
    assert len(result.delivered) == 1


@pytest.mark.parametrize("said", [b"", b"\x00\x00\x01"])
def test_yamp_12_a_handshake_is_waited_for_5_seconds(said):
    """A client of a newer draft sends three bytes, and waits."""
    side = Side(SERVER)
    side.start()
    side.receive(said)
    assert 5 <= side.session.deadline <= 10
    side.wait(10)
    assert side.messages == [Close("handshake timeout")]
    assert DEFAULT_OPTIONS.handshake_timeout == 5.0


# The stream.


def test_yamp_13_a_stream_needs_no_frames(cut):
    said = b"".join(speech.SPOKEN.values())
    stream = buffer()
    pieces = [said[at : at + cut] for at in range(0, len(said), cut)]
    assert sum(len(rows) for piece in pieces for _, rows, _ in stream.feed(piece)) == len(speech.SPOKEN)
    side = established()
    side.receive(speech.event()[:-1])
    side.eof()
    assert side.ended.fault is Fault.CLOSED_INSIDE_MESSAGE


def test_yamp_14_messages_come_out_one_by_one_for_transports_that_keep_them_apart():
    """And may come in by pieces of any size: tests/peers has the WebSockets."""
    side = established()
    side.session.send("a", 1)
    side.session.send("b", 2)
    assert [decode(one).uri for one in side.session.messages()] == ["a", "b"]
    for piece in (b"\x05", UID, b"\x03", b"foo", b"\x00\x00\x00\x01", b"1"):
        side.receive(piece)
    assert side.delivered == [EventReceived("foo", 1, UID, 1)]


def test_yamp_15_over_datagrams_loss_ends_in_timeouts_and_repetition_is_dropped():
    lossy = quiet(datagrams=True, request_timeout=2.0, handshake_timeout=5.0)
    pair = Pair(client=lossy, server=lossy)
    pair.drop = lambda said: pair.client.now < 1
    pair.start().wait(1)
    assert pair.client.heard == [Opened(1, "json")]
    pair.drop = lambda said: False
    uid = pair.client.session.request("a", 1, pair.client.now)
    pair.settle()
    pair.server.receive(pair.client.said[-1])
    assert (len(pair.server.delivered), pair.server.session.ended) == (1, None)
    pair.wait(3)
    assert pair.client.delivered == [RequestExpired(uid)]
    with pytest.raises(LocalProtocolError) as caught:
        pair.client.session.send("a", "x" * 65_507)
    assert caught.value.fault is Fault.DATAGRAM_TOO_LARGE


def test_yamp_16_text_is_utf8_and_counted_in_bytes():
    assert encode(Event(UID, "été", b""))[17] == 5
    for said in (speech.event(b"\xff"), speech.request(b"\xc3")):
        assert answer(said).reason == "uri is not UTF-8"
    assert answer(speech.handshake(1, b"\xff"), handshake=True).reason == "serializer is not UTF-8"
    assert answer(speech.redirect(b"\xff"), speaker=CLIENT).reason == "url is not UTF-8"
    closed = answer(speech.close(b"a\xffb"))
    assert (closed.ended.detail, closed.reason, closed.noticed) == ("a\ufffdb", None, [Fault.REASON_NOT_UTF8])


# Keep-alive and close.


@pytest.mark.parametrize("payload", [b"", b"hi", b"\xff\x00", bytes(255)])
def test_yamp_17_a_payload_is_opaque_and_echoed_verbatim(payload):
    assert answer(speech.ping(payload)).messages == [Pong(payload)]


def test_yamp_17_what_we_send_is_ascii_text():
    side = established(options(ping_interval=30.0))
    side.session.ping(0.0)
    side.wait(31)
    payloads = [one.payload for one in side.messages]
    assert [(len(one), one.isascii(), one.isalnum()) for one in payloads] == [(32, True, True)] * 2


def test_yamp_18_pings_are_optional_and_silence_ends_the_session():
    assert (DEFAULT_OPTIONS.ping_interval, DEFAULT_OPTIONS.ping_timeout) == (None, 10.0)
    side = established(options(ping_interval=30.0))
    side.wait(39.9)
    assert [type(one) for one in side.messages] == [Ping]
    side.wait(0.2)
    assert side.messages[1:] == [Close("ping timeout")]


def test_yamp_19_a_pong_that_answers_nothing_is_ignored():
    side = established(options(ping_timeout=5.0))
    side.receive(speech.pong(b"x"))
    side.session.ping(0.0)
    side.receive(speech.pong(b"x"))
    assert (side.noticed, side.delivered, side.session.ended) == ([Fault.PONG_UNSOLICITED] * 2, [], None)


def test_yamp_20_a_close_is_surfaced_and_not_echoed():
    result = answer(speech.close(b"enough") + speech.ping() + speech.event())
    assert (result.messages, result.delivered) == ([], [])
    assert result.ended == Ended(Ending.CLOSE, CLIENT, False, detail="enough")
    assert str(result.ended.reason()) == "the peer closed the session: enough"
    assert str(answer(speech.close()).ended.reason()) == "the peer closed the session"
    side = established()
    side.session.bye("é" * 40_000)
    side.drain()
    assert len(side.said[0]) == 3 + 65_534


def test_yamp_21_only_a_server_redirects():
    assert answer(speech.redirect()).reason == "redirect by a client"
    with pytest.raises(LocalProtocolError) as caught:
        established(speaker=CLIENT).session.redirect("tcp://a:1")
    assert caught.value.fault is Fault.REDIRECT_BY_CLIENT


@each(
    ("url", "scheme", "complaint"),
    [
        ("http://a:1", "tcp", "not one of"),
        ("file:///etc/passwd", "tcp", "not one of"),
        ("unix:///run/x", "tcp", "of its like"),
        ("udp://a:1", "unix", "of its like"),
        ("udp://a", "udp", "port"),
        ("unix://run/x", "unix", "path"),
        ("unix:", "unix", "path"),
        ("quic://a:1", "tcp", "not one of"),
        ("tcp://a", "tcp", "port"),
        ("tcp://a:0", "tcp", "port"),
        ("tcp://:1", "tcp", "host"),
        ("tcp://a:x", "tcp", "YAMP-22"),
        ("tcp://a:65536", "tcp", "YAMP-22"),
        ("tcp://::1:5000", "tcp", "YAMP-22"),
        ("tcp://[::1:5000", "tcp", "YAMP-22"),
        ("tcp://u:p@a:1", "tcp", "user"),
        ("ws://a:1/x#y", "tcp", "fragment"),
        ("tcp://a:1", "tls", "not encrypted"),
        ("ws://a:1", "wss", "not encrypted"),
        ("ws://a:1", "tls", "not encrypted"),
        ("", "tcp", "not one of"),
        ("a:1", "tcp", "not one of"),
    ],
)
def test_yamp_22_a_redirect_that_must_not_be_followed(url, scheme, complaint):
    with pytest.raises(RemoteProtocolError, match=complaint) as caught:
        follow(url, scheme)
    assert caught.value.fault is Fault.REDIRECT_REFUSED


def test_yamp_22_a_redirect_that_may_be_followed_five_times():
    good = [("tcp://192.168.0.42:5000", "tcp"), ("ws://hostname:8888/hello/world?msg=goodmorning", "tcp"), ("tls://a:1", "tcp")]
    for url, scheme in [*good, ("wss://a:1/x", "tls"), ("tls://[::1]:1", "wss"), ("tcp://[::1]:5000", "ws")]:
        for hops in range(MAX_HOPS):
            assert follow(url, scheme, hops) == url
        with pytest.raises(RemoteProtocolError, match="5 redirects"):
            follow(url, scheme, MAX_HOPS)
    assert MAX_HOPS == 5


def test_yamp_22_a_redirect_of_udp_and_unix_is_followed_to_its_like_and_paths_are_ignored():
    assert follow("udp://a:1", "udp") == "udp://a:1"
    assert follow("unix:///run/x", "unix") == "unix:///run/x"
    assert follow("tcp://a:1/path?q=1", "unix") == "tcp://a:1"
    assert follow("tls://[::1]:1/", "tls") == "tls://[::1]:1"


def test_yamp_23_messages_are_called_what_the_specification_calls_them_in_its_headings():
    assert name_of(CloseRedirect) == "system.close-redirect"
    assert name_of(Handshake) == "system.handshake"


# Requests.


def test_yamp_24_every_user_message_has_a_fresh_uid_of_version_4():
    pair = Pair().start()
    uid = pair.client.session.request("a", 1, 0.0, progressive=True)
    pair.settle()
    pair.server.session.report(uid, 1)
    pair.client.session.cancel(uid)
    pair.settle()
    pair.server.session.respond_cancelled(uid)
    for number in range(600):
        pair.client.session.send("b", number)
    pair.settle()
    uids = [one.uid for side in pair.sides for one in side.messages[1:]]
    assert len(set(uids)) == len(uids) == 604
    assert all((uuid.UUID(bytes=one).version, uuid.UUID(bytes=one).variant) == (4, uuid.RFC_4122) for one in uids)
    assert answer(speech.request(uid=bytes(16))).delivered[0].uid == bytes(16), "any 16 bytes are taken"


def test_yamp_25_a_request_uid_that_is_in_flight_closes():
    assert answer(speech.request() + speech.request(b"other")).reason == "duplicate request uid"
    side = established()
    side.receive(speech.request())
    side.session.respond(UID, 1)
    side.receive(speech.request())
    assert (len(side.delivered), side.session.ended) == (2, None)


def test_yamp_26_a_uri_has_1_to_255_bytes_and_an_empty_one_is_taken():
    side = established()
    for uri in ("", "u" * 256, "é" * 128):
        for attempt in (lambda uri=uri: side.session.send(uri), lambda uri=uri: side.session.request(uri, 1, 0.0)):
            with pytest.raises(LocalProtocolError) as caught:
                attempt()
            assert caught.value.fault is Fault.URI_SIZE
    side.session.send("é" * 127 + "u")
    taken = answer(speech.event(b"") + speech.request(b""))
    assert [one.uri for one in taken.delivered] == ["", ""]
    assert taken.noticed == [Fault.URI_EMPTY] * 2
    side.receive(speech.request(b""))
    side.session.respond(UID, 1)
    side.drain()
    assert side.messages[-1].uri == "", "an answer has the uri of its request, whatever that is"


def test_yamp_27_answers_and_cancels_carry_the_uri_and_are_matched_without_it():
    pair = Pair().start()
    uid = pair.client.session.request("sum", 1, 0.0)
    pair.client.session.cancel(uid)
    pair.settle()
    pair.server.session.respond_cancelled(uid)
    pair.settle()
    assert [one.uri for one in (*pair.client.messages[1:], *pair.server.messages[1:])] == ["sum"] * 3
    side = established(speaker=CLIENT)
    uid = side.session.request("sum", 1, 0.0)
    side.receive(speech.response(uid, uri=b"else"))
    assert side.delivered == [ResponseReceived(uid, 0, 3)]


@pytest.mark.parametrize(("value", "truth"), [(0, False), (1, True), (2, True), (255, True)])
def test_yamp_28_any_number_but_zero_is_true(value, truth):
    side = established()
    side.receive(speech.request(progressive=value) + speech.cancel(UID, kill=value))
    assert [side.delivered[0].progressive, side.delivered[1].kill] == [truth, truth]
    assert side.noticed == [Fault.BOOL_ODD] * 2 * (value > 1)
    assert encode(Request(UID, "a", True))[19] == 1


def test_yamp_29_progress_of_a_request_that_is_not_progressive_is_neither_sent_nor_delivered():
    side = established()
    side.receive(speech.request())
    assert side.session.report(UID, 1) is False
    assert side.session.output() == b""
    client = established(speaker=CLIENT)
    uid = client.session.request("a", 1, 0.0)
    client.receive(speech.response(uid, speech.PROGRESS) + speech.response(uid))
    assert (client.delivered, client.noticed) == ([ResponseReceived(uid, 0, 3)], [Fault.PROGRESS_UNASKED])


@pytest.mark.parametrize("last", [speech.DONE, speech.ERROR, speech.CANCELLED])
def test_yamp_30_one_outcome_ends_an_exchange_and_progress_restarts_the_timeout(last):
    side = established(options(request_timeout=10.0), speaker=CLIENT)
    uid = side.session.request("a", 1, 0.0, progressive=True)
    side.wait(9)
    side.receive(speech.response(uid, speech.PROGRESS))
    assert side.session.deadline == 19.0
    side.receive(speech.response(uid, last) + speech.response(uid, speech.PROGRESS) + speech.response(uid, last))
    assert [type(event).__name__ for event in side.delivered] == ["ProgressReceived", "ResponseReceived"]
    assert side.noticed == [Fault.RESPONSE_UNMATCHED] * 2, "progress after the end, and a second end"


def test_yamp_31_no_bytes_are_no_body_and_a_value_is_always_sent():
    side = established()
    side.receive(speech.event(body=b"") + speech.request(body=b""))
    assert [one.body for one in side.delivered] == [None, None]
    side.session.respond(UID)
    side.session.send("a")
    side.drain()
    assert [one.body for one in side.messages] == [b"null", b"null"]
    packed = established(options(serializer="msgpack"))
    packed.session.send("a")
    packed.receive(speech.request(body=b""))
    packed.session.respond_cancelled(UID)
    packed.drain()
    assert [one.body for one in packed.messages] == [b"\xc0", b""]


def test_yamp_32_a_cancel_of_what_is_finished_or_unknown_is_ignored():
    result = answer(speech.cancel() + speech.cancel(kill=1) + speech.event())
    assert (result.noticed, result.ended, len(result.delivered)) == ([Fault.CANCEL_UNMATCHED] * 2, None, 1)


def test_yamp_33_a_cancelled_request_stays_pending_until_something_comes_of_it():
    side = established(options(request_timeout=10.0), speaker=CLIENT)
    uid = side.session.request("a", 1, 0.0)
    side.session.cancel(uid)
    side.wait(9)
    assert side.session.pending == 1
    side.wait(1)
    assert side.delivered == [RequestExpired(uid)]


def test_yamp_34_a_killed_request_is_resolved_at_once_and_never_answered():
    client = established(speaker=CLIENT)
    uid = client.session.request("a", 1, 0.0)
    client.session.cancel(uid, kill=True)
    assert client.session.pending == 0
    client.receive(speech.response(uid))
    assert (client.delivered, client.noticed) == ([], [Fault.RESPONSE_UNMATCHED])
    server = established()
    server.receive(speech.request() + speech.cancel(UID, kill=1))
    assert server.delivered[-1] == CancelReceived(UID, True)
    with pytest.raises(LocalProtocolError):
        server.session.respond(UID, 1)
    assert server.session.output() == b""


def test_yamp_35_a_cancel_is_matched_by_uid_among_requests_of_that_peer():
    side = established()
    mine = side.session.request("a", 1, 0.0)
    side.receive(speech.request() + speech.cancel(mine) + speech.cancel(UID, uri=b"wrong"))
    assert side.noticed == [Fault.CANCEL_UNMATCHED]
    assert side.delivered[-1] == CancelReceived(UID, False)
    assert side.session.pending == 1


@pytest.mark.parametrize("kind", [4, 255])
def test_yamp_36_an_unknown_response_type_closes(kind):
    assert answer(speech.response(kind=kind)).reason == f"Unknown response type {kind}"


def test_yamp_37_a_response_to_nothing_is_ignored_and_counted():
    result = answer(speech.response() * 3)
    assert (result.noticed, result.ended, result.delivered) == ([Fault.RESPONSE_UNMATCHED] * 3, None, [])


@pytest.mark.parametrize("body", ["bad", {"code": 4}, None, [1]])
def test_yamp_40_an_error_carries_any_body(body):
    pair = Pair().start()
    uid = pair.client.session.request("a", 1, 0.0)
    pair.settle()
    pair.server.session.respond_error(uid, body)
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(uid, 1, body)]


def test_yamp_41_a_request_times_out_after_30_seconds_or_its_own_timeout():
    side = established(speaker=CLIENT)
    side.session.request("a", 1, 0.0)
    assert side.session.deadline == 30.0
    side.session.request("a", 1, 0.0, timeout=4.0)
    assert side.session.deadline == 4.0
    side.session.request("a", 1, 0.0, timeout=math.inf)
    side.wait(60)
    assert (len(side.delivered), side.session.pending, len(side.messages)) == (2, 1, 3)
    assert side.session.deadline is None
    assert DEFAULT_OPTIONS.kill_on_timeout is False
    killing = established(options(kill_on_timeout=True), speaker=CLIENT)
    uid = killing.session.request("a", 1, 0.0)
    killing.wait(31)
    assert killing.messages[-1] == Cancel(killing.messages[-1].uid, "a", uid, True)


@pytest.mark.parametrize("kind", [9, 10, 0x7F, 0xFF])
def test_yamp_42_an_unknown_type_closes(kind):
    assert answer(bytes((kind,)) + speech.event()).reason == f"Unknown type {kind}"


def test_yamp_43_a_body_over_the_limit_closes_before_it_is_there():
    assert answer(speech.event(body=b"", size=2**24 + 1)).reason == "message too large"
    assert answer(speech.event(body=b"", size=2**24)).ended is None
    small = options(max_body_size=4)
    assert answer(speech.request(body=b"", size=5), small).reason == "message too large"
    assert answer(speech.event(body=b"1234"), small).ended is None
    with pytest.raises(LocalProtocolError) as caught:
        established(small).session.send("a", "12345")
    assert caught.value.fault is Fault.BODY_OVER_LIMIT


def test_yamp_44_a_body_that_cannot_be_read_costs_no_connection():
    side = established(speaker=CLIENT)
    uid = side.session.request("a", 1, 0.0)
    side.receive(speech.request(body=b"{") + speech.event(body=b"{") + speech.response(uid, body=b"{"))
    assert side.messages[-1].response_type == 1
    assert side.noticed == [Fault.BODY_UNDECODABLE] * 2
    assert [type(event) for event in side.delivered] == [ResponseUnreadable]
    assert side.session.ended is None


@pytest.mark.parametrize("speaker", [CLIENT, SERVER])
def test_yamp_45_both_sides_may_ask(speaker):
    side = established(speaker=speaker)
    uid = side.session.request("a", 1, 0.0)
    side.receive(speech.request() + speech.response(uid))
    side.session.respond(UID, 1)
    side.drain()
    assert [type(event) for event in side.delivered] == [RequestReceived, ResponseReceived]
    assert isinstance(side.messages[-1], Response)


def test_yamp_48_what_arrives_is_told_in_its_order():
    said = b""
    for number in range(9):
        uri = str(number).encode()
        said += speech.event(uri) if number % 2 else speech.request(uri, uid=bytes((number,)) * 16)
    assert [one.uri for one in answer(said).delivered] == [str(number) for number in range(9)]


@pytest.mark.parametrize(
    ("last", "error"),
    [(speech.close(b"no more"), SessionClosed), (speech.redirect(), Redirected), (b"\x09", RemoteProtocolError)],
)
def test_yamp_49_the_end_carries_the_error_that_pending_requests_fail_with(last, error):
    side = established(speaker=CLIENT)
    side.session.request("a", 1, 0.0)
    side.receive(last)
    assert type(side.ended.reason()) is error
    assert side.session.pending == 0


def test_yamp_50_sizes_are_those_of_the_boxes():
    assert len(encode(Event(UID, "", b""))) == 1 + 16 + 1 + 4
    assert len(encode(Request(UID, "", False, b""))) == 1 + 16 + 1 + 1 + 4
    assert len(encode(Cancel(UID, "", OTHER))) == 1 + 16 + 1 + 16 + 1
    assert len(encode(Response(UID, "", OTHER))) == 1 + 16 + 1 + 16 + 1 + 4
    assert len(encode(Handshake(1, ""))) == 1 + 2 + 1


def test_yamp_51_there_is_no_default_port():
    assert DEFAULT_PORT is None
