"""The rulings of calls, by their numbers: WOLP-13 to WOLP-21 as a session keeps them, and the limits of WOLP-29."""

from __future__ import annotations

import math
import re

import pytest
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, TRUSTED, Pair, codes, read, say, session

from wirelake.errors import LocalProtocolError
from wirelake.protocols.wolpertinger.events import (
    CallDone,
    CallFailed,
    CallReceived,
    CallReturned,
    Ended,
    ErrorReceived,
    Failure,
    Noticed,
)
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.messages import Encryption
from wirelake.protocols.wolpertinger.options import Method
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState
from wirelake.protocols.wolpertinger.wire import decode, opened

CLIENT, SERVER = Speaker.CLIENT, Speaker.SERVER
CLUSTER = bytes(range(16))
SESAME = "open, sesame"
NOBODY = "00000000-0000-0000-0000-000000000000"
ECHO = Call("Sample", "Echo", CALL_ID, ("hi",))


def test_wolp_13_and_14_what_is_answered_comes_from_the_document():
    replies = say(session(), documents.encode(ECHO).replace(b"</RemoteMethodCall>", b"<Extra/></RemoteMethodCall>"))
    assert read(replies) == [Error("Sample", 301, CALL_ID)]


def test_wolp_15_only_codes_of_the_schema_are_sent_and_any_is_heard():
    one = session()
    with pytest.raises(LocalProtocolError) as caught:
        one.send_error("Sample", 1, 0.0)
    assert caught.value.fault is Fault.ERROR_CODE_INVALID
    one.send_error("Sample", 502, 0.0)
    assert codes(one.messages()) == [502]
    say(one, documents.encode(Error("Core", 100)).replace(b"100", b"1"))
    say(one, Error("Core", 502), 2)
    assert [(event.code, event.name) for event in one.events()] == [(1, None), (502, "ItemNotFoundError")]


def test_wolp_16_an_error_is_never_answered_whatever_is_wrong_with_it():
    good = documents.encode(Error("Core", 303, CALL_ID))
    for document in (good, good.replace(b"303", b"many"), good.replace(b"</RemoteError>", b""), good.replace(b"<CallId>", b"<X/><CallId>")):
        for trust_state, keys in ((STRANGER, None), (TRUSTED, KEYS), (TRUSTED, None)):
            assert say(session(trust_state=trust_state), document, 1, keys) == [b"result:0;message_id:1;"]


def test_wolp_16_an_invalid_response_is_answered_once_without_a_call_id():
    replies = say(session(), documents.encode(Response("C", CALL_ID, True)).replace(b"ResponseValue", b"Value"))
    assert read(replies) == [Error("C", 301)]


def test_wolp_17_limits_of_documents_are_options():
    one = session(documents=documents.DocumentLimits(max_size=100))
    assert codes(say(one, ECHO)) == [301]


def test_wolp_18_values_come_as_they_were_sent():
    pair = Pair(server={"components": {"Sample": {"Any": pair_any()}}})
    values = (True, 2**31 - 1, 2**63, 1.5, "ä", (1, "two"))
    pair.client.call("Sample", "Any", values, 0.0)
    (event,) = pair.talk().events(SERVER, CallReceived)
    assert event.parameters == values


@pytest.mark.parametrize(("dotnet", "spelling"), [(False, "INF"), (True, "Infinity")])
def test_wolp_18_an_option_sends_infinities_as_csharp_peers_read_them(dotnet, spelling):
    one = session(Speaker.CLIENT, dotnet=dotnet)
    inner = Call("Any", "thing", CALL_ID, (-math.inf,))
    one.call("Any", "thing", (math.inf, [(-math.inf,)], inner, math.nan), 0.0)
    (text,) = one.messages()
    document = opened(decode(text).payload, None, Encryption.NONE, None).decode()
    assert re.findall(r'type="double">([^<]*)<', document) == [spelling, f"-{spelling}", f"-{spelling}", "NaN"]
    values = documents.decode(document.encode()).parameters
    assert (values[:2], values[2].parameters) == ((math.inf, ((-math.inf,),)), (-math.inf,))


