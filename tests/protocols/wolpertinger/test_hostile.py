"""What a hostile peer can send: bombs, lies, floods. A session answers in bounds, and never raises."""

from __future__ import annotations

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, TRUSTED, codes, read, say, session, text_of

from wirelake.errors import LocalProtocolError, SessionClosed
from wirelake.protocols.wolpertinger.events import CallFailed, Ended, Failure, Noticed
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.messages import Envelope
from wirelake.protocols.wolpertinger.options import Options
from wirelake.protocols.wolpertinger.scanner import Limits
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust.state import STRANGER
from wirelake.protocols.wolpertinger.wire import Keys, decode, encode, sealed

ECHO = Call("Sample", "Echo", CALL_ID, ("hi",))


def faults(one) -> list[Fault]:
    return [event.fault for event in one.events() if isinstance(event, Noticed)]


def bomb(size: int) -> tuple[bytes, int]:
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(bytes(size)) + packer.flush()
    return packed, len(packed)


@pytest.mark.parametrize("keys", [None, KEYS])
def test_a_gzip_bomb_stops_at_the_limit(keys):
    one = session(trust_state=TRUSTED, max_inflated_size=10_000)
    packed, length = bomb(1 << 24)
    what = sealed(packed, keys)
    one.receive_text(encode(Envelope(1, what.text, length, what.encryption)), 0.0)
    assert one.messages() == [b"result:5;message_id:1;" if keys is None else b"result:4;message_id:1;"]
    assert faults(one) == [Fault.INFLATED_OVER_LIMIT if keys is None else Fault.ENCRYPTION_FAILED]


def test_many_tiny_gzip_members_are_no_quadratic_work():
    member, _ = bomb(0)
    packed = member * 8000
    one = session()
    one.receive_text(encode(Envelope(1, base64.b64encode(packed), len(packed)), Limits(max_text_size=1 << 20)), 0.0)
    one.receive_text(text_of(b""), 0.0)
    assert len(one.messages()) > 0


def test_a_flood_of_first_fragments_is_bounded():
    one = session(max_reassembled_size=100_000)
    for number in range(2000):
        one.receive_text(b"fragment_index:0;fragment_count:4096;message_id:%d;" % number + b"A" * 1000, 0.0)
    assert one._layer1.assembly.weight <= 133_340
    assert set(one.messages()) <= {b"result:3;message_id:%d;" % number for number in range(2000)}
    one.tick(1e6)
    assert one._layer1.assembly.weight == 0
    assert one.deadline is None


def test_a_peer_that_never_confirms_is_not_listened_to_for_ever():
    one = session(max_unconfirmed=10)
    for number in range(1, 30):
        say(one, Call("Nope", "x", CALL_ID), number)
    assert len(one._layer1.unconfirmed) == 10
    assert faults(one).count(Fault.TOO_BUSY) == 19
    one.receive_text("result:0;message_id:1;", 0.0)
    assert codes(say(one, Call("Nope", "x", CALL_ID), 30)) == [304]


def test_results_of_unknown_messages_are_ignored():
    one = session()
    for text in ("result:0;message_id:1;", "result:4;message_id:4294967295;", "result:0;message_id:0;"):
        one.receive_text(text, 0.0)
    assert one.messages() == []
    assert faults(one) == [Fault.RESULT_UNMATCHED] * 3


def test_a_result_settles_a_message_once():
    one = session()
    call_id = one.call("Sample", "Echo", ("hi",), 0.0)
    one.receive_text("result:3;message_id:1;", 0.0)
    one.receive_text("result:0;message_id:1;", 0.0)
    assert one.events() == [CallFailed(call_id, Failure.REFUSED, 3), Noticed(Fault.RESULT_UNMATCHED, "message 1")]


def test_responses_without_a_call_are_ignored():
    one = session()
    void = one.call("Sample", "Void", (), 0.0, returns=False)
    cancelled = one.call("Sample", "Echo", ("hi",), 0.0)
    one.cancel(cancelled)
    one.messages()
    for number, call_id in enumerate((CALL_ID, void, cancelled), 1):
        assert say(one, Response("Sample", call_id, "x"), number) == [b"result:0;message_id:%d;" % number]
    assert faults(one) == [Fault.RESPONSE_UNMATCHED] * 3
    assert one.pending == 0


def test_a_call_that_is_in_flight_cannot_be_called_again():
    one = session()
    say(one, ECHO, 1)
    assert say(one, ECHO, 2) == [b"result:0;message_id:2;"]
    assert faults(one) == [Fault.CALL_ID_IN_FLIGHT]
    assert one.respond(CALL_ID, "ho", 0.0)
    assert one.respond(CALL_ID, "ho", 0.0) is False


