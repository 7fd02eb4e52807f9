"""Sealed payloads: what is hidden comes out again, what was touched does not, and bombs stay small."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.event_mesh.speech import NODE, NONCE, OTHER_NODE, node, packet, tlv

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import Limits
from wirelake.protocols.event_mesh.messages import Algorithm, Field, FieldType
from wirelake.protocols.event_mesh.packet.builder import Credentials, build
from wirelake.protocols.event_mesh.packet.values import binary, integer, joined, text
from wirelake.protocols.event_mesh.security.encryption import Sealer, compress, inner_fields, unseal
from wirelake.protocols.event_mesh.wire import decode

KEY = bytes(range(64, 96))
KEYS = {NODE: KEY}
HIDDEN = (text("secret.event"), integer(99))
HEAD = {"event_type": 3, "message_id": 7, "timestamp": 1_700_000_000}


def sent(sealed, event_type=3, extra=()) -> bytes:
    return build(event_type, [*sealed.fields, *extra], Credentials(NODE), flags=sealed.flags, message_id=7, timestamp=1_700_000_000)


def fault_of(data: bytes, keys=KEYS, limits=Limits()) -> Fault:  # noqa: B008 - frozen
    with pytest.raises(DecodeError) as caught:
        unseal(decode(data), keys, limits)
    return caught.value.fault


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("key_id", [None, OTHER_NODE])
def test_what_is_sealed_is_opened(algorithm, compressed, key_id):
    sealed = Sealer(KEY, algorithm, key_id).seal(HIDDEN, NONCE, compressed=compressed, **HEAD)
    data = sent(sealed)
    assert b"secret" not in data
    assert unseal(decode(data), {key_id or NODE: KEY}) == HIDDEN
    assert fault_of(data, {}) is Fault.UNDECRYPTABLE
    assert fault_of(data, {key_id or NODE: bytes(32)}) is Fault.DECRYPTION_FAILED
    assert fault_of(data, {key_id or NODE: b"short"}) is Fault.UNDECRYPTABLE


def test_the_header_is_bound_to_what_is_sealed():
    data = sent(Sealer(KEY).seal(HIDDEN, NONCE, **HEAD))
    for at in (*range(1, 5), *range(7, 15)):
        assert fault_of(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]) is Fault.DECRYPTION_FAILED
    assert fault_of(data[:5] + b"\x03" + data[6:]) is Fault.DECRYPTION_FAILED
    assert fault_of(data[:6] + b"\x7f" + data[7:]) is Fault.DECRYPTION_FAILED
    assert fault_of(data[:19] + bytes((data[19] ^ 1,)) + data[20:]) is Fault.DECRYPTION_FAILED


def test_the_top_level_key_id_is_used_before_the_node_id():
    sealed = Sealer(KEY).seal(HIDDEN, NONCE, **HEAD)
    data = sent(sealed, extra=[Field(FieldType.KEY_ID, OTHER_NODE)])
    assert unseal(decode(data), {OTHER_NODE: KEY}) == HIDDEN
    assert fault_of(data) is Fault.UNDECRYPTABLE


def test_an_unknown_algorithm_is_undecryptable():
    data = packet(tlv(4, bytes(36)) + tlv(0x11, tlv(1, b"\x7f") + tlv(3, NONCE)) + node, flags=2)
    assert fault_of(data) is Fault.UNDECRYPTABLE
    with pytest.raises(LocalProtocolError) as caught:
        Sealer(KEY, 0x7F)
    assert caught.value.fault is Fault.UNDECRYPTABLE


def test_a_key_seals_as_often_as_it_may():
    sealer = Sealer(KEY, limit=2)
    sealer.seal(HIDDEN, NONCE, **HEAD)
    sealer.seal(HIDDEN, bytes(12), **HEAD)
    with pytest.raises(LocalProtocolError) as caught:
        sealer.seal(HIDDEN, bytes(12), **HEAD)
    assert (caught.value.fault, sealer.sealed) == (Fault.REKEY_NEEDED, 2)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Sealer(KEY[:16]), Fault.WEAK_KEY),
        (lambda: Sealer(KEY).seal(HIDDEN, NONCE[:11], **HEAD), Fault.SUB_FIELD_LENGTH),
        (lambda: Sealer(KEY).seal([Field(FieldType.NODE_ID, NODE)], NONCE, **HEAD), Fault.SECURITY_FIELD_SEALED),
        (lambda: compress([Field(FieldType.HMAC, bytes(32))]), Fault.SECURITY_FIELD_SEALED),
        (lambda: Sealer(KEY).seal(HIDDEN, NONCE, event_type=3, message_id=-1, timestamp=0), Fault.FIELD_OUT_OF_RANGE),
    ],
)
def test_what_may_not_be_sealed(make, fault):
    with pytest.raises(LocalProtocolError) as caught:
        make()
    assert caught.value.fault is fault


def test_a_sealed_payload_travels_in_one_value():
    long = Sealer(KEY).seal((text("x"), binary(bytes(300))), NONCE, **HEAD)
    assert joined(unseal(decode(sent(long)), KEYS)) == [text("x"), binary(bytes(300))]
    assert fault_of(packet(tlv(4, b"a") + tlv(4, b"b"), flags=4)) is Fault.SEALED_CARRIAGE
    assert fault_of(packet(node, flags=4)) is Fault.SEALED_CARRIAGE


def packed(plain: bytes, kind: int = 3) -> bytes:
    data = zlib.compress(plain, 9)
    return packet(tlv(4, data[:255]) + (tlv(4, data[255:]) if len(data) >= 255 else b"") + node, kind, 4)


def test_a_bomb_is_not_inflated():
    most = 64 * 1024
    assert fault_of(packed(bytes(most + 1))) is Fault.INFLATED_OVER_LIMIT
    assert fault_of(packed(bytes(most))) is Fault.TLV_COUNT
    assert fault_of(packed(tlv(1, b"x" * 30)), limits=Limits(max_inflated_size=31)) is Fault.INFLATED_OVER_LIMIT
    assert unseal(decode(packed(tlv(1, b"x" * 30))), {}, Limits(max_inflated_size=32)) == (text("x" * 30),)


def test_what_is_no_zlib():
    right = zlib.compress(tlv(1, b"x"))
    for wrong in (b"", b"nonsense", right[:-1], right + b"\0", right[:-1] + bytes((right[-1] ^ 1,))):
        assert fault_of(packet(tlv(4, wrong), flags=4)) is Fault.DEFLATE_INVALID


def test_what_is_inside_is_held_to_the_same_rules():
    assert fault_of(packed(tlv(2, bytes(4)))) is Fault.MISSING_REQUIRED_FIELD
    assert fault_of(packed(tlv(1, b"x"), 1)) is Fault.MISSING_REQUIRED_FIELD
    assert unseal(decode(packed(tlv(4, b"caps"), 1)), {}) == (binary(b"caps"),)
    assert fault_of(packed(b"\x01\x05x")) is Fault.TLV_OVERRUN
    assert fault_of(packed(tlv(1, b"\xff"))) is Fault.INVALID_UTF8
    assert fault_of(packed(tlv(1, b"x") + tlv(2, b"x"))) is Fault.FIELD_LENGTH
    assert fault_of(packed(tlv(1, b"x") + tlv(0x14, bytes(16)))) is Fault.SECURITY_FIELD_SEALED
    assert fault_of(packed(tlv(1) * 65)) is Fault.TLV_COUNT
    assert inner_fields(b"") == ()


def test_what_hides_nothing_is_its_own_data_fields():
    assert unseal(decode(packet(tlv(1, b"x") + node)), {}) == (text("x"),)


@given(st.lists(st.binary(max_size=60), max_size=3), st.sampled_from(list(Algorithm)), st.booleans())
def test_whatever_is_hidden_comes_out(pieces, algorithm, compressed):
    hidden = (text("name"), *(binary(piece) for piece in pieces))
    sealed = Sealer(KEY, algorithm).seal(hidden, NONCE, compressed=compressed, **HEAD)
    assert unseal(decode(sent(sealed)), KEYS) == hidden
    assert unseal(decode(sent(compress(hidden))), {}) == hidden
