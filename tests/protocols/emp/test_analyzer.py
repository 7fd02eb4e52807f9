"""The observer of EMP: it finds every rule that history can tell, and what a live session refuses."""

from __future__ import annotations

import random

import pytest
from tests.lake.histories import emp as random_histories
from tests.protocols.emp import speech
from tests.protocols.emp.pair import CLIENT, SERVER, Side, options
from tests.protocols.emp.test_faults import GREETED, HEARD
from tests.protocols.watching import Judgement, Said, histories, history, judge

from wirelake.protocols.emp.analyzer import Analyzer
from wirelake.protocols.emp.faults import TOLERATED, UNREADABLE, Fault
from wirelake.protocols.kernel import use_compiled

SECOND = 1_000_000
OPENED: Said = (0, "opened", b"client")
HELLOS: list[Said] = [OPENED, (0.1, "client", speech.hello()), (0.2, "server", speech.hello())]
BYE: list[Said] = [(90, "client", speech.bye), (91, "closed", b"")]
PART = speech.data(b"x")[:-1]

UNSEEN = {
    Fault.TYPE_UNREGISTERED: "which types an application handles is not on the wire",
    Fault.EXTENSION_REFUSED: "what an application's extension refuses is not on the wire",
    Fault.REQUEST_UNHANDLED: "whether a peer answers requests is not on the wire",
    Fault.HANDLER_FAILED: "a failure of the application that was asked",
    Fault.RESPONSE_LATE: "the timeout of a request is its sender's own setting",
    Fault.IDENTIFIERS_EXHAUSTED: "refused before anything is sent",
    Fault.FIELD_OUT_OF_RANGE: "refused before anything is sent",
}
"""Rules of live sessions that an observer cannot find, and why."""

UNHEARD = {
    Fault.PONG_MISSING: "a live session ends long before, with PONG_TIMEOUT",
    Fault.REQUEST_ID_REUSED: "a live session forgets an id once its request is answered",
    Fault.SPOKE_AFTER_PARTING: "a live session does not read on after the peer's bye or error",
    Fault.SPOKE_TOO_SOON: "a live session says hello first, so that no peer is too early for it",
    Fault.PING_OVERLAPPING: "a live session answers every ping at once, so that none overlaps",
    Fault.MESSAGE_CUT: "a live session waits for the rest, and calls its end CLOSED_INSIDE_MESSAGE",
}
"""Rules that an observer finds and a live session does not, and why."""


@pytest.fixture(autouse=True)
def _fast(_same_kernels):
    use_compiled()


def judged(said: list[Said]) -> Judgement:
    return judge(Analyzer, history("emp", said).events_first)


# Every rule, by hand.

BY_THEMSELVES: dict[Fault, list[Said]] = {
    **{fault: [*HELLOS, (1, "client", data), (2, "server", speech.error(3))] for fault, data in HEARD.items()},
    **{fault: [OPENED, (1, "client", data), (2, "server", speech.error(3))] for fault, data in GREETED.items()},
}
BY_HISTORY: dict[Fault, list[Said]] = {
    Fault.SPOKE_TOO_SOON: [*HELLOS[:2], (0.15, "client", speech.data()), HELLOS[2], *BYE],
    Fault.SPOKE_AFTER_PARTING: [*HELLOS, (1, "client", speech.bye), (2, "client", speech.data())],
    Fault.HANDSHAKE_TIMEOUT: [OPENED, (1, "client", speech.hello()), (5.000001, "client", speech.error(2))],
    Fault.PONG_TIMEOUT: [*HELLOS, (1, "client", speech.ping), (11.000001, "server", speech.pong), *BYE],
    Fault.PONG_MISSING: [
        *HELLOS,
        (1, "client", speech.ping),
        (61.000001, "server", speech.data()),
        *((at + 10, who, data) for at, who, data in BYE),
    ],
    Fault.REQUEST_ID_REUSED: [
        *HELLOS,
        (1, "client", speech.request(7)),
        (2, "server", speech.response(7)),
        (3, "client", speech.request(7)),
    ],
    Fault.PING_OVERLAPPING: [*HELLOS, (1, "client", speech.ping), (2, "client", speech.ping), (3, "server", speech.pong * 2), *BYE],
    Fault.CLOSED_WITHOUT_PARTING: [*HELLOS, (1, "finished", b"client")],
    Fault.CLOSED_INSIDE_MESSAGE: [*HELLOS, (1, "client", PART), (2, "finished", b"client")],
    Fault.MESSAGE_CUT: [*HELLOS, (1, "client", PART), *BYE],
}
AND: dict[Fault, list[str]] = {
    Fault.PONG_MISSING: ["PONG_TIMEOUT"],
    Fault.CLOSED_INSIDE_MESSAGE: ["MESSAGE_CUT"],
    Fault.SIZE_TOO_SMALL: ["MESSAGE_CUT"],
}
"""What else is found in the histories above."""


