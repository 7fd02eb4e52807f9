"""The rulings of trust, by their numbers: WOLP-22 to WOLP-28."""

from __future__ import annotations

import pytest
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, TRUSTED, Pair, codes, read, say, session

from wirelake.protocols.rates import Buckets
from wirelake.protocols.wolpertinger.events import (
    Authenticated,
    AuthenticationFailed,
    CallFailed,
    CallReceived,
    CallReturned,
    Failure,
    Step,
    TrustAwarded,
    TrustChanged,
    WasReset,
)
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.state_machine import Speaker, State
from wirelake.protocols.wolpertinger.trust import key_agreement
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState

CLIENT, SERVER = Speaker.CLIENT, Speaker.SERVER
CLUSTER = bytes(range(16))
SESAME = "open, sesame"
NOBODY = "00000000-0000-0000-0000-000000000000"
ECHO = Call("Sample", "Echo", CALL_ID, ("hi",))


def test_wolp_22_in_clear_at_trust_2_is_answered_in_clear_and_resets():
    one = session(trust_state=TRUSTED)
    replies = say(one, ECHO)
    assert read(replies) == [Error("Authentication", 202, CALL_ID)]
    assert one.trust_state == STRANGER
    assert one.state is State.CLEAR
    assert one.events()[-1] == WasReset(True, Fault.CLEAR_WHEN_ENCRYPTED)
    assert codes(say(session(trust_state=TRUSTED), b"nonsense")) == [202]


def test_wolp_22_encrypted_before_keys_is_refused_by_layer_1():
    assert say(session(), ECHO, 3, KEYS) == [b"result:4;message_id:3;"]


def test_wolp_22_an_unencrypted_202_means_that_the_peer_has_reset():
    pair = Pair(trust_state=TRUSTED)
    call_id = pair.client.call("Sample", "Secret", (), 0.0)
    pair.talk()
    say(pair.client, Error("Authentication", 202), 50)
    assert pair.client.trust_state == STRANGER
    assert pair.client.state is State.CLEAR
    assert CallFailed(call_id, Failure.RESET) in pair.client.events()


@pytest.mark.parametrize(
    ("answer", "works"),
    [
        (True, True),
        (False, False),
        (CALL_ID, True),
        (NOBODY, False),
        ("", False),
        (None, False),
        (7, False),
    ],
)
def test_wolp_23_establishing_is_answered_with_a_boolean_and_understood_as_a_guid_too(answer, works):
    one = session(CLIENT)
    one.authenticate(1, 0.0)
    (call,) = read(one.messages())
    assert (call.component, call.method, call.parameters) == ("Authentication", "EstablishConnection", ())
    say(one, Response("Authentication", call.call_id, answer))
    events = [event for event in one.events() if isinstance(event, Authenticated | AuthenticationFailed)]
    assert events == [Authenticated(1) if works else AuthenticationFailed(Step.ESTABLISH, Fault.ANSWER_WRONG)]
    pair = Pair(server={"admit": works})
    pair.client.authenticate(1, 0.0)
    assert bool(pair.talk().events(CLIENT, Authenticated)) is works


def test_wolp_24_keys_are_fresh_each_time_and_everything_is_encrypted_after():
    keys = set()
    pair = Pair()
    for _ in range(2):
        pair.client.authenticate(2, 0.0)
        pair.talk()
        assert pair.client.trust_state.keys == pair.server.trust_state.keys
        assert pair.client.trust_state.keys is not None
        keys.add((pair.client.trust_state.keys.key, pair.client.trust_state.keys.iv))
        call_id = pair.client.call("Sample", "Echo", ("hi",), 0.0)
        pair.talk()
        assert b"encryption:aes" in pair.said[-2][1]
        assert pair.server.respond(call_id, "ho", 0.0)
        assert pair.talk().events(CLIENT, CallReturned) == [CallReturned(call_id, "ho")]
        pair.client.reset(0.0)
        pair.talk()
    assert len(keys) == 2


@pytest.mark.parametrize("wrong", ["iv", "blob", "point", "base64"])
def test_wolp_24_wrong_input_is_answered_305(wrong):
    blob = key_agreement.public_blob(key_agreement.make_key(key_agreement.Curve.P256, lambda size: bytes(range(size))))
    text, iv = key_agreement.to_text(blob), key_agreement.to_text(bytes(16))
    if wrong == "iv":
        iv = key_agreement.to_text(bytes(15))
    elif wrong == "base64":
        text = "!"
    else:
        text = key_agreement.to_text(blob[:-1] if wrong == "blob" else blob[:-1] + bytes((blob[-1] ^ 1,)))
    one = session(trust_state=TrustState(1, 1))
    assert codes(say(one, Call("Authentication", "KeyExchange", CALL_ID, (text, iv)))) == [305]
    assert one.trust_state == TrustState(1, 1)


