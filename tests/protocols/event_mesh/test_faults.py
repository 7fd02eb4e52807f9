"""Every fault there is can happen, has its clause and its sentence, and stands where EMM-28 puts it."""

from __future__ import annotations

import itertools

from tests.cases import each
from tests.protocols.event_mesh import scanning
from tests.protocols.event_mesh.speech import NODE, NONCE, auth, name, node, packet, subs, tlv

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import Limits

hmac, signature = tlv(0x10, bytes(32)), tlv(0x12, bytes(64))
PROFILE = Limits(minimum_profile=True)


def inside(*parts: bytes, more: bytes = b"") -> bytes:
    return packet(name + tlv(0x11, b"".join(parts)) + more, flags=2)


BY_FORM = {
    Fault.SHORT_PACKET: packet(name)[:16],
    Fault.UNSUPPORTED_VERSION: packet(name, version=2),
    Fault.RESERVED_FLAGS: packet(name, flags=0x40),
    Fault.PAYLOAD_TOO_LARGE: packet(tlv(4, bytes(255)) * 3),
    Fault.LENGTH_MISMATCH: packet(name) + b"\0",
    Fault.TLV_OVERRUN: packet(name + b"\x04\x01"),
    Fault.TLV_COUNT: packet(name + tlv(0x20) * 64),
    Fault.DUPLICATE_TLV: packet(name + auth + auth),
    Fault.SIGNATURE_NOT_LAST: packet(name + node + signature + auth),
    Fault.HMAC_POSITION: packet(name + node + hmac + auth),
    Fault.FIELD_LENGTH: packet(name + tlv(0x17, b"x")),
    Fault.INVALID_UTF8: packet(tlv(1, b"\xc0\x80")),
    Fault.SUB_TLV_OVERRUN: inside(b"\x01"),
    Fault.DUPLICATE_SUB_TLV: inside(tlv(1, b"\x01"), subs),
    Fault.SUB_FIELD_LENGTH: inside(tlv(1, b"\x01\x01")),
    Fault.ENC_NO_ALGORITHM: inside(tlv(3, NONCE)),
    Fault.ENC_IV_AND_NONCE: inside(subs, tlv(4, NONCE)),
    Fault.ENC_NO_IV_OR_NONCE: inside(tlv(1, b"\x01")),
    Fault.ENC_LENGTH_MSB: inside(subs, tlv(2, b"\x8c")),
    Fault.ENC_IV_LENGTH_MISMATCH: inside(tlv(1, b"\x02"), tlv(2, b"\x0c"), tlv(4, NONCE)),
    Fault.ENC_ALGORITHM_IV: inside(tlv(1, b"\x01"), tlv(4, NONCE)),
    Fault.ENC_NONCE_CONFLICT: inside(tlv(1, b"\x02"), tlv(4, NONCE), more=tlv(0x16, bytes(12))),
    Fault.ENC_KEY_ID_CONFLICT: inside(subs, tlv(5, NODE), more=tlv(0x17, bytes(16))),
    Fault.ENC_METADATA_MISSING: packet(name, flags=2),
    Fault.ENC_FLAG_MISSING: packet(name + tlv(0x11, subs)),
    Fault.MISSING_REQUIRED_FIELD: packet(node, 2),
    Fault.MISSING_NODE_ID: packet(name + hmac),
    Fault.PROFILE_FIELD_MISSING: packet(name + node + hmac),
    Fault.PROFILE_ORDER: packet(node + name + auth + hmac),
}
"""A packet for every fault the scanner finds; the trust's are in test_verify.py, the sealing's in test_sealing.py."""


@each("fault", BY_FORM, ids=lambda fault: fault.name)
def test_every_fault_of_form_is_found(fault):
    limits = PROFILE if fault in (Fault.PROFILE_FIELD_MISSING, Fault.PROFILE_ORDER) else Limits()
    assert scanning.fault_of(BY_FORM[fault], limits) is fault


def test_the_scanner_has_a_packet_for_each_of_its_faults():
    assert list(BY_FORM) == [fault for fault in Fault if fault < Fault.NOT_AUTHENTICATED]


SNIPPETS = {
    Fault.DUPLICATE_TLV: auth + auth,
    Fault.FIELD_LENGTH: tlv(0x02, b"x"),
    Fault.INVALID_UTF8: tlv(5, b"\xff"),
    Fault.ENC_NO_ALGORITHM: tlv(0x11, tlv(3, NONCE)),
    Fault.MISSING_REQUIRED_FIELD: tlv(0x20),
    Fault.HMAC_POSITION: hmac + tlv(0x21),
    Fault.SIGNATURE_NOT_LAST: signature + tlv(0x22),
    Fault.TLV_OVERRUN: b"\x20\xff",
}
"""Fields that break one rule, whatever is before and after them; all of a packet of no name."""


@each("chosen", list(itertools.combinations(SNIPPETS, 2)), ids=lambda pair: "-".join(one.name for one in pair))
def test_of_two_faults_the_first_by_emm_28_is_reported(chosen):
    for order in (chosen, chosen[::-1]):
        if order[0] is Fault.TLV_OVERRUN:
            continue
        said = packet(b"".join(SNIPPETS[one] for one in order), flags=2)
        assert scanning.fault_of(said) is min(chosen)


def test_a_reason_is_the_name_of_its_fault():
    assert Fault.SHORT_PACKET.reason == "short-packet"