def test_every_rule_has_a_history_or_a_reason_why_not():
    assert sorted({*BY_THEMSELVES, *BY_HISTORY, *UNSEEN}) == sorted(Fault)
    assert set(UNSEEN) == {fault for fault in Fault if fault.rule.unseen}


@pytest.mark.parametrize("fault", [*BY_THEMSELVES, *BY_HISTORY], ids=lambda fault: fault.name)
def test_every_rule_is_found_where_it_was_broken(fault):
    said = {**BY_THEMSELVES, **BY_HISTORY}[fault]
    found = judged(said)
    if fault in UNSEEN:
        assert found.rules == []
        return
    assert fault.name in found.rules
    assert set(found.rules) - {fault.name} <= set(AND.get(fault, ()))
    (finding, *_) = [one for one in found.findings if one.rule == fault.name]
    is_omission = fault in (Fault.HANDSHAKE_TIMEOUT, Fault.PONG_TIMEOUT, Fault.PONG_MISSING)
    assert finding.to_server is not is_omission, "an omission is the server's fault here"
    has_no_message = is_omission or fault in UNREADABLE or fault.name.startswith("CLOSED")
    assert (finding.message_id is None) == (has_no_message and fault not in IN_ROWS)
    assert finding.needs_whole == (fault >= Fault.HELLO_EXPECTED and fault not in CERTAIN)


IN_ROWS = {Fault.GZIP_INVALID, Fault.SCHEME_UNKNOWN, Fault.INFLATED_OVER_LIMIT, Fault.ERROR_NOT_UTF8}
"""Bodies are looked into after scanning: the message has a row."""
CERTAIN = {Fault.VERSION_UNSUPPORTED, Fault.UNUSED_BITS_SET, Fault.BODY_IGNORED}
"""One message is enough to see these."""


@pytest.mark.parametrize("fault", BY_HISTORY, ids=lambda fault: fault.name)
def test_what_was_not_said_counts_only_in_a_whole_session(fault):
    said: list[Said] = [(0.01, "server", speech.data()), *BY_HISTORY[fault][1:]]
    found = judged(said)
    assert not found.is_whole
    assert fault.name in [one.rule for one in found.findings if not one.needs_whole] or fault.name not in found.rules


FINE: dict[str, list[Said]] = {
    "requests of both sides": [
        *HELLOS,
        (1, "client", speech.request(7)),
        (1.1, "server", speech.request(7)),
        (2, "server", speech.response(7)),
        (2.1, "client", speech.response(7)),
        (3, "client", speech.request(8)),
        (40, "server", speech.response(8)),
        *BYE,
    ],
    "the last possible hello": [*HELLOS[:2], (5, "server", speech.hello()), *BYE],
    "the last possible pong": [*HELLOS, (1, "client", speech.ping), (11, "server", speech.pong), *BYE],
    "gone before the pong": [*HELLOS, (1, "client", speech.ping), (11, "server", speech.bye), (30, "closed", b"")],
    "closed before the pong": [*HELLOS, (1, "client", speech.ping), (11, "closed", b""), (12, "client", speech.bye)],
    "not seen so long": [*HELLOS, (1, "client", speech.ping), (11, "client", speech.data())],
    "gone before the hello": [*HELLOS[:2], (5, "server", speech.bye), (9, "closed", b"")],
    "who stays may finish": [
        *HELLOS,
        (1, "client", speech.bye),
        (2, "server", speech.data()),
        (3, "server", speech.bye),
        (4, "closed", b""),
    ],
    "an unreadable error counts as a parting": [*HELLOS, (1, "client", speech.error(3, b"", length=1)), (2, "finished", b"server")],
    "still open": HELLOS,
}


