"""A node in simulated time: it publishes, counts what arrives, limits rates, and remembers over a restart."""

from __future__ import annotations

import zlib

import pytest
from tests.protocols.event_mesh.mesh import AUTH, HERE, THERE, Mesh, alone, balanced, credentials, place
from tests.protocols.event_mesh.speech import NODE, NOW, SECRET, SPOKEN, maced, mutations, name, node, packet, tlv

from wirelake.errors import LocalProtocolError, UsageError
from wirelake.protocols import kernel
from wirelake.protocols.event_mesh import Fault, Key, Limits, Options, Policy, RelayRule, Sealer, State, Trust, TrustStore, decode
from wirelake.protocols.event_mesh.events import Delivered, Dropped, PeerChanged, QueueFull
from wirelake.protocols.event_mesh.messages import Event, FieldType, Flag, Hello
from wirelake.protocols.event_mesh.packet.builder import Credentials, left
from wirelake.protocols.event_mesh.packet.values import binary, first, floating, integer, json, text
from wirelake.protocols.event_mesh.session import Now, Session

# Publishing: §3.3, §6.1, EMM-4, EMM-13, EMM-14, EMM-22.


def test_what_is_published_arrives_with_its_values_and_its_sender():
    mesh = Mesh({"a": "b", "b": ""})
    mesh.start()
    fields = [text("more"), integer(-7), floating(0.5), binary(b"\0" * 255), json({"deep": [1]})]
    message_id = mesh.publish("a", "plant.boiler", *fields)
    (event,) = [one for one in mesh.events["b"] if isinstance(one, Delivered)]
    assert (event.name, event.message.message_id, event.source) == ("plant.boiler", message_id, place("a"))
    assert event.content == ["more", -7, 0.5, bytes(255), '{"deep":[1]}']
    assert event.identity.authenticated
    assert event.identity.node_id == credentials("a").node_id
    assert not event.urgent


def test_everybody_gets_it_or_those_who_are_named():
    mesh = Mesh({"a": "bc", "b": "", "c": ""})
    mesh.start()
    mesh.publish("a", "all")
    mesh.publish("a", "one", to=[place("c")])
    assert (mesh.heard("b"), mesh.heard("c")) == (["all"], ["all", "one"])
    assert mesh.nodes["a"].metrics.published == 2


def test_a_sealed_event_is_read_only_with_the_key():
    key = bytes(range(32))
    keyed = Options(opening_keys={credentials("a").node_id: key})
    mesh = Mesh({"a": "bc", "b": "", "c": ""}, each={"b": keyed})
    mesh.start()
    mesh.publish("a", "secret", text("words"), sealer=Sealer(key), compressed=True)
    assert mesh.heard("b") == ["secret"]
    (event,) = [one for one in mesh.events["c"] if isinstance(one, Delivered)]
    assert (event.name, event.sealed, event.unopened) == (None, True, Fault.UNDECRYPTABLE)
    assert (mesh.dropped("c"), mesh.nodes["c"].metrics.sealed, mesh.nodes["b"].metrics.sealed) == ([], 1, 0)
    assert b"secret" not in mesh.flown[-1][2]
    assert decode(mesh.flown[-1][2]).flags == Flag.ENCRYPTED | Flag.COMPRESSED
    balanced(mesh.nodes["c"])


def test_a_trust_store_has_keys_that_open():
    keys = TrustStore([Key(NODE, AUTH, SECRET)])
    keys.add_encryption(credentials("a").node_id, bytes(32))
    sender = Session(credentials("a"), draw=lambda size: bytes([7]) * size, peers=[THERE])
    sender.publish("secret", now=HERE, sealer=Sealer(bytes(32)))
    session = alone(Options(policy=Policy(Trust.IN_BAND)), store=keys)
    ((data, _),) = sender.output()
    keys.add(Key(credentials("a").node_id, AUTH, credentials("a").secret))
    session.receive(data, THERE, HERE)
    assert [one.name for one in session.events() if isinstance(one, Delivered)] == ["secret"]


