"""One session never fills the memory: what waits for ever is told and forgotten, and what stays within the limits is still joined."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.lake.relink_cases import A, client, fresh, hello, sent, server, told
from tests.lake.wolpertinger_sessions import answered, asked, call_id, line, pieces, result, trusted
from tests.protocols.emp import speech as emp
from tests.protocols.event_mesh import speech as event_mesh
from tests.protocols.relink.observer import Observer, analyzed, feed
from tests.protocols.relink.test_analyzer import play
from tests.protocols.watching import history
from tests.protocols.yamp import speech as yamp

from wirelake import protocols
from wirelake.protocols import analyzer, connections, request_pairs
from wirelake.protocols.analyzer import ConnectionEvent, SeenMessage, SessionAnalyzer
from wirelake.protocols.any_analyzer import AnyAnalyzer, MessageOfAnyProtocol
from wirelake.protocols.emp.state_machine import MACHINE
from wirelake.protocols.relink import analyzer as relink_analyzer
from wirelake.protocols.relink import deliveries, side_analyzer
from wirelake.protocols.relink.analyzer import Analyzer as RelinkAnalyzer
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.state_table import state_table
from wirelake.protocols.wolpertinger import text_analyzer
from wirelake.protocols.yamp import analyzer as yamp_analyzer

MANY = 100_000
OPENED = (0, "opened", b"client")

Numbered = Callable[[int], SeenMessage]


def numbered(message: SeenMessage, **fields: Callable[[int], Any]) -> Numbered:
    """The same message again and again, a millisecond later each time, with other ids."""

    def make(number: int) -> SeenMessage:
        own = {name: value(number) for name, value in fields.items()}
        return msgspec.structs.replace(message, ts=message.ts + number * 1000, message_id=number.to_bytes(8), **own)

    return make


def messages(protocol: str, *said: tuple[float, str, bytes]) -> list[SeenMessage]:
    return history(protocol, [OPENED, *said]).messages


def asking(protocol: str) -> tuple[SessionAnalyzer, Numbered, Numbered]:
    """An analyzer of an open session, its requests by number, and their answers."""
    if protocol == "any":
        place = (b"m", b"c", 1_000_000)
        request = MessageOfAnyProtocol(*place, True, "here", 0, 10, 10, None, "request", "ask", "tea", "1")
        answer = MessageOfAnyProtocol(*place, False, "here", 0, 10, 10, None, "response", "answer", "tea", "1")
        watching: SessionAnalyzer = AnyAnalyzer()
        return watching, numbered(request, correlation_id=str), numbered(answer, correlation_id=str)
    watching = protocols.get(protocol).analyzer()()
    if protocol == "emp":
        *greetings, request, answer = messages(
            "emp", (1, "client", emp.hello()), (2, "server", emp.hello()), (3, "client", emp.request(1)), (3, "server", emp.response(1))
        )
        asks, answers = numbered(request, request_id=str), numbered(answer, request_id=str)
    elif protocol == "yamp":
        shake = ((1, "client", yamp.handshake()), (2, "server", yamp.handshake()))
        *greetings, request, answer = messages("yamp", *shake, (3, "client", yamp.request()), (3, "server", yamp.response(yamp.UID)))
        asks, answers = numbered(request, uid=_uid), numbered(answer, request_uid=_uid, uid=_uid)
    elif protocol == "wolpertinger":
        call, answer = messages("wolpertinger", (3, "client", line(asked(1), 1)), (3, "server", line(answered(1), 1)))
        greetings = []
        asks, answers = numbered(call, text_id=int, call_id=call_id), numbered(answer, text_id=int, call_id=call_id)
    else:
        observer = Observer()
        play(fresh(sent(A), told("consumed", 0))(1), observer)
        *greetings, request, answer = [one for _, one in observer.happenings if not isinstance(one, ConnectionEvent)]
        asks, answers = numbered(request), numbered(answer, sequence=int)
    watching.event(ConnectionEvent(b"c", 0, "opened", "client", "here", 0, "tcp"))
    for greeting in greetings:
        watching.message(greeting)
    return watching, asks, answers


def _uid(number: int) -> bytes:
    return number.to_bytes(16)


LIMITS = {
    "any": (2 * request_pairs.MAX_WAITING, 6_000_000),
    "emp": (2 * request_pairs.MAX_WAITING, 6_000_000),
    "yamp": (2 * request_pairs.MAX_WAITING, 8_000_000),
    "wolpertinger": (20_000, 6_000_000),
    "relink": (2 * deliveries.MOST, 10_000_000),
}
"""Requests that may wait, and bytes of the state."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", LIMITS)
def test_a_session_with_many_unanswered_requests_stays_small(protocol):
    """Every request is told once; the last one still gets its answer, and nobody is blamed for what is forgotten."""
    most, size = LIMITS[protocol]
    watching, asks, answers = asking(protocol)
    unanswered = 0
    for number in range(MANY):
        watching.message(asks(number))
        if watching.exchanges:
            assert all(one.answer is None and one.sent is not None for one in watching.exchanges)
            unanswered += len(watching.exchanges)
            watching.exchanges.clear()
        if number % 20_000 == 19_999:
            assert MANY - most <= unanswered + MANY - number
            assert len(watching.encode()) < size
    assert MANY - most <= unanswered < MANY
    findings = {one.rule for one in watching.findings}
    assert findings <= {"NOT_CONFIRMED"}, "wolpertinger confirms what it gets"
    watching.findings.clear()
    watching.message(msgspec.structs.replace(answers(MANY - 1), ts=asks(MANY).ts))
    pairs = [one for one in watching.exchanges if one.answer is not None]
    if protocol != "wolpertinger":  # it is told once nothing more can come of its CallId
        assert pairs[-1].sent.message_id == (MANY - 1).to_bytes(8)
    watching.end()
    assert [one.rule for one in watching.findings if one.rule != "NOT_CONFIRMED"] == []
    told_at_all = unanswered + len(watching.exchanges)
    assert told_at_all == MANY
    assert watching.requests == MANY