def test_a_value_that_cannot_be_sent_leaves_the_call_to_be_failed():
    one = session()
    say(one, ECHO, 1)
    with pytest.raises(LocalProtocolError):
        one.respond(CALL_ID, "\x00", 0.0)
    assert one.fail(CALL_ID, 100, 0.0)
    assert read(one.messages()) == [Error("Sample", 100, CALL_ID)]
    assert (one.serving, one.fail(CALL_ID, 100, 0.0)) == (0, False)


def test_a_void_call_may_fail():
    one = session()
    say(one, Call("Sample", "Void", CALL_ID), 1)
    assert one.fail(CALL_ID, 502, 0.0)
    assert read(one.messages()) == [Error("Sample", 502, CALL_ID)]


def test_void_calls_that_are_never_finished_are_forgotten():
    one = session(max_calls=5)
    for number in range(100):
        say(one, Call("Sample", "Void", f"{number:08}-5839-4666-b8d3-8c108b241720"), number)
    assert len(one._peer_requests.void) == 5


def test_keys_and_passwords_are_in_no_representation():
    secret = b"thirty-two bytes that are secret"
    keys = Keys(secret, bytes(16))
    one = session(trust_state=TRUSTED, cluster_key=secret)
    for shown in (repr(keys), repr(Options(cluster_key=secret)), repr(one.trust_state), str(keys), repr(STRANGER)):
        assert "secret" not in shown


def test_the_end_of_a_session_is_the_end():
    one = session()
    call_id = one.call("Sample", "Echo", ("hi",), 0.0)
    one.receive(b"message_id:1;aGk", 0.0)
    one.receive_eof(1.0)
    ended = one.events()
    assert ended[0] == CallFailed(call_id, Failure.ENDED)
    assert isinstance(ended[-1], Ended)
    assert ended[-1].fault is Fault.CLOSED_INSIDE_MESSAGE
    one.messages()
    one.receive(b"=\n", 2.0)
    one.receive_text("message_id:1;", 2.0)
    one.receive_eof(2.0)
    one.tick(1e9)
    one.bye()
    assert (one.messages(), one.events(), one.deadline) == ([], [], None)
    with pytest.raises(SessionClosed):
        one.call("Sample", "Echo", ("hi",), 0.0)
    assert one.respond(call_id, "x", 0.0) is False


def test_a_goodbye_is_a_reset_notice_in_clear_if_we_were_no_strangers():
    one = session(trust_state=TRUSTED)
    one.bye("done")
    assert [message.method for message in read(one.messages())] == ["SendResetNotice"]
    other = session()
    other.bye()
    assert other.messages() == []


LINES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            text_of(documents.encode(message), number, keys)
            for number, message in enumerate(
                [
                    ECHO,
                    Response("Sample", CALL_ID, True),
                    Error("Core", 202),
                    Error("Core", 303, CALL_ID),
                    Call("Core", "Heartbeat", CALL_ID),
                    Call("Core", "SendResetNotice", CALL_ID),
                    Call("Authentication", "EstablishConnection", CALL_ID),
                    Call("Authentication", "KeyExchange", CALL_ID, ("RUNL", "AAAA")),
                    Call("Authentication", "ClusterAuthGetToken", CALL_ID),
                    Call("Authentication", "ClusterAuthVerify", CALL_ID, ("AAAA",)),
                    Call("Authentication", "UserAuthVerify", CALL_ID, ("joe", "AAAA")),
                    Call("Authentication", "ClusterAuthInitiate", CALL_ID, ("AAAA",)),
                    Call("Authentication", "AwardTrustLevel", CALL_ID, (4,)),
                ]
            )
            for keys in (None, KEYS)
        ]
    ),
    st.sampled_from([b"result:%d;message_id:%d;" % (code, number) for code in (0, 3, 9) for number in range(4)]),
    st.sampled_from(
        [b"fragment_index:%d;fragment_count:%d;message_id:1;PFJl" % (index, count) for index in range(3) for count in range(4)]
    ),
)


@given(st.lists(LINES, max_size=25), st.sampled_from([STRANGER, TRUSTED]), st.integers(0, 2**32))
@examples(150)
def test_no_input_of_a_peer_makes_a_session_raise(lines, trust_state, seed):
    one, dice, now = session(Speaker.CLIENT, trust_state, cluster_key=bytes(16)), random.Random(seed), 0.0
    for line in lines:
        if dice.random() < 0.3 and one.ended is None:
            one.reset(now) if dice.random() < 0.5 else one.call("Sample", "Echo", ("hi",), now)
        if dice.random() < 0.2 and one.ended is None and one._authentication.step is None:
            one.authenticate(dice.choice([1, 2, 3]), now)
        one.receive(line.replace(b"\n", b" ") + b"\n", now)
        now += dice.choice([0.0, 1.0, 30.0])
        one.tick(now)
        for text in one.messages():
            assert decode(text)
        one.events()
    assert one.ended is None
