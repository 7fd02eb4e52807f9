"""Every fault has its rule, and a way to bring it about."""

from __future__ import annotations

import pytest
from tests.cases import each
from tests.protocols.yamp import speech
from tests.protocols.yamp.pair import CLIENT, SERVER, Side, answer, established, options, quiet
from tests.protocols.yamp.speech import OTHER, UID

from wirelake.errors import LocalProtocolError, ProtocolError
from wirelake.protocols.yamp.events import ResponseUnreadable
from wirelake.protocols.yamp.faults import TOLERATED, UNREADABLE, Fault
from wirelake.protocols.yamp.messages import Event, Handshake
from wirelake.protocols.yamp.redirect import follow
from wirelake.protocols.yamp.state_machine import State, refusal
from wirelake.protocols.yamp.wire import decode, encode

HEARD: dict[Fault, bytes] = {
    Fault.TYPE_UNKNOWN: b"\x09",
    Fault.BODY_OVER_LIMIT: speech.event(body=b"", size=2**32 - 1),
    Fault.URI_NOT_UTF8: speech.request(b"\xff"),
    Fault.RESPONSE_TYPE_UNKNOWN: speech.response(kind=4),
    Fault.REDIRECT_BY_CLIENT: speech.redirect(),
    Fault.REQUEST_UID_IN_FLIGHT: speech.request() * 2,
    Fault.BOOL_ODD: speech.request(progressive=2),
    Fault.URI_EMPTY: speech.event(b""),
    Fault.HANDSHAKE_REPEATED: speech.handshake(),
    Fault.PONG_UNSOLICITED: speech.pong(b"x"),
    Fault.RESPONSE_UNMATCHED: speech.response(),
    Fault.CANCEL_UNMATCHED: speech.cancel(),
    Fault.BODY_UNDECODABLE: speech.event(body=b"{"),
}
"""Fault -> what a client says after the handshake to bring it about."""

GREETED: dict[Fault, bytes] = {
    Fault.HANDSHAKE_EXPECTED: speech.ping(),
    Fault.SERIALIZER_NOT_UTF8: speech.handshake(1, b"\xff"),
    Fault.VERSION_UNSUPPORTED: speech.handshake(2),
    Fault.SERIALIZER_UNSUPPORTED: speech.handshake(1, b"yaml"),
    Fault.SERIALIZER_EMPTY: speech.handshake(1, b""),
}
"""Fault -> what a client says first."""

TOLD: dict[Fault, bytes] = {
    Fault.URL_NOT_UTF8: speech.redirect(b"\xff"),
    Fault.ECHO_DIFFERS: speech.handshake(1, b"msgpack"),
}
"""Fault -> what a server says to a client that greeted."""

REASONS = {
    Fault.TYPE_UNKNOWN: "Unknown type 9",
    Fault.BODY_OVER_LIMIT: "message too large",
    Fault.RESPONSE_TYPE_UNKNOWN: "Unknown response type 4",
    Fault.REQUEST_UID_IN_FLIGHT: "duplicate request uid",
    Fault.HANDSHAKE_EXPECTED: "handshake expected",
    Fault.VERSION_UNSUPPORTED: "Version 2 not supported. Use 1",
    Fault.SERIALIZER_UNSUPPORTED: "Serializer yaml not supported. Use json, msgpack",
}


def handshake_timeout():
    side = Side(SERVER)
    side.start()
    side.wait(6)
    return side.ended.fault


def ping_timeout():
    side = established(options(ping_interval=5.0))
    side.wait(30)
    return side.ended.fault


def cut(held):
    side = established()
    side.receive(speech.event()[:held])
    side.eof()
    return side.ended.fault


def reason_not_utf8():
    side = established()
    side.receive(speech.close(b"\xff"))
    assert side.ended.detail == "\ufffd"
    return side.noticed[0]


def progress_unasked():
    side = established(speaker=CLIENT)
    uid = side.session.request("a", 1, 0.0)
    side.receive(speech.response(uid, speech.PROGRESS))
    return side.noticed[0]


def datagram(data):
    side = established(quiet(datagrams=True))
    side.receive(speech.request())
    side.receive(data)
    return side.noticed[0]


