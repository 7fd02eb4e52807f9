"""The observer of Event Mesh nodes: it finds every rule of form, counts silences, and agrees with a live node."""

from __future__ import annotations

import random

import pytest
from tests.lake.histories import event_mesh as random_histories
from tests.protocols.event_mesh.mesh import THERE, alone
from tests.protocols.event_mesh.speech import MADE, NODE, SPOKEN, auth, key, maced, mutations, name, node, packet, tlv
from tests.protocols.event_mesh.test_faults import BY_FORM
from tests.protocols.watching import Judgement, Said, histories, history, judge

from wirelake.protocols.event_mesh.analyzer import Analyzer
from wirelake.protocols.event_mesh.columns import ODD_INSIDE
from wirelake.protocols.event_mesh.events import Dropped, PeerChanged
from wirelake.protocols.event_mesh.faults import TOLERATED, UNREADABLE, Fault
from wirelake.protocols.event_mesh.options import DEFAULT_OPTIONS
from wirelake.protocols.event_mesh.session import Now
from wirelake.protocols.event_mesh.state_machine import MACHINE, State
from wirelake.protocols.kernel import use_compiled
from wirelake.protocols.state_table import state_table

SECOND = 1_000_000

ODD = {
    Fault.FIELDS_OUT_OF_ORDER: packet(tlv(4, b"x") + name),
    Fault.VALUE_UNTERMINATED: packet(name + tlv(4, bytes(255))),
    Fault.KEY_WITHOUT_SIGNATURE: packet(name + key),
    Fault.JSON_INVALID: packet(name + tlv(5, b"[1]")),
}

BY_KEYS = [fault for fault in Fault if Fault.UNKNOWN_KEY <= fault <= Fault.REPLAY]
"""EMM-18 to EMM-25: found with keys, clocks and the packets of all nodes; an analyzer has one node, and no keys."""

NOT_FOUND = {
    **dict.fromkeys(BY_KEYS, "needs keys, time or other nodes' packets: the table `security` has it"),
    **dict.fromkeys((Fault.PROFILE_FIELD_MISSING, Fault.PROFILE_ORDER), "found only if the limit `minimum_profile` is set"),
    Fault.NOT_AUTHENTICATED: "which packets need a proof is the receiver's own policy",
    Fault.REPLAY_CACHE_FULL: "a limit of the receiver",
    Fault.UNDECRYPTABLE: "which encryption keys a receiver has is its own affair",
    **dict.fromkeys((Fault.SEALED_CARRIAGE, Fault.DEFLATE_INVALID), "a profile that applications may leave"),
    **dict.fromkeys((Fault.FIELD_OUT_OF_RANGE, Fault.REKEY_NEEDED, Fault.QUEUE_FULL), "refused before anything is sent"),
}
"""Rules of a live node that an observer does not find, and why."""

NOT_REFUSED = {
    **dict.fromkeys(TOLERATED, "accepted on receipt"),
    Fault.JSON_INVALID: "a live node reads JSON only when the application asks for it",
}
"""Rules that an observer finds and a live node does not, and why."""


@pytest.fixture(autouse=True)
def _fast(_same_kernels):
    use_compiled()


def judged(said: list[Said], **more: int) -> Judgement:
    return judge(Analyzer, history("event_mesh", said).events_first, **more)


def test_every_rule_is_found_or_there_is_a_reason():
    assert sorted({*BY_FORM, *ODD, *ODD_INSIDE, *NOT_FOUND}) == sorted(Fault)
    assert set(NOT_FOUND) == {fault for fault in Fault if fault.rule.unseen or fault.rule.by_keys}


@pytest.mark.parametrize("fault", [*BY_FORM, *ODD], ids=lambda fault: fault.name)
def test_a_packet_is_found_by_the_rule_it_breaks(fault):
    found = judged([(1, "client", (BY_FORM | ODD)[fault])])
    rules = [one.rule for one in found.findings if Fault[one.rule] not in TOLERATED or fault in TOLERATED]
    assert rules == ([] if fault in NOT_FOUND else [fault.name])
    for finding in found.findings:
        assert not finding.needs_whole, "no rule depends on other packets (§1)"
        assert (finding.message_id is None) == (Fault[finding.rule] in UNREADABLE)
        assert (finding.ts, finding.to_server) == (SECOND, True)
    assert found.ended_on == [False] * len(found.findings), "a packet is dropped, and the node lives on (EMM-30)"


@pytest.mark.parametrize("fault", ODD_INSIDE, ids=lambda fault: fault.name)
def test_what_a_payload_hides_is_found_by_the_rule_it_breaks(fault):
    (message,) = history("event_mesh", [(1, "client", SPOKEN["event"])]).messages
    message.oddities = ODD_INSIDE[fault]
    assert judge(Analyzer, [message]).rules == [fault.name]


def test_one_packet_may_be_odd_in_several_ways():
    odd = packet(tlv(5, b"no json") + tlv(4, bytes(255)) + name + key)
    assert sorted(judged([(1, "server", odd)]).rules) == sorted(fault.name for fault in ODD)


def test_a_packet_that_breaks_a_rule_may_be_odd_as_well():
    assert judged([(1, "server", packet(tlv(4, b"x") + name + auth + auth))]).rules == ["DUPLICATE_TLV", "FIELDS_OUT_OF_ORDER"]


def test_nothing_is_ever_forbidden_by_what_was_sent_before():
    assert state_table(MACHINE).refusals == {}
    everything: list[Said] = [(at, who, data) for at, data in enumerate(SPOKEN.values()) for who in ("client", "server")]
    assert judged(everything * 2).rules == []