@pytest.mark.parametrize("case", FINE)
def test_what_is_allowed_is_not_found(case):
    assert judged(FINE[case]).rules in ([], ["ERROR_TOO_SHORT"])


LARGE = {
    # EMP-32: bytes of a large message, seconds of the pong after the ping, whether it is late
    "the same as without": (999, 10.000001, True),
    "in time": (1000, 11, False),
    "late": (1000, 11.000001, True),
    "much later": (30_000, 40, False),
}


@pytest.mark.parametrize("by", ["client", "server"])
@pytest.mark.parametrize("case", LARGE)
def test_large_messages_of_either_side_postpone_a_pong(case, by):
    size, seconds, is_late = LARGE[case]
    said: list[Said] = [*HELLOS, (1, "client", speech.ping), (2, by, speech.data(bytes(size - 8))), (1 + seconds, "server", speech.pong)]
    assert judged([*said, *BYE]).rules == (["PONG_TIMEOUT"] if is_late else [])
    before: list[Said] = [*HELLOS, (0.5, by, speech.data(bytes(size - 8))), *said[3:4], *said[5:]]
    assert judged([*before, *BYE]).rules == ["PONG_TIMEOUT"], "what was said before the ping postpones nothing"


def test_a_pong_that_never_comes_is_late_by_all_that_was_carried():
    said: list[Said] = [*HELLOS, (1, "server", speech.ping), (2, "server", speech.data(bytes(5000 - 8)))]
    assert judged([*said, (16, "client", speech.data())]).rules == []
    found = judged([*said, (16.000001, "client", speech.data())])
    assert [(one.rule, one.ts, one.to_server) for one in found.findings] == [("PONG_TIMEOUT", 16 * SECOND, True)]


def test_of_overlapping_pings_the_first_is_judged_by_the_first_pong():
    said: list[Said] = [*HELLOS, (1, "client", speech.ping), (9, "client", speech.ping), (12, "server", speech.pong), *BYE]
    assert judged(said).rules == ["PING_OVERLAPPING", "PONG_TIMEOUT"]


def test_a_side_that_never_answers_a_ping_is_warned_of_only_while_it_is_there():
    ping: list[Said] = [*HELLOS, (1, "client", speech.ping)]
    missing = lambda *said: [one.to_server for one in judged([*ping, *said]).findings if one.rule == "PONG_MISSING"]  # noqa: E731
    assert missing((61.000001, "server", speech.data())) == [False]
    assert missing((61, "server", speech.data())) == [], "a minute is not over"
    assert missing((300, "client", speech.data())) == [], "a side that is not there owes nothing"
    assert missing((30, "server", speech.pong), (40, "client", speech.ping), (300, "server", speech.data())) == [], "it did once"
    assert missing((62, "client", speech.ping), (70, "server", speech.ping), (200, "server", speech.data())) == [False]


def test_how_late_a_pong_was_is_told():
    late: list[Said] = [*HELLOS, (1, "client", speech.ping), (11.5, "server", speech.pong), *BYE]
    assert [one.detail for one in judged(late).findings] == ["it came after 10.500 s"]
    never: list[Said] = [*HELLOS, (1, "client", speech.ping), (11.5, "server", speech.data()), *BYE]
    assert [one.detail for one in judged(never).findings] == ["none came"]


def test_pongs_without_a_ping_do_not_answer_later_pings():
    said: list[Said] = [*HELLOS, (1, "server", speech.pong), (2, "client", speech.ping), (3, "client", speech.ping)]
    assert judged([*said, (4, "server", speech.pong * 3), *BYE]).rules == ["PONG_UNSOLICITED", "PING_OVERLAPPING", "PONG_UNSOLICITED"]


