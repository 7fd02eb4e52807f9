"""YAMP messages as plain objects, as people read and write them: names of the specification, bytes as hex. Both ways.

A body is hex, and beside it `json` if it is JSON. What is nested deeper or has more items than the limits has `json_refused` instead.
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


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:  # noqa: ARG001 - as every room's
    """A scanned row as an object: `offset`, `length`, `type`, every field; or `fault`, `clause` and the offset of what is wrong.

    `base` is where `data` begins in what the user gave us.
    """
    if row[FAULT] in UNREADABLE:
        return fault_object(Fault(row[FAULT]), base + row[FAULT_AT], base + row[START], row[LENGTH])
    said = message(data, row)
    described: dict[str, Any] = {"offset": base + row[START], "length": row[LENGTH], "type": name_of(type(said))}
    for name in said.__struct_fields__:
        value = getattr(said, name)
        described[name] = value.hex() if isinstance(value, bytes) else value
    if isinstance(said, Response):
        described["response_type"] = _RESPONSES.get(said.response_type, said.response_type)
    if isinstance(said, Event | Request | Response) and said.body:
        described |= _json(said.body, limits)
    if row[FAULT]:
        described |= breach(Fault(row[FAULT]))
    return described


def _json(body: bytes, limits: Limits) -> dict[str, Any]:
    """A body that is JSON as `json`; one that is too large or too deep to be shown so as `json_refused`, which says why."""
    try:
        check_json(body, limits.bounds)
        return {"json": msgspec.json.decode(body)}
    except TooMuch as reason:
        return {"json_refused": str(reason)}
    except RecursionError:  # only where `max_depth` allows more than the interpreter does
        return {"json_refused": "nested deeper than can be read here"}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def parse(given: dict[str, Any]) -> Message:
    """The message an object describes; raises UsageError that names the field. Sizes and places are worked out, not taken over.

    A body is `body`, in hex, or else `json`, any value.
    """
    kind = message_type(given)
    match kind:
        case "system.handshake":
            return Handshake(number(given, "version", 0xFFFF, VERSION), text(given, "serializer", "json"))
        case "system.ping":
            return Ping(hex_bytes(given, "payload"))
        case "system.pong":
            return Pong(hex_bytes(given, "payload"))
        case "system.close":
            return Close(text(given, "reason", ""))
        case "system.close-redirect":
            return CloseRedirect(text(given, "url"))
        case "event":
            return Event(_uid(given, "uid"), text(given, "uri"), _body(given))
        case "request":
            return Request(_uid(given, "uid"), text(given, "uri"), boolean(given, "progressive"), _body(given))
        case "cancel":
            return Cancel(_uid(given, "uid"), text(given, "uri"), _uid(given, "request_uid"), boolean(given, "kill"))
        case "response":
            return Response(_uid(given, "uid"), text(given, "uri"), _uid(given, "request_uid"), _response_type(given), _body(given))
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


def _response_type(given: dict[str, Any]) -> int:
    value = given.get("response_type", "done")
    return _NUMBERS[value] if isinstance(value, str) and value in _NUMBERS else number(given, "response_type", 255)


def _uid(given: dict[str, Any], name: str) -> bytes:
    value = hex_bytes(given, name)
    if len(value) != UID_SIZE:
        raise UsageError(f"{name}: {2 * UID_SIZE} hex digits are needed, not {given.get(name)!r}")
    return value


def _body(given: dict[str, Any]) -> bytes:
    if "body" in given or "json" not in given:
        return hex_bytes(given, "body")
    return msgspec.json.encode(given["json"])
