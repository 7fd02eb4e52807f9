"""The rulings of layer 1, by their numbers: WOLP-1 to WOLP-12, and the limits of texts."""

from __future__ import annotations

import base64

import pytest
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, TRUSTED, Pair, codes, say, session, text_of

from wirelake.errors import DecodeError
from wirelake.protocols.wolpertinger.events import (
    CallFailed,
    CallReceived,
    Failure,
    Noticed,
    PeerUnavailable,
)
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call
from wirelake.protocols.wolpertinger.messages import Encryption, Envelope, Result
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.wire import decode, encode, opened, sealed

CLIENT, SERVER = Speaker.CLIENT, Speaker.SERVER
CLUSTER = bytes(range(16))
SESAME = "open, sesame"
NOBODY = "00000000-0000-0000-0000-000000000000"
ECHO = Call("Sample", "Echo", CALL_ID, ("hi",))


def faults(one) -> list[Fault]:
    return [event.fault for event in one.events() if isinstance(event, Noticed)]


def reply_to(text: str | bytes) -> list[bytes]:
    one = session()
    one.receive_text(text, 0.0)
    return one.messages()


@pytest.mark.parametrize("text", ["message_id :1;aGk=", "message_id:1; aGk=;", "message-id:1;", ":1;message_id:2;", "", "aGk=", ";"])
def test_wolp_1_the_grammar_has_no_blanks_and_no_empty_pairs(text):
    with pytest.raises(DecodeError) as caught:
        decode(text.encode())
    assert caught.value.fault.clause in ("WOLP-1", "WOLP-2")


def test_wolp_2_keys_are_sent_lower_case_and_in_order_and_received_in_any():
    text = encode(Envelope(7, b"aGk=", 9, Encryption.AES, 1, 2))
    assert text == b"fragment_index:1;fragment_count:2;message_id:7;gzip:9;encryption:aes;aGk="
    other = b"Encryption:aes;GZIP:9;message_ID:7;fragment_count:2;FRAGMENT_index:1;aGk="
    assert decode(other) == decode(text)
    assert reply_to("message_id:1;foo:bar;") == reply_to("message_id:1;MESSAGE_ID:1;") == [b"result:5;message_id:1;"]
    assert reply_to("foo:bar;") == []


def test_wolp_3_ids_are_accepted_to_2_32_and_sent_to_2_31():
    assert decode(b"message_id:4294967295;").message_id == 4294967295
    assert decode(b"message_id:0;").message_id == 0
    for bad in ("4294967296", "-1", "99999999999999999999999999"):
        assert reply_to(f"message_id:{bad};") == []
    one = session()
    one._layer1.unconfirmed.last_id = 2147483646
    for _ in range(2):
        one.call("Sample", "Void", (), 0.0, returns=False)
    assert [decode(text).message_id for text in one.messages()] == [2147483647, 1]


def test_wolp_3_an_id_that_is_still_unconfirmed_is_not_used_again():
    one = session()
    one.call("Sample", "Void", (), 0.0, returns=False)
    one._layer1.unconfirmed.last_id = 2147483647
    one.call("Sample", "Void", (), 0.0, returns=False)
    assert [decode(text).message_id for text in one.messages()] == [1, 2]


def test_wolp_4_a_result_has_two_keys_in_either_order_and_is_never_answered():
    assert decode(b"result:3;message_id:9;") == decode(b"message_id:9;result:3;ignored") == Result(3, 9)
    for text in (
        "result:0;message_id:1;",
        "result:77;message_id:1;",
        "result:0;message_id:1;gzip:5;",
        "result:0;message_id:1;foo:bar;",
        "result:x;message_id:1;",
        "result:0;",
        "result:0;message_id:1;result:0;",
        "result:0;message_id:1;fragment_index:9;fragment_count:1;",
    ):
        one = session()
        one.receive_text(text, 0.0)
        assert one.messages() == []
        assert faults(one) != []


