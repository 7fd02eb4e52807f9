"""What all analyzers share: how sessions begin and end, which answer belongs to which request, and what is forbidden."""

from __future__ import annotations

import random
from itertools import permutations, product

import msgspec
import pytest
from tests.cases import each

from wirelake import protocols
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent, Exchange, Part, SessionAnalyzer, Unreadable
from wirelake.protocols.any_analyzer import AnyAnalyzer, MessageOfAnyProtocol
from wirelake.protocols.emp.state_machine import MACHINE, State
from wirelake.protocols.request_pairs import RequestPairs
from wirelake.protocols.state_table import state_table

SECOND = 1_000_000


class Judging(AnyAnalyzer):
    """With the state machine of EMP."""

    STATES = state_table(MACHINE)


class Node(AnyAnalyzer):
    """Sessions that are nodes."""

    IS_NODE = True
    SILENCE_SECONDS = 35.0


class Informal(AnyAnalyzer):
    """A protocol without a handshake."""

    HAS_HANDSHAKE = False


def event(what: str, seconds: float, by: str = "", connection: bytes = b"c", offset: int = 0) -> ConnectionEvent:
    return ConnectionEvent(connection, round(seconds * SECOND), what, by, "here", offset, "tcp")


def said(
    kind: str, seconds: float, to_server: bool = True, *, number: str | None = None, name: str = "", at: int = 0, fault: str | None = None
) -> MessageOfAnyProtocol:
    """A message of this kind; `at` orders messages of the same time."""
    ts = round(seconds * SECOND)
    message_id = ts.to_bytes(8, signed=True) + at.to_bytes(8)
    return MessageOfAnyProtocol(message_id, b"c", ts, to_server, "here", at, 10, 10, fault, kind, name or kind, None, number)


Step = ConnectionEvent | Unreadable | MessageOfAnyProtocol


def feed(watching: SessionAnalyzer, step: Step) -> None:
    if isinstance(step, ConnectionEvent):
        watching.event(step)
    elif isinstance(step, Unreadable):
        watching.unreadable(step)
    else:
        watching.message(step)


def watched(*steps: Step, kind: type[SessionAnalyzer] = AnyAnalyzer) -> SessionAnalyzer:
    watching = kind()
    for step in steps:
        feed(watching, step)
    return watching


HELLOS = (said("handshake", 1), said("handshake", 2, False))

