"""The rulings EMM-1 to EMM-33, one test each that says its number; relaying (EMM-29) is for the tests of a node on the network."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

import pytest
from tests.protocols.event_mesh.receiving import DEFAULT_SECRET, fault_of, judged, store
from tests.protocols.event_mesh.scanning import scanned
from tests.protocols.event_mesh.speech import (
    AUTH,
    MADE,
    NODE,
    NONCE,
    NOW,
    PUBLIC,
    SECRET,
    SEED,
    auth,
    key,
    maced,
    metadata,
    name,
    node,
    packet,
    signed,
    subs,
    tlv,
)

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import Limits
from wirelake.protocols.event_mesh.messages import Field, Other
from wirelake.protocols.event_mesh.packet.builder import Credentials, build
from wirelake.protocols.event_mesh.packet.values import binary, event_name, joined, parse_json, text, typed
from wirelake.protocols.event_mesh.scanner import ODD_KEY, ODD_OPEN, ODD_ORDER, ODDITIES
from wirelake.protocols.event_mesh.security.canonical import canonical
from wirelake.protocols.event_mesh.security.encryption import Sealer, compress, unseal
from wirelake.protocols.event_mesh.security.replay import RecentIds, ReplayCache
from wirelake.protocols.event_mesh.security.trust import Key, Policy, Trust, TrustStore
from wirelake.protocols.event_mesh.security.verify import Receiver, Verified
from wirelake.protocols.event_mesh.wire import decode, encode

HEAD = {"message_id": 1, "timestamp": MADE}
CHACHA = tlv(1, b"\x02") + tlv(4, NONCE)


def covered(data: bytes) -> bytes:
    found = scanned(data)
    return canonical(data, found.row, found.flat)


def sealed(inside: bytes, more: bytes = b"", flags: int = 2) -> bytes:
    return packet(tlv(4, bytes(20)) + tlv(0x11, inside) + node + more, flags=flags)


def test_emm_1_integers():
    said = decode(packet(name + tlv(2, b"\xff\xff\xff\xff") + tlv(3, b"\x7f\xa0\0\1"), made=2**64 - 1, message_id=2**32 - 1))
    assert (said.timestamp, said.message_id, typed(said.fields[1])) == (2**64 - 1, 2**32 - 1, -1)
    assert encode(said)[-4:] == b"\x7f\xa0\0\1", "a NaN keeps its bits"


def test_emm_2_version():
    assert fault_of(packet(name, version=0)) is Fault.UNSUPPORTED_VERSION
    assert fault_of(packet(name, version=2, flags=0xF8, size=9999)) is Fault.UNSUPPORTED_VERSION, "before all else"


@pytest.mark.parametrize("flag", [8, 16, 32, 64, 128])
def test_emm_3_reserved_flags(flag):
    assert fault_of(packet(name, flags=flag)) is Fault.RESERVED_FLAGS
    with pytest.raises(LocalProtocolError):
        build(3, [text("n")], flags=flag, **HEAD)


def test_emm_4_sizes():
    assert fault_of(packet(name) + b"\0") is Fault.LENGTH_MISMATCH
    assert fault_of(packet(name)[:-1]) is Fault.LENGTH_MISMATCH
    long = packet(name + tlv(4, bytes(255)) * 2 + tlv(4))
    assert fault_of(long) is None
    assert fault_of(long[:15] + b"\x02\x14" + long[17:]) is Fault.PAYLOAD_TOO_LARGE
    with pytest.raises(LocalProtocolError):
        build(3, [text("n"), binary(bytes(600))], **HEAD)
    assert len(build(3, [text("n"), binary(bytes(600))], limits=Limits(max_payload_size=1000), **HEAD)) > 548


def test_emm_5_order_on_the_wire():
    said = build(3, [Field(0x20, b""), Field(0x15, bytes(8)), text("n")], Credentials(NODE, AUTH, SECRET, SEED, True), **HEAD)
    assert [field.type for field in decode(said).fields] == [1, 0x14, 0x15, 0x20, 0x13, 0x18, 0x10, 0x12]
    unordered = packet(node + name)
    assert fault_of(unordered) is None
    assert scanned(unordered).row[ODDITIES] == ODD_ORDER


def test_emm_6_positions():
    mac, sign = tlv(0x10, bytes(32)), tlv(0x12, bytes(64))
    assert fault_of(packet(name + node + auth + sign + mac)) is Fault.SIGNATURE_NOT_LAST
    assert fault_of(packet(name + node + mac + auth)) is Fault.HMAC_POSITION
    assert fault_of(packet(name + node + mac + auth + sign)) is Fault.HMAC_POSITION
    assert fault_of(packet(name + node + auth + mac + sign)) is Fault.HMAC_MISMATCH, "its place is right"


def test_emm_7_canonical_bytes():
    said = signed(name + node + key + auth, covered=name + key + node + auth)
    assert covered(said) == said[:17] + name + key + node + auth
    assert judged(said).identity.signature
    both = build(3, [text("n")], Credentials(NODE, AUTH, SECRET, SEED), **HEAD)
    stripped = both[:15] + (len(both) - 17 - 66).to_bytes(2) + both[17:-66]
    assert fault_of(stripped) is Fault.HMAC_MISMATCH, "to strip one changes the length"


def test_emm_8_nesting():
    jumbled = tlv(5, NODE) + tlv(0x12, b"x") + tlv(0x10, b"y") + tlv(3, NONCE) + tlv(1, b"\x01")
    straight = tlv(1, b"\x01") + tlv(3, NONCE) + tlv(5, NODE) + tlv(0x10, b"y") + tlv(0x12, b"x")
    said = sealed(jumbled)
    assert covered(said) == said[:17] + tlv(4, bytes(20)) + tlv(0x11, straight) + node
    opaque = packet(name + tlv(0x20, tlv(9) + tlv(1)))
    assert covered(opaque) == opaque, "an unknown field is never looked into"


def test_emm_9_duplicates():
    for kind, size in ((0x10, 32), (0x12, 64), (0x13, 32), (0x14, 16), (0x15, 8), (0x16, 12), (0x17, 16), (0x18, 4)):
        assert fault_of(packet(name + tlv(kind, bytes(size)) * 2)) is Fault.DUPLICATE_TLV
    assert fault_of(packet(name + metadata * 2, flags=2)) is Fault.DUPLICATE_TLV
    assert fault_of(packet(name * 2 + tlv(0x20) * 2 + tlv(0x19) * 2 + tlv(0x0F) * 2)) is None
    for kind in range(1, 6):
        assert fault_of(sealed(tlv(kind, b"\1") * 2)) is Fault.DUPLICATE_SUB_TLV
    assert fault_of(sealed(subs + tlv(9) * 2)) is None


def test_emm_10_long_values():
    for size in (254, 255, 256, 510):
        value = bytes(size)
        said = decode(build(3, [text("n"), binary(value)], **HEAD))
        assert joined(said.fields) == [text("n"), binary(value)]
        assert len(said.fields) == 2 + size // 255
    open_ended = packet(name + tlv(4, bytes(255)))
    assert joined(decode(open_ended).fields)[1] == binary(bytes(255))
    assert scanned(open_ended).row[ODDITIES] == ODD_OPEN
    assert fault_of(packet(tlv(1, b"x" * 254 + b"\xc3") + tlv(1, b"\xa9"))) is None, "UTF-8 is checked after joining"
    with pytest.raises(LocalProtocolError):
        build(3, [text("n"), Field(0x11, bytes(256))], **HEAD)


def test_emm_11_value_checks():
    for kind, size in ((2, 4), (3, 4), (0x10, 32), (0x12, 64), (0x13, 32), (0x14, 16), (0x15, 8), (0x16, 12), (0x17, 16), (0x18, 4)):
        for wrong in (size - 1, size + 1, 0):
            assert fault_of(packet(name + tlv(kind, bytes(wrong)))) is Fault.FIELD_LENGTH
    assert fault_of(packet(name + tlv(5, b"\xff"))) is Fault.INVALID_UTF8
    assert fault_of(packet(name + tlv(5, b"[1]"))) is None, "an application sees that itself"
    with pytest.raises(DecodeError):
        parse_json(b"[1]")


def test_emm_12_flag_and_metadata():
    assert fault_of(packet(name, flags=2)) is Fault.ENC_METADATA_MISSING
    assert fault_of(packet(name + metadata)) is Fault.ENC_FLAG_MISSING


def test_emm_13_encrypted_payload():
    hidden = Sealer(SECRET).seal([text("n")], NONCE, event_type=3, **HEAD)
    said = build(3, hidden.fields, Credentials(NODE, AUTH, SECRET), flags=hidden.flags, **HEAD)
    assert [field.type for field in decode(said).fields] == [4, 0x11, 0x14, 0x18, 0x10]
    assert unseal(judged(said).message, {NODE: SECRET}) == (text("n"),)
    with pytest.raises(DecodeError) as caught:
        unseal(decode(said[:4] + bytes((said[4] ^ 1,)) + said[5:]), {NODE: SECRET})
    assert caught.value.fault is Fault.DECRYPTION_FAILED, "the header is authenticated"


def test_emm_14_compressed_payload():
    packed = compress([text("n"), binary(b"x" * 200)])
    said = build(3, packed.fields, flags=packed.flags, **HEAD)
    assert len(said) < 60
    assert unseal(decode(said), {}) == (text("n"), binary(b"x" * 200))
    bomb = compress([text("n"), *[binary(bytes(34_000))] * 2])
    with pytest.raises(DecodeError) as caught:
        unseal(decode(build(3, bomb.fields, flags=4, **HEAD)), {})
    assert caught.value.fault is Fault.INFLATED_OVER_LIMIT


def test_emm_15_algorithms():
    assert fault_of(sealed(subs + tlv(2, b"\x0c"))) is None
    assert fault_of(sealed(CHACHA)) is None
    assert fault_of(sealed(tlv(1, b"\x01") + tlv(3, bytes(16)))) is Fault.ENC_ALGORITHM_IV
    assert fault_of(sealed(tlv(1, b"\x01") + tlv(4, NONCE))) is Fault.ENC_ALGORITHM_IV
    assert fault_of(sealed(tlv(1, b"\x02") + tlv(3, NONCE))) is Fault.ENC_ALGORITHM_IV
    assert fault_of(sealed(CHACHA + tlv(2, b"\x0c"))) is Fault.ENC_IV_LENGTH_MISMATCH
    assert fault_of(sealed(subs + tlv(2, b"\x0d"))) is Fault.ENC_IV_LENGTH_MISMATCH
    assert fault_of(sealed(subs + tlv(2, b"\x8c"))) is Fault.ENC_LENGTH_MSB
    for iv in (tlv(3, bytes(99)), tlv(4, NONCE)):
        assert fault_of(sealed(tlv(1, b"\x7f") + iv)) is None
    assert fault_of(sealed(tlv(1, b"\x7f"))) is Fault.ENC_NO_IV_OR_NONCE
    assert fault_of(sealed(tlv(1, b"\x7f") + tlv(3, NONCE) + tlv(4, NONCE))) is Fault.ENC_IV_AND_NONCE


def test_emm_16_nonce_and_key_id():
    assert fault_of(sealed(CHACHA, tlv(0x16, NONCE))) is None
    assert fault_of(sealed(CHACHA, tlv(0x16, bytes(12)))) is Fault.ENC_NONCE_CONFLICT
    assert fault_of(sealed(CHACHA + tlv(5, NODE), tlv(0x17, NODE))) is None
    assert fault_of(sealed(CHACHA + tlv(5, NODE), tlv(0x17, bytes(16)))) is Fault.ENC_KEY_ID_CONFLICT
    assert fault_of(packet(name + tlv(0x16, bytes(12)) + tlv(0x17, bytes(16)))) is None, "plain fields without metadata"


def test_emm_17_in_band_keys_must_be_trusted():
    mine = bytes(range(32))
    forged = build(3, [text("n")], Credentials(NODE, AUTH, seed=mine, with_public_key=True), **HEAD)
    assert fault_of(forged) is Fault.KEY_MISMATCH
    assert fault_of(forged, keys=TrustStore()) is Fault.UNTRUSTED_KEY
    assert judged(forged, policy=Policy(Trust.IN_BAND)).identity.trust is Trust.IN_BAND
    assert judged(forged, keys=TrustStore(), policy=Policy(Trust.FIRST_USE, lambda *_: True)).identity.trust is Trust.FIRST_USE


def test_emm_18_key_lookup():
    assert fault_of(maced(name + node, DEFAULT_SECRET)) is None
    assert fault_of(maced(name + node, DEFAULT_SECRET), keys=TrustStore([Key(NODE, AUTH, SECRET)])) is Fault.UNKNOWN_KEY
    assert fault_of(signed(name + node)) is Fault.UNKNOWN_KEY
    assert fault_of(maced(secret=DEFAULT_SECRET)) is Fault.HMAC_MISMATCH, "never another key after a mismatch"


def test_emm_19_node_id_with_proofs():
    assert fault_of(maced(name + auth)) is Fault.MISSING_NODE_ID
    assert fault_of(signed(name + auth)) is Fault.MISSING_NODE_ID


def test_emm_20_required_fields():
    caps, when = tlv(4, b""), tlv(0x15, bytes(8))
    for kind, needed in ((1, (node, caps)), (2, (node, when)), (3, (name,))):
        assert fault_of(packet(b"".join(needed), kind)) is None
        for missing in needed:
            rest = b"".join(one for one in needed if one is not missing)
            assert fault_of(packet(rest + tlv(0x20), kind)) is Fault.MISSING_REQUIRED_FIELD
            hidden = Fault.MISSING_REQUIRED_FIELD if missing in (node, when) else None
            assert fault_of(packet(rest + tlv(0x20), kind, flags=4)) is hidden
    long = decode(packet(tlv(1, b"a" * 255) + tlv(1, b"b") + tlv(1, b"c")))
    assert event_name(long.fields) == "a" * 255 + "b"


def test_emm_21_unknown_event_types():
    assert judged(packet(b"", 0x42)).message == Other(0x42, 0xDEADBEEF, MADE)


def test_emm_22_message_ids():
    ids = RecentIds()
    assert [ids.take(1, 0), ids.take(1, 420), ids.take(1, 421)] == [True, False, True]


def test_emm_23_replay_cache():
    assert fault_of(maced(), maced()) is Fault.REPLAY
    assert fault_of(packet(name + node), maced()) is None, "a forged copy in clear does not suppress the real one"
    assert fault_of(maced()[:-1] + b"\0", maced()) is None, "nor does one that fails"
    assert fault_of(packet(name), packet(name)) is Fault.REPLAY
    full = ReplayCache(1)
    full.admit(b"a", 0, 0)
    full.admit(b"b", 0, 0)
    assert full.evicted == 1
    closed = ReplayCache(1, fail_closed=True)
    closed.admit(b"a", 0, 0)
    assert closed.admit(b"b", 0, 0) is Fault.REPLAY_CACHE_FULL


def test_emm_24_freshness():
    assert fault_of(maced(made=NOW - 301)) is Fault.STALE
    assert fault_of(maced(made=NOW + 121)) is Fault.FUTURE
    assert fault_of(maced(name + node + tlv(0x15, NOW.to_bytes(8)) + auth, made=0)) is None
    assert fault_of(packet(name, made=0)) is None


def test_emm_25_retention():
    receiver = Receiver(store())
    ahead = maced(made=NOW + 120)
    assert isinstance(receiver.receive(ahead, NOW), Verified)
    assert receiver.receive(ahead, NOW + 420).fault is Fault.REPLAY
    assert receiver.receive(ahead, NOW + 421).fault is Fault.STALE


def test_emm_26_count():
    assert fault_of(packet(name + tlv(0x20) * 63)) is None
    assert fault_of(packet(name + tlv(0x20) * 64)) is Fault.TLV_COUNT
    assert fault_of(sealed(subs, tlv(0x20) * 59)) is None
    assert fault_of(sealed(subs, tlv(0x20) * 60)) is Fault.TLV_COUNT


def test_emm_27_both():
    both = build(3, [text("n")], Credentials(NODE, AUTH, SECRET, SEED), **HEAD)
    identity = judged(both).identity
    assert (identity.hmac, identity.signature, identity.auth_key_id) == (True, True, AUTH)
    wrong_twice = both[:-67] + bytes((both[-67] ^ 1,)) + both[-66:-1] + bytes((both[-1] ^ 1,))
    assert fault_of(wrong_twice) is Fault.HMAC_MISMATCH
    assert fault_of(both[:-1] + bytes((both[-1] ^ 1,))) is Fault.SIGNATURE_MISMATCH


def test_emm_28_order_of_checks():
    """The numbers of faults ascend in the order of checks; test_faults.py holds the scanner to it, test_verify.py the receiver."""
    stages = [
        *("SHORT_PACKET", "UNSUPPORTED_VERSION", "RESERVED_FLAGS", "PAYLOAD_TOO_LARGE", "LENGTH_MISMATCH", "TLV_OVERRUN", "TLV_COUNT"),
        *("DUPLICATE_TLV", "SIGNATURE_NOT_LAST", "FIELD_LENGTH", "INVALID_UTF8", "SUB_TLV_OVERRUN", "ENC_METADATA_MISSING"),
        *("MISSING_REQUIRED_FIELD", "MISSING_NODE_ID", "HMAC_MISMATCH", "SIGNATURE_MISMATCH", "STALE", "REPLAY"),
    ]
    assert stages == sorted(stages, key=lambda one: Fault[one])


def test_emm_30_rejections_say_nothing_on_the_wire():
    said = judged(b"\x01" * 60_000)
    assert (said.fault, said.node_id) == (Fault.LENGTH_MISMATCH, None)
    assert not hasattr(said, "reply")


def test_emm_31_minimum_interop_profile():
    profile = Limits(minimum_profile=True)
    assert fault_of(maced(), limits=profile) is None
    assert fault_of(signed(), limits=profile) is None
    for lacking in (maced(name + node, DEFAULT_SECRET), packet(name + node + auth)):
        assert fault_of(lacking, limits=profile) is Fault.PROFILE_FIELD_MISSING
    assert (
        fault_of(packet(auth + tlv(0x10, bytes(32)), size=40)[:17] + auth + tlv(0x10, bytes(32)), limits=profile)
        is Fault.MISSING_REQUIRED_FIELD
    )
    assert fault_of(maced(name + auth + node), limits=profile) is Fault.PROFILE_ORDER


def test_emm_32_keys():
    with pytest.raises(LocalProtocolError):
        TrustStore([Key(NODE, AUTH, bytes(15))])
    with pytest.raises(LocalProtocolError):
        TrustStore([Key(NODE, AUTH, public_key=bytes(32))])
    small = packet(name + node + tlv(0x13, bytes(32)) + tlv(0x12, bytes(64)))
    assert fault_of(small, policy=Policy(Trust.IN_BAND)) is Fault.WEAK_KEY


def test_emm_32_comparison_is_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append((one, other)) or one == other)
    assert fault_of(maced()) is None
    right = hmac.new(SECRET, maced()[:-34], hashlib.sha256).digest()
    assert compared == [(right, right)] * 2


def test_emm_33_what_the_text_leaves_out():
    lone = packet(name + tlv(0x13, PUBLIC))
    assert fault_of(lone) is None
    assert scanned(lone).row[ODDITIES] == ODD_KEY
    assert fault_of(packet(tlv(4, b"\0any\xff") + node, 1)) is None, "capabilities are opaque"


def test_every_ruling_has_its_test():
    tested = {int(one) for one in re.findall(r"def test_emm_(\d+)_", Path(__file__).read_text())}
    assert set(range(1, 34)) - tested == {29}, "relaying is the node's"
