"""EMM-29: packets are passed on as they came, once, never back, by rules; and loops end, whatever clocks and caches do."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.protocols.event_mesh.mesh import AUTH, Mesh, balanced, credentials
from tests.protocols.event_mesh.speech import NODE, NOW, SECRET, maced, name, node, packet, tlv

from wirelake.protocols.event_mesh import Options, RelayRule, Sealer
from wirelake.protocols.event_mesh.packet.values import text
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore
from wirelake.protocols.event_mesh.session import Now, Session

EVERYTHING = Options(relay=(RelayRule(types=frozenset({1, 2, 3, 0x7F})),), hello_interval=None, heartbeat_interval=None)
EVENTS = Options(relay=(RelayRule(),), hello_interval=None, heartbeat_interval=None)
HERE = Now(0.0, float(NOW))
ONE, TWO, THREE = ("one", 1), ("two", 2), ("three", 3)


def relay(*rules: RelayRule, peers=(ONE, TWO, THREE), store: TrustStore | None = None, **more) -> Session:
    options = Options(relay=rules or (RelayRule(),), **more)
    keys = TrustStore([Key(NODE, AUTH, SECRET)]) if store is None else store
    return Session(credentials("relay"), options, draw=bytes, store=keys, peers=peers)


def passed(session: Session, data: bytes, source=ONE, now: Now = HERE) -> list:
    """To whom a packet is passed on, which must be as it came."""
    session.receive(data, source, now)
    said = session.output()
    assert all(one == data for one, _ in said)
    balanced(session)
    return [to for _, to in said]


def test_a_packet_goes_on_as_it_came_once_and_not_back():
    session = relay()
    assert passed(session, maced()) == [TWO, THREE]
    assert passed(session, maced(), TWO) == []
    assert session.metrics.relayed == 1
    assert session.metrics.reasons() == {"replay": 1}


def test_it_does_not_go_to_where_its_sender_is_known_to_be():
    session = relay()
    session.receive(maced(tlv(4) + node + tlv(0x18, AUTH), kind=1, message_id=7), THREE, HERE)
    session.output()
    assert passed(session, maced(), ONE) == [TWO]


def test_what_is_rejected_goes_nowhere():
    session = relay()
    for data in (maced(secret=bytes(32)), maced()[:-1], maced(tlv(0x14, bytes(16))), maced(made=NOW - 301), b""):
        assert passed(session, data) == []
    assert session.metrics.relayed == 0


def test_a_packet_without_a_node_id_is_not_relayed():
    assert passed(relay(), packet(name)) == []
    assert passed(relay(), packet(name + node)) == [TWO, THREE]


def test_old_and_future_packets_go_nowhere_even_if_they_are_accepted_here():
    for made in (NOW - 301, NOW + 121):
        session = relay()
        assert passed(session, packet(name + node, made=made)) == []
        assert session.metrics.accepted == 1


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (RelayRule("temp.*"), [TWO, THREE]),
        (RelayRule("temp.changed"), [TWO, THREE]),
        (RelayRule("other.>"), []),
        (RelayRule(types=frozenset({1})), []),
        (RelayRule(sources=frozenset({ONE})), [TWO, THREE]),
        (RelayRule(sources=frozenset({TWO})), []),
        (RelayRule(to=(("far", 4), ONE)), [("far", 4)]),
    ],
)
def test_rules_choose_what_goes_where(rule, expected):
    assert passed(relay(rule), maced()) == expected


def test_the_first_rule_that_matches_counts():
    rules = RelayRule("x.>"), RelayRule("temp.>", to=(TWO,)), RelayRule(to=(THREE,))
    assert passed(relay(*rules), maced()) == [TWO]


def test_hellos_and_heartbeats_go_on_if_a_rule_says_so():
    beat = maced(node + tlv(0x15, NOW.to_bytes(8)) + tlv(0x18, AUTH), kind=2)
    assert passed(relay(RelayRule(types=frozenset({2}))), beat) == [TWO, THREE]
    assert passed(relay(), beat) == []


def test_a_sealed_event_is_relayed_without_being_opened():
    key = bytes(32)
    sender = Session(credentials("a"), draw=bytes, peers=[ONE])
    sender.publish("secret", now=HERE, sealer=Sealer(key))
    ((sealed, _),) = sender.output()
    knows = TrustStore([Key(credentials("a").node_id, AUTH, credentials("a").secret)])
    closed = relay(store=knows)
    assert passed(closed, sealed) == [TWO, THREE]
    assert (closed.metrics.sealed, closed.metrics.reasons()) == (1, {})
    dropping = relay(store=knows, drops_sealed=True)
    assert passed(dropping, sealed) == [TWO, THREE]
    assert dropping.metrics.reasons() == {"undecryptable": 1}
    assert passed(relay(RelayRule("secret"), store=knows), sealed) == []
    opened = relay(RelayRule("secret"), store=knows, opening_keys={credentials("a").node_id: key})
    assert passed(opened, sealed) == [TWO, THREE]


def test_what_is_proven_by_keys_that_are_not_known_here_goes_on_only_if_a_rule_says_so():
    stranger = TrustStore()
    assert passed(relay(store=stranger), maced()) == []
    session = relay(RelayRule("temp.*", unverified=True), store=stranger)
    assert passed(session, maced()) == [TWO, THREE]
    assert passed(session, maced(), TWO) == []
    assert (session.metrics.relayed, session.metrics.reasons(), session.metrics.delivered) == (1, {"unknown-key": 2}, 0)
    assert passed(relay(RelayRule("other", unverified=True), store=stranger), maced()) == []


def test_even_then_a_wrong_proof_goes_nowhere():
    assert passed(relay(RelayRule(unverified=True)), maced(secret=bytes(32))) == []


def test_relays_keep_urgency():
    session = relay()
    session.publish("calm", now=HERE)
    session.receive(maced(flags=1), ONE, HERE)
    assert [data[5] for data, _ in session.output()] == [1, 1, 0, 0, 0]


def test_a_relay_without_room_says_so():
    session = relay(max_queued=1)
    session.receive(maced(), ONE, HERE)
    assert (len(session.output()), session.metrics.queue_full) == (1, 1)


def test_a_packet_goes_round_a_triangle_and_ends():
    mesh = Mesh({"a": "bc", "b": "ac", "c": "ab"}, EVERYTHING)
    mesh.start()
    mesh.flown.clear()
    message_id = mesh.publish("a", "round")
    assert mesh.heard("b") == mesh.heard("c") == ["round"]
    assert mesh.heard("a") == []
    assert len(mesh.flown) <= 6
    said = [(source, to) for source, to, data in mesh.flown if int.from_bytes(data[1:5]) == message_id]
    assert len(said) == len(set(said))


def test_a_line_carries_events_to_its_end_and_back():
    mesh = Mesh({"a": "b", "b": "ac", "c": "bd", "d": "c"}, EVENTS)
    mesh.start()
    mesh.publish("a", "there", text("x"))
    mesh.publish("d", "back")
    assert mesh.heard("d") == ["there"]
    assert mesh.heard("a") == ["back"]
    assert mesh.heard("b") == mesh.heard("c") == ["there", "back"]


@examples(30)
@given(st.integers(0, 2**32 - 1), st.integers(3, 6))
def test_any_mesh_comes_to_rest_and_everybody_reachable_hears_once(seed, size):
    names = "abcdef"[:size]
    dice = random.Random(seed)
    edges = {one: "".join(other for other in names if other != one and dice.random() < 0.6) for one in names}
    mesh = Mesh(edges, EVENTS, seed=seed)
    mesh.start()
    reach, todo = set(), {names[0]}
    while todo:
        one = todo.pop()
        reach.add(one)
        todo |= {peer[0] for peer in mesh.nodes[one].places} - reach
    mesh.publish(names[0], "news")
    for one in names[1:]:
        assert mesh.heard(one) == (["news"] if one in reach else [])
    assert mesh.settle() == 0


def test_a_loop_ends_with_the_smallest_caches_there_are():
    tiny = Options(relay=(RelayRule(),), replay_capacity=1, unproven_capacity=1, hello_interval=None, heartbeat_interval=None)
    mesh = Mesh({"a": "bc", "b": "ac", "c": "ab"}, tiny)
    mesh.start()
    for number in range(5):
        mesh.publish("a", f"e{number}")
    assert set(mesh.heard("b")) == {f"e{number}" for number in range(5)}


def test_a_forged_clear_packet_does_not_keep_the_true_one_from_going_on():
    session = relay()
    assert passed(session, packet(name + node, message_id=0xDEADBEEF)) == [TWO, THREE]
    assert passed(session, maced(message_id=0xDEADBEEF)) == [TWO, THREE]


def test_a_loop_of_nodes_whose_clocks_were_set_back_ends_too():
    mesh = Mesh({"a": "bc", "b": "ac", "c": "ab"}, EVENTS)
    mesh.start()
    for step, wall in itertools.product(range(3), (0.0, -200.0, 100.0)):
        mesh.wall = dict.fromkeys(mesh.wall, NOW + wall)
        mesh.publish("a", f"e{step}{wall}")
    assert len(mesh.heard("b")) == 9