ENDS = {
    "still open": ((), "open", None),
    "bye": ((said("close", 3), event("closed", 4)), "bye", "client"),
    "error": ((said("error", 3, False), event("closed", 4)), "error", "server"),
    "the first of two": ((said("close", 3), said("error", 3.5, False)), "bye", "client"),
    "end of the stream": ((event("finished", 3, "server"), event("closed", 4, "client")), "eof", "server"),
    "reset": ((event("finished", 3, "server"), event("reset", 4, "client")), "reset", "client"),
    "closed by an unknown side": ((event("closed", 4),), "eof", None),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_session_ends_by_a_message_or_with_its_connection(case):
    steps, how, by = ENDS[case]
    watching = watched(event("opened", 0, "client"), *HELLOS, *steps)
    standing = watching.standing()
    assert (standing.ended_how, standing.ended_by) == (how, by)
    assert watching.has_ended == (how != "open")
    assert (standing.opened, standing.handshake) == (0, "complete")


def test_events_may_come_in_any_order():
    events = [event("opened", 0, "client"), event("finished", 3, "server", offset=1), event("reset", 4, "client", offset=2)]
    standings = {watched(*order, *HELLOS).standing() for order in permutations(events)}
    assert len(standings) == 1


def test_a_session_of_several_connections_ends_as_the_last_one_does():
    watching = watched(event("opened", 0), event("closed", 9), event("opened", 5, connection=b"d"), *HELLOS)
    assert watching.standing().ended_how == "open"
    watching.event(event("reset", 7, connection=b"d"))
    assert watching.standing().ended_how == "reset"
    assert watching.standing().last_seen == 9 * SECOND


HANDSHAKES = {
    "complete": HELLOS,
    "incomplete": HELLOS[:1],
    "refused": (HELLOS[0], said("error", 2, False)),
}


@pytest.mark.parametrize("handshake", HANDSHAKES)
def test_a_handshake_needs_both_sides(handshake):
    assert watched(*HANDSHAKES[handshake]).standing().handshake == handshake


def test_a_protocol_without_a_handshake_lives_on_after_an_error():
    steps = (event("opened", 0), said("error", 1), said("request", 2, number="1"))
    assert watched(*steps, kind=Informal).standing().ended_how == "open"
    assert watched(*steps, event("closed", 3), kind=Informal).standing().ended_how == "eof"
    assert watched(*steps[:2], event("closed", 3), kind=Informal).standing().ended_how == "error"
    assert watched(*steps, kind=Informal).standing().handshake is None


WHOLE = {
    "opened": ((event("opened", 0), said("request", 1)), True),
    "begins with a handshake": ((event("seen", 1), *HELLOS), True),
    "begins in the middle": ((event("seen", 1), said("request", 0.5), *HELLOS), False),
    "nothing was said": ((event("seen", 1),), False),
    "a gap": ((event("opened", 0), *HELLOS, Unreadable(b"c", 3, True, "GAP", None, "here", 0, 1)), False),
    "bytes that break a rule are no gap": ((event("opened", 0), *HELLOS, Unreadable(b"c", 3, True, "SIZE", "EMP-1", "here", 0, 1)), True),
}


@pytest.mark.parametrize("case", WHOLE)
def test_only_what_was_captured_from_its_beginning_and_without_a_gap_is_whole(case):
    steps, is_whole = WHOLE[case]
    assert watched(*steps).is_whole is is_whole


def test_a_node_neither_opens_nor_ends_with_a_connection():
    watching = watched(event("opened", 0), said("handshake", 5), event("reset", 9), kind=Node)
    standing = watching.standing(newest=40 * SECOND)
    assert (standing.opened, standing.last_seen, standing.ended_how, standing.ended_by) == (5 * SECOND, 5 * SECOND, "open", None)
    assert standing.handshake == "complete"
    assert not watching.has_ended
    assert watching.standing(newest=40 * SECOND + 1).ended_how == "silence"


def test_what_has_no_time_is_not_silent():
    watching = watched(said("event", NO_TIME / SECOND), kind=Node)
    assert watching.standing(newest=1_700_000_000 * SECOND).ended_how == "open"


def test_a_session_ends_on_a_finding_if_nothing_but_a_close_follows():
    watching = watched(event("opened", 0), *HELLOS, said("event", 3, fault="X"), said("error", 4, False))
    (finding,) = watching.findings
    assert watching.ended_on(finding)
    watching.message(said("event", 5))
    assert not watching.ended_on(finding)


# Requests.


def exchanges(*steps: MessageOfAnyProtocol) -> list[Exchange]:
    watching = watched(*steps)
    watching.end()
    return watching.exchanges


def part(message: MessageOfAnyProtocol) -> Part:
    return Part(message.ts, message.message_id, message.size)


def test_a_response_answers_the_request_with_its_id():
    asked, answered = said("request", 1, number="7"), said("response", 2, False, number="7")
    (exchange,) = exchanges(asked, answered)
    assert exchange == Exchange(True, "7", None, part(asked), part(answered), 0, False, 1, "returned")


def test_both_sides_may_use_the_same_id():
    found = exchanges(
        said("request", 1, number="7"),
        said("request", 2, False, number="7"),
        said("response", 3, number="7"),
        said("response", 4, False, number="7"),
    )
    assert [(one.by_client, one.answer.ts // SECOND) for one in found] == [(False, 3), (True, 4)]


def test_an_id_is_free_again_after_the_answer():
    steps = [said("request", 1, number="7"), said("response", 2, False, number="7")]
    assert len(exchanges(*steps, said("request", 3, number="7"), said("response", 4, False, number="7"))) == 2


def test_a_request_whose_id_is_used_again_stays_unanswered():
    first, second = exchanges(said("request", 1, number="7"), said("request", 2, number="7"), said("response", 3, False, number="7"))
    assert (first.sent.ts, first.answer) == (SECOND, None)
    assert (second.sent.ts, second.answer.ts) == (2 * SECOND, 3 * SECOND)


def test_a_response_without_a_request_is_an_exchange():
    (exchange,) = exchanges(said("response", 3, False, number="7"))
    assert (exchange.sent, exchange.by_client, exchange.attempts, exchange.progress) == (None, True, 0, None)
    assert exchange.outcome is None, "what came of a request that was not captured is not known"


def test_progress_and_cancelling_belong_to_the_request_that_waits():
    found = exchanges(
        said("progress", 0.5, False, number="7"),
        said("cancel", 0.6, number="7"),
        said("request", 1, number="7"),
        said("progress", 2, False, number="7"),
        said("progress", 3, number="7"),
        said("cancel", 4, number="7"),
        said("progress", 5, False, number="7"),
        said("response", 6, False, number="7"),
        said("request", 7, number="7"),
        said("cancel", 8, False, number="7"),
    )
    assert [(one.progress, one.cancelled) for one in found] == [(2, True), (None, False)]


def test_a_message_that_breaks_a_rule_by_itself_neither_asks_nor_answers():
    found = exchanges(said("request", 1, number="7"), said("response", 2, False, number="7", fault="X"))
    assert [one.answer for one in found] == [None]


def test_requests_are_counted_once():
    watching = watched(said("request", 1, number="7"), said("request", 2, number="7"), said("response", 3, False, number="7"))
    watching.message(said("response", 4, False, number="8"))
    watching.message(said("request", 5, False, number="9"))
    watching.end()
    assert (watching.requests, watching.answered, len(watching.exchanges)) == (3, 1, 4)


def test_nothing_waits_after_unanswered_was_asked():
    pairs = RequestPairs()
    pairs.ask(said("request", 1), "1", None)
    assert pairs.waiting(True, "1") is not None
    assert [one.correlation_id for one in pairs.unanswered()] == ["1"]
    assert pairs.unanswered() == []


# The state machine.


@pytest.mark.parametrize("name", protocols.names())
def test_a_table_has_every_message_of_every_state_once(name):
    machine = protocols.get(name).state_machine
    table = state_table(machine)
    directions = {"CLIENT": [True], "SERVER": [False], "NODE": [True, False]}
    for state, speaker, message in product(machine.states, machine.speakers, machine.messages):
        after = machine.transitions.get((state, speaker, message))
        untimely = machine.untimely.get((state, speaker, message))
        for to_server in directions[speaker.name]:
            at = (int(state), to_server, message.__struct_config__.tag)
            refused = machine.refusal(state, speaker, message) if after is None else untimely
            assert table.refusals.get(at) == (None if refused is None else refused.name)
            assert table.moves.get(at) == (None if after in (None, state) else int(after))
            assert (at in table.quiet) == (after == state and untimely is None)
    assert table.initial == int(machine.initial)


def test_a_forbidden_message_is_found_and_changes_nothing():
    watching = watched(said("event", 1, name="data"), kind=Judging)
    assert [(one.rule, one.needs_whole) for one in watching.findings] == [("HELLO_EXPECTED", True)]
    assert watching.states == {}


def test_a_message_with_a_fault_changes_the_state_and_is_not_found_twice():
    watching = watched(said("handshake", 1, name="hello", fault="X"), said("event", 2, name="data", fault="Y"), kind=Judging)
    assert watching.states == {b"c": State.CLIENT_GREETED}
    assert [(one.rule, one.needs_whole) for one in watching.findings] == [("X", False), ("Y", False)]


def test_every_connection_has_a_state_of_its_own():
    other = msgspec.structs.replace(said("handshake", 2, name="hello"), connection_id=b"d")
    watching = watched(said("handshake", 1, name="hello"), other, kind=Judging)
    assert watching.findings == []


# Stored states.


@each("seed", range(20))
def test_a_stored_state_goes_on_with_the_same_results(seed):
    dice, results = random.Random(seed), []
    kinds = ("request", "response", "progress", "cancel", "event", "handshake", "error", "close")
    steps = [
        event("opened", 0, "client"),
        event("finished", 150, "server"),
        Unreadable(b"c", 160 * SECOND, True, "MESSAGE_CUT", "X", "here", 0, 1),
    ]
    names = {"handshake": "hello", "error": "error", "close": "bye"}
    for at in range(200):
        kind = dice.choice(kinds[: 6 if at < 100 else 8])
        fault = dice.choice([None] * 9 + ["X"])
        number = str(dice.randrange(4))
        steps.append(said(kind, at, dice.random() < 0.5, number=number, name=names.get(kind, "data"), at=at, fault=fault))
    for is_stored in (False, True):
        watching, found = Judging(), []
        for step in steps:
            if is_stored and dice.random() < 0.3:
                found += watching.findings
                watching.findings.clear()
                watching = Judging.decode(watching.encode())
            feed(watching, step)
        watching.end()
        results.append((found + watching.findings, watching.exchanges, watching.standing(), watching.is_whole, watching.requests))
    assert results[0] == results[1]
    assert len(results[0][0]) > 20


def test_end_does_not_change_a_copy_that_was_taken_before():
    watching = watched(event("opened", 0), *HELLOS, said("request", 3, number="1"))
    kept = watching.encode()
    watching.end()
    later = AnyAnalyzer.decode(kept)
    later.message(said("response", 4, False, number="1"))
    later.end()
    assert [one.answer is None for one in watching.exchanges] == [True]
    assert [one.answer is None for one in later.exchanges] == [False]
