"""YAMP messages as JSON objects, both ways: field names of the specification, bytes as hex.

A body is hex, and beside it `json` if it is JSON. A body that is nested deeper or has more items than the limits has `json_refused`
instead.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.json_fields import boolean, breach, fault_object, hex_bytes, message_type, number, text
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START
from wirelake.protocols.yamp.faults import UNREADABLE, Fault
from wirelake.protocols.yamp.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.yamp.messages import (
    VERSION,
    Cancel,
    Close,
    CloseRedirect,
    Event,
    Handshake,
    Message,
    Ping,
    Pong,
    Request,
    Response,
    ResponseType,
    name_of,
)
from wirelake.protocols.yamp.scanner import UID_SIZE
from wirelake.protocols.yamp.serializers.bounds import TooMuch, check_json
from wirelake.protocols.yamp.wire import message

__all__ = ["describe", "parse"]

_RESPONSES: Final = {kind.value: kind.name.lower() for kind in ResponseType}
_NUMBERS: Final = {name: number for number, name in _RESPONSES.items()}


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:  # noqa: ARG001 - as in every protocol
    """A scanned row as an object: `offset`, `length`, `type` and every field.

    An unreadable row has `fault`, `clause` and the offset of the fault. `base` is the offset of `data` in the user's input.
    """
    if row[FAULT] in UNREADABLE:
        return fault_object(Fault(row[FAULT]), base + row[FAULT_AT], base + row[START], row[LENGTH])
    decoded = message(data, row)
    described: dict[str, Any] = {"offset": base + row[START], "length": row[LENGTH], "type": name_of(type(decoded))}
    for name in decoded.__struct_fields__:
        value = getattr(decoded, name)
        described[name] = value.hex() if isinstance(value, bytes) else value
    if isinstance(decoded, Response):
        described["response_type"] = _RESPONSES.get(decoded.response_type, decoded.response_type)
    if isinstance(decoded, Event | Request | Response) and decoded.body:
        described |= _json(decoded.body, limits)
    if row[FAULT]:
        described |= breach(Fault(row[FAULT]))
    return described


def _json(body: bytes, limits: Limits) -> dict[str, Any]:
    """A body that is JSON as `json`.

    One that is too large or too deep to be shown so as `json_refused`, which says why.
    """
    try:
        check_json(body, limits.bounds)
        return {"json": msgspec.json.decode(body)}
    except TooMuch as reason:
        return {"json_refused": str(reason)}
    except RecursionError:  # only where `max_depth` allows more than the interpreter does
        return {"json_refused": "nested deeper than can be read here"}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def parse(fields: dict[str, Any]) -> Message:
    """The message an object describes; raises UsageError that names the field.

    Sizes and places are worked out, not taken over.

    A body is `body`, in hex, or else `json`, any value.
    """
    kind = message_type(fields)
    match kind:
        case "system.handshake":
            return Handshake(number(fields, "version", 0xFFFF, VERSION), text(fields, "serializer", "json"))
        case "system.ping":
            return Ping(hex_bytes(fields, "payload"))
        case "system.pong":
            return Pong(hex_bytes(fields, "payload"))
        case "system.close":
            return Close(text(fields, "reason", ""))
        case "system.close-redirect":
            return CloseRedirect(text(fields, "url"))
        case "event":
            return Event(_uid(fields, "uid"), text(fields, "uri"), _body(fields))
        case "request":
            return Request(_uid(fields, "uid"), text(fields, "uri"), boolean(fields, "progressive"), _body(fields))
        case "cancel":
            return Cancel(_uid(fields, "uid"), text(fields, "uri"), _uid(fields, "request_uid"), boolean(fields, "kill"))
        case "response":
            return Response(_uid(fields, "uid"), text(fields, "uri"), _uid(fields, "request_uid"), _response_type(fields), _body(fields))
    names = (
        "system.handshake",
        "system.ping",
        "system.pong",
        "system.close",
        "system.close-redirect",
        "event",
        "request",
        "cancel",
        "response",
    )
    raise UsageError(f"type: {kind!r} is not one of {', '.join(names)}")


def _response_type(fields: dict[str, Any]) -> int:
    value = fields.get("response_type", "done")
    return _NUMBERS[value] if isinstance(value, str) and value in _NUMBERS else number(fields, "response_type", 255)


def _uid(fields: dict[str, Any], name: str) -> bytes:
    value = hex_bytes(fields, name)
    if len(value) != UID_SIZE:
        raise UsageError(f"{name}: {2 * UID_SIZE} hex digits are needed, not {fields.get(name)!r}")
    return value


def _body(fields: dict[str, Any]) -> bytes:
    if "body" in fields or "json" not in fields:
        return hex_bytes(fields, "body")
    return msgspec.json.encode(fields["json"])