LIVED = {
    Fault.HANDSHAKE_TIMEOUT: handshake_timeout,
    Fault.PING_TIMEOUT: ping_timeout,
    Fault.CLOSED_WITHOUT_WORD: lambda: cut(0),
    Fault.CLOSED_INSIDE_MESSAGE: lambda: cut(3),
    Fault.REASON_NOT_UTF8: reason_not_utf8,
    Fault.PROGRESS_UNASKED: progress_unasked,
    Fault.DATAGRAM_CUT: lambda: datagram(b"\x05"),
    Fault.REQUEST_REPEATED: lambda: datagram(speech.request()),
    Fault.SPOKE_AFTER_CLOSE: lambda: refusal(State.CLOSED, SERVER, Event),
}
"""Fault -> a story that ends with it. A session hears nothing after a close: that one is the auditor's."""


def raised(attempt):
    with pytest.raises(ProtocolError) as caught:
        attempt()
    return caught.value


def too_soon():
    side = Side(SERVER)
    side.start()
    side.session.send("foo")


LOCAL = {
    Fault.MESSAGE_CUT: lambda: decode(b""),
    Fault.BYTES_AFTER_MESSAGE: lambda: decode(speech.ping() + b"\x00"),
    Fault.SPOKE_TOO_SOON: too_soon,
    Fault.URI_SIZE: lambda: established().session.send(""),
    Fault.FIELD_OUT_OF_RANGE: lambda: encode(Handshake(65536)),
    Fault.BODY_UNSERIALIZABLE: lambda: established().session.send("foo", object()),
    Fault.REQUEST_NOT_IN_FLIGHT: lambda: established().session.respond(UID),
    Fault.REDIRECT_REFUSED: lambda: follow("gopher://host:1", "tcp"),
    Fault.DATAGRAM_TOO_LARGE: lambda: established(quiet(datagrams=True)).session.send("foo", "x" * 70_000),
}
"""Fault -> how calling code, or bytes given to `decode`, bring it about."""


def test_every_fault_can_be_brought_about():
    unheard = {Fault.PONG_MISSING, Fault.UID_REUSED, Fault.ANSWERED_AFTER_KILL}
    assert sorted([*HEARD, *GREETED, *TOLD, *LIVED, *LOCAL]) == sorted(set(Fault) - unheard), "which only an observer finds"


@each("fault", [*HEARD, *GREETED, *TOLD], ids=lambda fault: fault.name)
@each("size", [1, 4096])
def test_what_a_peer_says_is_the_fault_and_is_answered_by_its_rule(fault, size):
    said = {**HEARD, **GREETED, **TOLD}[fault]
    result = answer(said, handshake=fault not in HEARD, cut=size, speaker=CLIENT if fault in TOLD else SERVER)
    if fault in TOLERATED:
        assert (result.noticed, result.ended, result.reason) == ([fault], None, None)
        return
    assert (result.ended.fault, result.ended.here) == (fault, True)
    assert result.reason is not None
    assert REASONS.get(fault, result.reason) == result.reason
    assert result.reason.startswith(fault.rule.close_reason.partition("{")[0])
    assert len(result.delivered) == (1 if fault is Fault.REQUEST_UID_IN_FLIGHT else 0)


@pytest.mark.parametrize("fault", LIVED, ids=lambda fault: fault.name)
def test_a_story_ends_with_the_fault(fault):
    assert LIVED[fault]() is fault


@pytest.mark.parametrize("fault", LOCAL, ids=lambda fault: fault.name)
def test_calling_code_is_told(fault):
    error = raised(LOCAL[fault])
    assert error.fault is fault
    assert isinstance(error, LocalProtocolError) or fault in (*UNREADABLE, Fault.REDIRECT_REFUSED)
    assert str(error).startswith(f"{fault.clause}: {fault.text}")


def test_no_reason_is_given_for_what_is_tolerated():
    assert [fault for fault in TOLERATED if fault.rule.close_reason is not None] == []


def test_an_unreadable_response_does_not_end_the_session():
    side = established(speaker=CLIENT)
    uid = side.session.request("a", 1, 0.0)
    side.receive(speech.response(uid, body=b"{"))
    assert isinstance(side.delivered[0], ResponseUnreadable)
    assert side.noticed == []
    assert uid != OTHER