def test_wolp_4_an_unknown_code_counts_as_2():
    one = session()
    call_id = one.call("Sample", "Echo", ("hi",), 0.0)
    one.receive_text("result:99;message_id:1;", 0.0)
    assert CallFailed(call_id, Failure.REFUSED, 2) in one.events()


def test_wolp_5_secure_is_an_alias_both_together_are_a_duplicate_and_a_signature_is_refused():
    assert decode(b"secure:aes;message_id:1;").encryption is Encryption.SECURE_AES
    assert reply_to("message_id:1;secure:aes;encryption:aes;") == [b"result:5;message_id:1;"]
    assert reply_to("signature:abc;message_id:1;aGk=") == [b"result:5;message_id:1;"]
    assert b"secure" not in text_of(b"hi", 1, KEYS)


@pytest.mark.parametrize("key", ["encryption", "secure"])
@pytest.mark.parametrize("value", ["AES", "Aes", "aEs"])
def test_wolp_5_the_encryption_is_named_in_either_case(key, value):
    what = sealed(documents.encode(ECHO), KEYS)
    one = session(trust_state=TRUSTED)
    one.receive_text(f"message_id:1;{key}:{value};{what.text.decode()}", 0.0)
    assert one.messages() == [b"result:0;message_id:1;"]
    assert faults(one) == ([] if key == "encryption" else [Fault.ALIAS_USED])


@pytest.mark.parametrize("value", ["AESX", "DES", "A", "AE\u017f"])
def test_wolp_5_another_name_is_another_encryption(value):
    assert decode(f"message_id:1;encryption:{value};".encode()).encryption is Encryption.UNKNOWN


@pytest.mark.parametrize(("other", "code"), [("secure:AES", 0), ("Encryption:Aes", 0), ("encryption:des", 3), ("secure:aesx", 3)])
@pytest.mark.parametrize("is_first", [True, False])
def test_wolp_9_pieces_agree_if_they_name_one_encryption_however_it_is_spelled(other, code, is_first):
    text = sealed(documents.encode(ECHO), KEYS).text.decode()
    pairs = [other, "encryption:aes"] if is_first else ["encryption:aes", other]
    one = session(trust_state=TRUSTED)
    for index, piece in enumerate((text[:40], text[40:])):
        one.receive_text(f"fragment_index:{index};fragment_count:2;message_id:7;{pairs[index]};{piece}", 0.0)
    assert one.messages() == [f"result:{code};message_id:7;".encode()]


@pytest.mark.parametrize("payload", ["aGk", "aGk==", "a=Gk", "aG-_", "aGk=aGk=", "aGkh=", "aGkh====", "ä", "aGk=\x00", "aGk=\x0b"])
def test_wolp_6_what_is_no_base64_is_refused_and_blanks_are_ignored(payload):
    assert reply_to(f"message_id:1;{payload}") == [b"result:5;message_id:1;"]
    assert opened(b" a\tG\r\nk= ", None, Encryption.NONE, None) == b"hi"


def test_wolp_6_no_payload_is_an_empty_message_that_layer_2_refuses():
    replies = reply_to("message_id:1;")
    assert replies[0] == b"result:0;message_id:1;"
    assert codes(replies[1:]) == [301]


def test_wolp_7_gzip_has_exactly_the_announced_length():
    what = sealed(b"hello", None, compress=True)
    assert opened(what.text, what.gzip, what.encryption, None) == b"hello"
    for wrong in (0, what.gzip - 1, what.gzip + 1, 1 << 50):
        with pytest.raises(DecodeError) as caught:
            opened(what.text, wrong, what.encryption, None)
        assert caught.value.fault is Fault.GZIP_INVALID
    packed = base64.b64decode(what.text)
    two = base64.b64encode(packed + packed)
    assert opened(two, 2 * what.gzip, Encryption.NONE, None) == b"hellohello"
    with pytest.raises(DecodeError):
        opened(base64.b64encode(packed + b"x"), what.gzip + 1, Encryption.NONE, None)