def test_a_compressed_event_is_read_by_everybody():
    mesh = Mesh({"a": "b", "b": ""})
    mesh.start()
    mesh.publish("a", "long", text("word " * 400), compressed=True)
    assert mesh.heard("b") == ["long"]
    assert [one.content for one in mesh.events["b"] if isinstance(one, Delivered)] == [["word " * 400]]


def test_sealed_events_are_delivered_as_they_are_if_they_are_not_to_be_opened():
    mesh = Mesh({"a": "b", "b": ""}, Options(opens_sealed=False))
    mesh.start()
    mesh.publish("a", "long", compressed=True)
    (event,) = [one for one in mesh.events["b"] if isinstance(one, Delivered)]
    assert (event.name, event.sealed, event.unopened, mesh.nodes["b"].metrics.sealed) == (None, True, None, 1)


_METADATA = tlv(0x11, tlv(1, b"\1") + tlv(3, bytes(12)))
_OWN_WAYS = {
    "gzip": (packet(tlv(4, b"\x1f\x8b not zlib"), flags=4), None, Fault.DEFLATE_INVALID),
    "zlib, but no fields inside": (packet(tlv(4, zlib.compress(b'{"a": 1}')), flags=4), None, Fault.TLV_OVERRUN),
    "compressed JSON beside a name in clear": (packet(name + tlv(5, b"packed"), flags=4), "temp.changed", Fault.SEALED_CARRIAGE),
    "encrypted in several values": (packet(tlv(4, b"1") + tlv(4, b"2") + _METADATA, flags=2), None, Fault.SEALED_CARRIAGE),
    "encrypted with a key of others": (packet(tlv(4, bytes(32)) + _METADATA + node, flags=2), None, Fault.UNDECRYPTABLE),
    "encrypted by another algorithm": (
        packet(tlv(4, bytes(32)) + tlv(0x11, tlv(1, b"\x63") + tlv(3, bytes(12))), flags=2),
        None,
        Fault.UNDECRYPTABLE,
    ),
}


@pytest.mark.parametrize("way", _OWN_WAYS)
def test_what_is_hidden_in_a_way_of_its_own_is_delivered_sealed_and_counted(way):
    data, clear, reason = _OWN_WAYS[way]
    session = alone()
    session.receive(data, THERE, HERE)
    (event,) = [one for one in session.events() if isinstance(one, Delivered)]
    assert (event.name, event.sealed, event.unopened) == (clear, True, reason)
    assert event.fields == event.message.fields == decode(data).fields
    assert (session.metrics.accepted, session.metrics.sealed, session.metrics.rejected) == (1, 1, {})
    strict = alone(Options(drops_sealed=True))
    strict.receive(data, THERE, HERE)
    assert [one.fault for one in strict.events() if isinstance(one, Dropped)] == [reason]
    assert (strict.metrics.accepted, strict.metrics.sealed, strict.metrics.rejected) == (0, 0, {reason: 1})


def test_what_a_key_held_here_does_not_open_is_dropped():
    data = packet(tlv(4, bytes(32)) + _METADATA + node, flags=2)
    session = alone(Options(opening_keys={NODE: bytes(32)}))
    session.receive(data, THERE, HERE)
    assert session.metrics.rejected == {Fault.DECRYPTION_FAILED: 1}


def test_what_inflates_over_the_limit_is_dropped():
    session = alone(Options(max_inflated_size=100))
    session.receive(packet(tlv(4, zlib.compress(bytes(101))), flags=4), THERE, HERE)
    assert session.metrics.rejected == {Fault.INFLATED_OVER_LIMIT: 1}


def test_a_hello_that_stays_sealed_tells_no_capabilities():
    session = alone()
    session.receive(maced(tlv(4, b"\x1f\x8b") + node + tlv(0x18, AUTH), kind=1, flags=4), THERE, HERE)
    assert [(peer.state, peer.capabilities) for peer in session.peers] == [(State.GREETED, b"")]
    assert session.metrics.sealed == 1


