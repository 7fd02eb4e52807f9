"""Texts of wolpertinger as plain objects (JSON), both ways; both layers, bytes as hex.

An object has the metadata of layer 1 and, where it can be read, `payload` (hex) and `document` (`layer2/notation.py`). `base64` is the
payload as it stands on the wire. It is there where `payload` is not, or would not give the same text: fragments, encrypted or
damaged payloads, blanks inside base64 (WOLP-6), and gzip by another compressor.

`parse` takes the first of `base64`, `base64_hex`, `payload` and `document` that an object has; delete the others to change one. So
`parse(describe(text))` is the message of the text. Without `payload` it is the same message if the document is spelled as we write it:
other white space, prefixes and upper case in a CallId are not kept in `document`. The name of an unknown encryption is not kept (WOLP-5):
such a text is shown, but not taken back.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.errors import DecodeError, LocalProtocolError, UsageError
from wirelake.protocols.json_fields import breach, fault_object, hex_bytes, message_type, number, text
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.notation import describe_document, parse_document
from wirelake.protocols.wolpertinger.messages import HIGHEST_ID, Encryption, Envelope, Message, Result, ResultCode
from wirelake.protocols.wolpertinger.passive import PassiveDecoder
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, HUGE, Limits
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import message, opened, sealed

__all__ = ["Describer", "describe", "parse"]

_RESULTS: Final = {code.value: code.name.lower() for code in ResultCode}
_ENCRYPTIONS: Final[dict[Encryption, dict[str, str]]] = {
    Encryption.NONE: {},
    Encryption.AES: {"encryption": "aes"},
    Encryption.SECURE_AES: {"encryption": "aes", "alias": "secure"},
    Encryption.UNKNOWN: {"encryption": "unknown"},
}
"""WOLP-5: `alias` is there if the text says `secure` for `encryption`."""
_NUMBERS: Final = {"gzip": HUGE, "fragment_index": HUGE, "fragment_count": HUGE}
"""Metadata that a message need not have, and its largest numbers."""


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:
    """Give a scanned row as an object: `offset`, `length`, `type`, every field; or `fault`, `clause` and the offset of the fault.

    `base` is the offset of `data` in the user's input.
    """
    if row[FAULT] in UNREADABLE:
        return fault_object(Fault(row[FAULT]), base + row[FAULT_AT], base + row[START], row[LENGTH])
    place = {"offset": base + row[START], "length": row[LENGTH]}
    parsed = message(data, row, parts)
    if isinstance(parsed, Result):
        return place | {"type": "result", "message_id": parsed.message_id, "code": parsed.code, "name": _RESULTS.get(parsed.code)}
    return place | _describe_envelope(parsed, limits)


def _describe_envelope(envelope: Envelope, limits: Limits) -> dict[str, Any]:
    is_whole = envelope.fragment_count in (None, 1)
    described: dict[str, Any] = {"type": "message" if is_whole else "fragment", "message_id": envelope.message_id}
    described |= {name: value for name in _NUMBERS if (value := getattr(envelope, name)) is not None}
    described |= _ENCRYPTIONS[envelope.encryption]
    if envelope.encryption is not Encryption.NONE or not is_whole:
        return described | _as_on_the_wire(envelope.payload)
    try:
        payload = opened(envelope.payload, envelope.gzip, envelope.encryption, None, limits)
    except DecodeError as reason:
        return described | _as_on_the_wire(envelope.payload) | {"breach": reason.fault.name, "clause": reason.clause}
    if sealed(payload, None, compress=envelope.gzip is not None).text != envelope.payload:
        described |= _as_on_the_wire(envelope.payload)
    return described | _describe_payload(payload)


def _as_on_the_wire(payload: bytes) -> dict[str, str]:
    try:
        return {"base64": payload.decode()}
    except UnicodeDecodeError:  # no base64 at all
        return {"base64_hex": payload.hex()}


def _describe_payload(payload: bytes) -> dict[str, Any]:
    return {"payload": payload.hex(), "document": describe_document(documents.decode(payload))}


class Describer:
    """Describes the texts of one speaker in order: it joins fragments, and decrypts with the keys it has."""

    def __init__(self, keyring: Keyring | None = None) -> None:
        self._keyring = keyring
        self._decoder = PassiveDecoder()

    def describe(self, data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:
        """See `describe`. The time of a text is not known here, so fragments wait for each other without limit."""
        described = describe(data, row, parts, limits, base)
        if described.get("type") not in ("message", "fragment") or "payload" in described or "breach" in described:
            return described
        envelope = message(data, row, parts)
        assert isinstance(envelope, Envelope)  # noqa: S101 - by its type
        outcome = self._decoder.decode(envelope, 0.0, limits, self._keyring)
        if outcome.fault is not None:
            return described | breach(outcome.fault)
        return described if outcome.payload is None else described | _describe_payload(outcome.payload)


def parse(given: dict[str, Any]) -> Message:
    """Read the message that an object describes; raise UsageError that names the field. `offset` and `length` are ignored."""
    kind = message_type(given)
    match kind:
        case "result":
            return Result(number(given, "code", HUGE), number(given, "message_id", HIGHEST_ID))
        case "message" | "fragment":
            return _envelope(given)
    raise UsageError(f"type: {kind!r} is not one of message, fragment, result")


def _envelope(given: dict[str, Any]) -> Envelope:
    message_id = number(given, "message_id", HIGHEST_ID)
    gzip, index, count = (None if given.get(name) is None else number(given, name, most) for name, most in _NUMBERS.items())
    encryption = _encryption(given)
    if "base64" in given or "base64_hex" in given:
        payload = text(given, "base64").encode() if "base64" in given else hex_bytes(given, "base64_hex")
        return Envelope(message_id, payload, gzip, encryption, index, count)
    if encryption is not Encryption.NONE or given["type"] == "fragment":
        raise UsageError("base64: an encrypted message or a fragment needs its payload as it stands on the wire")
    result = sealed(_payload(given), None, compress=gzip is not None)
    return Envelope(message_id, result.text, result.gzip, result.encryption, index, count)


def _encryption(given: dict[str, Any]) -> Encryption:
    encryption, alias = given.get("encryption"), given.get("alias")
    if encryption not in (None, "aes"):
        raise UsageError(f"encryption: aes is needed, or nothing, not {encryption!r}")
    if alias not in (None, "secure"):
        raise UsageError(f"alias: secure is needed, or nothing, not {alias!r}")
    if encryption is None:
        return Encryption.NONE
    return Encryption.AES if alias is None else Encryption.SECURE_AES


def _payload(given: dict[str, Any]) -> bytes:
    if "payload" in given or "document" not in given:
        return hex_bytes(given, "payload")
    try:
        return documents.encode(parse_document(given["document"]))
    except LocalProtocolError as reason:
        raise UsageError(f"document: {reason}") from None
    except RecursionError:
        raise UsageError("document: values inside each other without end") from None
