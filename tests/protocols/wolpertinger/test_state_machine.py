"""The state machine: every message that the table lacks is refused with its fault, and a session keeps to it."""

from __future__ import annotations

import itertools

import pytest
from tests.cases import each
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, Pair, read, say, session

from wirelake.errors import LocalProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.messages import Envelope
from wirelake.protocols.wolpertinger.state_machine import (
    MESSAGES,
    TRANSITIONS,
    Encrypted,
    EncryptionError,
    KeyAnswer,
    KeyExchange,
    ResetNotice,
    Speaker,
    State,
    message_kind,
    refusal,
)
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState

EXAMPLES = {
    Call: Call("Sample", "Echo", CALL_ID, ("hi",)),
    Response: Response("Sample", CALL_ID, "hi"),
    Error: Error("Sample", 303, CALL_ID),
    EncryptionError: Error("Authentication", 202),
    KeyExchange: Call("Authentication", "KeyExchange", CALL_ID, ("x", "y")),
    KeyAnswer: Response("Authentication", CALL_ID, "RUNLNUIAAAA="),
    ResetNotice: Call("core", "SendResetNotice", CALL_ID),
    Envelope: b"nonsense",
}
ALL = list(itertools.product(State, Speaker, MESSAGES))


@each(("state", "speaker", "message"), ALL, ids=lambda one: getattr(one, "name", None) or one.__name__)
def test_a_message_that_the_table_lacks_is_refused_and_changes_nothing(state, speaker, message):
    one = session(speaker.other)
    one.state = state
    after = TRANSITIONS.get((state, speaker, message))
    assert one._advance(speaker, message) is (after is not None)
    assert one.state is (state if after is None else after)
    if after is None:
        assert refusal(state, speaker, message) in (Fault.CLEAR_WHEN_ENCRYPTED, Fault.ENCRYPTED_TOO_SOON, Fault.KEYS_UNASKED)


def test_every_message_is_what_the_table_calls_it():
    for what, message in EXAMPLES.items():
        known = None if isinstance(message, bytes) else message
        assert message_kind(known, False) is what
        assert message_kind(known, True) is (ResetNotice if what is ResetNotice else Encrypted)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda one: one.__name__)
def test_in_clear_a_session_takes_the_messages_of_the_table_and_forbids_the_rest(message):
    """WOLP-22: where everything is encrypted, only a notice and an error are let through, and only errors are not answered."""
    one = session(trust_state=TrustState(2, 2, KEYS))
    replies = say(one, EXAMPLES[message])
    assert replies[0] == b"result:0;message_id:1;"
    answered = [error.code for error in read(replies)]
    assert answered == ([] if message in (Error, EncryptionError, ResetNotice) else [202])
    assert (one.trust_state == STRANGER) is (message is not Error)
    assert one.state is (State.ENCRYPTED if message is Error else State.CLEAR)


def test_an_unsolicited_key_is_not_taken():
    one = session()
    assert say(one, EXAMPLES[KeyAnswer]) == [b"result:0;message_id:1;"]
    assert [event.fault for event in one.events()] == [Fault.KEYS_UNASKED]
    assert (one.state, one.trust_state) == (State.CLEAR, STRANGER)


def test_a_key_that_comes_too_late_resets_both():
    pair = Pair(trust_state=TrustState(1, 1))
    pair.client.authenticate(2, 0.0)
    (offer,) = pair.client.messages()
    pair.client._requests.clear()
    pair.client._authentication.clear()
    pair.server.receive_text(offer, 0.0)
    pair.talk()
    assert pair.client.trust_state == pair.server.trust_state == STRANGER
    assert pair.client.state is pair.server.state is State.CLEAR


def test_saying_what_the_table_lacks_is_the_callers_bug():
    one = session(trust_state=TrustState(2, 2, KEYS))
    one._layer1.keys = None
    with pytest.raises(LocalProtocolError) as caught:
        one.call("Sample", "Echo", ("hi",), 0.0)
    assert caught.value.fault is Fault.CLEAR_WHEN_ENCRYPTED
    assert one.messages() == []
    assert one.pending == 0