def test_wolp_8_all_failures_of_an_encrypted_payload_look_alike():
    good = sealed(b"hello", KEYS, compress=True)
    raw = base64.b64decode(good.text)
    flipped = base64.b64encode(raw[:-1] + bytes((raw[-1] ^ 1,)))
    seen = set()
    for text, gzip, encryption, keys in (
        (good.text, good.gzip, Encryption.UNKNOWN, KEYS),
        (good.text, good.gzip, Encryption.AES, None),
        (flipped, good.gzip, Encryption.AES, KEYS),
        (good.text, good.gzip - 1, Encryption.AES, KEYS),
        (good.text[:20], good.gzip, Encryption.AES, KEYS),
        (b"", good.gzip, Encryption.AES, KEYS),
        (sealed(b"no gzip at all", KEYS).text, 14, Encryption.AES, KEYS),
    ):
        with pytest.raises(DecodeError) as caught:
            opened(text, gzip, encryption, keys)
        seen.add((caught.value.fault, caught.value.offset, caught.value.detail))
    assert seen == {(Fault.ENCRYPTION_FAILED, 0, "")}


def test_wolp_8_every_wrong_padding_gives_the_same_result_and_the_same_events():
    seen = set()
    for last in range(256):
        one = session(trust_state=TRUSTED)
        encryptor = KEYS.cipher.encryptor()
        block = encryptor.update(bytes(15) + bytes((last,))) + encryptor.finalize()
        one.receive_text(b"message_id:3;gzip:5;encryption:aes;" + base64.b64encode(block), 0.0)
        seen.add((tuple(one.messages()), tuple(event.fault for event in one.events())))
    assert seen == {((b"result:4;message_id:3;",), (Fault.ENCRYPTION_FAILED,))}


def test_wolp_8_padding_is_looked_at_as_a_whole():
    for last in range(256):
        encryptor = KEYS.cipher.encryptor()
        block = encryptor.update(bytes(15) + bytes((last,))) + encryptor.finalize()
        one = session(trust_state=TRUSTED)
        one.receive_text(b"message_id:3;encryption:aes;" + base64.b64encode(block), 0.0)
        assert one.messages()[0] == (b"result:0;message_id:3;" if last == 1 else b"result:4;message_id:3;")


def test_wolp_9_a_long_message_is_split_into_nearly_equal_pieces_and_confirmed_once():
    pair = Pair({"fragment_size": 100}, {"fragment_size": 100})
    call_id = pair.client.call("Sample", "Echo", ("x" * 1000,), 0.0)
    pair.talk()
    pieces = [decode(line) for speaker, line in pair.said if speaker is CLIENT]
    assert [one.fragment_index for one in pieces] == list(range(len(pieces)))
    assert {one.fragment_count for one in pieces} == {len(pieces)}
    sizes = {len(one.payload) for one in pieces}
    assert max(sizes) <= 100
    assert max(sizes) - min(sizes) <= 1
    assert [line for speaker, line in pair.said if speaker is SERVER] == [b"result:0;message_id:1;"]
    assert [event.call_id for event in pair.events(SERVER, CallReceived)] == [call_id]


def test_wolp_10_a_message_without_a_result_is_sent_again_twice_and_then_given_up():
    one = session(CLIENT)
    call_id = one.call("Sample", "Echo", ("hi",), 0.0)
    (text,) = one.messages()
    for now in (20.0, 40.0):
        assert one.deadline == now
        one.tick(now - 0.001)
        assert one.messages() == []
        one.tick(now)
        assert one.messages() == [text]
    one.tick(60.0)
    assert one.messages() == []
    assert one.events() == [PeerUnavailable(), CallFailed(call_id, Failure.UNDELIVERED)]
    assert one.available is False
    one.receive_text("result:0;message_id:99;", 61.0)
    assert one.available


