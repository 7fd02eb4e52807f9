"""Relink's analyzer: each rule where it is broken and nowhere else, outcomes of messages, stored states, and agreement with live links."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each
from tests.lake.histories.relink import MICROSECONDS, Step, links, wild_links
from tests.lake.relink_cases import (
    CASES,
    EPOCH,
    REQUIRE,
    TX,
    A,
    B,
    client,
    close,
    closed,
    commit,
    fresh,
    resumed,
    rollback,
    sent,
    server,
    told,
)
from tests.lake.relink_recording import TapedWorld
from tests.protocols.relink.observer import Happening, Observer, Watched, analyzed, by_connection, feed
from tests.protocols.relink.pair import C, L
from tests.protocols.relink.speech import reply, request

from wirelake.protocols.relink import deliveries
from wirelake.protocols.relink.analyzer import Analyzer, Seen
from wirelake.protocols.relink.faults import OURS, TOLERATED, Fault
from wirelake.protocols.relink.messages import LAST_SEQUENCE
from wirelake.protocols.relink.state_machine import Speaker

SESSIONS = Path(__file__).parents[2] / "vectors" / "relink-sessions.json"
SIDES = {"client": Speaker.CONNECTOR, "server": Speaker.LISTENER}
NETWORK = {"CLOSED_WITHOUT_PARTING", "MESSAGE_CUT"}
"""What happens where connections are cut, whoever sees it first."""

NOT_SEEN = {
    Fault.ENDPOINT_UNKNOWN: "the listener closes without a message, and its endpoints are not on the wire",
    Fault.SETTINGS_DIFFER: "the listener closes without a message, and its endpoints are not on the wire",
    Fault.LINK_LOST: "a listener may forget a link after its shutdown (RELINK-23)",
    Fault.CHANNELS_OVER_LIMIT: "a side's own limit",
    Fault.RESULTS_OVER_LIMIT: "a side's own limit",
    Fault.LINKS_OVER_LIMIT: "a side's own limit",
    Fault.UNCONSUMED_OVER_LIMIT: "a side's own limit",
    Fault.UNDECIDED_OVER_LIMIT: "a side's own limit",
    Fault.PONG_TIMEOUT: "a side's own setting, and an observer does not know when the ping was read",
    Fault.PACKET_TIMEOUT: "an observer has the time of a packet, not of each of its bytes",
    Fault.CLOSED_INSIDE_MESSAGE: "found as MESSAGE_CUT",
    Fault.GIVEN_UP: "a side's own setting; the errors themselves are found",
    Fault.LINK_EXPIRED: "a side's own setting",
    **dict.fromkeys(OURS, "refused before anything is sent"),
}
"""What a live link refuses and an observer cannot find, and why."""

ALSO_LIVE = {
    "ACKNOWLEDGED_TOO_MUCH": "after a reconnection, an observer does not know what of the channel was lost",
    "CLOSED_UNASKED": "after a reconnection, `closed` may be about an earlier channel of the same id (RELINK-22)",
    "CHANNEL_CLOSING": "after a reconnection, decisions and close are repeated (RELINK-28)",
    "DECIDED_TOO_MUCH": "after a reconnection, decisions are repeated (RELINK-28)",
    "CHANNEL_UNKNOWN": "after a reconnection, a channel that is not reported may be open on either side",
    "CHANNEL_AFTER_SHUTDOWN": "after a reconnection, a message may be sent again",
    "SPOKE_BEFORE_RESUME": "found only before `resume` has passed the observer",
    "RESUME_INCONSISTENT": "an acknowledgement that passed the observer may not have arrived",
    "RESUME_UNEXPECTED": "found only once `resume` has passed the observer",
    "TRANSACTIONS_OFF": "found",
    "RESULT_UNNUMBERED": "after a reconnection, an observer may not know where the next result is (RELINK-28)",
}
"""On connections that resume a link, a live link may refuse these where an observer cannot know; never the reverse."""


def play(steps: Iterable[Step], observer: Observer, draw: random.Random | None = None) -> None:
    """Let an observer see what both sides say; `draw` chooses how much time passes."""
    watched: Watched | None = None
    old: Watched | None = None
    for who, data in steps:
        observer.now += 11_000_000 if who == "wait" else 100_000 if draw is None else draw.choice(MICROSECONDS)
        if watched is None or who == "connect":
            watched = observer.connect()
        if who in SIDES:
            watched.say(SIDES[who], data)
        elif who.startswith("late") and old is not None:
            old.say(SIDES.get(who.removeprefix("late "), Speaker.CONNECTOR), data)
        elif who == "takeover":
            old, watched = watched, None
        elif who in ("cut", "closed", "close", "reset"):
            watched.close("reset" if who == "reset" else "closed", draw.choice(("client", "server", "")) if draw else "")
            watched = None


def judged(analyzer: Analyzer) -> set[tuple[str, str | None]]:
    """The rules that were broken, and by whom."""
    sides = {True: "to_server", False: "to_client", None: None}
    return {(one.rule, sides[one.to_server]) for one in analyzer.findings if analyzer.is_whole or not one.needs_whole}


def watch(steps: Iterable[Step]) -> list[Analyzer]:
    """One analyzer for each session."""
    observer = Observer()
    play(steps, observer)
    return [analyzed(session) for session in observer.sessions().values()]


def outcomes(steps: Iterable[Step]) -> list[tuple[str, int, str | None]]:
    found = [one for analyzer in watch(steps) for one in analyzer.exchanges]
    return sorted(((one.correlation_id, one.attempts, one.outcome) for one in found), key=lambda one: (one[0], one[1]))


def results(analyzer: Analyzer) -> tuple[Any, ...]:
    return sorted(map(repr, analyzer.findings)), sorted(map(repr, analyzer.exchanges)), analyzer.standing(), analyzer.is_whole


# Rules.


@each("name", CASES)
def test_each_rule_is_found_where_it_is_broken_and_nowhere_else(name):
    story, expected = CASES[name]
    found = [judged(analyzer) for analyzer in watch(story(4711))]
    assert set().union(*found) == expected


def test_the_reference_breaks_no_rule():
    sessions = json.loads(SESSIONS.read_text())
    names = [name for name in sessions if name.startswith("session")]
    assert len(names) == 2
    for name in names:
        steps, connection = [], "1"
        for step in sessions[name]:
            if "#" in step["name"]:
                who, number = step["name"].split("#")
                steps += [("cut", b"")] * (number != connection)
                connection = number
                steps.append(("client" if who == "connector" else "server", bytes.fromhex(step["hex"])))
        (analyzer,) = watch([*steps, ("closed", b"")])
        assert judged(analyzer) == set()
        assert analyzer.standing().handshake == "complete"
        assert {one.outcome for one in analyzer.exchanges} == {"consumed"}


def test_a_rule_that_is_broken_again_on_a_connection_counts_once():
    steps = fresh(sent(A), told("consumed", 4), told("consumed", 5), told("received", 7))(1)
    (analyzer,) = watch(steps)
    assert [one.rule for one in analyzer.findings] == ["ACKNOWLEDGED_TOO_MUCH"]


def test_a_tolerated_fault_counts_each_time():
    (analyzer,) = watch(fresh(told("consumed", 4), told("consumed", 5))(1))
    assert [one.rule for one in analyzer.findings] == ["CHANNEL_UNKNOWN"] * 2


# Outcomes.


@each(
    ("steps", "expected"),
    [
        (CASES["consumed, then closed"][0](1), [("61/0", 1, "consumed"), ("61/1", 1, "consumed")]),
        (CASES["opened anew"][0](1), [("61/0", 1, "consumed"), ("61/0", 1, "consumed"), ("61/1", 1, "consumed")]),
        (CASES["results, consumed, then closed"][0](1), [("61/0", 1, "committed"), ("61/1", 1, "rolled back")]),
        (CASES["closed with an undecided message"][0](1), [("61/0", 1, "committed"), ("61/1", 1, "rolled back")]),
        (CASES["closed that nobody asked for"][0](1), [("61/0", 1, None)]),
        (CASES["closed that nobody asked for, told"][0](1), [("61/0", 1, None)]),
        (CASES["closed crosses the close that is repeated"][0](1), [("61/0", 1, "consumed"), ("61/0", 1, "consumed")]),
        (
            CASES["a channel of before is told, though it lives anew"][0](1),
            [("61/0", 1, "consumed"), ("61/0", 2, "consumed"), ("61/1", 1, "consumed")],
        ),
        (CASES["what was never acknowledged is sent again"][0](1), [("61/0", 2, "consumed"), ("61/1", 2, "consumed")]),
        # RELINK-21: it was closed, so that the next message is on another channel.
        (CASES["a closed channel may be forgotten"][0](1), [("61/0", 1, "consumed"), ("61/0", 1, "consumed")]),
        (CASES["many channels"][0](1), [("61/0", 1, "consumed"), ("61/1", 1, "consumed"), ("62/0", 1, "consumed")]),
        # RELINK-15: an acknowledgement covers what was sent before it, and nothing else.
        (fresh(sent(A), told("consumed", 3), sent(A))(1), [("61/0", 1, "consumed"), ("61/1", 1, None)]),
        (
            fresh(sent(A), told("consumed", 3), sent(A), sent(A), told("consumed", 1))(1),
            [("61/0", 1, "consumed"), ("61/1", 1, "consumed"), ("61/2", 1, None)],
        ),
        # RELINK-22: all that is reported with the `closed` of an earlier channel is about that one.
        (
            resumed(
                (sent(A), close(), closed(), sent(A)),
                (told("received", 0), told("consumed", 0), closed(), told("consumed", 0), client("resume"), server("resume"), sent(A)),
            )(1),
            [("61/0", 1, "consumed"), ("61/0", 2, None)],
        ),
        # RELINK-27: a rolled back message is done with the first acknowledgement.
        (
            fresh(sent(A), sent(A), rollback(0), told("consumed", 0), commit(1), told("committed", 1), flags=TX)(1),
            [("61/0", 1, "rolled back"), ("61/1", 1, "committed")],
        ),
        # RELINK-13: transactions mean nothing where there are none.
        (fresh(sent(A), rollback(0), told("committed", 0))(1), [("61/0", 1, None)]),
        (fresh(sent(A), sent(B), close(), closed())(1), [("61/0", 1, "consumed"), ("62/0", 1, None)]),
    ],
)
def test_messages_have_their_outcome(steps, expected):
    assert outcomes(steps) == expected


def test_a_link_of_another_epoch_is_another_link():
    """RELINK-10: epoch and id together name a link."""
    steps = [
        ("client", bytes(8)),
        ("server", bytes(8)),
        ("client", request(b"demo", (1, 1), REQUIRE, EPOCH, 7)),
        ("server", reply(EPOCH + 1, 7)),
    ]
    (analyzer,) = watch(steps)
    assert judged(analyzer) == {("LINK_REPLACED", "to_client")}


def test_the_answer_to_a_rolled_back_message_is_the_first_that_covers_it():
    (analyzer,) = watch(fresh(sent(A), sent(A), rollback(0), told("consumed", 0), commit(1), told("committed", 1), flags=TX)(1))
    (rolled_back,) = (one for one in analyzer.exchanges if one.cancelled)
    (committed,) = (one for one in analyzer.exchanges if not one.cancelled)
    assert rolled_back.answer.ts < committed.answer.ts


def test_numbers_wrap():
    """RELINK-15: 0 follows 2^32-1, for rules and for deliveries."""
    last = LAST_SEQUENCE - 2
    steps = resumed(
        (),
        (
            *(("server", told("received", last)[1]), ("server", told("consumed", last)[1])),
            *(CASES["a second resume"][0](1)[-3:-1]),
            *(sent(A), sent(A), told("consumed", last + 1), sent(A), sent(A), told("consumed"), told("consumed", 0), told("consumed")),
        ),
    )(1)
    steps = steps[5:]  # the beginning of the link was not captured, and its channel is old
    assert outcomes(steps) == [
        *(("61/0", 1, "consumed"), ("61/1", 1, "consumed")),
        *((f"61/{LAST_SEQUENCE - 1}", 1, "consumed"), (f"61/{LAST_SEQUENCE}", 1, "consumed")),
    ]
    (analyzer,) = watch(steps)
    assert judged(analyzer) == set()
    (analyzer,) = watch([*steps, told("consumed", 2)])
    assert judged(analyzer) == {("ACKNOWLEDGED_TOO_MUCH", "to_client")}


# Memory.


def test_a_closed_channel_is_forgotten():
    many = [step for _ in range(300) for step in (sent(A), sent(B), told("consumed", 0), close(A, B), closed(A), closed(B))]
    (few,), (more,) = (watch(fresh(*some)(1)) for some in (many[:60], many))
    assert len(more.exchanges) == 600
    assert not more.client.channels
    sizes = []
    for analyzer in (few, more):
        analyzer.exchanges = []
        sizes.append(len(analyzer.encode()))
    assert abs(sizes[0] - sizes[1]) < 50


def test_resolved_messages_are_forgotten():
    (analyzer,) = watch(fresh(*[step for _ in range(500) for step in (sent(A), told("consumed"))])(1))
    analyzer.exchanges = []
    assert len(analyzer.encode()) < 2000


def test_of_too_many_unresolved_messages_the_oldest_are_reported_as_they_stand(monkeypatch):
    monkeypatch.setattr(deliveries, "MOST", 3)
    observer = Observer()
    play(fresh(*[sent(A)] * 7)(1), observer)
    (session,) = observer.sessions().values()
    analyzer = Analyzer()
    for _ in feed(analyzer, session):
        pass
    assert [(one.correlation_id, one.outcome) for one in analyzer.exchanges] == [(f"61/{number}", None) for number in range(4)]


def test_acknowledgements_of_unknown_channels_are_not_remembered():
    """RELINK-13: they are ignored: the numbers of a channel that is opened later are not theirs."""
    many = [told("consumed", 3, bytes([number])) for number in range(200)]
    (analyzer,) = watch(fresh(*many, sent(A), told("consumed"))(1))
    assert len(analyzer.client.channels) == 1
    assert {rule for rule, _ in judged(analyzer)} == {"CHANNEL_UNKNOWN"}
    assert [one.outcome for one in analyzer.exchanges] == ["consumed"]


# Stored states, and the order of what is fed.


def test_in_order_of_time_a_connection_with_a_successor_is_not_judged():
    """RELINK-11: such messages come before all on the newer connection, which only the order of connections can tell."""
    observer = Observer()
    play(CASES["a message of the old connection comes late"][0](1), observer)
    (session,) = observer.sessions().values()
    in_time = Analyzer()
    for _ in feed(in_time, session):
        pass
    in_time.end()
    assert judged(in_time) == judged(analyzed(session)) == set()
    assert [(one.correlation_id, one.attempts) for one in in_time.exchanges] == [("61/0", 1), ("61/1", 1)]
    assert [(one.correlation_id, one.attempts) for one in analyzed(session).exchanges] == [("61/0", 1), ("61/1", 2)]


def test_a_link_that_is_given_again_begins_anew():
    """RELINK-10: the listener gives an id that it has given before: nothing of the link before it counts."""
    steps = [*fresh(sent(A), sent(A), told("consumed", 0))(1), ("cut", b""), *fresh(sent(A), told("consumed", 0))(1)]
    (analyzer,) = watch(steps)
    assert judged(analyzer) == set()
    assert outcomes(steps) == [("61/0", 1, "consumed"), ("61/0", 1, "consumed"), ("61/1", 1, None)]


def histories(seed: int) -> Iterator[list[Happening]]:
    for make in (links, wild_links):
        draw = random.Random(seed)
        observer = Observer()
        for link in make(draw, seed):
            play(link, observer, draw)
        yield from observer.sessions().values()


@pytest.mark.parametrize("seed", range(8))
def test_a_state_can_be_stored_between_any_two_messages(seed):
    draw = random.Random(seed)
    for session in histories(seed):
        whole = analyzed(session)
        once = Analyzer()
        feeding = feed(once, by_connection(session))
        exchanges, findings = [], []
        current = next(feeding, once)
        try:
            while True:
                if draw.random() < 0.3:
                    if draw.random() < 0.5:
                        exchanges += current.exchanges
                        findings += current.findings
                        current.exchanges, current.findings = [], []
                    current = Analyzer.decode(current.encode())
                current = feeding.send(current)
        except StopIteration:
            pass
        current.end()
        current.exchanges[:0], current.findings[:0] = exchanges, findings
        assert results(current) == results(whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_events_may_be_fed_earlier_than_messages(seed):
    for session in histories(seed):
        in_time, events_first = Analyzer(), Analyzer()
        for _ in feed(in_time, session):
            pass
        for _ in feed(events_first, sorted(session, key=lambda one: isinstance(one, Seen))):
            pass
        in_time.end()
        events_first.end()
        assert results(in_time) == results(events_first)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_time_does_where_no_two_connections_overlap(seed):
    for session in histories(seed):
        seen = [one for one in session if isinstance(one, Seen)]
        names = [one.connection_id for one in seen]
        if [*dict.fromkeys(names)] != [one for at, one in enumerate(names) if at == 0 or names[at - 1] != one]:
            continue
        in_time = Analyzer()
        for _ in feed(in_time, session):
            pass
        in_time.end()
        assert results(in_time) == results(analyzed(session))


@pytest.mark.slow
def test_every_rule_that_can_be_seen_is_broken_somewhere():
    broken = {one.rule for seed in range(24) for session in histories(seed) for one in analyzed(session).findings}
    visible = {fault.name for fault in Fault if fault not in NOT_SEEN}
    # The observer of these tests has every handshake, and no history lasts a minute.
    assert visible - broken == {"ID_SIZES_UNKNOWN", "PONG_MISSING"}
    assert broken <= visible


# Live links.


class Record:
    """A connection as one of its ends records it."""

    def __init__(self, watched: Watched, role: str) -> None:
        self._watched, self._role = watched, role

    def sent(self, data: bytes) -> None:
        self._watched.say(SIDES[self._role], data)

    def received(self, data: bytes) -> None:
        self._watched.say(SIDES["server" if self._role == "client" else "client"], data)

    def closed(self, reason: str) -> None:
        assert reason
        self._watched.close()


class Tape:
    """What `TapedWorld` records goes to an observer."""

    def __init__(self) -> None:
        self.observer = Observer()
        self.start = self.observer.now
        self.recorder = self
        self.ports = iter(range(1 << 30))

    @property
    def now(self) -> float:
        return (self.observer.now - self.start) / 1e6

    @now.setter
    def now(self, seconds: float) -> None:
        self.observer.now = self.start + int(seconds * 1e6)

    def connection(self, *, role: str, local: object, remote: object) -> Record:
        assert local != remote
        return Record(self.observer.connect(), role)

    def analyzers(self) -> list[Analyzer]:
        return [analyzed(session) for session in self.observer.sessions().values()]


@pytest.mark.slow
@pytest.mark.parametrize("observer", [C, L])
def test_links_in_a_hostile_network_break_nothing_that_they_did_not_notice_themselves(observer):
    seen: Counter[str | None] = Counter()
    for seed in range(24):
        tape = Tape()
        world = TapedWorld(tape, seed, observer)
        world.run()
        analyzers = tape.analyzers()
        noticed = Counter(fault.name for fault in world.heard if fault in TOLERATED)
        assert Counter(one.rule for analyzer in analyzers for one in analyzer.findings if one.rule not in NETWORK) == noticed, seed
        found = Counter(
            (one.correlation_id, one.outcome)
            for analyzer in analyzers
            for one in analyzer.exchanges
            if one.by_client == (observer is C) and one.outcome is not None
        )
        assert world.resolved <= found, seed
        assert world.is_lost or found == world.resolved, seed
        seen.update(outcome for _, outcome in found.elements())
    assert set(seen) == {"consumed", "committed", "uncommitted", "rolled back"}


@pytest.mark.slow
@pytest.mark.parametrize("observer", [C, L])
def test_what_a_live_link_refuses_is_found_and_the_reverse(observer):
    agreed: Counter[str] = Counter()
    for seed in range(100, 220):
        tape = Tape()
        world = TapedWorld(tape, seed, observer)
        for _ in range(5 + seed % 40):
            world.step()
        world.heard.clear()
        if not world.intrude():
            continue
        refused = {fault.name for fault in world.heard if fault not in NOT_SEEN}
        found = {one.rule for analyzer in tape.analyzers() for one in analyzer.findings} - NETWORK
        assert found <= refused, seed
        if world.taped[-1].is_resumed:
            assert refused - found <= set(ALSO_LIVE), seed
        else:
            assert found == refused, seed
        agreed.update(found)
    assert {"ACKNOWLEDGED_TOO_MUCH", "TRANSACTIONS_OFF", "DECIDED_TOO_MUCH", "CHANNEL_UNKNOWN", "RESUME_UNEXPECTED"} <= set(agreed)


def test_standing():
    (analyzer,) = watch(CASES["an orderly end"][0](1))
    standing = analyzer.standing()
    assert (standing.handshake, standing.ended_how, standing.ended_by) == ("complete", "bye", "client")
    assert (standing.client_version, standing.server_version, standing.error_code) == (0, 0, None)
    (analyzer,) = watch(CASES["a link is refused"][0](1))
    assert analyzer.standing().handshake == "refused"
