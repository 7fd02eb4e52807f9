"""One vector of event-mesh.json: judged with its keys, clock and policy, in both forms of the scanner; accepted or refused as it says."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.conformance.mesh_values import check_lengths, check_values, same_bytes
from tests.conformance.reading import LABELS, Unmapped, keys, octets, same

from wirelake.errors import LocalProtocolError
from wirelake.protocols import kernel
from wirelake.protocols.event_mesh.faults import UNREADABLE, Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS
from wirelake.protocols.event_mesh.messages import Field, FieldType, Flag, SubType
from wirelake.protocols.event_mesh.packet import builder, values
from wirelake.protocols.event_mesh.scanner import PART_COLUMNS, ROW_COLUMNS, scan, walk
from wirelake.protocols.event_mesh.security import encryption
from wirelake.protocols.event_mesh.security.canonical import canonical
from wirelake.protocols.event_mesh.security.trust import Key, Policy, Trust, TrustStore
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected, Verified
from wirelake.protocols.event_mesh.wire import encode, message
from wirelake.protocols.kernel import FAULT, compiled

HEADER = {"version", "message_id", "flags", "event_type", "timestamp", "payload_length", "authenticated"}
FIELDS = {"tlvs", "types"}
"""The fields in wire order, with their values or only their types: at least one of the two."""
AFTER_JOINING = {"joined_binary", "joined_string_length_bytes", "strings", "values"}
MORE = FIELDS | AFTER_JOINING | {"canonical_bytes", "trust", "plaintext_tlvs", "aad", "profile"}
PROFILES = {"EMM-13": Flag.ENCRYPTED, "EMM-14": Flag.COMPRESSED, "EMM-13+14": Flag.ENCRYPTED | Flag.COMPRESSED}
"""Profile -> the flags that a packet of it has."""
WORDS = {
    Fault.UNSUPPORTED_VERSION: {"bad-version", "version", "invalid-version", "unknown-version", "version-mismatch"},
    Fault.DUPLICATE_SUB_TLV: {"sub-tlv-duplicate", "enc-duplicate-sub-tlv", "sub-duplicate"},
    Fault.ENC_NO_ALGORITHM: {"enc-algorithm-missing", "enc-missing-algorithm"},
    Fault.ENC_NONCE_CONFLICT: {"nonce-conflict"},
    Fault.ENC_IV_LENGTH_MISMATCH: {"enc-length-without-iv"},
    Fault.WEAK_KEY: {"small-order-key"},
}
"""Faults for whose reason no vector here has the word -> what else it may be called. No fault of ours has any of these words."""
WEAK = {Fault.WEAK_KEY, Fault.SIGNATURE_MISMATCH, Fault.UNTRUSTED_KEY, Fault.UNKNOWN_KEY}
"""What a weak key may be refused for: EMM-28 lists no check for it, so each of these checks may be the one that finds it."""
FREED = {Fault.UNKNOWN_KEY, Fault.UNTRUSTED_KEY, Fault.KEY_MISMATCH}
"""What a packet is dropped for whose key was too weak to be stored."""
REASONS = {fault.reason: fault for fault in Fault}
TRUST = {None: Trust.NONE, "none": Trust.NONE, "store": Trust.STORE, "in-band": Trust.IN_BAND, "first-use": Trust.FIRST_USE}
FIRST_USE = ("first-use", "tofu")


def run(vector: Any) -> None:
    """Hold one vector, with the scanner as it stands and compiled."""
    if not isinstance(vector, dict) or vector.get("expect") not in ("ok", "reject"):
        raise Unmapped(f"expect neither ok nor reject: {vector!r}")
    keys("vector", vector, {"hex", "expect", "keys", "fields", "reason"}, LABELS | {"prior"})
    data = octets("hex", vector["hex"])
    switch = kernel._use_compiled
    try:
        for kernel._use_compiled in (False, True):
            receiver, now, is_weak = set_up(vector["keys"])
            for prior in vector.get("prior", []):
                receiver.receive(octets("prior", prior), now, b"somewhere")
            said = receiver.receive(data, now, b"somewhere")
            if vector["expect"] == "ok":
                accept(said, data, vector)
            else:
                refuse(said, vector, is_weak)
    finally:
        kernel._use_compiled = switch


def set_up(given: Any) -> tuple[Receiver, float, bool]:
    """A receiver that knows what `keys` says; and whether a key was too weak for it."""
    keys("keys", given, {"hmac", "ed25519", "enc", "now", "policy"})
    merged: dict[tuple[bytes, bytes | None], dict[str, bytes]] = {}
    for one in given["hmac"]:
        keys("hmac", one, {"node_id", "auth_key_id", "secret"})
        merged.setdefault(pair(one), {})["secret"] = octets("secret", one["secret"])
    for one in given["ed25519"]:
        keys("ed25519", one, {"node_id", "auth_key_id", "public"}, {"seed"})
        merged.setdefault(pair(one), {})["public_key"] = octets("public", one["public"])
        if "seed" in one:
            assert Ed25519PrivateKey.from_private_bytes(octets("seed", one["seed"])).public_key().public_bytes_raw().hex() == one["public"]
    for one in given["enc"]:
        keys("enc", one, {"key_id", "key"})
    store, is_weak = TrustStore(), False
    for (node_id, auth_key_id), found in merged.items():
        try:
            store.add(Key(node_id, auth_key_id, **found))
        except LocalProtocolError as reason:
            if reason.fault is not Fault.WEAK_KEY:
                raise
            is_weak = True
    return Receiver(store, policy(given["policy"])), given["now"], is_weak


def pair(one: dict[str, Any]) -> tuple[bytes, bytes | None]:
    auth_key_id = one["auth_key_id"]
    return octets("node_id", one["node_id"]), None if auth_key_id is None else octets("auth_key_id", auth_key_id)


def policy(given: Any) -> Policy:
    keys("policy", given, {"trust", "freshness"})
    if not isinstance(given["freshness"], bool):
        raise Unmapped(f"freshness {given['freshness']!r}")
    if given["trust"] in FIRST_USE:
        return Policy(Trust.FIRST_USE, lambda *_: True, freshness=given["freshness"])
    if given["trust"] not in ("store", "in-band"):
        raise Unmapped(f"trust {given['trust']!r}")
    return Policy(Trust(given["trust"]), freshness=given["freshness"])


# What is accepted.


def accept(said: Verified | Rejected, data: bytes, vector: dict[str, Any]) -> None:
    fields = vector["fields"]
    keys("fields", fields, HEADER, MORE)
    assert vector["reason"] is None
    assert isinstance(said, Verified), said
    found = said.message
    header = {"version": data[0], "message_id": f"{found.message_id:08x}", "flags": found.flags, "timestamp": found.timestamp}
    header |= {"event_type": values.event_type(found), "payload_length": len(data) - 17}
    header |= {"authenticated": said.identity.authenticated}
    assert same(header, {key: fields[key] for key in HEADER})
    if not FIELDS & set(fields):
        raise Unmapped(f"fields: one of {sorted(FIELDS)} is missing")
    if "tlvs" in fields:
        assert same([[field.type, field.value.hex()] for field in found.fields], fields["tlvs"])
    if "types" in fields:
        assert same([field.type for field in found.fields], fields["types"])
    assert encode(found) == data
    row, parts = scan_once(data)
    assert message(data, row, parts) == found
    assert row[FAULT] == 0
    check_more(said, canonical(data, row, parts), vector)


def check_more(said: Verified, covered: bytes, vector: dict[str, Any]) -> None:
    fields, found = vector["fields"], said.message.fields
    if "canonical_bytes" in fields:
        assert covered.hex() == fields["canonical_bytes"]
    if "trust" in fields:
        if fields["trust"] not in TRUST:
            raise Unmapped(f"trust {fields['trust']!r}")
        assert said.identity.trust is TRUST[fields["trust"]]
    if "joined_binary" in fields:
        same_bytes(values.values(found, FieldType.BINARY), fields["joined_binary"])
    if "strings" in fields:
        assert [value.decode() for value in values.values(found, FieldType.STRING)] == fields["strings"]
    if "joined_string_length_bytes" in fields:
        check_lengths(found, fields["joined_string_length_bytes"])
    if "values" in fields:
        check_values(values.joined(found), fields["values"])
    if "plaintext_tlvs" in fields or "aad" in fields or "profile" in fields:
        check_sealed(said, vector)


def check_sealed(said: Verified, vector: dict[str, Any]) -> None:
    """EMM-13, EMM-14: what was hidden, opened with the keys given; sealed again by us, it opens again."""
    fields, found = vector["fields"], said.message
    if "profile" in fields:
        if fields["profile"] not in PROFILES:
            raise Unmapped(f"profile {fields['profile']!r}")
        assert found.flags & (Flag.ENCRYPTED | Flag.COMPRESSED) == PROFILES[fields["profile"]]
    if "aad" in fields:
        assert encryption.aad(values.event_type(found), found.message_id, found.timestamp, found.flags).hex() == fields["aad"]
    if "plaintext_tlvs" in fields:
        secrets = {octets("key_id", one["key_id"]): octets("key", one["key"]) for one in vector["keys"]["enc"]}
        hidden = encryption.unseal(found, secrets)
        assert encryption.encode_fields(hidden).hex() == fields["plaintext_tlvs"]
        carried = values.first(found.fields, FieldType.BINARY)
        if found.flags & Flag.ENCRYPTED:
            assert carried is not None
            assert again(said, hidden, secrets, carried)
        else:
            assert values.first(encryption.compress(hidden).fields, FieldType.BINARY) == carried


def again(said: Verified, hidden: tuple[Field, ...], secrets: dict[bytes, bytes], carried: bytes) -> bool:
    """The same fields sealed by us, with the same key and nonce: the same ciphertext; compressed, what we seal opens to the same."""
    found = said.message
    inside = dict(encryption._pairs(values.first(found.fields, FieldType.ENCRYPTION) or b""))
    named = inside.get(SubType.KEY_ID) or values.first(found.fields, FieldType.KEY_ID) or said.identity.node_id or b""
    sealer = encryption.Sealer(secrets[named], inside[SubType.ALGORITHM][0], inside.get(SubType.KEY_ID))
    kind, nonce = values.event_type(found), inside.get(SubType.IV) or inside[SubType.NONCE]
    places = {"event_type": kind, "message_id": found.message_id, "timestamp": found.timestamp}
    is_compressed = bool(found.flags & 4)
    sealed = sealer.seal(hidden, nonce, **places, flags=found.flags & 1, compressed=is_compressed)
    assert sealed.flags == found.flags
    if is_compressed or list(hidden) != builder.ordered(hidden):
        kept = [field for field in found.fields if field.type not in (FieldType.BINARY, FieldType.ENCRYPTION)]
        changed = msgspec.structs.replace(found, fields=(*sealed.fields, *kept))
        return set(encryption.unseal(changed, secrets)) == set(hidden)
    return values.first(sealed.fields, FieldType.BINARY) == carried


# What is refused.


def refuse(said: Verified | Rejected, vector: dict[str, Any], is_weak: bool) -> None:
    keys("fields", vector["fields"], set())
    if not isinstance(vector["reason"], str):
        raise Unmapped(f"reason {vector['reason']!r}")
    assert isinstance(said, Rejected), "accepted"
    is_freed = is_weak and said.fault in FREED
    fault = Fault.WEAK_KEY if is_freed else said.fault
    wanted = REASONS.get(vector["reason"])
    if wanted is None:  # a word of another implementation
        assert vector["reason"] in WORDS.get(fault, set())
    else:
        assert wanted in ({said.fault} | WEAK if fault is Fault.WEAK_KEY else {fault})


# Both forms of the scanner.


def scan_once(data: bytes) -> tuple[list[int], list[int]]:
    """Scanned alone, compiled, and between neighbours: the same row."""
    limits = DEFAULT_LIMITS.for_scan()
    row, parts = [0] * ROW_COLUMNS, [0] * (PART_COLUMNS * DEFAULT_LIMITS.max_parts)
    said = scan(data, 0, len(data), row, parts, limits)
    used = said[1] * PART_COLUMNS
    fast, fast_parts = np.zeros(ROW_COLUMNS, np.int64), np.zeros(len(parts), np.int64)
    assert compiled(scan)(np.frombuffer(data, np.uint8), 0, len(data), fast, fast_parts, limits) == said
    assert (fast.tolist(), fast_parts[:used].tolist()) == (row, parts[:used])
    block = np.frombuffer(data * 3, np.uint8)
    starts = np.arange(3) * len(data)
    rows, many, run_of, ends = (
        np.zeros(3 * ROW_COLUMNS, np.int64),
        np.zeros(3 * len(parts), np.int64),
        np.zeros(3, np.int64),
        np.zeros(3, np.int64),
    )
    count, taken, run, _ = compiled(walk)(block, starts, starts + len(data), 0, 0, rows, run_of, many, ends, limits)
    assert (count, taken, run) == (3, 3 * said[1], 3)
    assert row[FAULT] not in UNREADABLE
    return row, parts[:used]