def test_wolp_10_the_same_message_is_confirmed_again_and_not_delivered_again():
    one = session()
    say(one, ECHO)
    assert len([event for event in one.events() if isinstance(event, CallReceived)]) == 1
    assert say(one, ECHO) == [b"result:0;message_id:1;"]
    assert [event.fault for event in one.events()] == [Fault.MESSAGE_REPEATED]
    other = Call("Sample", "Echo", CALL_ID.replace("f5", "aa"), ("hi",))
    assert say(one, other) == [b"result:0;message_id:1;"]
    assert [type(event) for event in one.events()] == [CallReceived]


def test_wolp_10_after_five_minutes_a_message_is_a_new_one():
    one = session()
    void = Call("Sample", "Void", CALL_ID)
    for now, delivered in ((0.0, 1), (299.9, 0), (300.0, 1)):
        say(one, void, now=now)
        assert len([event for event in one.events() if isinstance(event, CallReceived)]) == delivered
        one.done(CALL_ID)


def test_wolp_10_a_message_of_many_pieces_is_known_for_as_long_as_it_may_be_sent_again():
    pair = Pair({"fragment_size": 10}, {"fragment_size": 10})
    pair.client.call("Sample", "Void", (), 0.0, returns=False)
    texts = pair.client.messages()
    assert len(texts) > 15
    for now, delivered in ((0.0, 1), (20.0 * len(texts), 0), (40.0 * len(texts), 0)):
        for text in texts:
            pair.server.receive_text(text, now)
        assert len([event for event in pair.server.events() if isinstance(event, CallReceived)]) == delivered


def test_wolp_10_establishing_a_connection_forgets_what_was_delivered():
    one = session()
    void, establish = Call("Sample", "Void", CALL_ID), Call("Authentication", "EstablishConnection", CALL_ID)
    say(one, void, 1)
    say(one, establish, 2)
    one.events(), one.done(CALL_ID)
    say(one, void, 1)
    assert [type(event) for event in one.events()] == [CallReceived]
    assert say(one, establish, 2) == [b"result:0;message_id:2;"]
    assert [event.fault for event in one.events()] == [Fault.MESSAGE_REPEATED]


def test_wolp_11_a_stream_is_lines_and_a_text_never_has_a_line_feed_inside():
    pair = Pair()
    pair.client.call("Sample", "Echo", ("one\ntwo",), 0.0)
    line = pair.client.output()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    for at in range(0, len(line), 7):
        pair.server.receive(line[at : at + 7], 0.0)
    (event,) = pair.server.events()
    assert event.parameters == ("one\ntwo",)


def test_wolp_12_each_layer_answers_for_itself():
    replies = say(session(), b"<nonsense/>")
    assert replies[0] == b"result:0;message_id:1;"
    assert codes(replies[1:]) == [302]
    assert reply_to("message_id:1;!") == [b"result:5;message_id:1;"]


def test_wolp_10_a_message_of_many_pieces_has_so_many_times_the_time():
    one = session(CLIENT, fragment_size=100)
    one.call("Sample", "Echo", ("hi",), 0.0)
    texts = one.messages()
    assert len(texts) > 1
    assert one.deadline == 20.0 * len(texts)
    one.tick(20.0 * len(texts))
    assert one.messages() == texts


def test_wolp_10_nothing_is_sent_again_while_our_output_drains_or_a_text_arrives():
    for moves in (lambda one, now: one.drained(1_000_000, now), lambda one, now: one.receive(b"message_id:1;" + b"A" * 60_000, now)):
        one = session()
        before = one.asked
        one.call("Sample", "Echo", ("hi",), 0.0)
        assert one.asked != before
        one.messages()
        moves(one, 19.0)
        one.tick(20.0)
        assert one.messages() == []
        one.tick(40.0)
        assert len(one.messages()) == 1


def test_wolp_10_a_trickle_does_not_put_off_the_resending():
    one = session()
    one.call("Sample", "Echo", ("hi",), 0.0)
    one.messages()
    one.receive(b"m", 19.9)
    one.drained(5, 19.9)
    one.tick(20.0)
    assert len(one.messages()) == 1
