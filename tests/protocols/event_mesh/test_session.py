"""A node in simulated time: it greets, lives, falls silent, and knows the others as well as they can prove themselves."""

from __future__ import annotations

from tests.protocols.event_mesh.mesh import AUTH, HERE, THERE, Mesh, alone, credentials, place
from tests.protocols.event_mesh.speech import NODE, NOW, maced, name, node, packet, tlv

from wirelake.protocols.event_mesh import Options, State, decode
from wirelake.protocols.event_mesh.messages import Heartbeat, Hello
from wirelake.protocols.event_mesh.session import Now

# Greeting: §3.1, EMM-20.


def test_two_nodes_of_which_one_was_told_of_the_other_know_each_other():
    mesh = Mesh({"a": "b", "b": ""})
    mesh.start()
    for one, other in (("a", "b"), ("b", "a")):
        (peer,) = mesh.nodes[one].peers
        assert (peer.node_id, peer.state, peer.place, peer.proven) == (credentials(other).node_id, State.GREETED, place(other), True)
        assert mesh.nodes[one].places == (place(other),)
    assert [(source, type(decode(data))) for source, _, data in mesh.flown] == [("a", Hello), ("b", Hello), ("a", Hello)]


def test_a_hello_is_answered_once_and_not_for_ever():
    mesh = Mesh({"a": "b", "b": "a"})
    mesh.start()
    assert len(mesh.flown) <= 4
    before = len(mesh.flown)
    mesh.advance(9)
    assert len(mesh.flown) == before


def test_a_hello_says_the_node_id_and_the_capabilities():
    mesh = Mesh({"a": "b", "b": ""}, Options(capabilities=b"can fly"))
    mesh.start()
    assert mesh.nodes["b"].peers[0].capabilities == b"can fly"
    assert [field.type for field in decode(mesh.flown[0][2]).fields] == [0x04, 0x14, 0x18, 0x10]


def test_hellos_and_heartbeats_come_at_their_times():
    mesh = Mesh({"a": "b", "b": ""}, Options(hello_interval=25, heartbeat_interval=10))
    mesh.start()
    mesh.flown.clear()
    mesh.advance(50)
    said = [type(decode(data)) for source, _, data in mesh.flown if source == "a"]
    assert (said.count(Hello), said.count(Heartbeat)) == (2, 5)


def test_a_heartbeat_says_when_it_was_sent():
    mesh = Mesh({"a": "b", "b": ""})
    mesh.start()
    mesh.advance(10)
    (beat,) = [decode(data) for source, _, data in mesh.flown if source == "a" and isinstance(decode(data), Heartbeat)]
    assert [field.value for field in beat.fields if field.type == 0x15] == [(NOW + 10).to_bytes(8)]
    assert beat.timestamp == NOW + 10


def test_timers_can_be_switched_off():
    session = alone(Options(hello_interval=None, heartbeat_interval=None), peers=[THERE])
    session.start(HERE)
    assert [to for _, to in session.output()] == [THERE]
    assert session.deadline is None


def test_an_unproven_node_is_listed_but_not_sent_to():
    session = alone()
    session.receive(packet(tlv(4, b"caps") + node, 1), THERE, HERE)
    (peer,) = session.peers
    assert (peer.state, peer.proven, peer.place, peer.capabilities) == (State.GREETED, False, None, b"caps")
    assert session.output() == []
    assert session.places == ()


def test_unless_that_is_wanted():
    session = alone(Options(learns_unproven=True))
    session.receive(packet(tlv(4) + node, 1), THERE, HERE)
    assert session.places == (THERE,)
    assert [to for _, to in session.output()] == [THERE]


def test_no_peer_is_learned_if_learning_is_off():
    mesh = Mesh({"a": "b", "b": ""}, Options(learns=False))
    mesh.start()
    assert mesh.nodes["b"].places == ()
    assert len(mesh.flown) == 1