@pytest.mark.parametrize("dotnet", [False, True])
def test_wolp_18_an_answer_is_spelled_as_the_options_of_its_sender_say(dotnet):
    one = session(components={"Sample": {"Get": Method((), trust=0)}}, dotnet=dotnet)
    say(one, Call("Sample", "Get", CALL_ID))
    one.respond(CALL_ID, -math.inf, 0.0)
    (text,) = one.messages()
    document = opened(decode(text).payload, None, Encryption.NONE, None)
    assert (b">-Infinity<" in document, b">-INF<" in document) == (dotnet, not dotnet)


def pair_any():
    from wirelake.protocols.wolpertinger.options import Method

    return Method(None, trust=0)


def test_wolp_19_null_is_no_parameter_null_is_a_response_and_void_has_none():
    pair = Pair()
    with pytest.raises(LocalProtocolError) as caught:
        pair.client.call("Sample", "Echo", (None,), 0.0)
    assert caught.value.fault is Fault.VALUE_UNSENDABLE
    assert pair.client.pending == 0
    call_id = pair.client.call("Sample", "Echo", ("hi",), 0.0)
    pair.talk()
    assert pair.server.respond(call_id, None, 0.0)
    assert pair.talk().events(CLIENT) == [CallReturned(call_id, None)]
    void = pair.client.call("Sample", "Void", (), 0.0, returns=False)
    assert pair.talk().events(CLIENT) == [CallDone(void)]
    assert pair.server.respond(void, "x", 0.0)
    assert pair.talk().events(CLIENT) == []


@pytest.mark.parametrize(
    ("call", "trust", "code"),
    [
        (Call("Nope", "Nope", CALL_ID, (1,)), 0, 304),
        (Call("sample", "echo", CALL_ID, (1,)), 0, 303),
        (Call("SAMPLE", "Secret", CALL_ID, (1,)), 2, 201),
        (Call("sAmPlE", "Secret", CALL_ID, (1,)), 3, 305),
        (Call("Sample", "Undeclared", CALL_ID), 3, 201),
        (Call("Sample", "Echo", CALL_ID), 4, 305),
        (Call("Sample", "Echo", CALL_ID, ("a", "b")), 4, 305),
        (Call("Core", "Heartbeat", CALL_ID, (1,)), 4, 305),
    ],
)
def test_wolp_20_component_method_trust_parameters_in_this_order(call, trust, code):
    one = session(trust_state=TrustState(trust, trust, KEYS if trust >= 2 else None))
    (error,) = read(say(one, call, 1, KEYS if trust >= 2 else None), KEYS)
    assert (error.code, error.call_id, error.component) == (code, CALL_ID, call.component)
    assert not any(isinstance(event, CallReceived) for event in one.events())


def test_wolp_20_components_are_spelled_as_declared():
    one = session()
    say(one, Call("SAMPLE", "Echo", CALL_ID, ("hi",)))
    (event,) = one.events()
    assert (event.component, event.method) == ("Sample", "Echo")


def test_wolp_21_the_time_of_a_call_begins_when_it_is_confirmed():
    one = session(CLIENT)
    call_id = one.call("Sample", "Echo", ("hi",), 0.0)
    one.receive_text("result:0;message_id:1;", 15.0)
    assert one.deadline == 45.0
    one.tick(44.9)
    assert one.events() == []
    one.tick(45.0)
    assert one.events() == [CallFailed(call_id, Failure.TIMEOUT)]
    assert one.pending == 0


def test_wolp_21_a_call_fails_at_once_if_it_is_refused():
    one = session(CLIENT)
    call_id = one.call("Sample", "Echo", ("hi",), 0.0)
    one.receive_text("result:5;message_id:1;", 0.0)
    assert one.events() == [CallFailed(call_id, Failure.REFUSED, 5)]


@pytest.mark.parametrize("sign", ["heartbeat", "fragment"])
def test_wolp_21_a_sign_of_life_gives_all_calls_their_time_again(sign):
    one = session(CLIENT)
    calls = [one.call("Sample", "Echo", ("hi",), 0.0) for _ in range(2)]
    for number in (1, 2):
        one.receive_text(f"result:0;message_id:{number};", 0.0)
    if sign == "heartbeat":
        assert say(one, Call("Core", "Heartbeat", CALL_ID), 7, now=29.0)[-1] == b"result:0;message_id:7;"
    else:
        one.receive_text("fragment_index:0;fragment_count:2;message_id:7;aGk=", 29.0)
    one.tick(30.0)
    assert one.events() == []
    one.tick(59.0)
    assert [event for event in one.events() if isinstance(event, CallFailed)] == [CallFailed(one_id, Failure.TIMEOUT) for one_id in calls]