BLAME = {
    # who closed, who had begun a message -> the rule, and the direction of the side at fault
    (b"client", "client"): ("CLOSED_INSIDE_MESSAGE", True),
    (b"server", "client"): ("CLOSED_WITHOUT_PARTING", False),
    (b"", "client"): ("CLOSED_INSIDE_MESSAGE", None),
    (b"", ""): ("CLOSED_WITHOUT_PARTING", None),
}


@pytest.mark.parametrize("case", BLAME, ids=str)
def test_a_side_that_closes_is_blamed_for_its_own_messages_only(case):
    closed_by, began = case
    cut: list[Said] = [(1, began, PART)] if began else []
    found = judged([*HELLOS, *cut, (2, "closed", closed_by)])
    assert [(one.rule, one.to_server) for one in found.findings if one.rule != "MESSAGE_CUT"] == [BLAME[case]]


def test_sessions_show_versions_and_the_first_error():
    said: list[Said] = [
        OPENED,
        (1, "client", speech.hello(2)),
        (2, "server", speech.hello()),
        (3, "server", speech.error(3)),
        (4, "client", speech.error(1)),
    ]
    standing = judged(said).standing
    assert (standing.client_version, standing.server_version, standing.error_code) == (2, 1, 3)
    assert (standing.handshake, standing.ended_how, standing.ended_by) == ("refused", "error", "server")


def test_a_hello_that_breaks_a_rule_is_a_greeting_all_the_same():
    hello = speech.envelope(speech.HELLO, bytes((1, 0, 0, 0)), speech.rr(True, 1))
    standing = judged([OPENED, (1, "client", hello), (2, "server", speech.hello()), *BYE]).standing
    assert (standing.client_version, standing.handshake) == (1, "complete")


# Random histories.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_results_depend_neither_on_stored_states_nor_on_when_events_come(tmp_path, seed):
    dice, rules = random.Random(seed), set()
    for one in histories(random_histories.write(tmp_path, seed), "emp").values():
        expected = judge(Analyzer, one.events_first)
        rules |= set(expected.rules)
        assert judge(Analyzer, one.in_time) == expected
        assert judge(Analyzer, one.events_first, dice) == expected
        assert judge(Analyzer, one.in_time, dice) == expected
    assert len(rules) > 20


