"""Whatever arrives at a node: it rejects with the right reason, says nothing, counts, and keeps what is honest."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pytest
from tests.cases import each
from tests.conformance.event_mesh import set_up
from tests.protocols.event_mesh.mesh import AUTH, balanced, credentials
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.speech import NODE, NOW, SPOKEN, auth, maced, mutations, name, node, packet, signed, tlv

from wirelake.protocols.event_mesh import Options, RelayRule
from wirelake.protocols.event_mesh.events import Delivered, Dropped
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected
from wirelake.protocols.event_mesh.session import Now, Session

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "event-mesh.json").read_text())
THERE = ("there", 9)
HERE = Now(0.0, float(NOW))


def session(options: Options | None = None, **more) -> Session:
    dice = random.Random(1)
    return Session(credentials("me"), options or Options(), draw=dice.randbytes, **{"store": store(), "peers": [("friend", 1)], **more})


@each("vector", VECTORS, ids=lambda one: one["name"])
def test_every_vector_ends_in_a_node_as_it_says(vector):
    receiver, now, _ = set_up(vector["keys"])
    keys = {bytes.fromhex(one["key_id"]): bytes.fromhex(one["key"]) for one in vector["keys"]["enc"]}
    here = session(Options(policy=receiver.policy, opening_keys=keys), store=receiver.store)
    for prior in vector.get("prior", []):
        here.receive(bytes.fromhex(prior), THERE, Now(0.0, now))
    here.events(), here.output()
    before = here.metrics.accepted
    rejected = dict(here.metrics.rejected)
    here.receive(bytes.fromhex(vector["hex"]), THERE, Now(0.0, now))
    balanced(here)
    if vector["expect"] == "reject":
        (dropped,) = here.events()
        assert isinstance(dropped, Dropped)
        assert dropped.fault.reason == vector["reason"]
        assert here.output() == []
        assert here.metrics.accepted == before
        assert here.metrics.rejected[dropped.fault] == rejected.get(dropped.fault, 0) + 1
    else:
        judged = [one for one in here.events() if isinstance(one, Dropped)]
        assert here.metrics.accepted == before + (not judged)
        for one in judged:  # what only who opens it can tell; the vectors judge what is outside
            assert bytes.fromhex(vector["hex"])[5] & 6
            assert one.fault >= 60


@pytest.mark.slow
@pytest.mark.parametrize("said", SPOKEN, ids=str)
def test_every_mutation_of_every_packet_is_judged_as_a_receiver_judges_it(said):
    here = session(Options(rate_limit=None, opens_sealed=False, relay=(RelayRule(),)))
    for changed in mutations(SPOKEN[said]):
        alone = Receiver(store()).receive(changed, NOW, b"there 9")
        fresh = session(Options(opens_sealed=False, learns=False))
        fresh.receive(changed, THERE, HERE)
        faults = [one.fault for one in fresh.events() if isinstance(one, Dropped)]
        assert faults == ([alone.fault] if isinstance(alone, Rejected) else [])
        assert fresh.output() == []
        here.receive(changed, THERE, HERE)
    balanced(here)


@pytest.mark.slow
def test_a_flood_of_forged_packets_pushes_out_nothing_honest():
    here = session(Options(rate_limit=None, replay_capacity=64, unproven_capacity=64))
    honest = [maced(message_id=number) for number in range(50)]
    for data in honest:
        here.receive(data, THERE, HERE)
    for number in range(5000):
        here.receive(maced(message_id=number, secret=bytes(32)), ("liar", number), HERE)
        here.receive(packet(name + node, message_id=number), ("liar", number), HERE)
        here.receive(packet(name, message_id=number), ("liar", number), HERE)
    here.events()
    for data in honest:
        here.receive(data, THERE, HERE)
    assert [one.fault.reason for one in here.events()] == ["replay"] * 50
    assert here._receiver.replays.evicted == 0


@pytest.mark.slow
def test_memory_does_not_grow_with_what_is_rejected():
    small = Options(rate_limit=1e9, rate_burst=1, max_sources=64, max_peers=16, unproven_capacity=64, replay_capacity=64)
    here = session(small)

    def flood(first: int) -> None:
        for number in range(first, first + 3000):
            spoilt = random.Random(number).randbytes(40)
            forged = tlv(0x14, number.to_bytes(16))
            here.receive_all(
                [
                    (spoilt, (f"host {number}", number)),
                    (maced(message_id=number, secret=bytes(32)), (f"host {number}", 1)),
                    (packet(tlv(4) + forged, 1, message_id=number), (f"host {number}", 2)),
                    (packet(tlv(1, b"n%d" % number), message_id=number), (f"host {number}", 3)),
                ],
                Now(float(number), NOW),
            )
            here.events(), here.output()

    flood(0)
    tracemalloc.start()
    flood(3000)
    before = tracemalloc.get_traced_memory()[0]
    flood(6000)
    flood(9000)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 20_000
    balanced(here)


def test_setting_the_clock_back_lets_nothing_in_again():
    here = session()
    early, late = maced(message_id=1, made=NOW - 250), maced(message_id=2, made=NOW + 100)
    for data in (early, late):
        here.receive(data, THERE, HERE)
    here.events()
    for step in range(-700, 700, 7):
        for data in (early, late):
            here.receive(data, THERE, Now(0.0, float(NOW + step)))
    assert not [one for one in here.events() if isinstance(one, Delivered)]
    assert set(here.metrics.reasons()) == {"replay", "stale", "future"}


def test_an_unproven_hello_causes_no_traffic_to_its_claimed_address():
    """EMM-30: no amplification: what proves nothing is not answered, whoever it claims to be."""
    here = session()
    for number in range(100):
        here.receive(packet(tlv(4) + tlv(0x14, number.to_bytes(16)), 1, message_id=number), ("victim", number), HERE)
    here.receive(signed(tlv(4) + tlv(0x13, bytes(31) + b"\1") + node, kind=1, covered=tlv(4) + tlv(0x13, bytes(32)) + node), THERE, HERE)
    here.tick(Now(61.0, NOW + 61.0))
    assert all(to == ("friend", 1) for _, to in here.output())


def test_a_captured_hello_is_answered_once():
    here = session()
    hello = maced(tlv(4) + node + auth, kind=1)
    for number in range(20):
        here.receive(hello, ("victim", number), HERE)
    assert [to for _, to in here.output()] == [("victim", 0)]
    assert here.peers[0].node_id == NODE
    assert AUTH == b"\0\0\0\1"
