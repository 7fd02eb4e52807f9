"""The scanner at its edges: every length one off, every type and flag, hostile neighbours; then whatever Hypothesis thinks of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.event_mesh import speech
from tests.protocols.event_mesh.scanning import fault_of, scanned, walked
from tests.protocols.event_mesh.speech import SPOKEN, mutations, name, node, packet, tlv

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import Limits
from wirelake.protocols.event_mesh.scanner import (
    CANONICAL,
    FLAGS,
    HMAC,
    MESSAGE_ID,
    NAME,
    NODE_ID,
    ODD_KEY,
    ODD_OPEN,
    ODDITIES,
    PART_COLUMNS,
    ROW_COLUMNS,
    TIMESTAMP,
    find,
    scan,
    sniff,
)
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, PART, PARTS, START

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "event-mesh.json").read_text())
SMALL = Limits(max_payload_size=60, max_tlv_count=5)
PROFILE = Limits(minimum_profile=True)


@each("said", SPOKEN.values(), ids=SPOKEN)
def test_a_right_packet_has_no_fault(said):
    row = scanned(said, before=b"\x01\x02", after=b"\xff" * 9).row
    assert (row[FAULT], row[KIND], row[FLAGS], row[MESSAGE_ID]) == (0, said[6], said[5], 0xDEADBEEF)


@pytest.mark.slow
@each("said", SPOKEN.values(), ids=SPOKEN)
@each("limits", [Limits(), SMALL, PROFILE], ids=["default", "small", "profile"])
def test_every_mutation_is_judged_as_the_slow_reader_does(said, limits):
    for one in mutations(said):
        scanned(one, limits, before=b"\x01", after=b"\x04\x00")


@each("vector", VECTORS, ids=lambda one: one["name"])
def test_every_vector_is_judged_as_the_slow_reader_does(vector):
    scanned(bytes.fromhex(vector["hex"]), before=b"\x10\x20", after=b"\x12\x40")


@each("size", range(18))
def test_a_header_has_17_bytes(size):
    assert fault_of(packet(b"", 0x7F)[:size]) is (Fault.SHORT_PACKET if size < 17 else None)


@each("version", range(256))
def test_every_version(version):
    assert fault_of(packet(name, version=version)) is (None if version == 1 else Fault.UNSUPPORTED_VERSION)


@each("flags", range(256))
def test_every_flag(flags):
    expected = Fault.RESERVED_FLAGS if flags & 0xF8 else Fault.ENC_METADATA_MISSING if flags & 2 else None
    assert fault_of(packet(name, flags=flags)) is expected


@each("kind", range(256))
def test_every_event_type(kind):
    assert fault_of(packet(b"", kind)) is (Fault.MISSING_REQUIRED_FIELD if kind in (1, 2, 3) else None)


@each("size", [*range(20), 530, 531, 532, 65535])
def test_every_announced_size(size):
    scanned(packet(name, size=size))
    scanned(packet(tlv(4, bytes(255)) * 2 + tlv(1, bytes(15)), size=size))


@pytest.mark.parametrize("size", [529, 530, 531, 532, 533])
def test_the_payload_limit_is_the_last_size_accepted(size):
    payload = tlv(4, bytes(255)) + tlv(4, bytes(250)) + tlv(1, bytes(size - 511))
    assert len(payload) == size
    assert fault_of(packet(payload)) is (Fault.PAYLOAD_TOO_LARGE if size > 531 else None)
    assert fault_of(packet(payload), Limits(max_payload_size=60_000)) is None


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 8, 12, 16, 32, 64])
def test_every_field_type_and_length_alone_and_twice(length):
    for kind in range(256):
        one = tlv(kind, bytes(length))
        for payload in (one, name + one, one + one + name, name + node + one):
            for flags in (0, 2):
                scanned(packet(payload, flags=flags))


@each("length", range(24))
def test_a_field_that_lies_about_its_length(length):
    for kind in (1, 4, 0x11, 0x14, 0x20):
        scanned(packet(name + tlv(kind, bytes(16), length=length)))
        scanned(packet(name + tlv(0x11, tlv(1, b"\x01") + tlv(kind % 8, bytes(12), length=length)), flags=2))


@pytest.mark.parametrize("count", [62, 63, 64, 65, 66, 200])
def test_the_field_limit_is_the_last_count_accepted(count):
    assert fault_of(packet(name + tlv(0x20) * (count - 1))) is (Fault.TLV_COUNT if count > 64 else None)
    inside = packet(tlv(4) + tlv(0x11, speech.subs) + tlv(0x20) * (count - 4), flags=2)
    assert fault_of(inside) is (Fault.TLV_COUNT if count > 64 else None)
    assert fault_of(packet(name + tlv(0x20) * (count - 1) + b"\x04")) is Fault.TLV_OVERRUN, "the scan of all fields comes first"


def test_text_is_checked_after_joining():
    letter = "é".encode()
    long = b"x" * 254 + letter
    assert fault_of(packet(tlv(1, long[:255]) + tlv(1, long[255:]))) is None
    assert fault_of(packet(tlv(1, long[:255]) + tlv(5, b"{}") + tlv(1, long[255:]))) is None
    assert fault_of(packet(tlv(1, long[:255]) + tlv(5, letter[1:]) + tlv(1, long[255:]))) is Fault.INVALID_UTF8
    assert fault_of(packet(tlv(1, long[:255]))) is Fault.INVALID_UTF8
    assert fault_of(packet(tlv(1, long[:255]) + tlv(1))) is Fault.INVALID_UTF8
    assert fault_of(packet(name + tlv(1, letter[:1]) + tlv(1, letter[1:]))) is Fault.INVALID_UTF8, "a shorter piece ends a value"


@pytest.mark.slow
def test_every_pair_and_many_triples_of_bytes_as_text():
    for first in range(0x7F, 0x100):
        for second in (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF):
            for rest in (b"", b"\x80", b"\xbf\x80", b"\x80\x80\x80", b"a"):
                text = bytes((first, second)) + rest
                row = scanned(packet(tlv(1, text))).row
                if row[FAULT]:
                    with pytest.raises(UnicodeDecodeError):
                        text.decode()


def test_faults_point_at_what_is_wrong():
    def at(data):
        row = scanned(data).row
        return Fault(row[FAULT]), row[FAULT_AT]

    assert at(packet(name)[:9]) == (Fault.SHORT_PACKET, 9)
    assert at(packet(name, flags=8)) == (Fault.RESERVED_FLAGS, 5)
    assert at(packet(name, size=3)) == (Fault.LENGTH_MISMATCH, 15)
    assert at(packet(name + b"\x04")) == (Fault.TLV_OVERRUN, 31)
    assert at(packet(name + node + node)) == (Fault.DUPLICATE_TLV, 17 + 14 + 18)
    assert at(packet(name + tlv(2, b"1"))) == (Fault.FIELD_LENGTH, 31)
    assert at(packet(name + tlv(5, b"{\xff}"))) == (Fault.INVALID_UTF8, 34)
    assert at(packet(name + speech.metadata)) == (Fault.ENC_FLAG_MISSING, 31)
    assert at(packet(name + node + tlv(0x10, bytes(32)) + speech.auth)) == (Fault.HMAC_POSITION, 49)


def test_places_are_those_of_values_and_minus_one_without():
    said = speech.maced()
    row = scanned(said).row
    assert said[row[NODE_ID] : row[NODE_ID] + 16] == speech.NODE
    assert said[row[NAME] : row[NAME] + 12] == b"temp.changed"
    assert row[CANONICAL] == row[HMAC] - 2
    empty = scanned(b"\x02" + packet(name)[1:]).row
    assert (empty[KIND], empty[MESSAGE_ID], empty[NAME], empty[NODE_ID], empty[PARTS]) == (-1, -1, -1, -1, 0)
    assert scanned(packet(name + tlv(0x14, bytes(15)))).row[NODE_ID] == -1


@pytest.mark.parametrize("made", [0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_times_keep_their_64_bits(made):
    assert scanned(packet(name, made=made)).row[TIMESTAMP] % 2**64 == made


def test_what_is_odd():
    full = tlv(4, bytes(255))
    assert scanned(packet(name + full)).row[ODDITIES] == ODD_OPEN
    assert scanned(packet(name + full + tlv(4))).row[ODDITIES] == 0
    assert scanned(packet(name + full + tlv(0x20, bytes(3)))).row[ODDITIES] == ODD_OPEN
    assert scanned(packet(name + tlv(0x13, speech.PUBLIC))).row[ODDITIES] == ODD_KEY
    assert scanned(speech.signed(name + node + speech.key, covered=name + speech.key + node)).row[ODDITIES] == 0


def test_no_room_writes_nothing():
    said = speech.maced()
    for cells, part_cells in ((ROW_COLUMNS - 1, 400), (ROW_COLUMNS, (len(said) // 2) * PART_COLUMNS - 1), (0, 0)):
        row, parts = [5] * cells, [5] * part_cells
        assert scan(said, 0, len(said), row, parts, Limits().for_scan()) == (0, 0, 0, NO_ROOM)
        assert set(row + parts) <= {5}


def test_nothing_follows_a_datagram():
    assert find(b"abc", 1, 3, Limits().for_scan()) == 3


@pytest.mark.parametrize(("rows", "parts"), [(1, 300), (2, 300), (64, 300), (64, 2000)])
def test_a_block_of_datagrams_is_each_of_them(rows, parts):
    datagrams = [*SPOKEN.values(), b"", *(bytes.fromhex(one["hex"]) for one in VECTORS), b""]
    said = walked(datagrams, rows=rows, parts=parts)
    assert said.run_of == list(range(len(datagrams)))
    block, at = b"".join(datagrams), 0
    for one, row in zip(datagrams, said.rows, strict=True):
        alone = scanned(one, before=block[:at])
        assert said.parts[row[PART] : row[PART] + row[PARTS]] == alone.parts
        assert [*row[:PART], *row[PART + 1 :]] == [*alone.row[:PART], *alone.row[PART + 1 :]]
        assert (row[START], row[LENGTH]) == (at, len(one))
        at += len(one)
        assert said.ends[said.run_of[0]] == len(datagrams[0])
    assert said.ends[-1] == len(block)
    assert walked([]).rows == []


def test_what_is_taken_for_event_mesh():
    assert all(sniff(said) == (label != "other") for label, said in SPOKEN.items())
    assert not sniff(b"")
    assert not sniff(SPOKEN["event"][:-1])


tlvs = st.tuples(
    st.sampled_from([1, 2, 3, 4, 5, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x20, 0, 0xFF]), st.binary(max_size=40)
).map(lambda pair: tlv(*pair))


@given(st.lists(tlvs, max_size=12).map(b"".join), st.integers(0, 7), st.integers(0, 5), st.sampled_from([Limits(), SMALL, PROFILE]))
def test_whatever_the_fields(payload, flags, kind, limits):
    scanned(packet(payload, kind, flags), limits)


@given(st.lists(st.tuples(st.integers(0, 7), st.binary(max_size=16)).map(lambda pair: tlv(*pair)), max_size=6).map(b"".join))
def test_whatever_the_encryption_metadata(value):
    scanned(packet(node + tlv(0x11, value) + tlv(0x16, speech.NONCE) + tlv(0x17, speech.NODE), flags=2))


@given(st.binary(max_size=80))
def test_whatever_the_bytes(data):
    scanned(data)
    scanned(packet(data))
