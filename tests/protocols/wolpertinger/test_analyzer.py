"""The observer of both sides: every rule by hand, random histories fed in any way, and agreement with live sessions."""

from __future__ import annotations

import base64
import random
from collections import Counter
from functools import partial

import msgspec
import pytest
from tests.lake import wolpertinger_sessions
from tests.lake.histories import wolpertinger as history
from tests.lake.wolpertinger_sessions import BLOB, BROKEN, CASES, IV, OTHER_KEYS, answered, asked, call_id, line, pieces, result, trusted
from tests.protocols import watching
from tests.protocols.watching import results, rules
from tests.protocols.wolpertinger.pair import KEYS, TRUSTED, read
from tests.protocols.wolpertinger.pair import session as live_session

from wirelake.protocols import used_ids
from wirelake.protocols.wolpertinger import call_analyzer, text_analyzer
from wirelake.protocols.wolpertinger.analyzer import Analyzer
from wirelake.protocols.wolpertinger.events import CallReceived, Noticed
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.messages import Envelope
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.trust.state import STRANGER
from wirelake.protocols.wolpertinger.wire import decode

KEYRING = Keyring([KEYS])
sessions = partial(watching.sessions, "wolpertinger", keyring=KEYRING)
fed = partial(watching.fed, Analyzer)


class Talk(watching.Talk):
    PROTOCOL = "wolpertinger"
    KEYRING = KEYRING


@pytest.fixture
def talk(tmp_path):
    return Talk(tmp_path)


