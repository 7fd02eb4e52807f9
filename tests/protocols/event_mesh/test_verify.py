"""What a receiver believes: keys, policies, time and memory, and in which order it says no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cases import each
from tests.protocols.event_mesh import twin
from tests.protocols.event_mesh.receiving import DEFAULT_SECRET, fault_of, judged, store
from tests.protocols.event_mesh.speech import (
    AUTH,
    MADE,
    NODE,
    NOW,
    OTHER_NODE,
    PUBLIC,
    SECRET,
    SEED,
    SPOKEN,
    auth,
    maced,
    mutations,
    name,
    node,
    packet,
    signed,
    tlv,
)

from wirelake.errors import UsageError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import Limits
from wirelake.protocols.event_mesh.packet.builder import Credentials, build, public_key_of
from wirelake.protocols.event_mesh.packet.values import text
from wirelake.protocols.event_mesh.security.replay import ReplayCache
from wirelake.protocols.event_mesh.security.trust import FirstKeys, Key, Policy, Trust, TrustStore
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected, Verified

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "event-mesh.json").read_text())
STRANGER = bytes(range(1, 33))
STRANGE_KEY = public_key_of(STRANGER)
IN_BAND = Policy(Trust.IN_BAND)


def in_band(seed: bytes = SEED, with_auth: bool = True, node_id: bytes = NODE, secret: bytes | None = None) -> bytes:
    mine = Credentials(node_id, AUTH if with_auth else None, secret, seed, with_public_key=True)
    return build(3, [text("temp.changed")], mine, message_id=1, timestamp=MADE)


# Who, by which key, and how trust was obtained.


def test_a_clear_packet_proves_nothing():
    said = judged(SPOKEN["heartbeat"])
    assert isinstance(said, Verified)
    assert (said.identity.trust, said.identity.authenticated, said.identity.node_id) == (Trust.NONE, False, NODE)
    assert (said.time, said.fresh) == (MADE, False)
    assert fault_of(SPOKEN["heartbeat"], policy=Policy(unauthenticated=False)) is Fault.NOT_AUTHENTICATED


def test_an_hmac_says_who_and_by_which_key():
    said = judged(maced())
    assert (said.identity.trust, said.identity.node_id, said.identity.auth_key_id) == (Trust.STORE, NODE, AUTH)
    assert (said.identity.hmac, said.identity.signature, said.fresh) == (True, False, True)
    default = judged(maced(name + node, DEFAULT_SECRET))
    assert (default.identity.auth_key_id, default.identity.hmac) == (None, True)


def test_a_signature_says_by_which_public_key():
    said = judged(signed())
    assert (said.identity.signature, said.identity.hmac, said.identity.public_key) == (True, False, PUBLIC)
    assert (said.identity.trust, said.identity.auth_key_id) == (Trust.STORE, AUTH)


def test_both_must_be_right_and_the_hmac_comes_first():
    both = in_band(secret=SECRET)
    said = judged(both)
    assert (said.identity.hmac, said.identity.signature, said.identity.auth_key_id) == (True, True, AUTH)
    at = len(both) - 66 - 32
    broken_hmac = both[:at] + bytes((both[at] ^ 1,)) + both[at + 1 :]
    broken_signature = both[:-1] + bytes((both[-1] ^ 1,))
    assert fault_of(broken_hmac) is Fault.HMAC_MISMATCH
    assert fault_of(broken_signature) is Fault.SIGNATURE_MISMATCH
    assert fault_of(broken_hmac[:-1] + broken_signature[-1:]) is Fault.HMAC_MISMATCH


# EMM-17: the key a packet brings.


def test_in_band_keys_must_be_stored_by_default():
    assert judged(in_band()).identity.trust is Trust.STORE
    assert judged(in_band(with_auth=False)).identity.auth_key_id == AUTH, "found among the keys of its node"
    assert fault_of(in_band(STRANGER)) is Fault.KEY_MISMATCH
    assert fault_of(in_band(STRANGER, with_auth=False)) is Fault.KEY_MISMATCH
    assert fault_of(in_band(node_id=OTHER_NODE)) is Fault.UNTRUSTED_KEY
    assert fault_of(in_band(node_id=OTHER_NODE, with_auth=False)) is Fault.UNTRUSTED_KEY
    only_secret = TrustStore([Key(NODE, AUTH, SECRET)])
    assert fault_of(in_band(), keys=only_secret) is Fault.UNTRUSTED_KEY


def test_in_band_keys_are_believed_if_the_policy_says_so():
    assert judged(in_band(STRANGER), policy=IN_BAND).identity.trust is Trust.IN_BAND
    assert judged(in_band(STRANGER), policy=IN_BAND).identity.public_key == STRANGE_KEY
    assert judged(in_band(STRANGER), policy=IN_BAND).identity.auth_key_id is None
    assert judged(in_band(), policy=IN_BAND).identity.trust is Trust.STORE
    assert fault_of(in_band(STRANGER)[:-1] + b"\x00", policy=IN_BAND) is Fault.SIGNATURE_MISMATCH


def test_first_use_asks_once_nothing_is_known_and_stores_nothing():
    asked = []

    def ask(*what):
        asked.append(what)
        return what[2] == STRANGE_KEY

    policy, known = Policy(Trust.FIRST_USE, ask), store()
    assert judged(in_band(STRANGER, node_id=OTHER_NODE), policy=policy, keys=known).identity.trust is Trust.FIRST_USE
    assert set(asked) == {(OTHER_NODE, AUTH, STRANGE_KEY)}
    assert len(known) == 2
    assert fault_of(in_band(SEED, node_id=OTHER_NODE), policy=policy) is Fault.UNTRUSTED_KEY
    asked.clear()
    assert fault_of(in_band(STRANGER), policy=policy) is Fault.KEY_MISMATCH
    assert asked == []


def test_a_key_that_signed_nothing_is_not_the_first_one():
    policy, known = Policy(Trust.FIRST_USE, FirstKeys()), store()
    spoilt = in_band(bytes(32), node_id=OTHER_NODE)
    assert fault_of(spoilt[:-1] + bytes((spoilt[-1] ^ 1,)), policy=policy, keys=known) is Fault.SIGNATURE_MISMATCH
    assert judged(in_band(STRANGER, node_id=OTHER_NODE), policy=policy, keys=known).identity.trust is Trust.FIRST_USE
    assert fault_of(in_band(bytes(32), node_id=OTHER_NODE), policy=policy, keys=known) is Fault.UNTRUSTED_KEY


@pytest.mark.parametrize("given", [(Trust.NONE, None), (Trust.FIRST_USE, None), (Trust.STORE, lambda *_: True)])
def test_a_policy_says_whom_to_ask(given):
    with pytest.raises(UsageError):
        Policy(*given)


def test_a_weak_key_proves_nothing_under_any_policy():
    weak = (1).to_bytes(32, "little")
    fields = name + node + tlv(0x13, weak)
    said = packet(fields + tlv(0x12, weak + bytes(32)))
    assert fault_of(said, policy=IN_BAND) is Fault.WEAK_KEY
    assert fault_of(said) is Fault.WEAK_KEY


def test_a_public_key_that_is_no_point_is_no_key():
    off_curve = (2).to_bytes(32, "little")
    said = packet(name + node + tlv(0x13, off_curve) + tlv(0x12, bytes(64)))
    assert fault_of(said, policy=IN_BAND) is Fault.SIGNATURE_MISMATCH


def test_a_signature_with_another_form_of_s_is_refused():
    order = 2**252 + 27742317777372353535851937790883648493
    said = signed()
    s = int.from_bytes(said[-32:], "little") + order
    assert fault_of(said[:-32] + s.to_bytes(32, "little")) is Fault.SIGNATURE_MISMATCH


# EMM-18: lookups.


def test_unknown_keys():
    assert fault_of(maced(name + node + tlv(0x18, b"\0\0\0\2"))) is Fault.UNKNOWN_KEY
    assert fault_of(maced(name + tlv(0x14, OTHER_NODE) + auth)) is Fault.UNKNOWN_KEY
    assert fault_of(signed(name + node)) is Fault.UNKNOWN_KEY, "without a key id a signature brings its key"
    assert fault_of(maced(), keys=TrustStore([Key(NODE, AUTH, public_key=PUBLIC)])) is Fault.UNKNOWN_KEY
    assert fault_of(signed(), keys=TrustStore([Key(NODE, AUTH, SECRET)])) is Fault.UNKNOWN_KEY
    assert fault_of(maced(name + node, SECRET)) is Fault.HMAC_MISMATCH, "never another key after a mismatch"
    default_signs = TrustStore([Key(NODE, None, public_key=PUBLIC)])
    assert fault_of(signed(name + node), keys=default_signs) is Fault.UNKNOWN_KEY


def test_a_revoked_key_proves_nothing_from_then_on():
    known = store()
    known.revoke(NODE, AUTH, NOW)
    assert fault_of(maced(), keys=known) is Fault.REVOKED_KEY
    assert fault_of(signed(), keys=known) is Fault.REVOKED_KEY
    assert fault_of(in_band(), keys=known) is Fault.REVOKED_KEY
    assert fault_of(in_band(with_auth=False), keys=known, policy=IN_BAND) is Fault.REVOKED_KEY
    assert fault_of(maced(), keys=known, now=NOW - 1) is None
    assert fault_of(maced(made=NOW), keys=known, now=NOW - 1) is Fault.REVOKED_KEY, "it claims to be made after"


def test_a_key_that_has_not_begun_is_unknown():
    later = TrustStore([Key(NODE, AUTH, SECRET, PUBLIC, valid_from=NOW + 1)])
    assert fault_of(maced(), keys=later) is Fault.UNKNOWN_KEY
    assert fault_of(in_band(), keys=later) is Fault.UNTRUSTED_KEY


# EMM-24: freshness.


@pytest.mark.parametrize(("age", "fault"), [(300, None), (301, Fault.STALE), (-120, None), (-121, Fault.FUTURE), (0, None)])
def test_the_edges_of_now(age, fault):
    assert fault_of(maced(made=NOW - age)) is fault
    assert fault_of(signed(made=NOW - age)) is fault
    assert fault_of(packet(name, made=NOW - age)) is None
    assert fault_of(packet(name, made=NOW - age), policy=Policy(unauthenticated_freshness=True)) is fault
    assert fault_of(maced(made=NOW - age), policy=Policy(freshness=False)) is None
    signed_then = name + node + tlv(0x15, (NOW - age).to_bytes(8)) + auth
    assert fault_of(maced(signed_then, made=1)) is fault, "the time of signing is the one that counts"


@pytest.mark.parametrize("made", [2**63 - 1, 2**63, 2**64 - 1])
def test_times_are_unsigned(made):
    assert fault_of(maced(made=made)) is Fault.FUTURE
    assert judged(packet(name, made=made)).time == made


# EMM-23: replay.


def test_what_came_before_is_dropped():
    assert fault_of(maced(), maced()) is Fault.REPLAY
    assert fault_of(maced(), signed()) is Fault.REPLAY, "one id, whatever proves it"
    assert fault_of(maced(), maced(message_id=1)) is None
    assert fault_of(packet(name), packet(name)) is Fault.REPLAY
    assert fault_of(packet(name + node), packet(name + node)) is Fault.REPLAY


def test_nothing_unproven_stands_in_the_way_of_what_is_proven():
    assert fault_of(packet(name + node), maced()) is None
    assert fault_of(maced()[:-1] + b"\0", maced()) is None
    assert fault_of(maced(made=1), maced()) is None
    assert fault_of(maced(), packet(name + node)) is None, "and not the other way round either"


def test_without_a_node_id_the_source_tells_packets_apart():
    receiver = Receiver(store())
    assert isinstance(receiver.receive(packet(name), NOW, b"one"), Verified)
    assert isinstance(receiver.receive(packet(name), NOW, b"other"), Verified)
    assert receiver.receive(packet(name), NOW, b"one").fault is Fault.REPLAY


def test_a_flood_of_forged_packets_evicts_nothing_honest():
    receiver = Receiver(store(), replays=ReplayCache(4), unproven=ReplayCache(4))
    assert isinstance(receiver.receive(maced(), NOW), Verified)
    for number in range(50):
        receiver.receive(maced(message_id=number)[:-1] + b"\0", NOW)
        receiver.receive(packet(name + node, message_id=number), NOW)
    assert (len(receiver.replays), len(receiver.unproven)) == (1, 4)
    assert receiver.receive(maced(), NOW).fault is Fault.REPLAY


def test_a_full_memory_may_fail_closed():
    receiver = Receiver(store(), replays=ReplayCache(1, fail_closed=True))
    receiver.receive(maced(message_id=1), NOW)
    assert receiver.receive(maced(message_id=2), NOW) == Rejected(Fault.REPLAY_CACHE_FULL, 0, NODE)


def test_no_packet_is_accepted_twice_however_late_it_comes_again():
    """EMM-25: at every second of its life, from the future edge on, until it is stale."""
    for made in (NOW + 120, NOW, NOW - 300):
        receiver = Receiver(store())
        assert isinstance(receiver.receive(maced(made=made), NOW), Verified)
        for later in range(NOW, NOW + 500):
            assert isinstance(receiver.receive(maced(made=made), later), Rejected)


# EMM-28: bad input, whatever it is.


def test_the_order_of_checks_through_the_last_four():
    """Each of these breaks its own rule and all that follow: an HMAC, a signature, freshness, replay."""
    stale_both = build(3, [text("x")], Credentials(NODE, AUTH, SECRET, SEED), message_id=1, timestamp=1)
    bad_signature = stale_both[:-1] + bytes((stale_both[-1] ^ 1,))
    at = len(stale_both) - 66 - 1
    bad_both = bad_signature[:at] + bytes((bad_signature[at] ^ 1,)) + bad_signature[at + 1 :]
    assert fault_of(bad_both) is Fault.HMAC_MISMATCH
    assert fault_of(bad_signature) is Fault.SIGNATURE_MISMATCH
    assert fault_of(stale_both, stale_both) is Fault.STALE


@each("vector", [one for one in VECTORS if one["expect"] == "ok"], ids=lambda one: one["name"])
def test_every_mutation_of_a_right_packet_is_dropped_for_the_right_reason_or_right_itself(vector):
    data = bytes.fromhex(vector["hex"])
    receiver = Receiver(store(), Policy(freshness=False), unproven=ReplayCache(8), replays=ReplayCache(8))
    is_proven = vector["fields"]["authenticated"]
    proofs = {Fault.HMAC_MISMATCH, Fault.UNKNOWN_KEY, Fault.REPLAY}
    for one in mutations(data):
        said, expected = receiver.receive(one, NOW), twin.reason(one)
        if expected is not None:
            assert isinstance(said, Rejected)
            assert said.fault.reason == expected
        elif isinstance(said, Verified):
            same = twin.canonical(one) == twin.canonical(data)
            assert not said.identity.authenticated or same, "believed although it was changed"
        else:
            assert said.fault in (proofs if is_proven or 0x10 in one else {Fault.REPLAY})
    assert len(receiver.unproven) <= 8


def test_the_minimum_profile_is_a_mode():
    profile = Limits(minimum_profile=True)
    assert fault_of(maced(), limits=profile) is None
    assert fault_of(packet(name), limits=profile) is Fault.PROFILE_FIELD_MISSING
    assert fault_of(maced(name + node, DEFAULT_SECRET), limits=profile) is Fault.PROFILE_FIELD_MISSING
    assert fault_of(packet(node + name + auth + tlv(0x10, bytes(32))), limits=profile) is Fault.PROFILE_ORDER
    assert fault_of(packet(node + name + auth + tlv(0x10, bytes(32)))) is Fault.HMAC_MISMATCH