def test_what_does_not_fit_is_refused_and_nothing_is_sent():
    session = alone(peers=[THERE])
    with pytest.raises(LocalProtocolError) as caught:
        session.publish("big", [binary(bytes(600))], now=HERE)
    assert caught.value.fault is Fault.PAYLOAD_TOO_LARGE
    assert session.output() == []
    room = left([text("big"), binary(b"")], credentials("me"))
    session.publish("big", [binary(bytes(room - 2))], now=HERE)
    assert [len(data) for data, _ in session.output()] == [548]


@pytest.mark.parametrize("sealer", [None, Sealer(bytes(32))], ids=["clear", "sealed"])
def test_what_was_made_long_ago_says_when_it_was_made_and_when_it_was_signed(sealer):
    mesh = Mesh({"a": "b", "b": ""}, Options(opening_keys={credentials("a").node_id: bytes(32)}))
    mesh.start()
    mesh.publish("a", "stored", text("x"), created=NOW - 86_400.5, sealer=sealer)
    (event,) = [one for one in mesh.events["b"] if isinstance(one, Delivered)]
    assert (event.name, event.message.timestamp, event.time, event.content) == ("stored", NOW - 86_401, NOW, ["x"])
    assert mesh.dropped("b") == []


def test_what_is_made_now_says_so_once():
    session = alone(peers=[THERE])
    for created in (None, HERE.wall):
        session.publish("x", now=HERE, created=created)
    assert [first(decode(data).fields, FieldType.TIMESTAMP) for data, _ in session.output()] == [None, None]


@pytest.mark.parametrize("created", [-1.0, 2.0**64, float("nan"), float("inf")])
def test_a_time_that_no_header_can_hold_is_refused(created):
    session = alone(peers=[THERE])
    with pytest.raises(LocalProtocolError) as caught:
        session.publish("x", now=HERE, created=created)
    assert caught.value.fault is Fault.FIELD_OUT_OF_RANGE
    assert session.output() == []


def test_message_ids_are_drawn_and_never_used_twice_in_420_seconds():
    drawn = iter([5, 5, 6, 5, 5, 7])
    session = alone(draw=lambda size: next(drawn).to_bytes(size), peers=[THERE])
    assert [session.publish("x", now=now) for now in (HERE, HERE, Now(421.0, NOW))] == [5, 6, 5]
    stuck = alone(draw=bytes)
    stuck.publish("x", now=HERE)
    with pytest.raises(UsageError, match="random"):
        stuck.publish("x", now=HERE)


def test_the_memory_of_our_own_ids_is_bounded_and_says_so():
    session = alone(Options(max_recent_ids=10))
    for _ in range(25):
        session.publish("x", now=HERE)
    assert session.metrics.ids_forgotten == 15


def test_setting_the_clock_back_does_not_disturb_timers_and_dates_packets_by_the_new_time():
    session = alone(peers=[THERE])
    session.start(HERE)
    session.output()
    session.tick(Now(10.0, NOW - 3600.0))
    ((data, _),) = session.output()
    assert decode(data).timestamp == NOW - 3600
    assert session.deadline == 20.0


# Urgency and room: §2.3.


def test_urgent_packets_leave_before_all_others():
    session = alone(peers=[THERE])
    for number in range(3):
        session.publish(f"calm.{number}", now=HERE)
    session.publish("fire", now=HERE, urgent=True)
    session.publish("flood", now=HERE, urgent=True)
    said = [decode(data) for data, _ in session.output()]
    assert [one.fields[0].value for one in said] == [b"fire", b"flood", b"calm.0", b"calm.1", b"calm.2"]
    assert [one.flags for one in said] == [1, 1, 0, 0, 0]