@pytest.mark.parametrize("curve", key_agreement.Curve)
def test_wolp_24_the_answer_is_on_the_callers_curve(curve):
    own = key_agreement.make_key(curve, lambda size: bytes(range(size)))
    one = session(trust_state=TrustState(1, 1))
    call = Call(
        "Authentication", "KeyExchange", CALL_ID, (key_agreement.to_text(key_agreement.public_blob(own)), key_agreement.to_text(bytes(16)))
    )
    (answer,) = read(say(one, call))
    theirs = key_agreement.read_blob(key_agreement.read_text(answer.value))
    assert key_agreement.curve_of(theirs) is curve
    assert key_agreement.session_key(own, theirs) == one.trust_state.keys.key


def test_wolp_24_two_offers_that_cross_are_both_refused_and_neither_side_waits_for_ever():
    pair = Pair(trust_state=TrustState(1, 1))
    pair.client.authenticate(2, 0.0)
    pair.server.authenticate(2, 0.0)
    pair.talk()
    for speaker in Speaker:
        (failed,) = pair.events(speaker, AuthenticationFailed)
        assert (failed.step, failed.code) == (Step.KEYS, 300)


def test_wolp_24_messages_during_a_key_exchange_are_sent_encrypted_after_it():
    pair = Pair(trust_state=TrustState(1, 1))
    pair.client.authenticate(2, 0.0)
    call_id = pair.client.call("Sample", "Echo", ("hi",), 0.0)
    assert len(pair.client._waiting) == 1
    pair.talk()
    assert [event.call_id for event in pair.events(SERVER, CallReceived)] == [call_id]
    assert pair.server.trust_state.encrypted


def cluster(**server) -> Pair:
    pair = Pair({"cluster_key": CLUSTER}, {"cluster_key": CLUSTER, **server})
    pair.client.authenticate(3, 0.0)
    return pair.talk()


def test_wolp_25_a_cluster_is_proved_both_ways():
    pair = cluster()
    assert pair.events(CLIENT, Authenticated) == [Authenticated(3)]
    assert (
        pair.client.trust_state.granted
        == pair.client.trust_state.held
        == pair.server.trust_state.granted
        == pair.server.trust_state.held
        == 3
    )
    assert TrustChanged(3, 3) in pair.events(SERVER, TrustChanged)


def test_wolp_25_a_wrong_cluster_key_is_answered_false_before_the_reset():
    pair = cluster(cluster_key=bytes(16))
    (failed,) = pair.events(CLIENT, AuthenticationFailed)
    assert (failed.step, failed.fault) == (Step.CLUSTER, Fault.PROOF_WRONG)
    assert pair.client.trust_state == pair.server.trust_state == STRANGER
    assert pair.events(SERVER, WasReset) == [WasReset(True, Fault.PROOF_WRONG)]
    pair.client.authenticate(2, 0.0)
    assert pair.talk().events(CLIENT, Authenticated) == [Authenticated(2)]


def test_wolp_25_users_prove_their_passwords_whatever_the_case_of_their_names():
    pair = Pair(server={"password_of": {"joe": SESAME}.get})
    pair.client.authenticate(4, 0.0, user="JOE", password=SESAME)
    assert pair.talk().events(CLIENT, Authenticated) == [Authenticated(4)]
    assert (pair.server.trust_state.granted, pair.server.trust_state.held, pair.server.trust_state.user) == (4, 2, "joe")
    for user, password in (("joe", "wrong"), ("jim", SESAME), ("jim", "")):
        pair = Pair(server={"password_of": {"joe": SESAME}.get})
        pair.client.authenticate(4, 0.0, user=user, password=password)
        (failed,) = pair.talk().events(CLIENT, AuthenticationFailed)
        assert failed.fault is Fault.PROOF_WRONG


def verify(one, token: bytes, now: float, number: int) -> bool:
    proof = key_agreement.to_text(key_agreement.cluster_proof(CLUSTER, token))
    texts = say(one, Call("Authentication", "ClusterAuthVerify", f"{number:08}-5839-4666-b8d3-8c108b241720", (proof,)), number, KEYS, now)
    return read(texts, KEYS)[0].value


def token_of(one, now: float, number: int) -> bytes:
    (answer,) = read(say(one, Call("Authentication", "ClusterAuthGetToken", CALL_ID), number, KEYS, now), KEYS)
    return key_agreement.read_text(answer.value)


@pytest.mark.parametrize(("age", "works"), [(0.0, True), (59.9, True), (60.0, False)])
def test_wolp_25_a_token_lives_for_a_minute(age, works):
    one = session(trust_state=TrustState(2, 2, KEYS), cluster_key=CLUSTER)
    token = token_of(one, 0.0, 1)
    assert len(token) == 32
    assert verify(one, token, age, 2) is works


