"""One vector of wolpertinger.json about authentication: keys and proofs derived from its inputs, and a session that takes them."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.conformance.reading import LABELS, Unmapped, keys, octets

from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call
from wirelake.protocols.wolpertinger.messages import Envelope
from wirelake.protocols.wolpertinger.options import Options
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust import key_agreement
from wirelake.protocols.wolpertinger.trust.key_agreement import Curve
from wirelake.protocols.wolpertinger.trust.state import TrustState
from wirelake.protocols.wolpertinger.wire import Keys, decode, encode, opened, sealed

SOME_KEYS = Keys(bytes(range(32)), bytes(range(16)))


def run_authentication(vector: dict[str, Any]) -> None:
    keys("vector", vector, {"layer", "expect", "keys", "fields"}, LABELS | {"call_xml"})
    if vector["expect"] != "ok":
        raise Unmapped("authentication that is refused")
    given, fields = vector["keys"], vector["fields"]
    if "caller_private_hex" in given:
        check_exchange(given, fields)
        if "call_xml" in vector:
            check_call(given, fields, vector["call_xml"])
    else:
        check_proof(given, fields)


def check_call(given: Any, fields: Any, call_xml: Any) -> None:
    if not isinstance(call_xml, str):
        raise Unmapped(f"call_xml {call_xml!r}")
    call = documents.decode(call_xml.encode())
    assert isinstance(call, Call)
    assert (call.component, call.method) == ("Authentication", "KeyExchange")
    assert call.parameters == (fields["caller_blob_b64"], given["iv_b64"])


def check_exchange(given: Any, fields: Any) -> None:
    keys("keys", given, {"caller_private_hex", "callee_private_hex", "iv_b64"})
    known = {"caller_blob_b64", "callee_blob_b64", "shared_secret_hex", "aes_key_hex"}
    keys("fields", fields, known, {"first_encrypted_message", "first_plaintext"})
    iv = key_agreement.read_iv(given["iv_b64"])
    blobs = {side: key_agreement.read_text(fields[f"{side}_blob_b64"]) for side in ("caller", "callee")}
    for side, other in (("caller", "callee"), ("callee", "caller")):
        own = key_agreement.private_key(Curve(blobs[side][:4]), octets("private", given[f"{side}_private_hex"]))
        assert key_agreement.public_blob(own) == blobs[side]
        assert key_agreement.session_key(own, key_agreement.read_blob(blobs[other])).hex() == fields["aes_key_hex"]
    assert hashlib.sha256(octets("shared_secret_hex", fields["shared_secret_hex"])).hexdigest() == fields["aes_key_hex"]
    agreed = Keys(octets("aes_key_hex", fields["aes_key_hex"]), iv)
    if "first_encrypted_message" in fields:
        message = decode(fields["first_encrypted_message"].encode())
        assert opened(message.payload, message.gzip, message.encryption, agreed).decode() == fields["first_plaintext"]
        check_encoding(fields["first_encrypted_message"].encode(), fields["first_plaintext"].encode(), agreed, exact=True)


def check_proof(given: Any, fields: Any) -> None:
    """WOLP-25: the proof of a cluster's member (`verification_key_b64`) and of a user (`user_auth_key_b64`), each of a token."""
    keys("keys", given, set(), {"cluster_key_hex", "password", "user_password", "username", "token_b64"})
    about_name = {word for word in fields if "name" in word}
    keys("fields", fields, set(), {"token_b64", "verification_key_b64", "user_auth_key_b64", *about_name})
    for word in about_name:  # WOLP-25: a proof is made of the password and the token, and of no name
        if not isinstance(fields[word], bool):
            raise Unmapped(f"{word} {fields[word]!r}")
        assert fields[word] is any(part in word for part in ("independent", "without", "ignore")), word
    tokens = [part["token_b64"] for part in (given, fields) if "token_b64" in part]
    if not tokens or len(set(tokens)) > 1:
        raise Unmapped("a proof has one token")
    token, proofs = key_agreement.read_text(tokens[0]), {}
    password = given.get("user_password", given.get("password"))
    if "cluster_key_hex" in given:
        proofs["verification_key_b64"] = key_agreement.cluster_proof(octets("cluster_key_hex", given["cluster_key_hex"]), token)
    if password is not None:
        proofs["user_auth_key_b64"] = key_agreement.user_proof(password, token)
        proofs.setdefault("verification_key_b64", proofs["user_auth_key_b64"])
    wanted = {name: text for name, text in fields.items() if name != "token_b64" and name not in about_name}
    if not wanted or not wanted.keys() <= proofs.keys():
        raise Unmapped(f"{sorted(wanted)} from {sorted(given)}")
    for name, text in wanted.items():
        assert key_agreement.to_text(proofs[name]) == text, name
    if "username" in given and password is not None:
        check_user(given["username"], password, key_agreement.to_text(proofs["user_auth_key_b64"]), token)


def check_user(name: str, password: str, proof: str, token: bytes) -> None:
    """WOLP-25: a session of ours that drew this token takes the proof from this user, whatever the case of the name."""
    options = Options(password_of={name.lower(): password}.get)
    session = Session(Speaker.SERVER, options, draw=lambda size: token[:size].ljust(size, b"\0"), trust_state=TrustState(3, 3, SOME_KEYS))
    answers = []
    for index, (method, parameters) in enumerate((("UserAuthGetToken", ()), ("UserAuthVerify", (name.upper(), proof))), 1):
        what = sealed(documents.encode(Call("Authentication", method, f"{index:08}-0000-4000-8000-000000000000", parameters)), SOME_KEYS)
        session.receive_text(encode(Envelope(index, what.text, what.gzip, what.encryption)), 0.0)
        message = [decode(text) for text in session.messages()]
        answers += [
            documents.decode(opened(one.payload, one.gzip, one.encryption, SOME_KEYS)) for one in message if isinstance(one, Envelope)
        ]
    assert [answer.value for answer in answers] == [key_agreement.to_text(token), True]


def check_encoding(text: bytes, payload: bytes, agreed: Keys | None, exact: bool | None) -> None:
    """What we would have sent instead is the same text, or says the same."""
    message = decode(text)
    what = sealed(payload, agreed if message.encryption else None, compress=message.gzip is not None)
    ours = encode(Envelope(message.message_id, what.text, what.gzip, what.encryption))
    assert (ours == text) or not exact
    again = decode(ours)
    assert opened(again.payload, again.gzip, again.encryption, agreed) == payload
    assert again.message_id == message.message_id
