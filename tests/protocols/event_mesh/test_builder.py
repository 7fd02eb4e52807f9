"""Packets as they are built: cut, ordered, sized, proven in one step, and never one that a receiver would drop for its form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.event_mesh.receiving import judged
from tests.protocols.event_mesh.speech import AUTH, MADE, NODE, PUBLIC, SECRET, SEED, SPOKEN, maced, packet, signed

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import Limits
from wirelake.protocols.event_mesh.messages import Event, Field, FieldType, Other
from wirelake.protocols.event_mesh.packet import values
from wirelake.protocols.event_mesh.packet.builder import Credentials, build, left, ordered, public_key_of
from wirelake.protocols.event_mesh.packet.values import binary, floating, integer, joined, json, parse_json, split, text, typed
from wirelake.protocols.event_mesh.wire import buffer, decode, encode
from wirelake.protocols.kernel import FAULT

MAC = Credentials(NODE, AUTH, SECRET)
SIGN = Credentials(NODE, AUTH, seed=SEED)
BOTH = Credentials(NODE, AUTH, SECRET, SEED, with_public_key=True)
HEAD = {"message_id": 0xDEADBEEF, "timestamp": MADE}


def refused(*given, **more) -> Fault:
    with pytest.raises(LocalProtocolError) as caught:
        build(*given, **{**HEAD, **more})
    return caught.value.fault


def test_what_is_built_is_what_was_said_by_hand():
    assert build(3, [text("temp.changed")], **HEAD) == SPOKEN["event"]
    assert build(3, [text("temp.changed")], MAC, **HEAD) == maced()
    assert build(3, [text("temp.changed")], SIGN, **HEAD) == signed()
    assert public_key_of(SEED) == PUBLIC


def test_fields_are_put_in_the_order_of_senders():
    given = [
        Field(0xFF, b""),
        Field(FieldType.TIMESTAMP, bytes(8)),
        Field(0x20, b"b"),
        Field(0x20, b"a"),
        binary(b"b"),
        text("n"),
        binary(b"a"),
    ]
    data = build(3, given, BOTH, **HEAD)
    kinds = [field.type for field in decode(data).fields]
    assert kinds == [1, 4, 4, 0x14, 0x15, 0x20, 0x20, 0xFF, 0x13, 0x18, 0x10, 0x12]
    assert [field.value for field in decode(data).fields if field.type in (4, 0x20)] == [b"b", b"a", b"b", b"a"]
    assert judged(build(3, [*given[:1], *given[2:]], BOTH, **HEAD)).identity.authenticated


def test_what_is_proven_is_canonical_also_where_the_wire_is_not():
    unsorted = Field(FieldType.ENCRYPTION, bytes((3, 12)) + bytes(12) + b"\x01\x01\x01")
    for credentials in (MAC, SIGN, BOTH):
        data = build(3, [binary(bytes(20)), unsorted], credentials, flags=2, **HEAD)
        assert judged(data).identity.authenticated
        assert unsorted in decode(data).fields


def test_a_value_that_no_field_holds_is_refused():
    for value in (True, None, [1], object()):
        with pytest.raises(LocalProtocolError) as caught:
            values.field_of(value)
        assert caught.value.fault is Fault.FIELD_OUT_OF_RANGE
    for value, kind in (("a", 1), (1, 2), (1.5, 3), (b"a", 4), ({"a": 1}, 5), (Field(9, b""), 9)):
        assert values.field_of(value).type == kind
    with pytest.raises(LocalProtocolError) as caught:
        values.field_of({"a": object()})
    assert caught.value.fault is Fault.JSON_INVALID


def test_the_bytes_left_are_exact():
    for credentials in (None, MAC, SIGN, BOTH):
        room = left([text("name")], credentials)
        one = room - 2
        value = bytes(one - 2 * (one // 255)) if one >= 255 else bytes(one)
        used = left([text("name"), binary(value)], credentials)
        assert 0 <= used <= 2
        data = build(3, [text("name"), binary(value)], credentials, **HEAD)
        assert len(data) == 548 - used
        assert refused(3, [text("name"), binary(value + bytes(3))], credentials) is Fault.PAYLOAD_TOO_LARGE
        assert left([text("name"), binary(value + bytes(3))], credentials) < 0
    assert left([]) == 531
    assert left([], limits=Limits(max_payload_size=1000)) == 1000


@pytest.mark.parametrize(
    ("fields", "more", "fault"),
    [
        ([], {}, Fault.MISSING_REQUIRED_FIELD),
        ([text("n")], {"flags": 8}, Fault.RESERVED_FLAGS),
        ([text("n")], {"flags": 2}, Fault.ENC_METADATA_MISSING),
        ([text("n")], {"message_id": 2**32}, Fault.FIELD_OUT_OF_RANGE),
        ([text("n")], {"timestamp": -1}, Fault.FIELD_OUT_OF_RANGE),
        ([text("n")], {"limits": Limits(minimum_profile=True)}, Fault.PROFILE_FIELD_MISSING),
        ([text("n"), Field(FieldType.HMAC, bytes(32))], {}, Fault.DUPLICATE_TLV),
        ([text("n"), Field(FieldType.INTEGER, b"x")], {}, Fault.FIELD_LENGTH),
        ([text("n"), Field(FieldType.ENCRYPTION, bytes(256))], {}, Fault.FIELD_LENGTH),
        ([text("n"), Field(256, b"")], {}, Fault.FIELD_OUT_OF_RANGE),
        ([Field(FieldType.STRING, b"\xff")], {}, Fault.INVALID_UTF8),
        ([text("n"), *[Field(0x20, b"")] * 64], {}, Fault.TLV_COUNT),
    ],
)
def test_what_a_receiver_would_drop_is_not_built(fields, more, fault):
    assert refused(3, fields, **more) is fault


def test_credentials_that_prove_nothing_are_refused():
    assert refused(3, [text("n")], Credentials(NODE, AUTH, b"short")) is Fault.WEAK_KEY
    assert refused(3, [text("n")], Credentials(NODE, AUTH, seed=b"short")) is Fault.FIELD_LENGTH
    assert refused(3, [text("n")], Credentials(NODE[:3])) is Fault.FIELD_LENGTH


def test_credentials_do_not_show_their_keys():
    assert SECRET.hex() not in repr(BOTH)
    assert repr(SECRET) not in repr(BOTH)


# Values.


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 509, 510, 511, 765])
def test_a_value_is_cut_and_joined(size):
    value = bytes(at % 251 for at in range(size))
    pieces = split(4, value)
    assert [len(piece.value) for piece in pieces] == [255] * (size // 255) + [size % 255]
    assert joined(pieces) == [binary(value)]
    assert joined([*pieces, binary(b"next")]) == [binary(value), binary(b"next")]


def test_pieces_belong_together_by_their_order_within_a_type():
    full = bytes(255)
    fields = [Field(4, full), Field(0x20, full), text("n"), Field(4, b"end"), Field(0x20, b""), Field(4, b"other")]
    assert joined(fields) == [binary(full + b"end"), Field(0x20, full), text("n"), binary(b"other")]
    assert joined([Field(4, full)]) == [binary(full)], "without its end it is whole all the same"
    assert values.values(fields, 4) == [full + b"end", b"other"]
    assert values.first(fields, 9) is None


@pytest.mark.parametrize("number", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_integers_are_signed(number):
    assert typed(integer(number)) == number


@pytest.mark.parametrize("make", [lambda: integer(2**31), lambda: integer(-(2**31) - 1), lambda: floating(1e39)])
def test_numbers_that_do_not_fit(make):
    with pytest.raises(LocalProtocolError) as caught:
        make()
    assert caught.value.fault is Fault.FIELD_OUT_OF_RANGE


def test_json_is_an_object_of_limited_depth():
    assert parse_json(json({"a": [1, {"b": "]}"}]}).value) == {"a": [1, {"b": "]}"}]}
    assert parse_json(b'{"a":' * 63 + b"[]" + b"}" * 63)
    for wrong in (b"", b"[]", b"1", b"{", b'{"a":1} x', b'{"a":' * 64 + b"[]" + b"}" * 64, b'{"a":' * 5000, b"\xff"):
        with pytest.raises(DecodeError) as caught:
            parse_json(wrong)
        assert caught.value.fault is Fault.JSON_INVALID
    assert parse_json(b'{"\\"{[[[": 1}') == {'"{[[[': 1}


fields = st.lists(
    st.one_of(
        st.text(max_size=20).map(text),
        st.integers(-(2**31), 2**31 - 1).map(integer),
        st.floats(width=32, allow_nan=False).map(floating),
        st.binary(max_size=300).map(binary),
        st.tuples(st.integers(0x19, 0xFF), st.binary(max_size=20)).map(lambda pair: Field(*pair)),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(fields, st.sampled_from([None, MAC, SIGN, BOTH]), st.integers(0, 2**32 - 1), st.integers(0, 1))
def test_whatever_fits_is_read_as_it_was_meant(given, credentials, message_id, flags):
    given = [text("name"), *given]
    if left(given, credentials) < 0:
        assert refused(3, given, credentials, flags=flags) is Fault.PAYLOAD_TOO_LARGE
        return
    data = build(3, given, credentials, message_id=message_id, timestamp=MADE, flags=flags)
    said = judged(data)
    assert said.identity.authenticated == (credentials is not None)
    assert (said.message.message_id, said.message.flags) == (message_id, flags)
    mine = [field for field in joined(said.message.fields) if not 0x10 <= field.type <= 0x18]
    assert mine == joined(ordered(given))
    assert encode(said.message) == data
    assert len(data) == 548 - left(given, credentials)


# The wire.


@each("said", SPOKEN.values(), ids=SPOKEN)
def test_every_packet_is_written_as_it_was_read(said):
    assert encode(decode(said)) == said
    for data, rows, _ in buffer().feed(said):
        assert (data, rows[0][FAULT]) == (said, 0)


def test_decoding_says_what_is_wrong():
    with pytest.raises(DecodeError) as caught:
        decode(packet(b"\x04"))
    assert (caught.value.fault, caught.value.offset) == (Fault.TLV_OVERRUN, 17)
    assert str(caught.value) == "§6.3: a field ends after its payload at byte 17 (TLV_OVERRUN)"


def test_encoding_refuses_what_does_not_fit():
    for wrong, fault in (
        (Event(1, 1, (Field(4, bytes(256)),)), Fault.FIELD_OUT_OF_RANGE),
        (Event(1, 1, (Field(4, bytes(255)),) * 3), Fault.PAYLOAD_TOO_LARGE),
        (Other(256, 1, 1), Fault.FIELD_OUT_OF_RANGE),
        (Event(1, 2**64), Fault.FIELD_OUT_OF_RANGE),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            encode(wrong)
        assert caught.value.fault is fault
