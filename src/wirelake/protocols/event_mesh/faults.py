"""The faults of Event Mesh: every rule that can be broken, with clause and text.

The numbers ascend in the order of checks of EMM-28: of two faults of one packet, the smaller is reported. A fault that is not tolerated
makes a receiver drop the packet, without an answer on the wire (EMM-30).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wirelake.protocols.faults import Faults, Origin

__all__ = ["BREACHES", "TOLERATED", "UNREADABLE", "Fault"]


class Rule(NamedTuple):
    """One row of the table of faults below."""

    clause: str
    text: str
    origin: Origin = Origin.TEXT
    """See `Origin`."""


class Fault(Faults):
    """The broken rules of Event Mesh; 0 in a scanner's row means none."""

    # The envelope: there is no telling what is in it.
    SHORT_PACKET = 1
    UNSUPPORTED_VERSION = 2
    RESERVED_FLAGS = 3
    PAYLOAD_TOO_LARGE = 4
    LENGTH_MISMATCH = 5
    TLV_OVERRUN = 6
    TLV_COUNT = 7

    # The fields: each can be read, but they may not be so.
    DUPLICATE_TLV = 10
    SIGNATURE_NOT_LAST = 11
    HMAC_POSITION = 12
    FIELD_LENGTH = 13
    INVALID_UTF8 = 14

    # Encryption metadata.
    SUB_TLV_OVERRUN = 20
    DUPLICATE_SUB_TLV = 21
    SUB_FIELD_LENGTH = 22
    ENC_NO_ALGORITHM = 23
    ENC_IV_AND_NONCE = 24
    ENC_NO_IV_OR_NONCE = 25
    ENC_LENGTH_MSB = 26
    ENC_IV_LENGTH_MISMATCH = 27
    ENC_ALGORITHM_IV = 28
    ENC_NONCE_CONFLICT = 29
    ENC_KEY_ID_CONFLICT = 30
    ENC_METADATA_MISSING = 31
    ENC_FLAG_MISSING = 32

    # What must be there.
    MISSING_REQUIRED_FIELD = 33
    MISSING_NODE_ID = 34
    PROFILE_FIELD_MISSING = 35
    PROFILE_ORDER = 36

    # Trust: what keys, clocks and memory say.
    NOT_AUTHENTICATED = 40
    UNKNOWN_KEY = 41
    REVOKED_KEY = 42
    WEAK_KEY = 43
    HMAC_MISMATCH = 44
    UNTRUSTED_KEY = 45
    KEY_MISMATCH = 46
    SIGNATURE_MISMATCH = 47
    STALE = 48
    FUTURE = 49
    REPLAY = 50
    REPLAY_CACHE_FULL = 51

    # Sealed payloads, and values that are looked into only when asked for.
    UNDECRYPTABLE = 60
    DECRYPTION_FAILED = 61
    SEALED_CARRIAGE = 62
    DEFLATE_INVALID = 63
    INFLATED_OVER_LIMIT = 64
    SECURITY_FIELD_SEALED = 65
    JSON_INVALID = 66

    # Ours alone: what may not be built.
    FIELD_OUT_OF_RANGE = 80
    REKEY_NEEDED = 81
    QUEUE_FULL = 82

    # Tolerated on receipt, never sent.
    FIELDS_OUT_OF_ORDER = 90
    VALUE_UNTERMINATED = 91
    KEY_WITHOUT_SIGNATURE = 92

    @property
    def rule(self) -> Rule:
        """The row of the table for this fault."""
        return RULES[self]