def test_wolp_25_a_token_is_good_once():
    one = session(trust_state=TrustState(2, 2, KEYS), cluster_key=CLUSTER)
    token = token_of(one, 0.0, 1)
    assert verify(one, token, 0.0, 2) is True
    assert verify(one, token, 0.0, 3) is False
    assert one.trust_state == STRANGER


def test_wolp_25_guesses_are_limited_over_sessions():
    attempts = Buckets(1, 3, 10)
    answers = []
    for _ in range(5):
        one = session(trust_state=TrustState(2, 2, KEYS), cluster_key=CLUSTER, attempts=attempts, source="a@b")
        answers.append(verify(one, token_of(one, 0.0, 1), 0.0, 2))
    assert answers == [True] * 3 + [False] * 2


def test_wolp_25_a_reflected_token_of_ours_gets_no_proof():
    one = session(trust_state=TrustState(2, 2, KEYS), cluster_key=CLUSTER)
    token = key_agreement.to_text(token_of(one, 0.0, 1))
    reflected = Call("Authentication", "ClusterAuthRequestVerification", CALL_ID, (token,))
    assert codes(say(one, reflected, 2, KEYS), KEYS) == [201]
    member = session(trust_state=TrustState(3, 3, KEYS), cluster_key=CLUSTER)
    token = key_agreement.to_text(token_of(member, 0.0, 1))
    message = read(say(member, Call("Authentication", "ClusterAuthRequestVerification", CALL_ID, (token,)), 2, KEYS), KEYS)
    assert [one.method for one in message] == ["SendResetNotice"]


@pytest.mark.parametrize("name", ["ClusterAuthRequestVerification", "ClusterAuthInitiate"])
def test_wolp_26_a_request_for_verification_is_answered_with_a_proof_by_either_name(name):
    one = session(trust_state=TrustState(3, 2, KEYS), cluster_key=CLUSTER)
    token = bytes(range(32))
    (call,) = read(say(one, Call("Authentication", name, CALL_ID, (key_agreement.to_text(token),)), 1, KEYS), KEYS)
    assert call.method == "ClusterAuthVerify"
    assert call.parameters == (key_agreement.to_text(key_agreement.cluster_proof(CLUSTER, token)),)
    say(one, Response("Authentication", call.call_id, True), 2, KEYS)
    assert one.trust_state.held == 3


def test_wolp_27_an_awarded_level_is_written_down_and_nothing_follows():
    one = session()
    assert say(one, Call("Authentication", "AwardTrustLevel", CALL_ID, (4,))) == [b"result:0;message_id:1;"]
    assert one.events() == [TrustAwarded(4)]
    assert one.trust_state == TrustState(awarded=4)
    assert one.state is State.CLEAR


@pytest.mark.parametrize("keys", [None, KEYS])
def test_wolp_28_a_reset_notice_is_acted_on_at_any_level_in_clear_or_not(keys):
    pair = Pair(trust_state=TRUSTED)
    asked = pair.client.call("Sample", "Secret", (), 0.0)
    served = pair.server.call("Sample", "Secret", (), 0.0)
    pair.talk()
    pair.events(CLIENT)
    pair.client.receive_text("fragment_index:0;fragment_count:2;message_id:70;aGk=", 0.0)
    replies = say(pair.client, Call("Core", "SendResetNotice", CALL_ID), 71, keys)
    assert replies == [b"result:0;message_id:71;"]
    assert pair.client.events()[-3:] == [CallFailed(asked, Failure.RESET), TrustChanged(0, 0), WasReset(False)]
    assert pair.client.trust_state == STRANGER
    assert pair.client.respond(served, True, 0.0) is False
    assert pair.client.deadline is None


def test_wolp_28_a_notice_that_comes_again_does_not_reset_again():
    one = session(trust_state=TRUSTED)
    notice = Call("Core", "SendResetNotice", CALL_ID)
    say(one, notice, 7)
    one.authenticate(1, 0.0)
    (call,) = read(one.messages())
    say(one, Response("Authentication", call.call_id, True), 8)
    assert say(one, notice, 7) == [b"result:0;message_id:7;"]
    assert one.trust_state == TrustState(1, 1)


def test_wolp_28_a_reset_forgets_what_was_sent_and_what_was_delivered():
    one = session()
    one.call("Sample", "Echo", ("hi",), 0.0)
    void = Call("Sample", "Void", CALL_ID)
    say(one, void, 7)
    one.reset(0.0)
    (notice,) = one.messages()
    one.events()
    one.tick(20.0)
    assert one.messages() == [notice]
    say(one, void, 7, now=20.0)
    assert [type(event) for event in one.events()] == [CallReceived]
