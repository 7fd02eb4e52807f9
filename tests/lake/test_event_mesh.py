"""Event Mesh in the lake: every field, nodes as sessions, and what keys, time and history say of packets."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.capture.build import ethernet, ipv4, pcap, udp
from tests.lake.mesh import ALICE, BOB, MALLORY, STORY, record, spoilt
from tests.protocols.event_mesh import speech
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.speech import AUTH, MADE, NODE, OTHER_NODE, PUBLIC, SECRET, maced, signed, tlv

from wirelake.capture.record.recorder import Recorder
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table
from wirelake.protocols.event_mesh.columns import session_of
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.security import verify_rows
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected


def rows(lake, name):
    return delta.dataset(lake, table(name)).to_table().to_pylist()


@pytest.fixture(scope="module")
def mesh(lake):
    return lake


@pytest.fixture(scope="module")
def security(mesh):
    """The rows by the name of their datagram, found by when it was seen and how long it is."""
    names = {(int((MADE + seconds) * 1e6), len(data), sender[1]): name for seconds, sender, name, data in STORY}
    sizes = {row["message_id"]: row["size"] for row in rows(mesh, "messages") if row["protocol"] == "event_mesh"}
    found = {}
    mine = [row for row in rows(mesh, "security") if row["protocol"] == "event_mesh"]
    for row in mine:
        port = int(row["sender"].rpartition(":")[2]) if row["sender"] else MALLORY[1]
        found[names[int(row["ts"].timestamp() * 1e6), sizes.get(row["message_id"], row["length"]), port]] = row
    assert len(found) == len(mine)
    return found


def test_every_field_is_a_column(mesh):
    by_id = {row["packet_id"]: row for row in rows(mesh, "event_mesh") if row["packet_id"] != 2}
    signed_one = by_id[3]
    assert (signed_one["node_id"], signed_one["auth_key_id"], signed_one["event_name"]) == (NODE, AUTH, "temp.changed")
    assert (len(signed_one["signature"]), signed_one["hmac"], signed_one["type_name"]) == (64, None, "event")
    assert int(signed_one["timestamp"]) == MADE + 2
    assert by_id[1]["binaries"] == [b"caps"]
    assert by_id[11]["fault"] == "DUPLICATE_TLV"


def test_the_rules_that_packets_break_are_those_a_live_receiver_finds(security):
    expected = {
        "hello": None,
        "event": None,
        "signed": None,
        "forged first": "HMAC_MISMATCH",
        "honest after forged": None,
        "replayed": "REPLAY",
        "bad signature": "SIGNATURE_MISMATCH",
        "unknown key": "UNKNOWN_KEY",
        "untrusted key": "UNTRUSTED_KEY",
        "future": "FUTURE",
        "future edge": None,
        "duplicate field": "DUPLICATE_TLV",
        "reserved bits": "RESERVED_FLAGS",
        "oversized": "PAYLOAD_TOO_LARGE",
        "heartbeat": None,
        "heartbeat after silence": None,
        "stale replay": "STALE",
    }
    assert {name: row["rule"] for name, row in security.items()} == expected
    receiver = Receiver(store())
    for seconds, sender, name, data in STORY:
        said = receiver.receive(data, MADE + seconds, repr(sender).encode())
        live = said.fault.name if isinstance(said, Rejected) else None
        assert live == expected.get(name), name


def test_a_rule_comes_with_its_clause_and_sentence(security):
    forged = security["forged first"]
    assert (forged["clause"], forged["text"]) == (Fault.HMAC_MISMATCH.clause, Fault.HMAC_MISMATCH.text)
    assert (forged["accepted"], forged["genuine"], forged["proof"], forged["trust"]) == (False, False, "hmac", "none")
    assert (forged["sender"], forged["receiver"]) == ("127.0.0.1:7666", "127.0.0.1:7002")
    assert (security["event"]["accepted"], security["event"]["trust"], security["event"]["verdict"]) == (True, "store", "GENUINE")


def test_a_replay_names_the_first_sighting_however_long_ago(security):
    """EMM-23, over all of history: beyond the window a repetition is stale, and still known for what it is."""
    first = security["event"]["message_id"]
    assert [security[name]["first_message_id"] for name in ("event", "replayed", "stale replay")] == [first] * 3
    assert [security[name]["sighting"] for name in ("event", "replayed", "stale replay")] == [1, 2, 3]
    assert security["replayed"]["genuine"] is True
    assert security["forged first"]["sighting"] is None
    assert security["honest after forged"]["sighting"] == 1


def test_a_message_says_whether_it_was_verified_when_it_was_read(mesh):
    verified = {row["message_id"]: row["verified"] for row in rows(mesh, "messages") if row["protocol"] == "event_mesh"}
    told = {row["packet_id"]: verified[row["message_id"]] for row in rows(mesh, "event_mesh") if row["packet_id"] not in (2, 4)}
    assert {number for number, said in told.items() if said} == {1, 3, 8, 9, 20, 21}
    assert {number for number, said in told.items() if said is False} == {5, 6, 7}
    assert {number for number, said in told.items() if said is None} == {10, 11, 14}


def test_packets_that_prove_nothing_and_break_nothing_are_not_in_it(security):
    assert "unproven" not in security
    assert "out of order" not in security


def test_a_node_is_a_session(mesh):
    (alice,) = (row for row in rows(mesh, "sessions") if row["session_id"] == session_of(NODE))
    assert (alice["protocol"], alice["transport"], alice["handshake"]) == ("event_mesh", "udp", "complete")
    assert (alice["client_address"], alice["client_port"], alice["server_address"]) == (*ALICE, None)
    assert alice["keepalives"] == 2
    assert alice["silences"] == 2  # from 20 to 100, and from 100 to the replay at 310
    assert alice["connections"] == 2  # Mallory spoke in her name
    assert alice["ended_how"] == "open"
    other = next(row for row in rows(mesh, "sessions") if row["session_id"] == session_of(OTHER_NODE))
    assert (other["handshake"], other["ended_how"], other["ended"]) == ("incomplete", "silence", other["ended"])
    assert other["ended"] is not None


def test_what_the_specification_says_of_form_is_found(mesh):
    assert {row["rule"]: row["severity"] for row in rows(mesh, "violations") if row["protocol"] == "event_mesh"} == {
        "FIELDS_OUT_OF_ORDER": "warning",
        "DUPLICATE_TLV": "error",
        "RESERVED_FLAGS": "error",
        "PAYLOAD_TOO_LARGE": "error",
    }


def test_a_revoked_key_tells_which_accepted_packets_would_now_fail(spark, tmp_path):
    """The secret leaked at second 2: what came before still stands."""
    record(tmp_path / "bob.pcapng", [*STORY[:3], (3, ALICE, "later", maced(message_id=99, made=MADE + 1))])
    lake = tmp_path / "lake"
    ingest(spark, lake, [tmp_path / "bob.pcapng"])
    assert {row["accepted"] for row in rows(lake, "security")} == {None}  # no keys, no word
    ingest(spark, lake, [], keys=store())
    assert {row["accepted"] for row in rows(lake, "security")} == {True}
    revoked = store()
    revoked.revoke(NODE, AUTH, MADE + 2)
    result = ingest(spark, lake, [], keys=revoked)
    assert result.built == ("security",)
    now_fail = [row for row in rows(lake, "security") if row["was_accepted"] and not row["accepted"]]
    assert sorted(row["packet_id"] for row in now_fail) == [3, 99]
    assert {(row["rule"], row["genuine"]) for row in now_fail} == {("REVOKED_KEY", True)}
    # Somebody who has no keys adds a file: what was found out stands.
    record(tmp_path / "more.pcapng", [(5, ALICE, "one more", maced(message_id=77, made=MADE + 5))])
    ingest(spark, lake, [tmp_path / "more.pcapng"])
    verdicts = {row["packet_id"]: (row["verdict"], row["accepted"]) for row in rows(lake, "security")}
    assert verdicts[77] == (None, None)
    assert verdicts[99] == ("REVOKED_KEY", False)
    assert verdicts[1] == ("GENUINE", True)


def test_packets_of_a_capture_are_read_as_those_of_a_recording(spark, tmp_path):
    packets = [
        (int((MADE + seconds) * 1e6), ethernet(ipv4(sender[0], BOB[0], udp(sender[1], BOB[1], data), protocol=17)))
        for seconds, sender, _, data in STORY
    ]
    (tmp_path / "wire.pcap").write_bytes(pcap(packets))
    lake = tmp_path / "lake"
    ingest(spark, lake, [tmp_path / "wire.pcap"], ports={BOB[1]: "event_mesh"}, keys=store())
    assert len(rows(lake, "event_mesh")) == len(STORY) - 2
    assert [row["rule"] for row in rows(lake, "security") if row["rule"] == "REPLAY"] == ["REPLAY"]


def test_the_sender_s_own_recording_makes_no_replay(spark, tmp_path):
    """The same packet, written down by who sent it and by who received it, came once."""
    record(tmp_path / "bob.pcapng", STORY[:2])
    with Recorder(tmp_path / "alice.pcapng", protocol="event_mesh", clock=lambda: int((MADE + 1) * 1e9)) as recorder:
        talk = recorder.connection(role="client", local=ALICE, remote=BOB, transport="udp")
        talk.sent(STORY[1][3])
    ingest(spark, tmp_path / "lake", [tmp_path / "bob.pcapng", tmp_path / "alice.pcapng"], keys=store())
    found = rows(tmp_path / "lake", "security")
    assert [row["rule"] for row in found] == [None] * 3
    assert sorted(row["sighting"] for row in found) == [1, 1, 2]


def out_of_order():
    """Genuine, though its fields do not stand in the order in which they are covered."""
    right = maced(speech.name + tlv(4, b"x") + tlv(0x14, OTHER_NODE) + speech.auth)
    moved = speech.name + tlv(4, b"x")
    assert right[17 : 17 + len(moved)] == moved
    return right[:17] + tlv(4, b"x") + speech.name + right[17 + len(moved) :]


def batch_of(*datagrams, seconds=MADE):
    columns = {
        "message_id": [str(at).encode() for at in range(len(datagrams))],
        "ts": pa.array([int(seconds * 1e6)] * len(datagrams), pa.timestamp("us", "UTC")),
        "packet_id": [int.from_bytes(one[1:5]) for one in datagrams],
        "flags": pa.array([one[5] for one in datagrams], pa.int16()),
        "event_type": pa.array([one[6] for one in datagrams], pa.int16()),
        "timestamp": pa.array([int.from_bytes(one[7:15]) for one in datagrams]).cast(pa.decimal128(20, 0)),
        "payload": [one[17:] for one in datagrams],
    }
    return pa.RecordBatch.from_pydict(columns)


def test_column_wise_proofs_are_those_of_a_live_receiver():
    keys = TrustStore(
        [
            Key(NODE, AUTH, SECRET, PUBLIC, revoked_from=MADE + 50),
            Key(NODE, AUTH, bytes(range(1, 33)), None, MADE + 50),
            Key(OTHER_NODE, AUTH, SECRET),
            Key(OTHER_NODE, None, None, PUBLIC),
            Key(bytes(16), None, SECRET),
        ]
    )
    other = speech.name + tlv(0x14, OTHER_NODE)
    said = [
        *(maced(message_id=at, made=MADE + at) for at in range(0, 120, 7)),
        *(maced(message_id=at, made=MADE + at, secret=bytes(range(1, 33))) for at in range(0, 120, 7)),
        *(maced(other + speech.auth, message_id=at) for at in range(5)),
        maced(other),
        maced(speech.name + tlv(0x14, bytes(16))),
        maced(speech.name + tlv(0x14, bytes(16)) + tlv(0x18, bytes(4))),
        maced(speech.name + speech.node),
        signed(),
        signed(other + speech.key, covered=speech.name + speech.key + tlv(0x14, OTHER_NODE)),
        maced(tlv(4, b"x") + speech.name + speech.node + speech.auth),
        out_of_order(),
    ]
    said += [spoilt(one) for one in said]
    judged = Receiver(keys).receive(out_of_order(), MADE)
    assert not isinstance(judged, Rejected)
    for when in (MADE - 1, MADE, MADE + 49, MADE + 50, MADE + 51, MADE + 200):
        batch = batch_of(*said, seconds=when)
        (found,) = verify_rows.judge_batches([batch.slice(0, 3), batch][1:], keys)
        for one, verdict in zip(said, found.column("verdict").to_pylist(), strict=True):
            live = Receiver(keys).receive(one, when)
            expected = live.fault.name if isinstance(live, Rejected) and live.fault < Fault.STALE else verify_rows.GENUINE
            assert verdict == expected, (when, one.hex())
        sliced = pa.Table.from_batches(verify_rows.judge_batches([batch.slice(0, 7), batch.slice(7)], keys))
        assert sliced.column("verdict").to_pylist() == found.column("verdict").to_pylist()


def test_a_packet_by_a_revoked_key_is_genuine_only_if_it_is():
    keys = TrustStore([Key(NODE, AUTH, SECRET, PUBLIC, revoked_from=MADE)])
    said = [maced(), spoilt(maced()), signed(), spoilt(signed())]
    (found,) = verify_rows.judge_batches([batch_of(*said)], keys)
    assert set(found.column("verdict").to_pylist()) == {"REVOKED_KEY"}
    assert found.column("genuine").to_pylist() == [True, False, True, False]