# Rule by rule.


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    found = sessions([wolpertinger_sessions.record(tmp_path_factory.mktemp("cases") / "cases.pcapng")])
    in_order = sorted(found.values(), key=lambda session: min(event.ts for event in session[0]))
    return dict(zip(CASES, in_order, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_rules_that_are_broken(cases, case):
    assert rules(fed(cases[case])) == BROKEN.get(case, [])


@pytest.mark.parametrize(
    ("case", "outcomes"),
    [
        ("plain", [("returned", 1)]),
        ("void", [("confirmed", 1)]),
        ("failed", [("failed", 1)]),
        ("refused", [("refused", 1)]),
        ("sent again", [("returned", 2)]),
        ("unconfirmed", [(None, 1)]),
        ("pieces", [("returned", 1)]),
        ("unmatched", [(None, 0)]),
        ("heartbeat", [("returned", 1)]),
        ("answer to an error", [(None, 0), ("failed", 1)]),
    ],
)
def test_all_calls_with_one_id_are_one_exchange(cases, case, outcomes):
    assert [(one.outcome, one.attempts) for one in fed(cases[case]).exchanges] == outcomes


def test_how_sessions_end(cases):
    ends = {case: fed(session).standing() for case, session in cases.items()}
    assert (ends["plain"].handshake, ends["plain"].ended_how, ends["plain"].error_code) == (None, "eof", None)
    assert (ends["life goes on"].ended_how, ends["life goes on"].error_code) == ("eof", 500)
    assert (ends["clear when encrypted"].ended_how, ends["clear when encrypted"].ended_by) == ("error", "server")


def test_a_finding_about_something_missing_blames_the_side_that_owed_it(cases):
    (found,) = fed(cases["unconfirmed"]).findings
    assert (found.to_server, found.message_id, found.ts) == (False, None, cases["unconfirmed"][2][0].ts + 20_000_000)
    (found,) = fed(cases["pieces missing"]).findings
    assert found.to_server
    (found,) = fed(cases["no answer"]).findings
    assert (found.to_server, found.ts) == (False, cases["no answer"][2][1].ts + 30_000_000)


def test_a_misfit_is_found_at_the_answer_and_a_refusal_at_the_call(cases):
    (found,) = fed(cases["misfit"]).findings
    assert not found.to_server
    assert {one.to_server for one in fed(cases["refused calls"]).findings} == {True}


def test_a_session_that_was_not_captured_from_its_beginning_is_not_judged_by_what_is_missing(cases):
    events, unreadable, messages = cases["unmatched"]
    analyzer = fed(([event for event in events if event.what != "opened"], unreadable, messages))
    assert rules(analyzer) == []
    assert len(analyzer.findings) == 2


@pytest.mark.parametrize("code", [303, 70_000, -1])
def test_only_error_codes_that_fit_are_shown(talk, code):
    said = line(Error("Sample", 303), 1)
    document = said.split(b";")[1]
    xml = base64.b64decode(document).replace(b">303<", b">%d<" % code)
    found = talk.at(1).server(line(xml, 1), line(Error("Sample", 500), 2)).at(2).client(result(1), result(2)).closed().analyzed()
    assert found.standing().error_code == (None if code == 70_000 else code)


# What is remembered, and for how long.


def test_a_call_that_is_sent_again_after_its_answer_is_the_same_exchange(talk):
    talk.at(1).client(line(asked(1), 1)).at(2).server(line(answered(1), 1)).at(3).client(line(asked(1), 1), result(1)).server(result(1))
    analyzer = talk.closed().analyzed()
    assert [(one.outcome, one.attempts) for one in analyzer.exchanges] == [("returned", 2)]
    assert rules(analyzer) == ["MESSAGE_REPEATED"]


def test_an_id_that_is_used_again_after_five_minutes_is_a_new_one(talk):
    for start in (1, 400):
        talk.at(start).client(line(asked(1), 1)).at(start + 1).server(result(1), line(answered(1), 1)).at(start + 2).client(result(1))
    analyzer = talk.closed().analyzed()
    assert [(one.outcome, one.attempts) for one in analyzer.exchanges] == [("returned", 1)] * 2
    assert rules(analyzer) == ["CALL_ID_REUSED", "ID_REUSED", "ID_REUSED"]


def test_a_message_in_pieces_that_is_sent_again_is_no_second_call(talk):
    """The SQL rules took it for one: they look for repetitions among unfragmented messages only."""
    parts = pieces(asked(1, "Echo", "tea " * 100), 1, 100)
    talk.at(1).client(*parts).at(100).client(*parts).at(101).server(result(1), line(answered(1), 1)).at(102).client(result(1))
    assert rules(talk.closed().analyzed()) == []


def test_an_answer_in_pieces_that_is_sent_again_is_no_second_answer(talk):
    parts = pieces(answered(1, "tea " * 100), 1, 100)
    talk.at(1).client(line(asked(1), 1)).at(2).server(result(1), *parts).at(100).server(*parts).at(101).client(result(1))
    assert rules(talk.closed().analyzed()) == []


def test_pieces_after_a_complete_message_was_confirmed_are_of_another_one(talk):
    parts = pieces(asked(1, "Void", "tea " * 100), 1, 100)
    talk.at(1).client(*parts).at(2).server(result(1)).at(3).client(parts[0]).at(900)
    assert rules(talk.closed().analyzed()) == ["FRAGMENTS_TIMED_OUT"]


def test_a_result_after_five_minutes_comes_too_late(talk):
    talk.at(1).client(line(asked(1, "Void"), 1)).at(400).server(result(1)).at(401)
    assert rules(talk.closed().analyzed()) == ["NOT_CONFIRMED", "RESULT_UNMATCHED"]


def test_a_call_waits_for_its_answer_as_long_as_it_takes(talk):
    talk.at(1).client(line(asked(1), 1)).at(2).server(result(1)).at(5000).server(line(answered(1), 1)).at(5001).client(result(1))
    analyzer = talk.closed().analyzed()
    assert ([one.outcome for one in analyzer.exchanges], rules(analyzer)) == (["returned"], [])


def test_a_refused_call_is_found_at_once(talk):
    """Whatever is called with the same id after the answer."""
    talk.at(1).client(line(asked(1), 1)).at(2).server(line(Error("Sample", 303, call_id(1)), 1))
    talk.at(3).client(line(asked(1, "Other"), 2)).at(4)
    _, _, messages = talk.session()
    analyzer = Analyzer()
    for message in messages[:2]:
        analyzer.message(message)
    assert [one.rule for one in analyzer.findings] == ["METHOD_UNKNOWN"]


def test_where_two_calls_with_one_id_wait_it_is_unknown_which_was_refused(talk):
    talk.at(1).client(line(asked(1), 1), line(asked(1), 2)).at(2).server(line(Error("Sample", 303, call_id(1)), 1), result(1), result(2))
    assert rules(talk.at(3).client(result(1)).closed().analyzed()) == ["CALL_ID_IN_FLIGHT"]


def test_an_answer_before_the_call_says_nothing_about_it(talk):
    talk.at(1).server(line(Error("Sample", 303, call_id(1)), 1)).at(2).client(result(1), line(asked(1), 1)).at(3).server(result(1))
    assert rules(talk.closed().analyzed()) == ["RESPONSE_UNMATCHED"]


def test_a_heartbeat_may_be_refused_but_is_no_exchange(talk):
    beat = Call("Core", "Heartbeat", call_id(1))
    talk.at(1).client(line(beat, 1)).at(2).server(result(1), line(Error("Core", 303, call_id(1)), 1)).at(3).client(result(1))
    analyzer = talk.closed().analyzed()
    assert rules(analyzer) == ["METHOD_UNKNOWN", "RESPONSE_UNMATCHED"]
    assert [one.sent for one in analyzer.exchanges] == [None]


@pytest.mark.parametrize(("iv", "is_fit"), [(IV, True), ("A" * 22, False), ("AAAA", False), (" " + IV, False), ("\n", False), ('"', False)])
def test_wolp_24_an_iv_is_16_bytes_of_base64(talk, iv, is_fit):
    talk.at(1).client(line(trusted(1, "KeyExchange", BLOB, iv), 1)).at(2).server(result(1))
    assert rules(talk.closed().analyzed()) == [] if is_fit else ["KEY_INVALID"]


@pytest.mark.parametrize("is_answered", [True, False])
def test_state_stays_small(talk, monkeypatch, is_answered):
    """However many calls there are, answered or not, confirmed or not."""
    remember_less(monkeypatch, 20)
    said = many(talk)
    for step in (said if is_answered else said[:2], said[:1]):
        analyzer, sizes = Analyzer(), []
        for number in range(2000):
            for at, one in enumerate(step):
                analyzer.message(numbered(one, number, at))
            analyzer.exchanges.clear()
            analyzer.findings.clear()
            texts, calls = analyzer.client_texts, analyzer.client_calls
            sizes.append(sum(map(len, (texts.young, texts.old, calls.young, calls.old, calls.waiting))))
        assert max(sizes[1000:]) == max(sizes) <= 150
        assert len(analyzer.encode()) < 50_000


def remember_less(monkeypatch, most):
    """So many settled texts and calls, and ten calls that wait."""
    monkeypatch.setattr(text_analyzer, "MOST", most)
    monkeypatch.setattr(call_analyzer, "MOST", most)
    monkeypatch.setattr(call_analyzer, "MOST_WAITING", 10)
    monkeypatch.setattr(used_ids, "MAX_KEYS", most)


def many(talk):
    """The four texts of a call, to be used often."""
    talk.at(1).client(line(asked(1), 1)).at(1.1).server(result(1)).at(1.2).server(line(answered(1), 1)).at(1.3).client(result(1))
    return talk.session()[2]


def numbered(one, number, at):
    """The same text of another call, a second later than that of the call before."""
    of_call = one.call_id and call_id(number)
    return msgspec.structs.replace(one, ts=one.ts + number * 1_000_000 + at, text_id=number, call_id=of_call, message_id=bytes([at]))


def test_no_exchange_is_lost_when_many_are_forgotten(talk, monkeypatch):
    remember_less(monkeypatch, 10)
    every = many(talk)
    for said in (every, every[:2], every[:1]):
        analyzer = Analyzer()
        for number in range(500):
            for at, one in enumerate(said):
                analyzer.message(numbered(one, number, at))
        analyzer.end()
        assert Counter(one.correlation_id for one in analyzer.exchanges) == Counter(call_id(number) for number in range(500))
        found = Counter(one.rule for one in analyzer.findings)
        assert found == ({} if len(said) > 1 else {"NOT_CONFIRMED": 479})


def test_an_answer_to_a_call_that_was_forgotten_breaks_no_rule(talk, monkeypatch):
    monkeypatch.setattr(call_analyzer, "MOST_WAITING", 10)
    call, confirmed, answer, _ = many(talk)
    for waiting, broken in ((21, 1), (5, 0)):
        analyzer = Analyzer()
        for number in range(waiting):
            analyzer.message(numbered(call, number, 0))
            analyzer.message(numbered(confirmed, number, 1))
        analyzer.message(numbered(answer, 0, 2))
        assert ([one.rule for one in analyzer.findings], len([one for one in analyzer.exchanges if one.sent is None])) == ([], broken)


@pytest.mark.parametrize(("seconds", "broken"), [(0, []), (1, ["NO_ANSWER"])])
def test_where_a_result_is_as_old_as_its_call_an_answer_may_be(talk, seconds, broken):
    talk.at(1).client(line(trusted(1, "EstablishConnection"), 1)).at(1 + seconds).server(result(1)).at(100)
    assert rules(talk.closed().analyzed()) == broken


def test_a_message_that_could_not_be_opened_was_not_delivered(talk):
    talk.at(1).client(b"message_id:1;!!!!\n").at(2).server(result(1, 5)).at(3).client(b"message_id:1;!!!!\n").at(4).server(result(1, 5))
    assert rules(talk.closed().analyzed()) == ["BASE64_INVALID"] * 2


# Random histories.


@pytest.fixture(scope="module", params=range(8))
def random_sessions(request, tmp_path_factory):
    return sessions(history.write(tmp_path_factory.mktemp(f"seed{request.param}"), request.param))


def in_time(session):
    """All that happened, in the order of time; at the same time messages come last."""
    events, unreadable, messages = session
    every = [(one.ts, 0, "event", one) for one in events] + [(one.ts, 1, "unreadable", one) for one in unreadable]
    every += [(one.ts, 2, "message", one) for one in messages]
    return sorted(every, key=lambda one: one[:2])


@pytest.mark.slow
def test_results_do_not_depend_on_where_the_state_was_stored(random_sessions):
    dice = random.Random(7)
    for session in random_sessions.values():
        events, unreadable, messages = session
        analyzer = Analyzer()
        for event in events:
            analyzer.event(event)
        for found in unreadable:
            analyzer.unreadable(found)
        for message in messages:
            if dice.random() < 0.3:
                analyzer = Analyzer.decode(analyzer.encode())
            analyzer.message(message)
        analyzer = Analyzer.decode(analyzer.encode())
        analyzer.end()
        assert results(analyzer) == results(fed(session))


@pytest.mark.slow
def test_results_do_not_depend_on_when_events_come(random_sessions):
    for session in random_sessions.values():
        analyzer = Analyzer()
        for _, _, what, one in in_time(session):
            getattr(analyzer, what)(one)
        analyzer.end()
        assert results(analyzer) == results(fed(session))


@pytest.mark.slow
def test_what_was_taken_out_does_not_come_again(random_sessions):
    for session in random_sessions.values():
        analyzer, exchanges, findings = Analyzer(), [], []
        for _, _, what, one in in_time(session):
            getattr(analyzer, what)(one)
            exchanges, analyzer.exchanges = exchanges + analyzer.exchanges, []
            findings, analyzer.findings = findings + analyzer.findings, []
        analyzer.end()
        whole = fed(session)
        assert sorted(map(repr, exchanges + analyzer.exchanges)) == sorted(map(repr, whole.exchanges))
        assert sorted(map(repr, findings + analyzer.findings)) == sorted(map(repr, whole.findings))


# Held to the live session.

ONLY_LIVE = {
    Fault.ENCRYPTION_FAILED: "an observer cannot tell a message of other keys from one that is damaged",
    Fault.RESULT_UNMATCHED: "a result that is not success may be for a text that could not be read; and a reset forgets what waits",
    Fault.NOT_CONFIRMED: "a result that is not success: `exchanges` shows the call as refused",
    Fault.RESPONSE_UNMATCHED: "a session gives up calls that wait too long, and all at a reset: its timers are not on the wire",
    Fault.METHOD_UNKNOWN: "of several calls with one CallId it is not known which was refused; one that was sent again counts once",
    Fault.PARAMETERS_WRONG: "as METHOD_UNKNOWN",
    Fault.TRUST_TOO_LOW: "as METHOD_UNKNOWN",
    Fault.KEY_INVALID: "as METHOD_UNKNOWN",
    Fault.CALL_ID_IN_FLIGHT: "of several calls with one CallId, an observer takes the first answer for the answer to all",
    Fault.KEY_NOT_LOWER: "of a text that cannot be read, only the first fault is kept",
}
"""What a live session may refuse and the analyzer does not find, and why."""
ONLY_FOUND = {
    Fault.RESPONSE_UNMATCHED: "an error that answers no call: a session shows it to its owner as ErrorReceived",
    Fault.CALL_ID_IN_FLIGHT: "a session follows calls of its application, not those of trust, and not those that it refused",
    Fault.ID_REUSED: "a session takes another message with a used id as it is: its sender may have begun anew",
    Fault.CALL_ID_REUSED: "a session forgets a CallId once its call is answered",
    Fault.MESSAGE_REPEATED: "a session forgets what was delivered at a reset and at EstablishConnection",
    Fault.KEY_INVALID: "a key in a call that the session does not look at, for want of trust or of encryption",
    Fault.FRAGMENT_CONFLICT: "a session forgets pieces at a reset; who decodes recordings does not",
    Fault.FRAGMENT_LATE: "as FRAGMENT_CONFLICT",
}
"""What the analyzer finds and a live session does not refuse, and why."""
DOCUMENTS = {fault for fault in Fault if Fault.BASE64_INVALID <= fault <= Fault.COMPLEX_INVALID}
INSTEAD = [
    ({Fault.ENCRYPTION_FAILED}, {Fault.ENCRYPTED_TOO_SOON}, "a session without keys cannot open a message"),
    ({Fault.CLEAR_WHEN_ENCRYPTED}, DOCUMENTS, "a message that breaks a rule by itself is not reported a second time"),
    ({Fault.FRAGMENT_LATE}, {Fault.FRAGMENT_OUT_OF_RANGE, Fault.FRAGMENT_INCOMPLETE}, "what is wrong with it, not when it comes"),
    (DOCUMENTS, {Fault.FRAGMENT_LATE, Fault.FRAGMENT_CONFLICT}, "a session forgets pieces at a reset"),
]
"""What a live session refuses, what the analyzer finds instead, and why."""


class Live:
    """A live server, and a client that says what chance wants. Both are recorded."""

    def __init__(self, folder, seed):
        self.dice = random.Random(seed)
        self.talk = Talk(folder)
        self.micros = 0
        self.speaker = history.Speaker(self.dice)
        self.speaker.script = []
        self.refused = {}
        """Time -> what the server refused then."""
        is_trusted = seed % 2 == 1
        self.server = live_session(Speaker.SERVER, TRUSTED if is_trusted else STRANGER)
        if is_trusted:
            self.say(True, line(trusted(1, "KeyExchange", BLOB, IV), 999_999))
            self.say(False, result(999_999))
            self.say(False, line(Response("Authentication", call_id(1), BLOB), 999_999))
            self.say(True, result(999_999))

    def say(self, by_client, said):
        self.micros += 1
        self.talk.at(self.micros / 1e6)
        (self.talk.client if by_client else self.talk.server)(said)

    def heard(self, at):
        """Record what the server says to it, and note what it refused."""
        for event in self.server.events():
            if isinstance(event, Noticed):
                self.refused.setdefault(at, []).append(event.fault)
            elif isinstance(event, CallReceived) and self.dice.random() < 0.7:
                self.server.respond(event.call_id, "tea", self.micros / 1e6)
        theirs = self.speaker.sides[False]
        for text in self.server.messages():
            self.say(False, text + b"\n")
            said = decode(text)
            if isinstance(said, Envelope):
                theirs.unconfirmed.append((self.micros * 1000, said.message_id))
                (document,) = read([text], KEYS)
                if isinstance(document, Call):
                    theirs.waiting[document.call_id] = document

    def step(self):
        self.micros += self.dice.choice((1, 1000, 1_000_000))
        now = self.micros / 1e6
        self.speaker.seals = (
            (KEYS, KEYS, KEYS, KEYS, OTHER_KEYS, None) if self.server.trust_state.keys else (None, None, None, None, OTHER_KEYS)
        )
        if self.dice.random() < 0.1:
            self.server.call("Peer", "Ask", (), now)
        if self.server.deadline is not None and self.server.deadline <= now:
            self.server.tick(now)
        self.heard(None)
        self.speaker.now = self.micros * 1000
        own, other = self.speaker.sides[True], self.speaker.sides[False]
        said = self.dice.choices(history._KINDS, history._WEIGHTS)[0](self.speaker, own, other)
        if said is not None:
            self.say(True, said)
            at = self.micros
            self.server.receive(said, at / 1e6)
            self.heard(at)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """(what the live session refused, what the analyzer found), for every text of a client, of many conversations."""
    compared = []
    for seed in range(16):
        one = Live(tmp_path_factory.mktemp("live"), seed)
        for _ in range(150):
            one.step()
        analyzer = one.talk.analyzed()
        start = wolpertinger_sessions.START_NS // 1000
        found = {}
        for finding in analyzer.findings:
            if finding.to_server and (finding.message_id is not None or Fault[finding.rule] in UNREADABLE):
                found.setdefault(finding.ts - start, []).append(Fault[finding.rule])
        compared += [(one.refused.get(at, []), found.get(at, [])) for at in sorted(found.keys() | (one.refused.keys() - {None}))]
    return compared


def is_explained(missing, more):
    if missing <= ONLY_LIVE.keys() and more <= ONLY_FOUND.keys():
        return True
    return any(missing <= ONLY_LIVE.keys() | refused and more <= ONLY_FOUND.keys() | found for refused, found, _ in INSTEAD)


def test_what_a_live_session_refuses_is_found_and_the_reverse(live):
    needed = [set(), set()]
    for refused, found in live:
        missing, more = Counter(refused) - Counter(found), Counter(found) - Counter(refused)
        assert is_explained(missing.keys(), more.keys()), (refused, found)
        needed[0] |= missing.keys()
        needed[1] |= more.keys()
    assert needed[0] >= ONLY_LIVE.keys()
    assert needed[1] >= ONLY_FOUND.keys()


def test_both_refuse_most_rules(live):
    agreed = Counter()
    for refused, found in live:
        agreed += Counter(refused) & Counter(found)
    assert len(agreed) >= 40, agreed


# The rule book.


@pytest.mark.slow
def test_every_rule_is_broken_somewhere_in_24_seeds(tmp_path):
    broken = set()
    for seed in history.SEEDS:
        for session in sessions(history.write(tmp_path / str(seed), seed)).values():
            broken.update(rules(fed(session)))
    assert broken == {fault.name for fault in Fault if not fault.rule.unseen}