@pytest.mark.parametrize("protocol", ["any", "emp", "yamp"])
def test_within_the_limit_every_answer_finds_its_request(protocol, monkeypatch):
    monkeypatch.setattr(request_pairs, "MAX_WAITING", 50)
    watching, asks, answers = asking(protocol)
    for number in range(1000):
        watching.message(asks(number))
        if number >= 49:
            watching.message(msgspec.structs.replace(answers(number - 49), ts=asks(number).ts))
    watching.end()
    assert sum(one.answer is not None for one in watching.exchanges) == 951
    assert len(watching.exchanges) == 1000
    assert watching.findings == []


@pytest.mark.parametrize("protocol", ["any", "emp", "yamp"])
def test_a_late_answer_to_a_forgotten_request_was_not_asked_for(protocol, monkeypatch):
    """And breaks no rule: the observer cannot know. One without a request breaks it as long as nothing is forgotten."""
    monkeypatch.setattr(request_pairs, "MAX_WAITING", 5)
    watching, asks, answers = asking(protocol)
    for number in range(11):
        watching.message(asks(number))
    assert [one.sent.message_id for one in watching.exchanges] == [number.to_bytes(8) for number in range(6)]
    watching.message(msgspec.structs.replace(answers(0), ts=asks(11).ts))
    assert (watching.exchanges[-1].sent, watching.findings) == (None, [])
    fresh_one, _, _ = asking(protocol)
    fresh_one.message(answers(0))
    assert [one.rule for one in fresh_one.findings] == ([] if protocol == "any" else ["RESPONSE_UNMATCHED"])


def test_a_request_that_is_repeated_is_not_the_oldest_any_more(monkeypatch):
    monkeypatch.setattr(request_pairs, "MAX_WAITING", 5)
    watching, asks, _ = asking("any")
    for number in (0, 1, 0, *range(2, 11)):
        watching.message(asks(number))
    assert [one.correlation_id for one in watching.exchanges] == ["0", "1", "0", "2", "3", "4", "5"]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_forgotten_does_not_depend_on_stored_states(seed, monkeypatch):
    """Dictionaries keep their order in msgpack: the oldest is the same one afterwards."""
    monkeypatch.setattr(request_pairs, "MAX_WAITING", 8)
    dice, results = random.Random(seed), []
    steps = [(dice.random() < 0.7, dice.randrange(60)) for _ in range(600)]
    for is_stored in (False, True):
        watching, asks, answers = asking("emp")
        for at, (is_request, number) in enumerate(steps):
            if is_stored and dice.random() < 0.3:
                watching = type(watching).decode(watching.encode())
            watching.message(msgspec.structs.replace((asks if is_request else answers)(number), ts=at, message_id=at.to_bytes(8)))
        watching.end()
        results.append((watching.exchanges, watching.findings))
    assert results[0] == results[1]
    assert len(results[0][0]) > 100


