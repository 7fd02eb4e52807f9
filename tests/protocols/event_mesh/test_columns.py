"""Packets as columns and as objects: what a row says is what the message says."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from tests.cases import each
from tests.protocols.event_mesh.speech import MADE, NODE, SPOKEN, name, packet, tlv

from wirelake.errors import UsageError
from wirelake.protocols.event_mesh.columns import SCHEMA, columns, readable
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS
from wirelake.protocols.event_mesh.messages import FieldType, name_of
from wirelake.protocols.event_mesh.notation import describe, parse
from wirelake.protocols.event_mesh.packet import values
from wirelake.protocols.event_mesh.scanner import PART_COLUMNS, ROW_COLUMNS, walk
from wirelake.protocols.event_mesh.wire import buffer, decode, encode
from wirelake.protocols.kernel import PARTS, compiled

FAULTY = [
    packet(name + tlv(0x14, bytes(15))),
    packet(tlv(1, b"\xff\xfe")),
    packet(tlv(2, b"x") + name),
    packet(tlv(0x14, NODE) * 2 + tlv(1, b"\xff")),
    packet(tlv(0x11, b"\x03\xff"), flags=2),
]
BROKEN = [b"", packet(name)[:20], packet(name, flags=0x80)]


def made(datagrams):
    data = np.frombuffer(b"".join(datagrams), np.uint8)
    stops = np.cumsum([len(one) for one in datagrams], dtype=np.int64)
    starts = stops - np.array([len(one) for one in datagrams], np.int64)
    rows, parts = np.zeros(len(datagrams) * ROW_COLUMNS, np.int64), np.zeros(4000 * PART_COLUMNS, np.int64)
    run_of, ends = np.zeros(len(datagrams), np.int64), np.zeros(len(datagrams), np.int64)
    _, used, _, _ = compiled(walk)(data, starts, stops, 0, 0, rows, run_of, parts, ends, DEFAULT_LIMITS.for_scan())
    rows, parts = rows.reshape(-1, ROW_COLUMNS), parts[: used * PART_COLUMNS].reshape(-1, PART_COLUMNS)
    good = readable(rows)
    return good, columns(data, rows[good], parts[np.repeat(good, rows[:, PARTS])], DEFAULT_LIMITS)


def test_columns_are_those_of_the_schema():
    _, found = made([*SPOKEN.values(), *FAULTY])
    assert list(found.own) == SCHEMA.names
    for field in SCHEMA:
        column = found.own[field.name]
        column.validate(full=True)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        assert kind.equals(field.type), field.name
        assert field.metadata[b"comment"]
    assert list(found.shared) == ["kind", "name", "subject", "correlation_id", "status", "fault", "body", "body_json", "verified"]


def test_rows_say_what_messages_say():
    _, found = made(list(SPOKEN.values()))
    table = pa.table(found.own).to_pylist()
    for row, shared, data in zip(table, pa.table(found.shared).to_pylist(), SPOKEN.values(), strict=True):
        said = decode(data)
        assert (row["packet_id"], row["flags"], row["event_type"]) == (said.message_id, said.flags, values.event_type(said))
        assert (int(row["timestamp"]), row["payload_length"], row["payload"]) == (MADE, len(data) - 17, data[17:])
        assert [(one["type"], one["value"]) for one in row["fields"] if one["parent"] is None] == [
            (one.type, one.value) for one in said.fields
        ]
        assert row["strings"] == [one.decode() for one in values.values(said.fields, 1)]
        assert row["binaries"] == values.values(said.fields, 4)
        assert row["jsons"] == [one.decode() for one in values.values(said.fields, 5)]
        assert row["event_name"] == shared["subject"] == values.event_name(said.fields)
        for column in ("node_id", "auth_key_id", "hmac", "signature", "public_key", "nonce", "key_id", "encryption"):
            assert row[column] == values.first(said.fields, FieldType[column.upper()]), column
        assert (shared["name"], shared["status"], shared["fault"]) == (name_of(type(said)), "ok", None)
        assert shared["correlation_id"] == str(said.message_id)


def test_numbers_joined_values_and_times():
    full = bytes(255)
    said = packet(name + tlv(2, b"\x80\0\0\0") + tlv(3, b"\x7f\xc0\0\1") + tlv(4, full) + tlv(0x20, b"z") + tlv(4, b"end") + tlv(4, b"x"))
    beat = packet(tlv(0x14, NODE) + tlv(0x15, b"\xff" * 8), 2, made=2**64 - 1)
    _, found = made([beat, said, beat])
    first, row, _ = pa.table(found.own).to_pylist()
    assert row["integers"] == [-(2**31)]
    assert math.isnan(row["floats"][0])
    assert found.own["floats"].flatten().buffers()[1].to_pybytes()[:4] == b"\x01\x00\xc0\x7f"
    assert row["binaries"] == [full + b"end", b"x"]
    assert int(first["timestamp"]) == int(first["signed_timestamp"]) == 2**64 - 1
    assert pa.table(found.shared).column("kind").to_pylist() == ["keepalive", "event", "keepalive"]


def test_json_bodies_are_objects():
    texts = [b'{"a": 1}', b"[1]", b"{", b"{" * 10_000]
    _, found = made([packet(name + b"".join(tlv(5, one[at : at + 255]) for at in range(0, min(len(one), 400), 255))) for one in texts])
    assert found.shared["body_json"].to_pylist() == ['{"a": 1}', None, None, None]


def test_faulty_packets_are_rows_and_broken_ones_are_not():
    good, found = made([*BROKEN, *FAULTY])
    assert good.tolist() == [False] * 3 + [True] * 5
    row = pa.table(found.own).to_pylist()
    assert [one["fault"] for one in row] == ["FIELD_LENGTH", "INVALID_UTF8", "FIELD_LENGTH", "DUPLICATE_TLV", "SUB_TLV_OVERRUN"]
    assert row[0]["node_id"] is None
    assert row[1]["event_name"] == "\ufffd\ufffd"
    assert row[2]["integers"] == [None]
    assert row[3]["node_id"] == NODE
    assert set(found.shared["status"].to_pylist()) == {"faulty"}


def test_no_rows_at_all():
    good, found = made([b""])
    assert not good.any()
    assert all(len(column) == 0 for column in (*found.own.values(), *found.shared.values()))


# Objects that people read.


def described(data):
    return next(describe(whole, rows[0], parts, base=100) for whole, rows, parts in buffer().feed(data))


@each("said", SPOKEN.values(), ids=SPOKEN)
def test_an_object_is_the_packet_both_ways(said):
    one = described(said)
    assert (one["offset"], one["length"]) == (100, len(said))
    assert encode(parse(one)) == said
    del one["fields"]
    assert encode(parse(one)) == said


def test_an_object_shows_values():
    assert described(SPOKEN["numbers"])["values"] == [{"string": "temp.changed"}, {"integer": -(2**31)}, {"float": "7fc00001"}]
    assert described(SPOKEN["heartbeat"])["values"][1] == {"timestamp": MADE}


def test_faults_are_shown():
    assert described(b"")["fault"] == "SHORT_PACKET"
    assert described(packet(b"\x04"))["offset"] == 117
    assert described(FAULTY[0])["breach"] == "FIELD_LENGTH"


@pytest.mark.parametrize(
    "given",
    [
        {"fault": "X"},
        {"type": "howdy"},
        {"type": "event", "message_id": "00"},
        {"type": "event", "message_id": "00000000"},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "fields": [1]},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "fields": [{"type": 256}]},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "values": [{"a": 1, "b": 2}]},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "values": [{"integer": 2**40}]},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "values": [{"string": 5}]},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "values": [{"node_id": "zz"}]},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "values": [{"timestamp": -1}]},
        {"type": "event", "message_id": "00000000", "timestamp": 0, "values": [{"unheard": "00"}]},
        {"type": "other", "message_id": "00000000", "timestamp": 0},
    ],
)
def test_what_is_no_packet_is_said_so(given):
    with pytest.raises(UsageError):
        parse(given)


def test_a_value_left_open_does_not_run_into_the_next_packet():
    left_open = packet(name + tlv(4, bytes(255)))
    _, found = made([left_open, left_open, SPOKEN["hello"]])
    assert found.own["binaries"].to_pylist() == [[bytes(255)], [bytes(255)], [b"caps"]]
