"""Texts and messages of wolpertinger as plain objects, as people read and write them: both layers, bytes as hex. Both ways.

A typed value is `{"type": …, "value": …}`, in lists, too. A `Describer` remembers: the fragment that completes a message shows what that
says, and what is encrypted is shown if there are keys. It refuses to know files and terminals.
"""

from __future__ import annotations

import math
from typing import Any, Final
from uuid import UUID

import msgspec

from wirelake.errors import DecodeError, LocalProtocolError, RemoteProtocolError, UsageError
from wirelake.protocols.json_fields import breach, fault_object, hex_bytes, message_type, number, text
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response, error_name, type_of
from wirelake.protocols.wolpertinger.layer2.documents import Rejected
from wirelake.protocols.wolpertinger.layer2.values import PRIMITIVES, DataType, DateTime, Int32, Int64, UInt64, Value, guid, moment_text
from wirelake.protocols.wolpertinger.messages import HIGHEST_ID, Encryption, Envelope, Message, Result, ResultCode
from wirelake.protocols.wolpertinger.passive import PassiveDecoder
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, Limits
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import message, opened, sealed

__all__ = ["Describer", "describe", "described_document", "described_value", "parse"]

_RESULTS: Final = {code.value: code.name.lower() for code in ResultCode}
_TYPES: Final[dict[type, str]] = {
    bool: DataType.BOOLEAN.value,
    str: DataType.STRING.value,
    float: DataType.DOUBLE.value,
    Int32: DataType.INT32.value,
    Int64: DataType.INT64.value,
    UInt64: DataType.UINT64.value,
    DateTime: DataType.DATE_TIME.value,
    UUID: DataType.GUID.value,
    tuple: DataType.LIST.value,
}
"""What most values are of; `type_of` knows the others."""
_LEFT_OUT: Final = frozenset({"payload", "encryption"})


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:
    """A scanned row as an object: `offset`, `length`, `type`, every field; or `fault`, `clause` and the offset of what is wrong.

    `base` is where `data` begins in what the user gave us.
    """
    if row[FAULT] in UNREADABLE:
        return fault_object(Fault(row[FAULT]), base + row[FAULT_AT], base + row[START], row[LENGTH])
    said = message(data, row, parts)
    described: dict[str, Any] = {"offset": base + row[START], "length": row[LENGTH]}
    if isinstance(said, Result):
        return described | {"type": "result", "message_id": said.message_id, "code": said.code, "name": _RESULTS.get(said.code)}
    is_whole = said.fragment_count in (None, 1)
    described["type"] = "message" if is_whole else "fragment"
    for name in said.__struct_fields__:
        if name not in _LEFT_OUT and (value := getattr(said, name)) is not None:
            described[name] = value
    if said.encryption is not Encryption.NONE:
        described["encryption"] = "aes" if said.encryption is not Encryption.UNKNOWN else "unknown"
    if said.encryption is not Encryption.NONE or not is_whole:
        return described | {"base64": said.payload.decode(errors="replace")}
    try:
        payload = opened(said.payload, said.gzip, said.encryption, None, limits)
    except DecodeError as reason:
        return described | {"base64": said.payload.decode(errors="replace"), "breach": reason.fault.name, "clause": reason.clause}
    return described | {"payload": payload.hex(), "document": described_document(documents.decode(payload))}


class Describer:
    """Describes the texts of one speaker, one after the other, with what earlier ones and keys say of them."""

    def __init__(self, keyring: Keyring | None = None) -> None:
        self._keyring = keyring
        self._ear = PassiveDecoder()

    def describe(self, data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:
        """See `describe`. Nobody knows when texts came, so pieces wait for each other without end."""
        described = describe(data, row, parts, limits, base)
        if described.get("type") not in ("message", "fragment") or "base64" not in described or "breach" in described:
            return described
        said = message(data, row, parts)
        assert isinstance(said, Envelope)  # noqa: S101 - by its type
        heard = self._ear.hear(said, 0.0, limits, self._keyring)
        if heard.fault is not None:
            return described | breach(heard.fault)
        if heard.payload is None:
            return described
        return described | {"payload": heard.payload.hex(), "document": described_document(documents.decode(heard.payload))}


def described_document(said: Call | Response | Error | Rejected) -> dict[str, Any]:
    """Layer 2: a message, or why it is none."""
    if isinstance(said, Rejected):
        return {"rejected": said.fault.name, "clause": said.fault.clause, "text": said.fault.text}
    root = str(type(said).__struct_config__.tag)
    if isinstance(said, Call):
        parameters = [described_value(value) for value in said.parameters]
        return {"root": root, "component": said.component, "method": said.method, "call_id": said.call_id, "parameters": parameters}
    if isinstance(said, Response):
        value = None if said.value is None else described_value(said.value)
        return {"root": root, "component": said.component, "call_id": said.call_id, "value": value}
    return {"root": root, "component": said.component, "code": said.code, "name": error_name(said.code), "call_id": said.call_id}


def described_value(value: Value) -> dict[str, Any]:
    """WOLP-18: a typed value; numbers are exact, what JSON has no number for is its text."""
    return {"type": _TYPES.get(type(value)) or str(type_of(value)), "value": _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "INF", -math.inf: "-INF"}.get(value, "NaN")
    if isinstance(value, DateTime):
        return moment_text(value)[:-1].rstrip("0").rstrip(".") + "Z"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Call | Response | Error):
        return described_document(value)
    if isinstance(value, msgspec.Struct):
        return {name: _inner(getattr(value, name)) for name in value.__struct_fields__}
    return [described_value(one) for one in value]