def test_a_forged_word_changes_nothing_of_what_was_proven():
    session = alone()
    session.receive(maced(tlv(4, b"true") + node + tlv(0x18, AUTH), kind=1), THERE, HERE)
    session.receive(packet(tlv(4, b"lie") + node, 1, message_id=2), ("elsewhere", 6), Now(20.0, NOW))
    (peer,) = session.peers
    assert (peer.capabilities, peer.place, peer.heard, peer.proven) == (b"true", THERE, 0.0, True)


def test_a_proven_word_takes_nothing_from_what_was_forged_before():
    session = alone(Options(learns_unproven=True))
    session.receive(packet(tlv(4, b"lie") + node, 1, message_id=2), ("elsewhere", 6), HERE)
    session.receive(maced(), THERE, HERE)
    (peer,) = session.peers
    assert (peer.capabilities, peer.place, peer.proven) == (b"", None, True)


# Silence: §3.2.


def test_silence_is_noticed_after_the_missed_heartbeats_and_no_sooner():
    mesh = Mesh({"a": "b", "b": ""}, Options(heartbeat_interval=10, missed_heartbeats=3))
    mesh.start()
    mesh.advance(20)
    mesh.cut = {("a", "b"), ("b", "a")}
    mesh.advance(34.9)
    assert mesh.nodes["b"].peers[0].state is State.GREETED
    mesh.advance(0.2)
    assert mesh.nodes["b"].peers[0].state is State.SILENT
    assert mesh.changes("b") == [(credentials("a").node_id, "GREETED"), (credentials("a").node_id, "SILENT")]
    assert mesh.nodes["b"].places == ()


def test_who_speaks_again_is_heard_again_and_greeted_with_the_next_hello():
    mesh = Mesh({"a": "b", "b": ""}, Options(hello_interval=60, heartbeat_interval=10))
    mesh.start()
    mesh.cut = {("a", "b")}
    mesh.advance(45)
    assert mesh.nodes["b"].peers[0].state is State.SILENT
    mesh.cut = set()
    mesh.advance(6)
    assert mesh.nodes["b"].peers[0].state is State.HEARD
    assert mesh.nodes["b"].places == (place("a"),)
    mesh.advance(10)
    assert mesh.nodes["b"].peers[0].state is State.GREETED


def test_the_silent_are_forgotten_in_the_end():
    mesh = Mesh({"a": "b", "b": ""}, Options(forget_after=100))
    mesh.start()
    mesh.cut = {("a", "b"), ("b", "a")}
    mesh.advance(99)
    assert len(mesh.nodes["b"].peers) == 1
    mesh.advance(2)
    assert mesh.nodes["b"].peers == ()
    assert mesh.changes("b")[-1] == (credentials("a").node_id, "UNKNOWN")
    assert mesh.nodes["a"].places == (place("b"),)


def test_any_accepted_packet_is_a_sign_of_life():
    session = alone()
    session.start(HERE)
    for step in range(10):
        session.receive(maced(message_id=step, made=NOW + 30 * step), THERE, Now(30.0 * step, NOW + 30.0 * step))
        session.tick(Now(30.0 * step, NOW + 30.0 * step))
    assert session.peers[0].state is State.HEARD


def test_a_rejected_packet_is_none():
    session = alone()
    session.receive(maced(), THERE, HERE)
    session.receive(maced(), THERE, Now(30.0, NOW + 30.0))
    session.tick(Now(35.0, NOW + 35.0))
    assert session.peers[0].state is State.SILENT


def test_the_table_is_bounded_and_what_was_proven_stays():
    session = alone(Options(max_peers=4))
    session.receive(maced(), THERE, HERE)
    for number in range(100):
        forged = tlv(0x14, number.to_bytes(16))
        session.receive(packet(name + forged, message_id=number), THERE, HERE)
    assert len(session.peers) == 4
    assert NODE in {peer.node_id for peer in session.peers}
    assert session.metrics.peers_refused == 97


def test_a_proven_node_takes_the_place_of_one_that_is_not():
    session = alone(Options(max_peers=2))
    for number in range(3):
        session.receive(packet(name + tlv(0x14, number.to_bytes(16)), message_id=number), THERE, HERE)
    session.receive(maced(), THERE, HERE)
    assert [peer.proven for peer in session.peers] == [False, True]