RULES: Final[dict[Fault, Rule]] = {
    Fault.SHORT_PACKET: Rule("§2.1", "a packet has a header of 17 bytes"),
    Fault.UNSUPPORTED_VERSION: Rule("EMM-2", "the only version is 1"),
    Fault.RESERVED_FLAGS: Rule("EMM-3", "reserved flags are set"),
    Fault.PAYLOAD_TOO_LARGE: Rule("EMM-4", "the payload is over the limit"),
    Fault.LENGTH_MISMATCH: Rule("EMM-4", "the datagram is not as long as its header says"),
    Fault.TLV_OVERRUN: Rule("§6.3", "a field ends after its payload"),
    Fault.TLV_COUNT: Rule("EMM-26", "too many fields"),
    Fault.DUPLICATE_TLV: Rule("EMM-9", "a field that may be there once is there twice"),
    Fault.SIGNATURE_NOT_LAST: Rule("EMM-6", "the signature is not the last field"),
    Fault.HMAC_POSITION: Rule("EMM-6", "the HMAC is neither last nor directly before a last signature"),
    Fault.FIELD_LENGTH: Rule("EMM-11", "a field of fixed length has another"),
    Fault.INVALID_UTF8: Rule("EMM-11", "a string or JSON field is not UTF-8"),
    Fault.SUB_TLV_OVERRUN: Rule("§4.2.1", "a field inside encryption metadata ends after it"),
    Fault.DUPLICATE_SUB_TLV: Rule("EMM-9", "a field of encryption metadata is there twice", origin=Origin.RULING),
    Fault.SUB_FIELD_LENGTH: Rule("§4.2.1", "a field of encryption metadata of fixed length has another"),
    Fault.ENC_NO_ALGORITHM: Rule("§4.2.1", "encryption metadata names no algorithm"),
    Fault.ENC_IV_AND_NONCE: Rule("§4.2.1", "encryption metadata has both IV and nonce"),
    Fault.ENC_NO_IV_OR_NONCE: Rule("§4.2.1", "encryption metadata has neither IV nor nonce"),
    Fault.ENC_LENGTH_MSB: Rule("§4.2.1", "the first bit of the IV's announced length is reserved"),
    Fault.ENC_IV_LENGTH_MISMATCH: Rule("EMM-15", "the IV is not as long as announced"),
    Fault.ENC_ALGORITHM_IV: Rule("EMM-15", "this is not the IV or nonce the algorithm needs"),
    Fault.ENC_NONCE_CONFLICT: Rule("EMM-16", "the nonce differs from that of the encryption metadata", origin=Origin.RULING),
    Fault.ENC_KEY_ID_CONFLICT: Rule("EMM-16", "the key identifier differs from that of the encryption metadata", origin=Origin.RULING),
    Fault.ENC_METADATA_MISSING: Rule("EMM-12", "the encryption flag is set without encryption metadata"),
    Fault.ENC_FLAG_MISSING: Rule("EMM-12", "encryption metadata without the encryption flag", origin=Origin.RULING),
    Fault.MISSING_REQUIRED_FIELD: Rule("EMM-20", "a field this event type requires is missing"),
    Fault.MISSING_NODE_ID: Rule("EMM-19", "HMAC or signature without a node id"),
    Fault.PROFILE_FIELD_MISSING: Rule("EMM-31", "a field the minimum interop profile requires is missing"),
    Fault.PROFILE_ORDER: Rule("EMM-31", "the fields are not in the order of the minimum interop profile"),
    Fault.NOT_AUTHENTICATED: Rule("§5.3", "the policy here asks for an HMAC or a signature", origin=Origin.LOCAL),
    Fault.UNKNOWN_KEY: Rule("EMM-18", "no key is known for this node and key id", origin=Origin.LOCAL),
    Fault.REVOKED_KEY: Rule("EMM-18", "the key was revoked", origin=Origin.LOCAL),
    Fault.WEAK_KEY: Rule("EMM-32", "the key is too weak to prove anything", origin=Origin.RULING),
    Fault.HMAC_MISMATCH: Rule("§5.1", "the HMAC is wrong"),
    Fault.UNTRUSTED_KEY: Rule("EMM-17", "the packet's own public key is vouched for by nothing here", origin=Origin.RULING),
    Fault.KEY_MISMATCH: Rule("EMM-17", "the packet's own public key is not the one known for its node", origin=Origin.RULING),
    Fault.SIGNATURE_MISMATCH: Rule("§5.3", "the signature is wrong"),
    Fault.STALE: Rule("EMM-24", "the packet is older than the replay window", origin=Origin.RULING),
    Fault.FUTURE: Rule("EMM-24", "the packet is from the future", origin=Origin.RULING),
    Fault.REPLAY: Rule("EMM-23", "this message id was seen from this node before"),
    Fault.REPLAY_CACHE_FULL: Rule("EMM-23", "no room to remember one more packet", origin=Origin.LIMIT),
    Fault.UNDECRYPTABLE: Rule("EMM-15", "no key or algorithm here opens this payload", origin=Origin.LOCAL),
    Fault.DECRYPTION_FAILED: Rule("EMM-13", "the payload was not sealed with this key, or was changed", origin=Origin.RULING),
    Fault.SEALED_CARRIAGE: Rule("EMM-13", "a sealed payload travels in exactly one binary value", origin=Origin.RULING),
    Fault.DEFLATE_INVALID: Rule("EMM-14", "the payload is not valid zlib", origin=Origin.RULING),
    Fault.INFLATED_OVER_LIMIT: Rule("EMM-14", "the decompressed payload is over the limit", origin=Origin.LIMIT),
    Fault.SECURITY_FIELD_SEALED: Rule("EMM-13", "security fields travel in clear", origin=Origin.RULING),
    Fault.JSON_INVALID: Rule("EMM-11", "the value is not a JSON object"),
    Fault.FIELD_OUT_OF_RANGE: Rule("EMM-1", "a value that its field cannot hold"),
    Fault.REKEY_NEEDED: Rule("EMM-13", "this key sealed as many payloads as it may", origin=Origin.LIMIT),
    Fault.QUEUE_FULL: Rule("§2.3", "no more packets may wait to be sent", origin=Origin.LIMIT),
    Fault.FIELDS_OUT_OF_ORDER: Rule("EMM-5", "the fields are not in the order senders keep"),
    Fault.VALUE_UNTERMINATED: Rule("EMM-10", "a value of full pieces does not end with a shorter one", origin=Origin.RULING),
    Fault.KEY_WITHOUT_SIGNATURE: Rule("EMM-33", "a public key without a signature means nothing", origin=Origin.RULING),
}
"""fault -> clause and sentence."""

UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.DUPLICATE_TLV)
"""Faults of the envelope: there are no fields to hand on."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.FIELDS_OUT_OF_ORDER)
"""Faults that are written down and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of packets whose fields can be read, and of what we were asked to build."""