def test_output_can_be_taken_in_slices():
    session = alone(peers=[THERE])
    for number in range(5):
        session.publish(f"calm.{number}", now=HERE)
    assert (len(session.output(2)), session.waiting, len(session.output(2)), len(session.output(2))) == (2, 3, 2, 1)
    assert session.metrics.sent == 5


@pytest.mark.parametrize("urgent", [False, True])
def test_a_full_queue_refuses_and_counts(urgent):
    session = alone(Options(max_queued=4, max_urgent=4), peers=[THERE, ("two", 2)])
    for _ in range(2):
        session.publish("x", now=HERE, urgent=urgent)
    with pytest.raises(LocalProtocolError) as caught:
        session.publish("x", now=HERE, urgent=urgent)
    assert caught.value.fault is Fault.QUEUE_FULL
    session.publish("x", now=HERE, urgent=not urgent)
    assert (len(session.output()), session.metrics.queue_full, session.metrics.published) == (6, 2, 3)
    session.publish("x", now=HERE, urgent=urgent)


def test_what_goes_out_by_itself_and_finds_no_room_is_told():
    session = alone(Options(max_queued=1), peers=[THERE, ("two", 2)])
    session.start(HERE)
    assert session.events() == [QueueFull(("two", 2), False)]
    assert session.metrics.queue_full == 1


# What is counted: EMM-21, EMM-28, EMM-30.


def test_only_handled_event_types_are_delivered():
    session = alone(Options(handled_types=frozenset({0x80})))
    session.receive(packet(b"", 0x7F), THERE, HERE)
    session.receive(packet(b"", 0x80, message_id=2), THERE, HERE)
    assert [one.message.event_type for one in session.events() if isinstance(one, Delivered)] == [0x80]
    assert (session.metrics.ignored, session.metrics.delivered, session.metrics.accepted) == (1, 1, 2)


def test_our_own_packets_come_back_without_harm():
    session = alone(peers=[THERE])
    session.publish("x", now=HERE)
    ((data, _),) = session.output()
    session.receive(data, THERE, HERE)
    assert (session.events(), session.metrics.own, session.peers) == ([], 1, ())
    balanced(session)


def test_rejections_are_counted_by_reason_and_silent_on_the_wire():
    session = alone(peers=[THERE])
    for data in (b"", packet(name, version=9), maced(secret=bytes(32)), maced(), maced(), packet(name, flags=0x80)):
        session.receive(data, THERE, HERE)
    assert session.output() == []
    reasons = {"short-packet": 1, "unsupported-version": 1, "hmac-mismatch": 1, "replay": 1, "reserved-flags": 1}
    assert session.metrics.reasons() == reasons
    assert session.metrics.accepted == 1
    balanced(session)


def test_a_batch_is_judged_as_its_datagrams_one_by_one():
    datagrams = [(maced(message_id=number % 90), (f"host {number % 3}", number % 7)) for number in range(150)]
    datagrams += [(packet(name, message_id=number, flags=number % 32), THERE) for number in range(100)]
    datagrams += [(maced(message_id=number, secret=bytes(32)), THERE) for number in range(200, 210)]
    at_once, one_by_one = alone(), alone()
    at_once.receive_all(datagrams, HERE)
    for data, source in datagrams:
        one_by_one.receive(data, source, HERE)
    assert at_once.events() == one_by_one.events()
    assert at_once.metrics == one_by_one.metrics
    assert at_once.metrics.received == 260
    at_once.receive_all([], HERE)
    assert at_once.events() == []


def test_both_forms_of_the_scanner_make_the_same_of_everything(monkeypatch):
    said = [(one, THERE) for spoken in SPOKEN.values() for one in list(mutations(spoken))[::7]]
    told = []
    for compiled in (False, True):
        monkeypatch.setattr(kernel, "_use_compiled", compiled)
        session = alone(Options(rate_limit=None, opens_sealed=False))
        session.receive_all(said, HERE)
        told.append((session.events(), session.metrics, session.output(), session.export_replays()))
    assert told[0] == told[1]
    assert told[0][1].received == len(said) > 1000


