"""Identifiers in flight, each side of them alone."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.cases import examples

from wirelake.errors import LocalProtocolError
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.requests import LAST_ID, IncomingRequests, Match, OutgoingRequests


def asked(*expiries, max_abandoned=10):
    """Requests 1, 2, … with these expiries."""
    one = OutgoingRequests(max_abandoned)
    for expiry in expiries:
        one.ask(one.next_id, expiry)
    return one


def test_identifiers_count_from_one():
    one = OutgoingRequests(10)
    assert [one.next_id, one.next_id] == [1, 1], "looking takes none"
    one.ask(1, None)
    assert one.next_id == 2
    one.match(1)
    assert one.next_id == 2, "an answered identifier is not used again"


def test_the_last_identifier_is_the_last():
    one = OutgoingRequests(10)
    one.ask(LAST_ID - 1, None)
    assert one.next_id == LAST_ID
    one.ask(LAST_ID, None)
    with pytest.raises(LocalProtocolError) as caught:
        _ = one.next_id
    assert caught.value.fault is Fault.IDENTIFIERS_EXHAUSTED
    assert one.match(LAST_ID) is Match.PENDING


def test_a_response_matches_once():
    one = asked(None, None)
    assert len(one) == 2
    assert [one.match(2), one.match(2), one.match(1), one.match(3)] == [Match.PENDING, Match.NONE, Match.PENDING, Match.NONE]
    assert len(one) == 0


def test_a_request_given_up_has_one_late_response():
    one = asked(None)
    one.abandon(1)
    assert len(one) == 0
    assert [one.match(1), one.match(1)] == [Match.LATE, Match.NONE]


def test_giving_up_what_is_not_pending_changes_nothing():
    one = asked(None)
    one.match(1)
    one.abandon(1)
    one.abandon(7)
    assert [one.match(1), one.match(7)] == [Match.NONE, Match.NONE]


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_the_oldest_of_too_many_is_forgotten(bound):
    one = asked(None, None, None, max_abandoned=bound)
    for request_id in (2, 1, 3):
        one.abandon(request_id)
    remembered = (2, 1, 3)[3 - bound :]
    assert [request_id for request_id in (1, 2, 3) if one.match(request_id) is Match.LATE] == sorted(remembered)


def test_the_deadline_is_that_of_the_first_pending_request():
    one = asked(5.0, None, 3.0, 4.0)
    assert one.deadline == 3.0
    one.match(3)
    assert one.deadline == 4.0
    one.abandon(4)
    assert one.deadline == 5.0
    one.match(1)
    assert one.deadline is None
    assert len(one) == 1


def test_what_is_due_expires_in_order_and_is_given_up():
    one = asked(5.0, 3.0, 4.0, None)
    assert one.expire(2.9) == []
    assert one.expire(4.0) == [2, 3]
    assert one.expire(4.0) == []
    assert [one.match(2), one.match(1)] == [Match.LATE, Match.PENDING]
    assert one.deadline is None


def test_the_end_forgets_everything():
    one = asked(1.0, 2.0)
    one.abandon(1)
    one.clear()
    assert (len(one), one.deadline, one.match(1), one.match(2)) == (0, None, Match.NONE, Match.NONE)
    assert one.next_id == 3


def test_out_of_order_answers_go_at_once():
    served = IncomingRequests(in_order=False)
    for request_id in (1, 2, 3):
        served.take(request_id)
    assert [served.answer(request_id, bytes((request_id,))) for request_id in (3, 1, 2)] == [[b"\x03"], [b"\x01"], [b"\x02"]]
    assert len(served) == 0


def test_in_order_answers_wait_for_their_turn():
    served = IncomingRequests(in_order=True)
    for request_id in (5, 9, 7):
        served.take(request_id)
    assert served.answer(7, b"7") == []
    assert 7 in served, "its response is still here, so its identifier is in flight"
    assert served.answer(5, b"5") == [b"5"]
    assert 5 not in served
    assert served.answer(9, b"9") == [b"9", b"7"]
    assert (len(served), 7 in served) == (0, False)


@pytest.mark.parametrize("in_order", [False, True])
def test_what_was_not_asked_cannot_be_answered(in_order):
    served = IncomingRequests(in_order)
    served.take(1)
    served.take(2)
    served.answer(2, b"")
    for request_id in (2, 3):
        with pytest.raises(LocalProtocolError) as caught:
            served.answer(request_id, b"")
        assert caught.value.fault is Fault.RESPONSE_UNMATCHED
    assert 1 in served


class AskedAgainstASimpleModel(RuleBasedStateMachine):
    """Any order of asking, answering, giving up and waiting, against lists that are searched."""

    BOUND = 3

    def __init__(self):
        super().__init__()
        self.asked = OutgoingRequests(self.BOUND)
        self.pending: list[tuple[int, float | None]] = []
        self.abandoned: list[int] = []
        self.now = 0.0
        self.last = 0

    @rule(timeout=st.one_of(st.none(), st.integers(1, 5)))
    def ask(self, timeout):
        self.last += 1
        assert self.asked.next_id == self.last
        expiry = None if timeout is None else self.now + timeout
        self.asked.ask(self.last, expiry)
        self.pending.append((self.last, expiry))

    @precondition(lambda self: self.last)
    @rule(dice=st.data())
    def respond(self, dice):
        request_id = dice.draw(st.integers(1, self.last + 1))
        if request_id in [one for one, _ in self.pending]:
            self.pending = [one for one in self.pending if one[0] != request_id]
            expected = Match.PENDING
        elif request_id in self.abandoned:
            self.abandoned.remove(request_id)
            expected = Match.LATE
        else:
            expected = Match.NONE
        assert self.asked.match(request_id) is expected

    @precondition(lambda self: self.last)
    @rule(dice=st.data())
    def abandon(self, dice):
        request_id = dice.draw(st.integers(1, self.last + 1))
        self.asked.abandon(request_id)
        self._give_up(request_id)

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds):
        self.now += seconds
        due = sorted((expiry, one) for one, expiry in self.pending if expiry is not None and expiry <= self.now)
        assert self.asked.expire(self.now) == [one for _, one in due]
        for _, one in due:
            self._give_up(one)

    def _give_up(self, request_id):
        if request_id in [one for one, _ in self.pending]:
            self.pending = [one for one in self.pending if one[0] != request_id]
            self.abandoned = [*self.abandoned, request_id][-self.BOUND :]

    @invariant()
    def agrees(self):
        assert len(self.asked) == len(self.pending)
        assert self.asked.deadline == min((expiry for _, expiry in self.pending if expiry is not None), default=None)


AskedAgainstASimpleModel.TestCase.settings = examples(60, stateful_step_count=25)
TestAsked = AskedAgainstASimpleModel.TestCase
