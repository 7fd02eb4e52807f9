"""The faults of Event Mesh: every rule that can be broken, with clause and text.

The numbers ascend in the order of checks of EMM-28: of two faults of one packet, the smaller is reported. A fault that is not tolerated
makes a receiver drop the packet, without an answer on the wire (EMM-30). Threats are faults of proofs, time, repetition and size (§5, §6).
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.faults import LIMIT, LOCAL, MAY, MUST, RULING, SHOULD, TEXT, Faults, Rule, Threat

__all__ = ["BREACHES", "TOLERATED", "UNREADABLE", "Fault"]

_SEALED: Final = "delivers it sealed"
_PROFILE: Final = "how a sealed or packed payload travels is a profile that applications may leave; nothing on the wire names it"


class Fault(Faults):
    """The broken rules of Event Mesh; 0 in a scanner's row means none."""

    # The envelope: there is no telling what is in it.
    SHORT_PACKET = Rule(1, "§2.1", "a packet has a header of 17 bytes", TEXT, MUST)
    UNSUPPORTED_VERSION = Rule(2, "EMM-2", "the only version is 1", TEXT, MUST)
    RESERVED_FLAGS = Rule(3, "EMM-3", "reserved flags are set", TEXT, MUST)
    PAYLOAD_TOO_LARGE = Rule(4, "EMM-4", "the payload is over the limit", TEXT, MUST, threat=Threat.BOMB)
    LENGTH_MISMATCH = Rule(5, "EMM-4", "the datagram is not as long as its header says", TEXT, MUST)
    TLV_OVERRUN = Rule(6, "§6.3", "a field ends after its payload", TEXT, MUST)
    TLV_COUNT = Rule(7, "EMM-26", "too many fields", TEXT, MUST, threat=Threat.BOMB)

    # The fields: each can be read, but they may not be so.
    DUPLICATE_TLV = Rule(10, "EMM-9", "a field that may be there once is there twice", TEXT, MUST)
    SIGNATURE_NOT_LAST = Rule(11, "EMM-6", "the signature is not the last field", TEXT, MUST)
    HMAC_POSITION = Rule(12, "EMM-6", "the HMAC is neither last nor directly before a last signature", TEXT, MUST)
    FIELD_LENGTH = Rule(13, "EMM-11", "a field of fixed length has another", TEXT, MUST)
    INVALID_UTF8 = Rule(14, "EMM-11", "a string or JSON field is not UTF-8", TEXT, MUST)

    # Encryption metadata.
    SUB_TLV_OVERRUN = Rule(20, "§4.2.1", "a field inside encryption metadata ends after it", TEXT, MUST)
    DUPLICATE_SUB_TLV = Rule(21, "EMM-9", "a field of encryption metadata is there twice", RULING, MAY)
    SUB_FIELD_LENGTH = Rule(22, "§4.2.1", "a field of encryption metadata of fixed length has another", TEXT, MUST)
    ENC_NO_ALGORITHM = Rule(23, "§4.2.1", "encryption metadata names no algorithm", TEXT, MUST)
    ENC_IV_AND_NONCE = Rule(24, "§4.2.1", "encryption metadata has both IV and nonce", TEXT, MUST)
    ENC_NO_IV_OR_NONCE = Rule(25, "§4.2.1", "encryption metadata has neither IV nor nonce", TEXT, MUST)
    ENC_LENGTH_MSB = Rule(26, "§4.2.1", "the first bit of the IV's announced length is reserved", TEXT, MUST)
    ENC_IV_LENGTH_MISMATCH = Rule(27, "EMM-15", "the IV is not as long as announced", TEXT, MUST)
    ENC_ALGORITHM_IV = Rule(28, "EMM-15", "this is not the IV or nonce the algorithm needs", TEXT, MUST)
    ENC_NONCE_CONFLICT = Rule(29, "EMM-16", "the nonce differs from that of the encryption metadata", RULING, MAY)
    ENC_KEY_ID_CONFLICT = Rule(30, "EMM-16", "the key identifier differs from that of the encryption metadata", RULING, MAY)
    ENC_METADATA_MISSING = Rule(31, "EMM-12", "the encryption flag is set without encryption metadata", TEXT, MUST)
    ENC_FLAG_MISSING = Rule(32, "EMM-12", "encryption metadata without the encryption flag", RULING, MAY)

    # What must be there.
    MISSING_REQUIRED_FIELD = Rule(33, "EMM-20", "a field this event type requires is missing", TEXT, MUST)
    MISSING_NODE_ID = Rule(34, "EMM-19", "HMAC or signature without a node id", TEXT, MUST)
    PROFILE_FIELD_MISSING = Rule(
        35,
        "EMM-31",
        "a field the minimum interop profile requires is missing",
        LOCAL,
        MAY,
        unseen="found only if the limit `minimum_profile` is set",
    )
    PROFILE_ORDER = Rule(
        36,
        "EMM-31",
        "the fields are not in the order of the minimum interop profile",
        LOCAL,
        MAY,
        unseen="found only if the limit `minimum_profile` is set",
    )

    # Trust: what keys, clocks and memory say.
    NOT_AUTHENTICATED = Rule(
        40,
        "§5.3",
        "the policy here asks for an HMAC or a signature",
        LOCAL,
        MAY,
        unseen="which packets need a proof is the receiver's own policy",
    )
    UNKNOWN_KEY = Rule(41, "EMM-18", "no key is known for this node and key id", LOCAL, MAY, threat=Threat.UNTRUSTED, by_keys=True)
    REVOKED_KEY = Rule(42, "EMM-18", "the key was revoked", LOCAL, MAY, threat=Threat.UNTRUSTED, by_keys=True)
    WEAK_KEY = Rule(43, "EMM-32", "the key is too weak to prove anything", RULING, MAY, threat=Threat.UNTRUSTED, by_keys=True)
    HMAC_MISMATCH = Rule(44, "§5.1", "the HMAC is wrong", TEXT, MUST, threat=Threat.FORGED, by_keys=True)
    UNTRUSTED_KEY = Rule(
        45, "EMM-17", "the packet's own public key is vouched for by nothing here", RULING, MAY, threat=Threat.UNTRUSTED, by_keys=True
    )
    KEY_MISMATCH = Rule(
        46, "EMM-17", "the packet's own public key is not the one known for its node", RULING, MAY, threat=Threat.UNTRUSTED, by_keys=True
    )
    SIGNATURE_MISMATCH = Rule(47, "§5.3", "the signature is wrong", TEXT, MUST, threat=Threat.FORGED, by_keys=True)
    STALE = Rule(48, "EMM-24", "the packet is older than the replay window", RULING, MAY, threat=Threat.STALE, by_keys=True)
    FUTURE = Rule(49, "EMM-24", "the packet is from the future", RULING, MAY, threat=Threat.STALE, by_keys=True)
    REPLAY = Rule(50, "EMM-23", "this message id was seen from this node before", TEXT, MUST, threat=Threat.REPLAYED, by_keys=True)
    REPLAY_CACHE_FULL = Rule(
        51,
        "EMM-23",
        "no room to remember one more packet",
        LIMIT,
        MAY,
        unseen="the size of a replay cache is its receiver's own setting; the lake has no such limit",
    )

    # Sealed payloads, and values that are looked into only when asked for.
    UNDECRYPTABLE = Rule(
        60,
        "EMM-15",
        "no key or algorithm here opens this payload",
        LOCAL,
        MAY,
        live_peer=_SEALED,
        unseen="which encryption keys a receiver has is its own affair",
    )
    DECRYPTION_FAILED = Rule(
        61,
        "EMM-13",
        "the payload was not sealed with this key, or was changed",
        RULING,
        MAY,
        threat=Threat.FORGED,
    )
    SEALED_CARRIAGE = Rule(
        62,
        "EMM-13",
        "a sealed payload travels in exactly one binary value",
        RULING,
        MAY,
        live_peer=_SEALED,
        unseen=_PROFILE,
    )
    DEFLATE_INVALID = Rule(
        63,
        "EMM-14",
        "the payload is not valid zlib",
        RULING,
        MAY,
        live_peer=_SEALED,
        unseen=_PROFILE,
    )
    INFLATED_OVER_LIMIT = Rule(
        64,
        "EMM-14",
        "the decompressed payload is over the limit",
        LIMIT,
        MAY,
        threat=Threat.BOMB,
    )
    SECURITY_FIELD_SEALED = Rule(65, "EMM-13", "security fields travel in clear", RULING, MAY)
    JSON_INVALID = Rule(66, "EMM-11", "the value is not a JSON object", TEXT, MUST)

    # Ours alone: what may not be built.
    FIELD_OUT_OF_RANGE = Rule(80, "EMM-1", "a value that its field cannot hold", TEXT, MUST, unseen="refused before anything is sent")
    REKEY_NEEDED = Rule(81, "EMM-13", "this key sealed as many payloads as it may", LIMIT, MAY, unseen="refused before anything is sent")
    QUEUE_FULL = Rule(82, "§2.3", "no more packets may wait to be sent", LIMIT, MAY, unseen="refused before anything is sent")

    # Tolerated on receipt, never sent.
    FIELDS_OUT_OF_ORDER = Rule(90, "EMM-5", "the fields are not in the order senders keep", TEXT, SHOULD)
    VALUE_UNTERMINATED = Rule(91, "EMM-10", "a value of full pieces does not end with a shorter one", RULING, MAY)
    KEY_WITHOUT_SIGNATURE = Rule(92, "EMM-33", "a public key without a signature means nothing", RULING, MAY)


UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.DUPLICATE_TLV)
"""Faults of the envelope: there are no fields to hand on."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.FIELDS_OUT_OF_ORDER)
"""Faults that are written down and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of packets whose fields can be read, and of what we were asked to build."""