# Rates, before anything that costs.


def test_one_host_gets_no_more_attention_than_its_rate_whatever_its_port():
    session = alone(Options(rate_limit=10, rate_burst=20))
    session.receive_all([(packet(name, message_id=number), ("loud", number)) for number in range(100)], HERE)
    session.receive(packet(name, message_id=1000), ("quiet", 1), HERE)
    assert (session.metrics.rate_limited, session.metrics.accepted) == (80, 21)
    session.receive_all([(packet(name, message_id=number), ("loud", 1)) for number in range(200, 300)], Now(1.0, NOW))
    assert session.metrics.rate_limited == 80 + 90
    balanced(session)


def test_the_rate_can_be_unlimited():
    session = alone(Options(rate_limit=None, rate_burst=1))
    session.receive_all([(packet(name, message_id=number), THERE) for number in range(100)], HERE)
    assert session.metrics.accepted == 100


# Memory across a restart (EMM-23), the profile (EMM-31), and options.


def test_what_was_received_before_a_restart_is_a_replay_after_it():
    before, after = alone(), alone()
    before.receive(maced(), THERE, HERE)
    after.restore_replays(before.export_replays())
    after.receive(maced(), THERE, Now(0.0, NOW + 5.0))
    assert after.metrics.reasons() == {"replay": 1}
    with pytest.raises(UsageError):
        after.restore_replays(b"garbage")


def test_the_minimum_interop_profile_binds_both_ways():
    profile = Options(minimum_profile=True)
    session = alone(profile, peers=[THERE])
    session.start(HERE)
    session.publish("x", now=HERE)
    said = [decode(data, Limits(minimum_profile=True)) for data, _ in session.output()]
    assert [type(one) for one in said] == [Hello, Event]
    session.receive(packet(name + node), THERE, HERE)
    session.receive(maced(), THERE, HERE)
    assert session.metrics.reasons() == {"profile-field-missing": 1}
    assert session.metrics.delivered == 1
    for lacking in (Credentials(NODE, None, SECRET), Credentials(NODE, AUTH)):
        with pytest.raises(LocalProtocolError) as caught:
            Session(lacking, profile, draw=bytes)
        assert caught.value.fault is Fault.PROFILE_FIELD_MISSING


def test_a_policy_that_wants_proof_drops_what_has_none():
    session = alone(Options(policy=Policy(unauthenticated=False)))
    session.receive(packet(name), THERE, HERE)
    assert session.metrics.reasons() == {"not-authenticated": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"missed_heartbeats": 0},
        {"max_queued": 0},
        {"max_urgent": 0},
        {"max_recent_ids": 0},
        {"max_peers": -1},
        {"hello_interval": 0},
        {"heartbeat_interval": -1.0},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError):
        Options(**wrong)
    with pytest.raises(UsageError):
        RelayRule("a.>.b")


def test_a_group_reaches_those_who_said_hello_so_they_are_not_sent_to_twice():
    session = alone(groups=[("239.1.2.3", 5)], peers=[THERE])
    session.receive(maced(tlv(4) + node + tlv(0x18, AUTH), kind=1), ("learned", 1), HERE)
    assert [to for _, to in session.output()] == [("learned", 1)]
    session.publish("x", now=HERE)
    assert [to for _, to in session.output()] == [THERE, ("239.1.2.3", 5)]


def test_a_changed_peer_is_told_as_it_is_known_then():
    session = alone()
    session.receive(maced(tlv(4, b"caps") + node + tlv(0x18, AUTH), kind=1), THERE, HERE)
    (changed,) = session.events()
    assert isinstance(changed, PeerChanged)
    assert (changed.peer, changed.before) == (session.peers[0], State.UNKNOWN)
    assert (changed.peer.place, changed.peer.capabilities) == (THERE, b"caps")