def _inner(value: Any) -> Any:
    """A field of a complex value, whose type is known."""
    return [_inner(one) for one in value] if isinstance(value, tuple | list) else _plain(value)


def parse(given: dict[str, Any]) -> Message:
    """The text an object describes; raises UsageError that names the field. Sizes and places are worked out, not taken over.

    What a message carries is `base64`, as it stands on the wire, or else `payload`, in hex, or else `document`.
    """
    kind = message_type(given)
    match kind:
        case "result":
            return Result(number(given, "code", HIGHEST_ID), number(given, "message_id", HIGHEST_ID))
        case "message" | "fragment":
            return _envelope(given)
    raise UsageError(f"type: {kind!r} is not one of message, fragment, result")


def _envelope(given: dict[str, Any]) -> Envelope:
    encryption = given.get("encryption")
    if encryption not in (None, "aes"):
        raise UsageError(f"encryption: aes is needed, or nothing, not {encryption!r}")
    gzip, index, count = (None if given.get(name) is None else number(given, name, HIGHEST_ID) for name in _OPTIONAL)
    message_id = number(given, "message_id", HIGHEST_ID)
    if "base64" in given:
        kind = Encryption.NONE if encryption is None else Encryption.AES
        return Envelope(message_id, text(given, "base64").encode(), gzip, kind, index, count)
    if encryption is not None or given["type"] == "fragment":
        raise UsageError("base64: what is encrypted, or a fragment, is given as it stands on the wire")
    what = sealed(_payload(given), None, compress=gzip is not None)
    return Envelope(message_id, what.text, what.gzip, what.encryption, index, count)


_OPTIONAL: Final = ("gzip", "fragment_index", "fragment_count")


def _payload(given: dict[str, Any]) -> bytes:
    if "document" in given and "payload" not in given:
        try:
            return documents.encode(_document(given["document"]))
        except LocalProtocolError as reason:
            raise UsageError(f"document: {reason}") from None
    return hex_bytes(given, "payload")


def _document(given: Any) -> Call | Response | Error:
    root = given.get("root") if isinstance(given, dict) else None
    if root == "RemoteMethodCall":
        parameters = given.get("parameters", [])
        if not isinstance(parameters, list):
            raise UsageError(f"parameters: a list is needed, not {parameters!r}")
        values = tuple(_value(one) for one in parameters)
        return Call(text(given, "component"), text(given, "method"), _call_id(given), values)
    if root == "RemoteMethodResponse":
        value = given.get("value")
        return Response(text(given, "component"), _call_id(given), None if value is None else _value(value))
    if root == "RemoteError":
        call_id = None if given.get("call_id") is None else _call_id(given)
        return Error(text(given, "component"), number(given, "code", (1 << 31) - 1), call_id)
    raise UsageError(f"document.root: {root!r} is not one of RemoteMethodCall, RemoteMethodResponse, RemoteError")


def _value(given: Any) -> Value:
    data_type = given.get("type") if isinstance(given, dict) else None
    value = given.get("value") if isinstance(given, dict) else None
    if data_type == DataType.LIST and isinstance(value, list):
        return tuple(_value(one) for one in value)
    if data_type not in PRIMITIVES or value is None:
        raise UsageError(f'a value is an object like {{"type": "string", "value": "x"}} of a primitive type or a list, not {given!r}')
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    try:
        return PRIMITIVES[data_type](text)
    except RemoteProtocolError as reason:
        raise UsageError(f"{data_type}: {reason}") from None


def _call_id(given: dict[str, Any]) -> str:
    value = guid(text(given, "call_id"))
    if value is None:
        raise UsageError(f"call_id: a guid is needed, not {given['call_id']!r}")
    return value
