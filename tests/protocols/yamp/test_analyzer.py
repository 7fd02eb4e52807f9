"""The observer of both sides: every rule by hand, random histories fed in any way, and agreement with live sessions."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest
from tests.cases import each
from tests.conformance.harness import directory, vectors
from tests.lake import yamp_sessions
from tests.lake.histories import yamp as history
from tests.protocols import watching
from tests.protocols.watching import results, rules
from tests.protocols.yamp import speech
from tests.protocols.yamp.pair import CLIENT, SERVER, Side, options, quiet
from tests.protocols.yamp.speech import OTHER, UID
from tests.protocols.yamp.test_faults import GREETED, HEARD, TOLD

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.analyzer import ConnectionEvent, Unreadable
from wirelake.protocols.yamp import analyzer as yamp_analyzer
from wirelake.protocols.yamp import base_session
from wirelake.protocols.yamp.analyzer import Analyzer
from wirelake.protocols.yamp.events import Ended, Noticed
from wirelake.protocols.yamp.faults import TOLERATED, Fault

sessions = partial(watching.sessions, "yamp")
fed = partial(watching.fed, Analyzer)


class Talk(watching.Talk):
    PROTOCOL = "yamp"

    def shake(self):
        return self.client(speech.handshake()).server(speech.handshake())


# Rule by rule.


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    found = sessions([yamp_sessions.record(tmp_path_factory.mktemp("cases") / "cases.pcapng")])
    in_order = sorted(found.values(), key=lambda session: min(event.ts for event in session[0]))
    return dict(zip(yamp_sessions.CASES, in_order, strict=True))


@each("case", yamp_sessions.CASES)
def test_the_rules_that_are_broken(cases, case):
    assert rules(fed(cases[case])) == yamp_sessions.BROKEN.get(case, [])


@pytest.mark.parametrize("vector", vectors(directory() / "yamp.json"), ids=lambda vector: vector["name"])
def test_what_a_vector_refuses_is_found_and_nothing_else(tmp_path, vector):
    data, talk = bytes.fromhex(vector["hex"]), Talk(tmp_path)
    talk = talk.client(data) if data[0] == speech.HANDSHAKE else talk.shake().server(data)
    broken = {Fault[finding.rule] for finding in talk.analyzed().findings if not finding.needs_whole}
    assert bool(broken - TOLERATED) == (vector["expect"] == "reject")


@pytest.mark.parametrize(
    ("case", "outcomes"),
    [
        ("plain", ["returned"]),
        ("failed", ["failed"]),
        ("cancelled", ["cancelled"]),
        ("killed", ["killed"]),
        ("answered, not cancelled", ["returned"]),
        ("cancelled, then killed", ["killed"]),
        ("killed and answered", ["killed", "failed"]),
        ("unmatched", [None]),
        ("uid in flight", [None, None]),
    ],
)
def test_the_outcome_of_a_request(cases, case, outcomes):
    """0x07, 0x08: done, error, cancelled, or killed, which no answer undoes; a uid that is free again is another request."""
    assert [exchange.outcome for exchange in fed(cases[case]).exchanges] == outcomes


def test_a_request_with_its_progress_is_one_exchange(cases):
    (exchange,) = fed(cases["progress"]).exchanges
    assert (exchange.subject, exchange.by_client, exchange.progress, exchange.cancelled) == ("work", True, 3, False)
    assert (exchange.answer.ts - exchange.sent.ts, exchange.correlation_id) == (1_000_000, UID.hex())


@pytest.mark.parametrize(
    ("case", "handshake", "versions", "ended"),
    [
        ("plain", "complete", (1, 1), ("bye", "client")),
        ("version", "refused", (2, None), ("bye", "server")),
        ("large version", "refused", (None, None), ("bye", "server")),
        ("echo differs", "refused", (1, 1), ("bye", "client")),
        ("redirected", "refused", (1, None), ("bye", "server")),
        ("gone", "complete", (1, 1), ("eof", "client")),
        ("cut", "complete", (1, 1), ("eof", None)),
    ],
)
def test_how_a_session_stood(cases, case, handshake, versions, ended):
    standing = fed(cases[case]).standing()
    assert (standing.handshake, standing.client_version, standing.server_version) == (handshake, *versions)
    assert (standing.ended_how, standing.ended_by, standing.error_code, standing.silences) == (*ended, None, None)


def test_oddities_are_those_of_the_live_session():
    """The live session does not have the last one as a bit: it looks into bodies itself."""
    live = dict(enumerate(Analyzer.ODDITIES[:-1]))
    assert {1 << bit: fault for bit, fault in live.items()} == base_session._ODD
    assert Analyzer.ODDITIES[-1] is Fault.BODY_UNDECODABLE


def broken(analyzer):
    """The broken rules, without the reuse of uids, which these talks do."""
    return [rule for rule in rules(analyzer) if rule != "UID_REUSED"]


# Progress (YAMP-29).


def test_progress_is_judged_by_the_request_that_is_in_flight(tmp_path):
    """A uid may be used again once it is answered: neither the earlier request counts, nor one of the other side."""
    talk = Talk(tmp_path).shake()
    talk.client(speech.request()).server(speech.request(progressive=1), speech.response(UID, 0))
    talk.client(speech.request(progressive=1), speech.response(UID, 2))
    talk.server(speech.response(UID, 2), speech.response(UID, 0), speech.response(UID, 2))
    assert broken(talk.analyzed()) == []


def test_progress_that_was_not_asked_for_is_found_when_the_uid_was_used_before(tmp_path):
    talk = Talk(tmp_path).shake().client(speech.request(progressive=1)).server(speech.response(UID, 2), speech.response(UID))
    talk.client(speech.request()).server(speech.response(UID, 2), speech.response(UID, 2))
    assert broken(talk.analyzed()) == ["PROGRESS_UNASKED"] * 2


def test_a_datagram_that_comes_again_does_not_change_what_was_asked(tmp_path):
    """YAMP-15: the first request is the one that is in flight."""
    for first, again, expected in ((1, 0, []), (0, 1, ["PROGRESS_UNASKED"])):
        talk = Talk(tmp_path, "udp").shake().client(speech.request(progressive=first), speech.request(progressive=again))
        assert broken(talk.server(speech.response(UID, 2)).analyzed()) == [*expected, "REQUEST_REPEATED"]


def test_a_kill_is_about_the_request_that_is_in_flight(tmp_path):
    """YAMP-34: a kill after a repetition is not about the first request, and one in the same microsecond as the answer comes after it."""
    talk = Talk(tmp_path).shake().client(speech.request(b"1"), speech.request(b"2"), speech.cancel(UID, kill=1))
    talk.client(speech.request(b"3", uid=OTHER)).server(speech.response(OTHER)).client(speech.cancel(OTHER, kill=1))
    outcomes = {exchange.subject: (exchange.outcome, exchange.cancelled) for exchange in talk.analyzed().exchanges}
    assert outcomes == {"1": (None, False), "2": ("killed", True), "3": ("returned", False)}


@pytest.mark.parametrize(
    ("asked", "killed", "answered", "is_found"),
    [(2, 3, 3.9, False), (2, 3, 4.1, False), (2, 2.5, 3.6, True)],
    ids=["it may have crossed", "so slow is the line", "later than a round trip"],
)
def test_an_answer_is_late_only_if_it_cannot_have_crossed_the_kill(tmp_path, asked, killed, answered, is_found):
    """YAMP-34: the only round trip that was measured is that of the answer, or of a ping of the same side."""
    talk = Talk(tmp_path).shake()
    if is_found:
        talk.at(0.5).client(speech.ping(b"a")).at(1.5).server(speech.pong(b"a"))
    talk.at(asked).client(speech.request()).at(killed).client(speech.cancel(UID, kill=1)).at(answered).server(speech.response(UID))
    found = [one for one in talk.at(9).analyzed().findings if one.rule == "ANSWERED_AFTER_KILL"]
    assert [one.to_server for one in found] == ([False] if is_found else [])


def test_late_answers_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(yamp_analyzer, "_MAX_LATE", 3)
    talk = Talk(tmp_path).shake().at(1).client(speech.ping(b"a")).at(1.001).server(speech.pong(b"a"))
    for number in range(10):
        talk.at(2 + number).client(speech.request(), speech.cancel(UID, kill=1)).at(2.5 + number).server(speech.response(UID))
    analyzer = talk.analyzed()
    assert Counter(rules(analyzer))["ANSWERED_AFTER_KILL"] == len(analyzer.late_answers) == 3


# Pongs (YAMP-18).


def test_a_missing_pong_is_found_with_the_next_message_of_the_side_that_owes_it(tmp_path):
    talk = Talk(tmp_path).shake().at(1).client(speech.ping(b"a")).at(11).server(speech.event()).at(12).client(speech.event())
    talk.recorder.flush()
    session = talk.session_so_far()
    analyzer = Analyzer()
    analyzer.event(session[0][0])
    for message in session[2]:
        analyzer.message(message)
    assert (analyzer.findings, analyzer.client_pings.count) == ([], 1)
    late = talk.at(12.5).server(speech.event()).analyzed()
    (finding,) = [one for one in late.findings if one.rule != "UID_REUSED"]
    assert (finding.rule, finding.to_server, finding.message_id, finding.length) == ("PING_TIMEOUT", False, None, 3)
    assert finding.ts == session[2][2].ts + 10_000_000
    assert late.client_pings.count == 0


def test_a_large_message_postpones_a_pong_but_not_one_that_was_missed(tmp_path):
    """As EMP-32: a message that ends late may have begun before; one that begins after another message of its side did not."""
    large = speech.event(b"e", b"1" * 30_000)
    assert broken(Talk(tmp_path).shake().client(speech.ping()).at(35).server(large, speech.pong()).analyzed()) == []
    talk = Talk(tmp_path).shake().client(speech.ping()).at(12).client(speech.event()).at(35).server(large, speech.pong())
    assert broken(talk.analyzed()) == []
    talk = Talk(tmp_path).shake().client(speech.ping()).at(12).server(speech.event()).at(35).server(large, speech.pong())
    assert broken(talk.analyzed()) == ["PING_TIMEOUT"]


def test_one_pong_answers_all_pings_with_its_payload(tmp_path):
    talk = Talk(tmp_path).shake().at(1).server(speech.ping(b"a")).at(5).server(speech.ping(b"a"), speech.ping(b"b"))
    analyzer = talk.at(12).client(speech.pong(b"a")).at(13).server(speech.event()).analyzed()
    assert [(one.rule, one.to_server) for one in analyzer.findings] == [("PING_TIMEOUT", True)]


def test_every_ping_without_a_pong_is_found(tmp_path):
    """Also those with the same payload; with the next message, and at the end."""
    talk = Talk(tmp_path).shake().at(1).client(speech.ping(b"a"), speech.ping(b"b")).at(2).client(speech.ping(b"a"), speech.ping(b"a"))
    analyzer = talk.at(11.5).server(speech.event()).at(30).client(speech.event()).analyzed()
    assert sorted(one.ts - analyzer.first_said for one in analyzer.findings) == [11_000_000] * 2 + [12_000_000] * 2


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_pings_that_nobody_answers_do_not_pile_up(tmp_path, transport):
    talk = Talk(tmp_path, transport).shake()
    for number in range(100):
        talk.at(number * 5).client(speech.ping(b"%d" % (number % 30))).server(speech.event())
    talk.recorder.close()
    events, _, messages = talk.session_so_far()
    analyzer = Analyzer()
    for event in events:
        analyzer.event(event)
    for message in messages:
        analyzer.message(message)
        assert analyzer.client_pings.count <= 4
    found = Counter(one.rule for one in analyzer.findings)
    assert (found["PING_TIMEOUT"], found["PONG_MISSING"]) == ((97, 1) if transport == "tcp" else (0, 0))


# Handshakes (YAMP-4, YAMP-8).


def test_the_echo_is_compared_in_either_order(tmp_path):
    talk = Talk(tmp_path).server(speech.handshake(1, b"msgpack")).client(speech.handshake())
    analyzer = talk.analyzed()
    (finding,) = [one for one in analyzer.findings if one.rule == "ECHO_DIFFERS"]
    assert not finding.to_server
    assert analyzer.place is None, "once both were heard, only what they said is kept"


def test_a_version_that_both_sides_name_but_nobody_supports_is_no_handshake(tmp_path):
    """YAMP-3: agreeing on a version is not enough."""
    talk = Talk(tmp_path).client(speech.handshake(2)).server(speech.handshake(2)).analyzed()
    assert talk.standing().handshake == "refused"
    assert "VERSION_UNSUPPORTED" in rules(talk)
    assert Talk(tmp_path).shake().analyzed().standing().handshake == "complete"


def test_a_serializer_that_was_echoed_was_not_refused(tmp_path):
    refusal = speech.close(b"Serializer json not supported. Use xml")
    assert "SERIALIZER_UNSUPPORTED" not in rules(Talk(tmp_path).shake().server(refusal).analyzed())
    assert "SERIALIZER_UNSUPPORTED" in rules(Talk(tmp_path).client(speech.handshake()).server(refusal).analyzed())


def test_only_the_first_refusal_counts(tmp_path):
    other, own = speech.close(b"Serializer xml not supported. Use a"), speech.close(b"Serializer json not supported. Use a")
    for refusals, is_found in (((other, own), False), ((own, other), True)):
        found = rules(Talk(tmp_path).client(speech.handshake()).server(*refusals).analyzed())
        assert ("SERIALIZER_UNSUPPORTED" in found) == is_found


def test_a_long_reason_is_not_kept(tmp_path):
    name = b"x" * 255
    talk = Talk(tmp_path).client(speech.handshake(1, name)).server(speech.close(b"Serializer " + name + b" " + b"y" * 60_000))
    analyzer = talk.analyzed()
    assert rules(analyzer) == ["SERIALIZER_UNSUPPORTED"]
    assert len(analyzer.encode()) < 4_000


# Random histories.


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    """Seed -> its sessions."""
    folder = tmp_path_factory.mktemp("histories")
    return {seed: sessions(history.write(folder, seed)) for seed in history.SEEDS}


@pytest.mark.slow
def test_random_histories_break_every_rule_that_history_shows(histories):
    found = Counter(rule for every in histories.values() for session in every.values() for rule in rules(fed(session)))
    missing = {fault.name for fault in Fault} - set(found)
    assert missing - {"PONG_MISSING"} == {fault.name for fault in Fault if fault.rule.unseen}, "no history lasts a minute"


@pytest.mark.slow
def test_random_histories_have_sessions_of_every_kind(histories):
    analyzers = [fed(session) for every in histories.values() for session in every.values()]
    assert {analyzer.is_whole for analyzer in analyzers} == {True, False}
    assert {analyzer.transport for analyzer in analyzers} == {"tcp", "udp"}
    standings = [analyzer.standing() for analyzer in analyzers]
    assert {one.ended_how for one in standings} == {"bye", "reset", "eof", "open"}
    assert {one.handshake for one in standings} == {"complete", "refused", "incomplete"}
    outcomes = {exchange.outcome for analyzer in analyzers for exchange in analyzer.exchanges}
    assert outcomes == {"returned", "failed", "cancelled", "killed", None}
    sources = [len({message.source for message in session[2]}) for every in histories.values() for session in every.values()]
    assert max(sources) > 1
    messages = [sum(len(session[2]) for session in every.values()) for every in histories.values()]
    assert all(300 < count < 700 for count in messages), messages


@pytest.mark.slow
@each("seed", history.SEEDS)
def test_results_do_not_depend_on_how_a_history_was_fed(histories, seed):
    """State out and in again between any two steps; events before all messages, or in the order of time."""
    dice = random.Random(seed)
    for session in histories[seed].values():
        expected = results(fed(session))
        for way in ("in time", "first"):
            steps = [*session[0], *session[1], *session[2]]
            if way == "in time":
                rank = {id(message): place for place, message in enumerate(session[2])}
                steps.sort(key=lambda step: (step.ts, rank.get(id(step), dice.choice((-1, len(rank))))))
            analyzer = Analyzer()
            taken = ([], [])
            for step in steps:
                match step:
                    case ConnectionEvent():
                        analyzer.event(step)
                    case Unreadable():
                        analyzer.unreadable(step)
                    case _:
                        analyzer.message(step)
                if dice.random() < 0.1:
                    taken[0].extend(analyzer.exchanges)
                    taken[1].extend(analyzer.findings)
                    analyzer.exchanges, analyzer.findings = [], []
                if dice.random() < 0.2:
                    analyzer = Analyzer.decode(analyzer.encode())
            analyzer.end()
            analyzer.exchanges += taken[0]
            analyzer.findings += taken[1]
            assert results(analyzer) == expected, way


# Live sessions.

MORE_LIVE = {
    Fault.PONG_UNSOLICITED: "YAMP-19: to be ignored, and an observer does not know which pings were given up",
    Fault.CANCEL_UNMATCHED: "YAMP-32: a cancel that crosses the answer is legal",
    Fault.RESPONSE_UNMATCHED: "YAMP-37: live, progress of no request that is pending counts, too; it may just be late",
}
"""Rules that a live session tells more often than the analyzer, and why."""

MORE_ANALYZED = {
    Fault.UID_REUSED: "YAMP-24: a session forgets a uid once its request is answered, and looks at no other uids",
    Fault.REDIRECT_REFUSED: "YAMP-22: a session hands the url on; the client that wants to follow it asks `redirect.follow`",
    Fault.VERSION_UNSUPPORTED: "YAMP-8, YAMP-11: a client only compares the echo, and a second handshake is ignored with its version",
    Fault.RESPONSE_UNMATCHED: "YAMP-9: a session ends on a response before the handshake, and does not ask what else is wrong with it",
    Fault.BODY_UNDECODABLE: "YAMP-44: a session looks at a body only if its request is pending, and hands on a last answer as it is",
}
"""Rules that the analyzer tells more often than a live session, and why."""

MORE_ANALYZED_AFTER_KILLS = {
    Fault.REQUEST_UID_IN_FLIGHT: "YAMP-34: a session forgets a killed request at once; for an observer its uid waits for an answer",
    Fault.REQUEST_REPEATED: "the same, in datagrams",
    Fault.PROGRESS_UNASKED: "the same: live, it is progress of no pending request",
    Fault.ANSWERED_AFTER_KILL: "YAMP-34: a session discards what still comes",
}
"""The same, where requests are killed."""

MORE_LIVE_IN_DATAGRAMS = {Fault.HANDSHAKE_REPEATED: "YAMP-15: a client that sent its handshake again gets another echo"}
"""Rules that a live client tells more often over udp, and why."""

REPEATED = {
    Fault.SERIALIZER_EMPTY: "YAMP-5: a server echoes an empty name as it is",
    Fault.URI_EMPTY: "YAMP-27: a response has the uri of its request",
}
"""Rules that a live session breaks because its peer did, and why."""


def lived(folder, side, steps):
    """Play steps to a live side; returns its faults, and the rules that an observer finds broken.

    A step is bytes of the peer, a number of seconds to wait, or a function of the side that may return bytes of the peer.
    """
    begin = now = 1_700_000_000 * 10**9
    (folder / "live.pcapng").unlink(missing_ok=True)
    recorder = Recorder(folder / "live.pcapng", protocol="yamp", clock=lambda: now, flush_seconds=60)
    role, other = ("client", "server") if side.session.speaker is CLIENT else ("server", "client")
    transport = "udp" if side.session.options.datagrams else "tcp"
    connection = recorder.connection(role=role, transport=transport, local=("127.0.0.1", 1), remote=("127.0.0.1", 2))

    def note():
        nonlocal now
        now = begin + round(side.now * 1e9)
        for said in side.unsent:
            connection.sent(said)
        side.unsent.clear()

    def hear(data):
        note()
        connection.received(data)
        side.receive(data)

    side.start()
    for step in steps:
        side.now += 0.001
        if side.session.ended is not None:
            break
        if isinstance(step, bytes):
            hear(step)
        elif isinstance(step, int | float):
            until = side.now + step
            while (deadline := side.session.deadline) is not None and deadline < until:
                side.now = max(side.now, deadline + 0.0005)  # a clock wakes a session a little later
                side.tick()
                note()
            side.now = until
        else:
            said = step(side)
            side.drain()
            if said is not None:
                hear(said)
        note()
    side.now += 1
    note()
    if side.session.ended is None:
        connection.finished(other)
        side.eof()
    connection.closed("eof")
    recorder.close()
    (session,) = sessions(recorder.paths).values()
    analyzer = fed(session)
    assert analyzer.is_whole
    live = [event.fault for event in side.heard if isinstance(event, Noticed | Ended) and event.fault is not None]
    by_side = side.session.speaker is CLIENT
    own = {Fault[one.rule] for one in analyzer.findings if one.to_server is by_side}
    assert own <= set(REPEATED), "a live session breaks no rule"
    return Counter(live), Counter(Fault[one.rule] for one in analyzer.findings if one.to_server is not by_side)


def ask(side):
    """A command of the owner: a request without progress."""
    side.uid = side.session.request("sum", 1, side.now)


ALONE = {
    **{fault: (SERVER, [speech.handshake(), said]) for fault, said in HEARD.items()},
    **{fault: (SERVER, [said]) for fault, said in GREETED.items()},
    **{fault: (CLIENT, [said]) for fault, said in TOLD.items()},
    Fault.HANDSHAKE_TIMEOUT: (SERVER, [6]),
    Fault.PING_TIMEOUT: (CLIENT, [speech.handshake(), 42]),
    Fault.CLOSED_WITHOUT_WORD: (SERVER, [speech.handshake()]),
    Fault.CLOSED_INSIDE_MESSAGE: (SERVER, [speech.handshake(), speech.event()[:9]]),
    Fault.PROGRESS_UNASKED: (CLIENT, [speech.handshake(), ask, lambda side: speech.response(side.uid, 2)]),
}
"""Fault -> the live side that tells it, and what its peer does."""

LIVE = options(ping_interval=30.0, request_timeout=None)
AT_THE_END = {Fault.CLOSED_WITHOUT_WORD, Fault.MESSAGE_CUT}


@pytest.mark.parametrize("fault", ALONE, ids=lambda fault: fault.name)
def test_what_a_live_session_refuses_the_analyzer_finds(tmp_path, fault):
    speaker, steps = ALONE[fault]
    live, found = lived(tmp_path, Side(speaker, LIVE), steps)
    assert live[fault] == 1
    assert found[fault] == (fault not in (Fault.PONG_UNSOLICITED, Fault.CANCEL_UNMATCHED))
    assert set(live) | set(found) <= {fault} | AT_THE_END


def speak(dice, side, peer, kills):
    """What happens next: a random message of the peer, or a command of the owner."""
    session, chance = side.session, dice.random()
    if session.state.name != "OPEN" or chance < 0.5:
        said = peer.next()[1]
        return said[:-1] + b"\x00" if said[0] == speech.CANCEL and not kills else said
    if chance < 0.6:
        peer.uids.append(session.request("sum", 1, side.now, progressive=dice.random() < 0.5))
    elif chance < 0.65:
        session.cancel(dice.choice(peer.uids), kill=kills and dice.random() < 0.3)
    elif chance < 0.9:
        uid = dice.choice(peer.uids)
        if session.is_serving(uid):
            dice.choice((session.respond, session.respond_cancelled, lambda uid: session.report(uid, 1)))(uid)
    elif chance < 0.92:
        return speech.pong(session.ping(side.now))
    return None


RUNS = [(speaker, datagrams, kills) for speaker in (CLIENT, SERVER) for datagrams in (False, True) for kills in (False, True)]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Run -> (what both told, what the live session told more often, what the analyzer did), over many random peers."""
    folder, every = tmp_path_factory.mktemp("live"), {}
    for speaker, datagrams, kills in RUNS:
        both, more_live, more_analyzed = every[speaker, datagrams, kills] = Counter(), Counter(), Counter()
        for seed in range(60):
            dice = random.Random(seed)
            peer = history.Speaker(dice, "udp" if datagrams else "tcp", orderly=False)
            peer.script = [(True, speech.handshake())] if dice.random() < 0.9 else []
            side = Side(speaker, quiet(handshake_timeout=5.0, datagrams=datagrams), seed=seed)
            steps = [lambda side, dice=dice, peer=peer, kills=kills: speak(dice, side, peer, kills)] * 120
            live, found = lived(folder, side, steps)
            both.update(live & found)
            more_live.update(live - found)
            more_analyzed.update(found - live)
    return every


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", RUNS, ids=lambda run: f"{run[0].name.lower()}-{'udp' if run[1] else 'tcp'}-{'kills' if run[2] else 'no kills'}"
)
def test_a_live_session_and_the_analyzer_tell_the_same_of_a_random_peer(compared, run):
    both, more_live, more_analyzed = compared[run]
    speaker, datagrams, kills = run
    assert set(more_live) <= set(MORE_LIVE) | (set(MORE_LIVE_IN_DATAGRAMS) if datagrams and speaker is CLIENT else set())
    assert set(more_analyzed) <= set(MORE_ANALYZED) | (set(MORE_ANALYZED_AFTER_KILLS) if kills else set())
    assert len(both) > 12, both


@pytest.mark.slow
def test_every_reason_is_needed(compared):
    assert set().union(*(more for _, more, _ in compared.values())) == {*MORE_LIVE, *MORE_LIVE_IN_DATAGRAMS}
    assert set().union(*(more for _, _, more in compared.values())) == {*MORE_ANALYZED, *MORE_ANALYZED_AFTER_KILLS}
