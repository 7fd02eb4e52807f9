"""WOLP-24, WOLP-25: blobs of keys, the keys agreed on, and proofs."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.cases import each
from tests.protocols.wolpertinger.xml_documents import VECTORS

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.trust import key_agreement
from wirelake.protocols.wolpertinger.trust.key_agreement import Curve

AUTH = {vector["name"]: vector for vector in VECTORS if vector["layer"] == "auth"}
CURVES = {Curve.P256: ec.SECP256R1(), Curve.P384: ec.SECP384R1(), Curve.P521: ec.SECP521R1()}
PRIME_521 = 2**521 - 1


def dice(seed: bytes):
    """Random bytes that are the same in every run."""
    return lambda size: hashlib.shake_256(seed).digest(size)


def exchanges():
    return [vector for vector in AUTH.values() if "caller_private_hex" in vector["keys"]]


def proofs():
    return [vector for vector in AUTH.values() if "cluster_key_hex" in vector["keys"]]


@pytest.mark.parametrize("vector", exchanges(), ids=lambda vector: vector["name"])
def test_wolp_24_both_sides_of_an_exchange_come_to_the_key_of_the_vector(vector):
    keys, fields = vector["keys"], vector["fields"]
    caller, callee = (key_agreement.private_key(Curve.P521, bytes.fromhex(keys[f"{side}_private_hex"])) for side in ("caller", "callee"))
    for side, own in (("caller", caller), ("callee", callee)):
        assert key_agreement.to_text(key_agreement.public_blob(own)) == fields[f"{side}_blob_b64"]
    for own, peers in ((caller, "callee"), (callee, "caller")):
        public = key_agreement.read_blob(key_agreement.read_text(fields[f"{peers}_blob_b64"]))
        assert key_agreement.session_key(own, public).hex() == fields["aes_key_hex"]
    assert hashlib.sha256(bytes.fromhex(fields["shared_secret_hex"])).hexdigest() == fields["aes_key_hex"]
    assert key_agreement.read_iv(keys["iv_b64"]) == base64.b64decode(keys["iv_b64"])


@pytest.mark.parametrize("vector", proofs(), ids=lambda vector: vector["name"])
def test_wolp_25_a_cluster_key_is_proved_as_in_the_vector(vector):
    token = key_agreement.read_text(vector["fields"]["token_b64"])
    proof = key_agreement.cluster_proof(bytes.fromhex(vector["keys"]["cluster_key_hex"]), token)
    assert key_agreement.to_text(proof) == vector["fields"]["verification_key_b64"]


def test_there_are_vectors_of_both_kinds():
    assert exchanges()
    assert proofs()


def test_wolp_25_a_users_password_is_proved_as_text():
    token = bytes(key_agreement.TOKEN_SIZE)
    assert key_agreement.user_proof("pässword", token) == hashlib.pbkdf2_hmac("sha1", "pässword".encode(), token, 1000, 64)
    assert key_agreement.cluster_proof(b"\xab", token) == key_agreement.user_proof("ab", token) != key_agreement.user_proof("AB", token)


def test_wolp_25_proofs_are_the_same_or_not():
    assert key_agreement.is_same(b"abc", b"abc")
    assert not any(key_agreement.is_same(b"abc", other) for other in (b"abd", b"ab", b"", b"abcd"))


@pytest.mark.parametrize("curve", Curve)
def test_a_blob_is_read_as_the_key_it_was_written_from(curve):
    own, peers = key_agreement.make_key(curve, dice(b"own")), key_agreement.make_key(curve, dice(b"peer"))
    blob = key_agreement.public_blob(own)
    assert blob[:8] == curve.value + curve.size.to_bytes(4, "little")
    assert len(blob) == 8 + 2 * curve.size
    public = key_agreement.read_blob(blob)
    assert public == own.public_key()
    assert key_agreement.curve_of(public) is key_agreement.curve_of(own) is curve
    shared = key_agreement.session_key(own, peers.public_key())
    assert shared == key_agreement.session_key(peers, public)
    assert len(shared) == 32


@pytest.mark.parametrize("curve", Curve)
def test_a_shared_secret_keeps_its_leading_zeros(curve):
    own = key_agreement.make_key(curve, dice(b"own"))
    for number in range(1, 4000 if curve is not Curve.P521 else 2):
        peers = key_agreement.private_key(curve, number.to_bytes(4, "big"))
        secret = own.exchange(ec.ECDH(), peers.public_key())
        assert len(secret) == curve.size
        if secret[0] == 0:
            break
    assert key_agreement.session_key(own, peers.public_key()) == hashlib.sha256(secret).digest()


@pytest.mark.parametrize("curve", Curve)
def test_keys_are_drawn_from_the_whole_curve_and_only_from_it(curve):
    order = CURVES[curve].group_order
    drawn = [
        key_agreement.make_key(curve, lambda size, number=number: number.to_bytes(size, "big")).private_numbers().private_value
        for number in (0, order - 2, order - 1, order)
    ]
    assert drawn == [1, order - 1, 1, 2]
    asked = []
    key_agreement.make_key(curve, lambda size: asked.append(size) or bytes(size))
    assert asked == [curve.size + 8]


@pytest.mark.parametrize("curve", Curve)
def test_fresh_keys_differ(curve):
    assert key_agreement.make_key(curve, dice(b"1")).private_numbers() != key_agreement.make_key(curve, dice(b"2")).private_numbers()


def spoiled_blobs():
    for curve in Curve:
        good = key_agreement.public_blob(key_agreement.make_key(curve, dice(b"good")))
        size = curve.size
        yield f"{curve.name} cut", good[:-1]
        yield f"{curve.name} with a byte more", good + b"\0"
        yield f"{curve.name} header only", good[:8]
        yield f"{curve.name} of another size", good[:4] + (size + 1).to_bytes(4, "little") + good[8:]
        yield f"{curve.name} with its size big-endian", good[:4] + size.to_bytes(4, "big") + good[8:]
        yield f"{curve.name} off the curve", good[:-1] + bytes([good[-1] ^ 1])
        yield f"{curve.name} at zero", good[:8] + bytes(2 * size)
        yield f"{curve.name} over the prime", good[:8] + b"\xff" * (2 * size)
        for magic in (b"ECK2", b"ECK4", b"ECK6", b"ECS5", b"eck5", b"\0\0\0\0"):
            yield f"{curve.name} as {magic!r}", magic + good[4:]
        for other in (one for one in Curve if one is not curve):
            yield f"{curve.name} as {other.name}", other.value + good[4:]
    yield "nothing", b""
    yield "three bytes", b"ECK"
    good = key_agreement.public_blob(key_agreement.make_key(Curve.P521, dice(b"good")))
    x = int.from_bytes(good[8:74], "big")
    yield "the same point written over the prime", good[:8] + (x + PRIME_521).to_bytes(66, "big") + good[74:]


@each("name, blob", spoiled_blobs())
def test_wolp_24_what_is_not_exactly_a_point_is_305(name, blob):
    with pytest.raises(RemoteProtocolError) as refused:
        key_agreement.read_blob(blob)
    assert refused.value.fault is Fault.KEY_INVALID
    assert refused.value.fault.rule.error_code == 305


def test_wolp_24_a_key_on_another_curve_is_no_answer():
    own, peers = key_agreement.make_key(Curve.P521, dice(b"own")), key_agreement.make_key(Curve.P256, dice(b"peer"))
    with pytest.raises(RemoteProtocolError) as refused:
        key_agreement.session_key(own, peers.public_key())
    assert refused.value.fault is Fault.KEY_INVALID


@pytest.mark.parametrize("size", [0, 15, 17, 32])
def test_wolp_24_an_iv_is_16_bytes(size):
    with pytest.raises(RemoteProtocolError) as refused:
        key_agreement.read_iv(key_agreement.to_text(bytes(size)))
    assert refused.value.fault is Fault.KEY_INVALID


@pytest.mark.parametrize("text", ["A", "AA=", "AAA", "AA\n==", "AA==AA==", "A-_A", "ÄÄÄÄ", "====", " AAAA", "\udc80AAA"])
def test_what_is_not_base64_is_refused(text):
    with pytest.raises(RemoteProtocolError) as refused:
        key_agreement.read_text(text)
    assert refused.value.fault is Fault.KEY_INVALID