@pytest.mark.slow
def test_a_node_that_sends_many_packets_stays_small():
    (packet,) = messages("event-mesh", (1, "client", event_mesh.packet(event_mesh.name)))
    watching, made = protocols.get("event-mesh").analyzer()(), numbered(packet)
    for number in range(MANY):
        watching.message(made(number))
    assert len(watching.encode()) < 1000


# Other things that could pile up.


def test_pings_that_wait_are_limited_and_the_first_ones_are_found(monkeypatch):
    monkeypatch.setattr(yamp_analyzer, "_MAX_PINGS", 100)
    watching, _, _ = asking("yamp")
    (ping,) = messages("yamp", (3, "client", yamp.ping(b"1")))
    made = numbered(ping, payload=lambda number: str(number % 300).encode())
    for number in range(50_000):
        watching.message(made(number))
    assert watching.client_pings.count == 100
    watching.end()
    assert [one.ts for one in watching.findings] == [ping.ts + number * 1000 + 10_000_000 for number in range(100)]


def test_a_link_of_many_connections_remembers_the_last_ones(monkeypatch):
    """RELINK-11: a link may be cut again and again. Its beginning counts, and its last connection."""
    judgements = []
    for most in (1000, 10):
        for module in (connections, relink_analyzer):
            monkeypatch.setattr(module, "MAX_CONNECTIONS", most)
        observer = Observer()
        play(fresh(sent(A), told("consumed", 0))(1), observer)
        for last in range(100):
            again = [*hello(1, old=1), told("consumed", last), client("resume"), server("resume")]
            play([*again, sent(A), told("consumed", last + 1)], observer)
        (session,) = observer.sessions().values()
        watching = analyzed(session)
        judgements.append((watching.exchanges, watching.findings, watching.standing(), watching.is_whole))
    assert max(len(watching.wires), len(watching.states), len(watching.connections.known)) <= 21
    assert judgements[0] == judgements[1]
    assert len(judgements[0][0]) == 101


def test_a_packet_of_a_forgotten_connection_is_not_judged(monkeypatch):
    monkeypatch.setattr(relink_analyzer, "MAX_CONNECTIONS", 5)
    observer = Observer()
    play(fresh(sent(A))(1), observer)
    first = next(iter(observer.watched.values()))
    for _ in range(20):
        play([*hello(1, old=1), client("resume"), server("resume")], observer)
    first.say(Speaker.LISTENER, told("consumed", 5)[1])
    (session,) = observer.sessions().values()
    watching = RelinkAnalyzer()
    for _ in feed(watching, session):
        pass
    assert first.name not in watching.wires
    assert watching.order == 20
    assert not any(one.rule == "ACKNOWLEDGED_TOO_MUCH" for one in watching.findings)


def test_connections_that_begin_first_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 10)
    known = connections.Connections()
    for number in range(1000):
        known.event(ConnectionEvent(number.to_bytes(2), number, "opened", "client", "here", number, "tcp"))
        assert len(known.known) <= 20
    known.event(ConnectionEvent((3).to_bytes(2), 2000, "closed", "client", "here", 2000, "tcp"))
    assert (known.first.ts, known.opened.ts, known.last_happened) == (0, 0, 2000)
    assert (known.last.first.ts, known.last.closed) == (999, None)


def test_states_of_forgotten_connections_are_unknown(monkeypatch):
    """A message on one of them is not taken for the first of a connection."""

    class Judging(AnyAnalyzer):
        STATES = state_table(MACHINE)

    monkeypatch.setattr(analyzer, "MAX_CONNECTIONS", 10)
    watching = Judging()
    hello = MessageOfAnyProtocol(b"m", b"c", 1, True, "here", 0, 10, 10, None, "handshake", "hello", None, None)
    for number in range(100):
        watching.message(msgspec.structs.replace(hello, connection_id=number.to_bytes(2)))
        assert len(watching.states) <= 20
    data = msgspec.structs.replace(hello, kind="event", name="data", to_server=False)
    watching.message(msgspec.structs.replace(data, connection_id=(1).to_bytes(2)))
    assert watching.findings == []
    watching.message(msgspec.structs.replace(data, connection_id=(99).to_bytes(2)))
    assert [one.rule for one in watching.findings] == ["HELLO_EXPECTED"]


def channel(number: int) -> bytes:
    return number.to_bytes(4)