def test_wolp_21_a_side_that_handles_a_call_sends_heartbeats_and_the_caller_waits():
    pair = Pair()
    call_id = pair.client.call("Sample", "Echo", ("hi",), 0.0)
    pair.talk().wait(140.0)
    beats = [one for speaker, line in pair.said if speaker is SERVER for one in read([line])]
    assert [(one.component, one.method) for one in beats] == [("Core", "Heartbeat")] * 5
    assert pair.server.respond(call_id, "ho", pair.now)
    assert pair.talk().events(CLIENT, CallReturned, CallFailed) == [CallReturned(call_id, "ho")]
    assert pair.server.deadline is None
    assert pair.events(SERVER, ErrorReceived, Noticed) == []


def test_wolp_21_a_void_call_needs_no_heartbeat_and_no_timer():
    pair = Pair()
    pair.client.call("Sample", "Void", (), 0.0, returns=False)
    assert pair.talk().client.deadline is None
    assert pair.server.deadline is None


def test_wolp_29_limits_are_options_and_hold_on_both_sides():
    one = session(max_calls=2)
    for _ in range(2):
        one.call("Sample", "Echo", ("hi",), 0.0)
    with pytest.raises(LocalProtocolError) as caught:
        one.call("Sample", "Echo", ("hi",), 0.0)
    assert caught.value.fault is Fault.CALLS_OVER_LIMIT
    one.messages()
    for number in range(1, 4):
        texts = say(one, Call("Sample", "Echo", f"{number:08}-5839-4666-b8d3-8c108b241720", ("hi",)), number)
        assert codes(texts) == ([] if number < 3 else [100])
    assert one.serving == 2


def test_wolp_29_a_line_over_the_limit_ends_the_session_before_it_ends():
    one = session(max_text_size=100)
    one.receive(b"message_id:1;" + b"A" * 87, 0.0)
    assert one.ended is None
    one.receive(b"A", 0.0)
    assert isinstance(one.events()[-1], Ended)
    assert one.ended.fault is Fault.TEXT_OVER_LIMIT
    one.receive_text("message_id:2;", 0.0)
    assert one.messages() == [b"result:5;message_id:1;"]


def test_a_paused_reader_does_not_time_the_peer_out():
    one = session(CLIENT)
    confirmed, unconfirmed = (one.call("Sample", "Echo", ("hi",), 0.0) for _ in range(2))
    one.receive_text("result:0;message_id:1;", 0.0)
    one.messages()
    one.pause()
    for now in range(1, 200):
        one.tick(float(now))
    assert (one.messages(), one.events(), one.pending) == ([], [], 2)
    one.resume(200.0)
    one.tick(229.9)
    assert one.events() == []
    one.tick(230.0)
    assert one.events() == [CallFailed(confirmed, Failure.TIMEOUT)]
    assert len(one.messages()) == 1
    one.tick(1000.0), one.tick(2000.0)
    assert one.events()[-1] == CallFailed(unconfirmed, Failure.UNDELIVERED)


@pytest.mark.parametrize("answer", [Response("Sample", CALL_ID, True), Error("Sample", 303, CALL_ID)])
def test_wolp_16_a_call_whose_answer_cannot_be_read_fails_at_once(answer):
    one = session(CLIENT)
    call_id = one.call("Sample", "Echo", ("hi",), 0.0)
    one.messages()
    document = documents.encode(answer).replace(CALL_ID.encode(), call_id.encode())
    replies = say(one, document.replace(b"boolean", b"nonsense").replace(b"303", b"many"))
    assert codes(replies) == ([301] if isinstance(answer, Response) else [])
    assert [event for event in one.events() if not isinstance(event, Noticed)] == [CallFailed(call_id, Failure.UNREADABLE)]
    assert one.pending == 0


def test_wolp_29_a_text_over_the_limit_is_answered_if_its_id_comes_in_time():
    for text, parsed in (
        (b"message_id:7;" + b"A" * 100, [b"result:5;message_id:7;"]),
        (b"foo:" + b"A" * 100 + b";message_id:7;", []),
        (b"result:0;message_id:7;" + b"A" * 100, []),
    ):
        one = session(max_text_size=100)
        one.receive_text(text, 0.0)
        assert one.messages() == parsed
        assert one.ended is None
        one.receive(text, 0.0)
        assert one.messages() == parsed
        assert one.ended is not None
