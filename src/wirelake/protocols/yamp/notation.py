"""YAMP messages as plain objects, as people read and write them: names of the specification, bytes as hex. Both ways.

A body is hex, and beside it `json` if it is JSON. What is nested deeper or has more items than the limits has `json_refused` instead.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START
from wirelake.protocols.yamp.faults import UNREADABLE, Fault
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
from wirelake.protocols.yamp.scanner import DEFAULT_LIMITS, UID_SIZE, Limits
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
        fault = Fault(row[FAULT])
        return {
            "offset": base + row[FAULT_AT],
            "fault": fault.name,
            "clause": fault.clause,
            "text": fault.text,
            "message_offset": base + row[START],
            "message_length": row[LENGTH],
        }
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
        described |= {"breach": Fault(row[FAULT]).name, "clause": Fault(row[FAULT]).clause}
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
    if "fault" in given:
        raise UsageError(f"this object describes a fault ({given['fault']}), not a message")
    match given.get("type"):
        case "system.handshake":
            return Handshake(_number(given, "version", 0xFFFF, VERSION), _text(given, "serializer", "json"))
        case "system.ping":
            return Ping(_bytes(given, "payload"))
        case "system.pong":
            return Pong(_bytes(given, "payload"))
        case "system.close":
            return Close(_text(given, "reason", ""))
        case "system.close-redirect":
            return CloseRedirect(_text(given, "url"))
        case "event":
            return Event(_uid(given, "uid"), _text(given, "uri"), _body(given))
        case "request":
            return Request(_uid(given, "uid"), _text(given, "uri"), _truth(given, "progressive"), _body(given))
        case "cancel":
            return Cancel(_uid(given, "uid"), _text(given, "uri"), _uid(given, "request_uid"), _truth(given, "kill"))
        case "response":
            return Response(_uid(given, "uid"), _text(given, "uri"), _uid(given, "request_uid"), _response_type(given), _body(given))
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
    raise UsageError(f"type: {given.get('type')!r} is not one of {', '.join(names)}")


def _response_type(given: dict[str, Any]) -> int:
    value = given.get("response_type", "done")
    return _NUMBERS[value] if isinstance(value, str) and value in _NUMBERS else _number(given, "response_type", 255)


def _number(given: dict[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UsageError(f"{name}: a number from 0 to {most} is needed, not {value!r}")
    return value


def _truth(given: dict[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name}: true or false is needed, not {value!r}")
    return value


def _text(given: dict[str, Any], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f"{name}: a string is needed, not {value!r}")
    return value


def _bytes(given: dict[str, Any], name: str) -> bytes:
    value = given.get(name, "")
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}: bytes as hex digits are needed, not {value!r}") from None


def _uid(given: dict[str, Any], name: str) -> bytes:
    value = _bytes(given, name)
    if len(value) != UID_SIZE:
        raise UsageError(f"{name}: {2 * UID_SIZE} hex digits are needed, not {given.get(name)!r}")
    return value


def _body(given: dict[str, Any]) -> bytes:
    if "body" in given or "json" not in given:
        return _bytes(given, "body")
    return msgspec.json.encode(given["json"])
