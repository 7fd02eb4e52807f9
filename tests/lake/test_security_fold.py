"""Rows of `security` by hand: every rule and window; and a slow twin on random packets, in one pass and in many."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from tests.lake.random_columns import one_of, rows_of
from tests.lake.random_columns import table as table_of_rows
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.speech import AUTH, MADE, NODE, OTHER_NODE, SECRET, auth, maced, name, tlv

from wirelake.lake.gold.fold import security as fold
from wirelake.lake.gold.fold.security import THREATENING, PacketFold, ends_of, pass_of, threat_rows, unreadable_rows
from wirelake.lake.tables.catalog import table
from wirelake.lake.tables.security import TABLE
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import CLOCK_SKEW_ALLOWANCE, REPLAY_WINDOW
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore

AT_SERVER = {"client_address": "10.0.0.1", "client_port": 1, "server_address": "10.0.0.2", "server_port": 2, "observer_kind": "server"}
MICROSECOND = 1e-6


def connection(number=0, **more):
    return {"connection_id": b"connection %d" % number, "protocol": "event_mesh", **AT_SERVER, **more}


def at(seconds):
    return datetime.fromtimestamp(MADE, UTC) + timedelta(microseconds=round(seconds * 1e6))


def packet(number, seconds=0.0, *, packet_id=1, made=0, **more):
    """A packet that proves nothing and breaks nothing. Times are seconds after `MADE`."""
    return {
        "message_id": b"message %04d" % number,
        "session_id": b"session",
        "connection_id": b"connection 0",
        "ts": None if seconds is None else at(seconds),
        "direction": "to_server",
        "source": "a.pcapng",
        "offset": number,
        "length": 99,
        "packet_id": packet_id,
        "flags": 0,
        "event_type": 3,
        "timestamp": Decimal(MADE + made),
        "node_id": NODE,
        "payload": b"payload",
        **more,
    }


def proven(number, seconds=0.0, **more):
    return packet(number, seconds, **{"hmac": bytes(32), **more})


def of_datagram(number, seconds, data, **more):
    """A packet as the decoder has it, with the proof at its end."""
    said = {
        "packet_id": int.from_bytes(data[1:5]),
        "flags": data[5],
        "event_type": data[6],
        "timestamp": Decimal(int.from_bytes(data[7:15])),
    }
    return packet(number, seconds) | said | {"payload": data[17:], "hmac": data[-32:], "auth_key_id": AUTH} | more


def judged(packets, connections=None, before=(), keys=None, passes=1):
    """Rows of `security`, in the order of their offsets."""
    connections = [connection()] if connections is None else connections
    given, known = table_of_rows(table("event_mesh"), packets), table_of_rows(TABLE, before)
    ends = ends_of(table_of_rows(table("connections"), connections))
    found = []
    for number in range(passes):
        one = PacketFold(ends, keys, lambda ids: [given.slice(0, 1), given.slice(1)])
        for rows in (given.slice(0, 1), given.slice(1)):
            one.add(rows.filter(pa.array(pass_of(rows, passes) == number)))
        one.add_before(known.filter(pa.array(pass_of(known, passes) == number)))
        found.append(one.rows().cast(TABLE.schema))
    return pa.concat_tables(found).sort_by("offset")


def column(rows, *names):
    values = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return [one[0] for one in values] if len(names) == 1 else list(values)


def test_packets_that_prove_and_break_nothing_have_no_row():
    assert judged([packet(1)]).num_rows == 0
    assert judged([]).num_rows == 0


def test_a_proof_is_named_and_without_keys_nothing_is_said_of_it():
    rows = judged(
        [
            proven(1),
            packet(2, packet_id=2, signature=bytes(64)),
            packet(3, packet_id=3, hmac=bytes(32), signature=bytes(64)),
            packet(4, packet_id=4, fault="DUPLICATE_TLV"),
        ]
    )
    assert column(rows, "proof", "rule", "accepted", "verdict") == [
        ("hmac", None, None, None),
        ("signature", None, None, None),
        ("hmac+signature", None, None, None),
        (None, "DUPLICATE_TLV", False, None),
    ]


@pytest.mark.parametrize(
    ("age", "rule"),
    [
        (0, None),
        (REPLAY_WINDOW, None),
        (REPLAY_WINDOW + MICROSECOND, "STALE"),
        (-CLOCK_SKEW_ALLOWANCE, None),
        (-CLOCK_SKEW_ALLOWANCE - MICROSECOND, "FUTURE"),
    ],
)
def test_time_is_asked_of_packets_with_a_proof(age, rule):
    """EMM-24."""
    rows = judged([proven(1, age), packet(2, age, packet_id=2)])
    assert column(rows, "offset", "rule", "age_us") == [(1, rule, round(age * 1e6))]
    signed_then = judged([proven(1, age + 5000, signed_timestamp=Decimal(MADE + 5000))])
    assert column(signed_then, "rule", "age_us") == [(rule, round(age * 1e6))]


def test_times_that_no_clock_has_are_far_ahead_and_captures_without_times_have_no_age():
    rows = judged([proven(1, 0, timestamp=Decimal(2**64 - 1)), proven(2, None, packet_id=2)])
    first, second = rows.to_pylist()
    assert (first["rule"], first["age_us"]) == ("FUTURE", MADE * 10**6 - 2**62)
    assert (second["rule"], second["age_us"], second["sighting"]) == (None, None, 1)


def test_the_first_rule_in_the_order_of_checks_counts():
    """EMM-28: form, proof, time, replay."""
    verdict = [{"message_id": b"message %04d" % number, "verdict": "HMAC_MISMATCH", "genuine": False, "trust": "none"} for number in (1, 2)]
    late = REPLAY_WINDOW + 1
    packets = [
        proven(1, late, fault="DUPLICATE_TLV"),
        proven(2, late),
        proven(3, late),
        proven(4, late, packet_id=2),
        proven(5, 1, packet_id=3),
    ]
    before = [one | {"packet_id": 1, "node_id": NODE} for one in verdict]
    rows = judged([*packets, proven(6, 1, packet_id=3)], before=before)
    assert column(rows, "rule", "threat", "sighting") == [
        ("DUPLICATE_TLV", "malformed", None),
        ("HMAC_MISMATCH", "forged", None),
        ("STALE", "stale", 1),
        ("STALE", "stale", 1),
        (None, None, 1),
        ("REPLAY", "replayed", 2),
    ]
    assert rows.to_pylist()[1]["clause"] == Fault.HMAC_MISMATCH.clause
    assert rows.to_pylist()[1]["text"] == Fault.HMAC_MISMATCH.text


def test_a_fault_that_is_in_no_book_is_malformed():
    (row,) = judged([packet(1, fault="NEW_ONE")]).to_pylist()
    assert (row["rule"], row["clause"], row["text"], row["threat"], row["accepted"]) == ("NEW_ONE", None, None, "malformed", False)


def test_sightings_are_counted_by_packet_in_order_of_time_and_then_of_id():
    packets = [proven(1, 9), proven(2, 3), proven(3, 3), proven(4, 1, node_id=OTHER_NODE), proven(5, 1, packet_id=2), proven(6, None)]
    rows = judged([*packets, proven(7, 0, node_id=None)])
    assert column(rows, "sighting") == [4, 2, 3, 1, 1, 1, None]
    first = b"message 0006"
    assert column(rows, "first_message_id") == [first, first, first, b"message 0004", b"message 0005", first, None]


def test_a_repetition_within_the_window_is_a_replay_whatever_its_content():
    """EMM-23, EMM-25: the window begins with the later of arrival and claimed time, which counts as far as clocks may differ."""
    other = {"payload": b"other", "flags": 1}
    for made, until in ((0, REPLAY_WINDOW), (20, REPLAY_WINDOW + 20), (9999, REPLAY_WINDOW + CLOCK_SKEW_ALLOWANCE)):
        again = [packet(2, until, made=until, **other), packet(3, until + MICROSECOND, packet_id=2, made=until, **other)]
        rows = judged([packet(1, made=made), packet(0, made=made, packet_id=2), *again])
        assert column(rows, "offset", "rule") == [(2, "REPLAY")], made


@pytest.mark.parametrize(
    ("other", "is_replay"),
    [({}, True), ({"payload": b"x"}, False), ({"flags": 1}, False), ({"event_type": 2}, False), ({"made": 1}, False)],
)
def test_after_the_window_only_the_same_content_is_a_replay(other, is_replay):
    rows = judged([packet(1), packet(2, 10_000, **other)])
    assert column(rows, "rule", "proof", "threat") == ([("REPLAY", None, "replayed")] if is_replay else [])


def test_a_packet_without_time_is_a_replay_by_its_content():
    assert column(judged([packet(1, None), packet(2, None)]), "offset", "rule") == [(2, "REPLAY")]
    assert column(judged([packet(1, None), packet(2, None, payload=b"x")]), "rule") == []
    assert column(judged([packet(1, None), packet(2, REPLAY_WINDOW, payload=b"x")]), "rule") == ["REPLAY"]


def test_payloads_are_only_asked_for_where_nothing_else_decides():
    asked = []
    given = table_of_rows(table("event_mesh"), [packet(1), packet(2, 1), packet(3, 9999, flags=1), packet(4, packet_id=2)])
    one = PacketFold(ends_of(table_of_rows(table("connections"), [connection()])), None, lambda ids: asked.append(ids) or [])
    one.add(given.drop_columns(["payload"]))
    assert column(one.rows(), "rule") == ["REPLAY"]
    assert asked == []


def test_the_same_packet_at_another_receiver_or_as_seen_by_another_kind_of_observer_is_no_replay():
    elsewhere = connection(1, server_port=3)
    wire = connection(2, observer_kind="wire")
    connections = [connection(), elsewhere, wire, connection(3, client_port=7)]
    packets = [packet(number, number, connection_id=b"connection %d" % number) for number in range(3)]
    assert judged(packets, connections).num_rows == 0
    from_elsewhere = packet(3, 3, connection_id=b"connection 3")
    rows = judged([*packets, from_elsewhere], connections)
    assert column(rows, "offset", "sender", "receiver", "sighting") == [(3, "10.0.0.1:7", "10.0.0.2:2", 4)]


def test_the_sender_s_own_recording_makes_no_replay():
    for observer, direction in (("client", "to_server"), ("server", "to_client")):
        packets = [packet(number, number, direction=direction) for number in range(3)]
        assert judged(packets, [connection(observer_kind=observer)]).num_rows == 0
        assert judged(packets, [connection(observer_kind="wire")]).num_rows == 2
        (first, _) = judged(packets, [connection(observer_kind=None)]).to_pylist()
        ends = ("10.0.0.1:1", "10.0.0.2:2")
        assert (first["sender"], first["receiver"]) == (ends if direction == "to_server" else ends[::-1])


def test_packets_with_a_proof_are_counted_apart_and_forged_ones_not_at_all():
    packets = [packet(1), proven(2, 1), proven(3, 2), packet(4, 3)]
    assert column(judged(packets), "offset", "rule", "sighting") == [(2, None, 2), (3, "REPLAY", 3), (4, "REPLAY", 4)]
    forged = [{"message_id": b"message 0002", "node_id": NODE, "packet_id": 1, "verdict": "HMAC_MISMATCH"}]
    rows = judged(packets, before=forged)
    assert column(rows, "offset", "rule", "sighting") == [(2, "HMAC_MISMATCH", None), (3, None, 2), (4, "REPLAY", 3)]


def test_endpoints_are_the_smallest_of_a_connection_and_what_is_missing_is_left_out():
    connections = [
        connection(client_port=9, observer_kind=None),
        connection(client_port=8, observer_kind="wire"),
        connection(client_port=8, observer_kind=None),
        connection(client_port=1, protocol="emp"),
        connection(1, client_port=None, server_address=None, server_port=None),
        connection(2, connection_id=None),
    ]
    ends = ends_of(table_of_rows(table("connections"), connections))
    assert sorted(ends.to_pylist(), key=repr) == [
        {"connection_id": b"connection 0", "client": "10.0.0.1:8", "server": "10.0.0.2:2", "observer_kind": None},
        {"connection_id": b"connection 1", "client": "10.0.0.1", "server": "", "observer_kind": "server"},
    ]
    rows = judged([proven(1, connection_id=b"connection 1"), proven(2, packet_id=2, connection_id=b"unknown")], connections)
    assert column(rows, "sender", "receiver") == [("10.0.0.1", ""), (None, None)]


def test_keys_say_what_is_genuine():
    other = maced(name + tlv(0x14, OTHER_NODE) + auth, message_id=3)
    forged = maced(message_id=2, secret=bytes(32))
    packets = [
        of_datagram(1, 0, maced(message_id=1)),
        of_datagram(2, 0, forged),
        of_datagram(3, 0, other, node_id=OTHER_NODE),
        of_datagram(4, 0, maced(message_id=4), fault="DUPLICATE_TLV"),
        packet(5, packet_id=5),
    ]
    rows = judged(packets, keys=store())
    assert column(rows, "verdict", "genuine", "trust", "accepted", "rule") == [
        ("GENUINE", True, "store", True, None),
        ("HMAC_MISMATCH", False, "none", False, "HMAC_MISMATCH"),
        ("UNKNOWN_KEY", False, "none", False, "UNKNOWN_KEY"),
        (None, None, None, False, "DUPLICATE_TLV"),
    ]
    assert column(rows, "auth_key_id", "was_accepted") == [(AUTH, None)] * 4


def test_many_packets_are_verified_in_portions(monkeypatch):
    packets = [of_datagram(number, 0, maced(message_id=number, secret=SECRET if number % 3 else bytes(32))) for number in range(1, 40)]
    whole = judged(packets, keys=store())
    monkeypatch.setattr(fold, "_VERIFY_BYTES", 200)
    assert judged(packets, keys=store()).equals(whole)
    assert set(column(whole, "verdict")) == {"GENUINE", "HMAC_MISMATCH"}


def test_other_keys_tell_what_was_accepted_before_and_no_keys_leave_results_as_they_are():
    packets = [of_datagram(1, 0, maced(message_id=1)), of_datagram(2, 0, maced(message_id=2, secret=bytes(32)))]
    unknown = judged(packets)
    first = judged(packets, keys=store(), before=unknown.to_pylist())
    assert column(first, "accepted", "was_accepted") == [(True, None), (False, None)]  # it was not known before
    revoked = TrustStore([msgspec.structs.replace(key, revoked_from=1) if key.auth_key_id else key for key in store()])
    second = judged(packets, keys=revoked, before=first.to_pylist())
    assert column(second, "verdict", "accepted", "was_accepted", "genuine") == [
        ("REVOKED_KEY", False, True, True),
        ("REVOKED_KEY", False, False, False),
    ]
    assert judged(packets, keys=revoked, before=second.to_pylist()).equals(second)
    assert judged(packets, before=second.to_pylist()).equals(second)
    stays = judged(packets, keys=revoked, before=judged(packets, keys=TrustStore([Key(NODE, AUTH, bytes(32))])).to_pylist())
    assert column(stays, "was_accepted") == [False, True]


def test_datagrams_that_are_no_packets_are_listed():
    found = {"session_id": None, "connection_id": b"c", "ts": at(0), "source": "a", "offset": 7, "length": 3}
    quarantine = [
        found | {"protocol": "event_mesh", "reason": "RESERVED_FLAGS", "clause": "2.3"},
        found | {"protocol": "event_mesh", "reason": "GAP"},
        found | {"protocol": "emp", "reason": "RESERVED_FLAGS", "clause": "1"},
        found | {"reason": "RESERVED_FLAGS", "clause": "1"},
    ]
    (row,) = unreadable_rows(table_of_rows(table("quarantine"), quarantine)).cast(TABLE.schema).to_pylist()
    expected = found | {"protocol": "event_mesh", "rule": "RESERVED_FLAGS", "accepted": False, "threat": "malformed"}
    expected |= {"clause": Fault.RESERVED_FLAGS.clause, "text": Fault.RESERVED_FLAGS.text}
    assert row == dict.fromkeys(TABLE.schema.names) | expected


def test_threats_of_other_protocols_come_from_violations():
    known = fold.threats()
    protocol, rule = next(one.split("/") for one in sorted(known) if not one.startswith("event_mesh/"))
    assert rule in THREATENING
    broken = {"session_id": b"s", "message_id": b"m", "ts": at(0), "clause": "1", "text": "t", "source": "a", "offset": 7, "length": 3}
    violations = [
        broken | {"protocol": protocol, "rule": rule, "severity": "error"},
        broken | {"protocol": protocol, "rule": "HARMLESS"},
        broken | {"protocol": "event_mesh", "rule": rule},
        broken | {"protocol": "unknown", "rule": rule},
        broken | {"rule": rule},
    ]
    (row,) = threat_rows(table_of_rows(table("violations"), violations)).cast(TABLE.schema).to_pylist()
    expected = broken | {"protocol": protocol, "rule": rule, "accepted": False, "threat": known[f"{protocol}/{rule}"]}
    assert row == dict.fromkeys(TABLE.schema.names) | expected


def random_packets(chance, count):
    """Packets of a few nodes that come again and again, at times around the edges of all windows."""
    edges = [
        *(REPLAY_WINDOW + step for step in (-1, 0, MICROSECOND, 1)),
        *(CLOCK_SKEW_ALLOWANCE + step for step in (-1, 0, MICROSECOND)),
        0,
        5,
    ]
    packets, now = [], 0.0
    for number in range(count):
        now += chance.choice([0, 0, 0, 1, chance.choice(edges)])
        made = (
            int(now) + chance.choice([0, 0, -REPLAY_WINDOW - 1, CLOCK_SKEW_ALLOWANCE, CLOCK_SKEW_ALLOWANCE + 2])
            if chance.random() < 0.5
            else 0
        )
        packets.append(
            packet(
                number,
                None if chance.random() < 0.02 else now,
                packet_id=chance.choice([1, 2, 3, 2**32 - 1]),
                made=made,
                node_id=one_of(chance, [NODE, OTHER_NODE, bytes(16)], 0.05),
                connection_id=b"connection %d" % chance.randrange(6),
                direction=one_of(chance, ["to_server", "to_client"], 0.02),
                flags=chance.choice([0, 0, 0, 1]),
                payload=chance.choice([b"a", b"a", b"b"]),
                hmac=one_of(chance, [bytes(32)], 0.6),
                signature=one_of(chance, [bytes(64)], 0.8),
                signed_timestamp=one_of(chance, [Decimal(MADE + int(now))], 0.7),
                fault=one_of(chance, ["DUPLICATE_TLV"], 0.95),
            )
        )
    chance.shuffle(packets)
    connections = [
        connection(number, server_port=one_of(chance, [2, 3]), observer_kind=one_of(chance, ["client", "server", "wire"]))
        for number in range(5)
    ]
    before = [
        {
            "message_id": one["message_id"],
            "node_id": one["node_id"],
            "packet_id": one["packet_id"],
            "verdict": one_of(chance, ["GENUINE", "GENUINE", "HMAC_MISMATCH"]),
            "genuine": one_of(chance, [True, False]),
            "accepted": one_of(chance, [True, False]),
            "was_accepted": one_of(chance, [True, False]),
        }
        for one in packets
        if one["hmac"] and chance.random() < 0.5
    ]
    return packets, connections, before


def slow(packets, connections, before):
    """Offset -> rule, sighting, first message and endpoints: packet by packet, in order of time."""
    ends, seen, kept, found = {}, defaultdict(list), {}, {}
    for one in connections:
        client, server = (
            ":".join(str(one[f"{side}_{part}"]) for part in ("address", "port") if one[f"{side}_{part}"] is not None)
            for side in ("client", "server")
        )
        ends[one["connection_id"]] = (client, server, one["observer_kind"])
    verdicts = {one["message_id"]: one["verdict"] for one in before}
    for one in sorted(packets, key=lambda one: (one["ts"] is not None, one["ts"], one["message_id"])):
        client, server, observer = ends.get(one["connection_id"], (None, None, None))
        is_client = one["direction"] == "to_server"
        sender, receiver = (client, server) if is_client else (server, client)
        watcher = "sender" if observer == ("client" if is_client else "server") else "wire" if observer == "wire" else "receiver"
        arrived = None if one["ts"] is None else round((one["ts"] - at(0)).total_seconds() * 1e6) + MADE * 10**6
        claimed = int(one["signed_timestamp"] if one["signed_timestamp"] is not None else one["timestamp"]) * 10**6
        has_proof = one["hmac"] is not None or one["signature"] is not None
        verdict = verdicts.get(one["message_id"])
        rule = one["fault"] or (verdict if verdict != "GENUINE" else None)
        sighting = first = None
        is_believed = rule is None and one["node_id"] is not None
        if rule is None and has_proof and arrived is not None:
            rule = "STALE" if arrived - claimed > REPLAY_WINDOW * 10**6 else None
            rule = "FUTURE" if claimed - arrived > CLOCK_SKEW_ALLOWANCE * 10**6 else rule
        if is_believed:
            captures = seen[one["node_id"], one["packet_id"]]
            captures.append(one["message_id"])
            sighting, first = len(captures), captures[0]
            if rule is None:
                key = (one["node_id"], one["packet_id"], receiver, watcher, has_proof)
                content = (one["timestamp"], one["flags"], one["event_type"], one["payload"])
                until, earlier = kept.get(key, (None, None))
                ahead = claimed if arrived is None else max(arrived, min(claimed, arrived + CLOCK_SKEW_ALLOWANCE * 10**6))
                kept[key] = (ahead + REPLAY_WINDOW * 10**6, content)
                is_again = earlier is not None and ((arrived is not None and arrived <= until) or content == earlier)
                rule = "REPLAY" if is_again and watcher != "sender" else None
        if has_proof or rule:
            found[one["offset"]] = (rule, sighting, first, sender, receiver)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_packets_are_judged_as_one_after_the_other_would_be_in_any_number_of_passes(seed):
    packets, connections, before = random_packets(random.Random(seed), 300)
    rows = judged(packets, connections, before)
    names = ("rule", "sighting", "first_message_id", "sender", "receiver")
    expected = slow(packets, connections, before)
    assert dict(zip(column(rows, "offset"), column(rows, *names), strict=True)) == expected
    assert {"REPLAY", "STALE", "FUTURE", None} <= {rule for rule, *_ in expected.values()}
    for passes in (2, 7):
        assert rows_of(judged(packets, connections, before, passes=passes)) == rows_of(rows)


def test_all_captures_of_a_packet_come_in_the_same_pass_and_packets_are_divided_evenly():
    chance = random.Random(1)
    rows = [{"node_id": chance.choice([NODE, OTHER_NODE, None]), "packet_id": chance.randrange(1000)} for _ in range(5000)]
    given = table_of_rows(table("event_mesh"), rows)
    passes = pass_of(given, 4)
    by_packet = defaultdict(set)
    for row, number in zip(rows, passes.tolist(), strict=True):
        by_packet[row["node_id"], row["packet_id"]].add(number)
    assert {len(numbers) for numbers in by_packet.values()} == {1}
    sizes = [(passes == number).sum() for number in range(4)]
    assert min(sizes) > 1000
    assert pass_of(given.slice(100), 4).tolist() == passes[100:].tolist()