def test_open_channels_are_limited_and_then_not_judged(monkeypatch):
    monkeypatch.setattr(side_analyzer, "MAX_CHANNELS", 100)
    watching, asks, answers = asking("relink")
    for number in range(1000):
        watching.message(msgspec.structs.replace(asks(number), channel_ids=[channel(number)]))
        assert len(watching.client.channels) <= 100
    late = msgspec.structs.replace(answers(0), ts=asks(1000).ts, channel_ids=[channel(0)])
    watching.message(late)
    watching.message(msgspec.structs.replace(late, channel_ids=[channel(999)]))
    watching.end()
    assert watching.findings == []
    assert sorted(one.subject for one in watching.exchanges) == sorted(channel(number).hex() for number in range(1000))
    assert [one.subject for one in watching.exchanges if one.answer] == [channel(999).hex()]


def test_messages_of_all_channels_together_are_limited(monkeypatch):
    """The oldest are told, on whatever channel; the count is that of the messages that are there."""
    monkeypatch.setattr(side_analyzer, "MAX_UNRESOLVED", 100)
    watching, asks, _ = asking("relink")
    dice = random.Random(3)
    for number in range(2000):
        watching.message(msgspec.structs.replace(asks(number), channel_ids=[channel(dice.randrange(30))]))
        half = watching.client
        assert half.unresolved == sum(len(one.deliveries.unresolved) for one in half.channels.values()) <= 100
    assert [one.sent.message_id for one in watching.exchanges] == [number.to_bytes(8) for number in range(len(watching.exchanges))]
    watching.end()
    assert len(watching.exchanges) == 2000
    assert watching.client.unresolved == 0


def test_reports_before_a_resume_are_limited(monkeypatch):
    """RELINK-20: a side may restate one acknowledgement again and again, and never say resume."""
    monkeypatch.setattr(side_analyzer, "MAX_UNRESOLVED", 100)
    observer = Observer()
    play([*fresh(*[sent(A)] * 3, ("cut", b""))(1), *hello(1, old=1), *[told("consumed", 1)] * 500], observer)
    (session,) = observer.sessions().values()
    watching = RelinkAnalyzer()
    for _ in feed(watching, session):
        half = watching.client
        kept = sum(len(one.deliveries.unresolved) + len(one.deliveries.reports) for one in half.channels.values())
        assert half.unresolved == kept <= 100
    watching.end()
    assert [one.outcome for one in watching.exchanges] == ["consumed", "consumed", None]


def test_pieces_of_incomplete_messages_are_limited(monkeypatch):
    """The observer cannot judge a result any more, once it has forgotten a text."""
    monkeypatch.setattr(text_analyzer, "MOST_PIECES", 50)
    watching = protocols.get("wolpertinger").analyzer()()
    first, second, *_ = messages("wolpertinger", *[(1, "client", one) for one in pieces(asked(1, "Echo", "tea " * 100), 1, 100)])
    for number in range(500):
        for piece in (first, second):
            watching.message(numbered(piece, text_id=int)(number))
        assert sum(len(one.seen or ()) for one in watching.client_texts) <= 50
    (confirmed,) = messages("wolpertinger", (1, "server", result(1)))
    watching.message(msgspec.structs.replace(confirmed, ts=first.ts + 500_000, text_id=0))
    assert watching.findings == []


def test_texts_that_are_not_yet_due_are_limited(monkeypatch):
    monkeypatch.setattr(text_analyzer, "MOST", 10)
    monkeypatch.setattr(text_analyzer, "MOST_UNCONFIRMED", 50)
    watching = protocols.get("wolpertinger").analyzer()()
    watching.client_texts.most = 10
    (call,) = messages("wolpertinger", (1, "client", line(asked(1), 1)))
    made = numbered(call, text_id=int, call_id=call_id)
    for number in range(3000):
        watching.message(made(number))
        assert len(list(watching.client_texts)) <= 4 * 50 + 10
    assert watching.findings == []


def test_a_text_that_is_sent_again_does_not_collect_its_calls(monkeypatch):
    watching = protocols.get("wolpertinger").analyzer()()
    (call,) = messages("wolpertinger", (1, "client", line(asked(1), 1)))
    for number in range(100):
        watching.message(numbered(call, call_id=lambda number: call_id(number // 2))(number))
    (text,) = watching.client_texts
    assert text.calls == [call_id(number) for number in range(34, 50)]


def test_questions_without_a_clock_do_not_pile_up():
    watching = protocols.get("wolpertinger").analyzer()()
    (question,) = messages("wolpertinger", (1, "client", line(trusted(1, "EstablishConnection"), 1)))
    for number in range(1000):
        watching.message(msgspec.structs.replace(question, ts=-1, text_id=number, call_id=call_id(number)))
    assert len(watching.questions) == 64