PAUSES = {0: 0, 34.999999: 0, 35: 0, 35.000001: 1, 1000: 1}
"""§3.2: seconds without a packet -> silences."""


@pytest.mark.parametrize("pause", PAUSES)
def test_a_longer_pause_is_a_silence(pause):
    said: list[Said] = [(100, "client", SPOKEN["heartbeat"]), (100 + pause, "server", BY_FORM[Fault.DUPLICATE_TLV])]
    found = judged(said)
    assert found.standing.silences == PAUSES[pause]
    last = round((100 + pause) * SECOND)
    assert (found.standing.opened, found.standing.last_seen) == (100 * SECOND, last)
    assert judged(said, newest=last + 35 * SECOND).standing.ended_how == "open"
    assert judged(said, newest=last + 35 * SECOND + 1).standing.ended_how == "silence"


def test_every_silence_is_counted():
    said: list[Said] = [(at, "client", SPOKEN["event"]) for at in (0, 1, 40, 41, 80, 120, 121)]
    assert judged(said).standing.silences == 3


FAULTY_HELLO = packet(node, 1)
GREETINGS: dict[str, tuple[list[bytes], str, int | None]] = {
    "none": ([SPOKEN["event"]], "incomplete", None),
    "a hello": ([SPOKEN["event"], SPOKEN["hello"]], "complete", 1),
    "a hello that breaks a rule": ([FAULTY_HELLO], "refused", None),
    "a good one after a bad one": ([FAULTY_HELLO, SPOKEN["hello"]], "complete", 1),
}


@pytest.mark.parametrize("who", ["client", "server"])
@pytest.mark.parametrize("case", GREETINGS)
def test_one_hello_is_a_whole_handshake(case, who):
    packets, handshake, version = GREETINGS[case]
    standing = judged([(at, who, data) for at, data in enumerate(packets)]).standing
    assert (standing.handshake, standing.client_version, standing.server_version) == (handshake, version, None)
    assert (standing.ended_how, standing.ended_by, standing.error_code) == ("open", None, None)


def test_connections_neither_open_nor_end_a_node():
    said: list[Said] = [(1, "opened", b"client"), (5, "client", SPOKEN["event"]), (7, "reset", b"client"), (8, "closed", b"")]
    found = judged(said)
    assert (found.standing.opened, found.standing.last_seen, found.standing.ended_how) == (5 * SECOND, 5 * SECOND, "open")


def test_the_state_of_a_node_does_not_grow():
    watching, sizes = Analyzer(), []
    (message,) = history("event_mesh", [(1, "client", SPOKEN["hello"])]).messages
    for number in range(1000):
        for event in history("event_mesh", [(1, "opened", b"client")]).events if number < 20 else ():
            event.connection_id = number.to_bytes(16)
            watching.event(event)
        message.ts += 1000
        watching.message(message)
        sizes.append(len(watching.encode()))
    assert max(sizes) - sizes[0] < 16


@pytest.mark.parametrize("seed", range(3))
def test_results_depend_neither_on_stored_states_nor_on_when_events_come(tmp_path, seed):
    dice, rules, silences = random.Random(seed), set(), 0
    for one in histories(random_histories.write(tmp_path, seed), "event_mesh").values():
        expected = judge(Analyzer, one.events_first)
        rules |= set(expected.rules)
        silences += expected.standing.silences or 0
        assert judge(Analyzer, one.in_time) == expected
        assert judge(Analyzer, one.events_first, dice) == expected
        assert judge(Analyzer, one.in_time, dice) == expected
    assert len(rules) > 20
    assert silences > 10


def test_random_histories_repeat_themselves(tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    one, other = (random_histories.write(tmp_path / folder, 5) for folder in ("one", "other"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert len(one) == 2


# Held to a live node.


@pytest.mark.slow
def test_what_a_live_node_drops_is_found_and_the_reverse():
    """Every packet, and every way to spoil three of them."""
    packets = [
        *SPOKEN.values(),
        *BY_FORM.values(),
        *ODD.values(),
        *(one for kind in ("hello", "hmac", "keyed") for one in mutations(SPOKEN[kind])),
    ]
    differ = set()
    for data in packets:
        live = alone()
        live.receive(data, THERE, Now(0.0, float(MADE)))
        dropped = {event.fault for event in live.events() if isinstance(event, Dropped)}
        found = {Fault[rule] for rule in judged([(0, "client", data)]).rules}
        assert dropped - set(NOT_FOUND) == found - set(NOT_REFUSED), data.hex()
        differ |= dropped ^ found
    assert differ <= {*NOT_FOUND, *NOT_REFUSED}
    assert {Fault.HMAC_MISMATCH, Fault.FIELDS_OUT_OF_ORDER} <= differ


@pytest.mark.slow
def test_a_live_node_and_the_observer_count_the_same_silences():
    """They differ at one moment only: a live node calls 35 seconds silence, an observer only more than that."""
    dice, live, said = random.Random(3), alone(), []
    now, silences = 0.0, 0
    for number in range(300):
        data = maced(message_id=number, made=MADE + int(now))
        live.receive(data, THERE, Now(now, MADE + now))
        said.append((now, "client", data))
        pause = dice.choice([0.5, 10, 34.9, 35.1, 60])
        while live.deadline is not None and live.deadline <= now + pause:
            live.tick(Now(live.deadline, MADE + live.deadline))
        silences += sum(isinstance(one, PeerChanged) and one.peer.state is State.SILENT for one in live.events())
        now += pause
    silences -= pause > 35  # nothing came after it: not a pause, but the end
    assert NODE in {one.node_id for one in live.peers}
    assert judged(said).standing.silences == silences > 50
    assert Analyzer.SILENCE_SECONDS == DEFAULT_OPTIONS.silence_after == 35