def test_random_histories_repeat_themselves(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (random_histories.write(tmp_path / name, 5) for name in ("one", "other"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert len(one) == 2


# Held to live sessions.


class Conversation:
    """A live session and a peer that breaks rules; all that either says is written down."""

    def __init__(self, speaker, dice: random.Random) -> None:
        self.side = Side(speaker, options(application_types=frozenset(range(128, 256)), request_timeout=None, ping_interval=None))
        self.ours, self.peers = ("client", "server") if speaker is CLIENT else ("server", "client")
        self.dice = dice
        self.said: list[Said] = [OPENED]
        self.last = b""
        self.side.start()
        self.note()

    def note(self) -> None:
        """Write down what the live session says now."""
        if self.side.unsent:
            self.said.append((self.side.now, self.ours, self.side.unsent))
            self.side.unsent = b""

    def hear(self, data: bytes) -> None:
        self.last = data
        self.said.append((self.side.now, self.peers, data))
        self.side.receive(data)
        self.note()

    def act(self) -> None:
        """Let the owner do something."""
        session, dice = self.side.session, self.dice
        if session.state is not session.state.OPEN:
            return
        match dice.randrange(4):
            case 0:
                session.request(b"", self.side.now)
            case 1 if session._peer_requests:
                session.respond(dice.choice([number for number in range(1, 5) if number in session._peer_requests] or [0]), b"")
            case 2 if not session._pong.waits:
                session.ping(self.side.now)
        self.side.drain()
        self.note()

    def wait(self, seconds: float) -> None:
        """A timer fires a little late: not in the moment when it is due."""
        self.side.now += seconds
        self.side.session.tick(self.side.now)
        self.side.drain()
        self.note()


def utterance(dice: random.Random, live: Conversation) -> bytes:
    """Mostly what is allowed; no large message: see `test_large_messages…`."""
    chance = dice.random()
    if chance < 0.12:
        return dice.choice([data for fault, data in (HEARD | GREETED).items() if fault not in (Fault.INFLATED_OVER_LIMIT, *UNSEEN)])
    if chance < 0.2:
        return speech.pong
    if chance < 0.4:
        waiting = [number for number in range(1, 30) if number in live.side.session._requests._pending]
        return speech.response(dice.choice(waiting or [9])) if waiting or dice.random() < 0.1 else speech.data()
    return dice.choice(
        [*[speech.ping, speech.data(), speech.request(dice.randrange(1, 5)), speech.envelope(200)] * 3, speech.bye, speech.error(1)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("speaker", [CLIENT, SERVER], ids=lambda one: one.name)
@pytest.mark.parametrize("seed", range(100))
def test_what_a_live_session_refuses_is_found_and_the_reverse(speaker, seed):
    dice = random.Random(f"{speaker} {seed}")
    live = Conversation(speaker, dice)
    if dice.random() < 0.9:
        live.hear(speech.hello())
    for _ in range(dice.randrange(4, 30)):
        if live.side.session.ended is not None:
            break
        chance = dice.random()
        if chance < 0.25:
            live.act()
        elif chance < 0.35:
            live.wait(dice.choice([0.001, 1, 4.5, 6, 9.5, 11]))
        elif chance < 0.37:
            live.said.append((live.side.now, live.peers, PART))
            live.side.receive(PART)
            live.last = PART
            live.side.eof()
            live.said.append((live.side.now, "finished", live.peers.encode()))
        else:
            live.hear(utterance(dice, live))
    if live.side.session.ended is None:
        live.side.now += 0.001
        live.side.eof()
        live.said.append((live.side.now, "finished", live.peers.encode()))
    compare(live, judged(live.said))


def compare(live: Conversation, found: Judgement) -> None:
    """Hold what the observer found to what the live session refused and noticed."""
    assert [one for one in found.findings if one.to_server is (live.ours == "client")] == [], "a live session breaks no rule"
    by_peer = [one for one in found.findings if one.to_server is (live.peers == "client")]
    ended, own = live.side.ended.fault, own_fault(live.last)
    refused = [Fault[one.rule] for one in by_peer if Fault[one.rule] not in TOLERATED and Fault[one.rule] not in UNHEARD]
    if own is not None and own not in TOLERATED and ended in (Fault.HELLO_EXPECTED, Fault.HELLO_REPEATED):
        assert refused == [own], "a message that breaks a rule by itself is found for that one alone"
    else:
        assert refused[:1] == ([] if ended is None else [ended])
    # A live session stops at the first rule that a message breaks; an observer tells all.
    stopped_at = {one.message_id for one in by_peer if ended is not None and one.rule == ended.name}
    tolerated = [Fault[one.rule] for one in by_peer if one.message_id not in stopped_at and Fault[one.rule] in TOLERATED]
    assert [fault for fault in tolerated if fault not in UNHEARD] == [fault for fault in live.side.noticed if fault not in UNSEEN]


def own_fault(data: bytes) -> Fault | None:
    """The rule that a message breaks by itself."""
    read = history("emp", [(0, "client", data)])
    names = [*(one.reason for one in read.unreadable), *(one.fault for one in read.messages)]
    return next((Fault[name] for name in names if name), None)


def test_a_live_session_that_waits_for_a_pong_in_vain_is_confirmed():
    live = Conversation(SERVER, random.Random(1))
    live.hear(speech.hello())
    live.side.session.ping(live.side.now)
    live.side.drain()
    live.note()
    live.wait(10.5)
    assert live.side.ended.fault is Fault.PONG_TIMEOUT
    assert judged(live.said).rules == ["PONG_TIMEOUT"]
