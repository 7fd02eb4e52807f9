"""Hidden payloads of Event Mesh in tables: opened with encryption keys, else left as they are (EMM-13, EMM-14)."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from tests.lake.mesh import ALICE, record
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.speech import AUTH, MADE, NODE, SECRET, tlv
from tests.protocols.event_mesh.speech import packet as clear

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table
from wirelake.protocols.event_mesh import Credentials, Sealer, TrustStore, build, compress
from wirelake.protocols.event_mesh.packet.values import binary, floating, integer, json, text

KEY, KEY_ID = bytes(range(100, 132)), b"the key's own id"
HIDDEN = [text("plant.boiler"), text("more"), integer(-7), floating(0.5), binary(b"z" * 300), json({"a": [1]})]
VALUES = {
    "event_name": "plant.boiler",
    "strings": ["plant.boiler", "more"],
    "integers": [-7],
    "floats": [0.5],
    "binaries": [b"z" * 300],
    "jsons": ['{"a":[1]}'],
}
ALICE_S = Credentials(NODE, AUTH, SECRET)


def sealed(number, key=KEY, key_id=KEY_ID, compressed=False):
    made = Sealer(key, key_id=key_id).seal(
        HIDDEN, number.to_bytes(12), event_type=3, message_id=number, timestamp=MADE, compressed=compressed
    )
    return build(3, made.fields, ALICE_S, message_id=number, timestamp=MADE, flags=made.flags)


def packed(number):
    made = compress(HIDDEN)
    return build(3, made.fields, ALICE_S, message_id=number, timestamp=MADE, flags=made.flags)


SAID = {
    1: sealed(1),
    2: sealed(2, compressed=True),
    3: packed(3),
    4: sealed(4, key_id=None),
    5: sealed(5, key=bytes(32)),
    6: clear(tlv(1, b"in clear") + tlv(4, b"not zlib"), flags=4, message_id=6),
    7: clear(tlv(4, zlib.compress(bytes(70_000), 9)), flags=4, message_id=7),
    8: clear(tlv(1, b"plain") + tlv(4, b"x"), message_id=8),
}
STORY = [(number, ALICE, str(number), data) for number, data in SAID.items()]


def opening():
    keys = store()
    keys.add_encryption(KEY_ID, KEY)
    return keys


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return record(tmp_path_factory.mktemp("sealed") / "bob.pcapng", STORY)


def batches_of(path, keys, name, most=1 << 26):
    found = []
    decoder = Decoder(DecodeOptions(max_batch_bytes=most), keys, sink=lambda rows: found.extend(rows.get(name, [])))
    for batches in (
        *map(decoder.feed, read(identify(path), ports={}, sniff=protocols.sniff, dialect=protocols.dialect)),
        decoder.finish(),
    ):
        found += batches.get(name, [])
    return found


def decoded(path, keys, name, most=1 << 26):
    return pa.Table.from_batches(batches_of(path, keys, name, most)).to_pylist()


def by_number(path, keys, most=1 << 26):
    return {row["packet_id"]: row for row in decoded(path, keys, "event_mesh", most)}


def values(row):
    return {name: row[name] for name in VALUES}


def test_payloads_that_a_key_opens_have_their_values_in_columns(recording):
    rows = by_number(recording, opening())
    assert [values(rows[number]) for number in (1, 2, 3)] == [VALUES] * 3
    assert [row["oddities"] for row in rows.values()] == [0, 0, 0, 0, 16, 0, 64, 0]
    assert rows[8]["strings"] == ["plain"]
    assert {number: row["payload"] for number, row in rows.items()} == {number: data[17:] for number, data in SAID.items()}, (
        "as on the wire"
    )


def test_without_its_key_a_payload_stays_as_it_is(recording):
    rows = by_number(recording, None)
    assert [values(rows[number])["event_name"] for number in SAID] == [None, None, "plant.boiler", None, None, "in clear", None, "plain"]
    assert [row["oddities"] for row in rows.values()] == [0, 0, 0, 0, 0, 0, 64, 0]
    assert rows[1]["strings"] == []
    assert by_number(recording, opening())[4] == rows[4], "a key of another id opens nothing"


def test_what_inflates_is_decoded_in_batches_of_the_budget(tmp_path):
    made = compress([text("big"), text("x" * 12_000)])
    said = [(at, ALICE, "", build(3, made.fields, message_id=at, timestamp=MADE, flags=made.flags)) for at in range(10)]
    found = batches_of(record(tmp_path / "big.pcapng", said), None, "event_mesh", 30_000)
    assert sum(batch.num_rows for batch in found) == 10
    assert max(batch.num_rows for batch in found) == 2


def test_messages_have_what_is_inside(recording):
    first, *_, last = decoded(recording, opening(), "messages")
    assert (first["subject"], first["body_json"], first["verified"]) == ("plant.boiler", '{"a":[1]}', True)
    assert first["body"].startswith(tlv(1, b"plant.boiler") + tlv(1, b"more"))
    assert last["body"] == SAID[8][17:]


def test_rows_do_not_depend_on_the_budget(recording):
    assert by_number(recording, opening(), 1200) == by_number(recording, opening())


def test_encryption_keys_alone_verify_nothing(recording):
    keys = TrustStore()
    keys.add_encryption(KEY_ID, KEY)
    rows = decoded(recording, keys, "messages")
    assert {row["verified"] for row in rows} == {None}
    assert rows[0]["subject"] == "plant.boiler"


def test_a_lake_opens_what_it_reads_and_keeps_no_key(spark, recording, tmp_path):
    lake = tmp_path / "lake"

    def names():
        rows = delta.dataset(lake, table("event_mesh")).to_table(columns=["packet_id", "event_name"]).to_pylist()
        return [row["event_name"] for row in sorted(rows, key=lambda row: row["packet_id"])][:3]

    ingest(spark, lake, [recording])
    assert names() == [None, None, "plant.boiler"]
    keys = opening()
    assert ingest(spark, lake, [recording], keys=keys).differently == (str(recording),)
    ingest(spark, lake, [recording], keys=keys, again=True)
    assert names() == ["plant.boiler"] * 3
    rules = delta.dataset(lake, table("security")).to_table(columns=["packet_id", "rule", "threat"]).to_pylist()
    assert {(row["packet_id"], row["rule"], row["threat"]) for row in rules if row["rule"]} == {
        (5, "DECRYPTION_FAILED", "forged"),
        (7, "INFLATED_OVER_LIMIT", "bomb"),
    }
    for path in lake.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert KEY not in content
            assert KEY.hex().encode() not in content.lower()
