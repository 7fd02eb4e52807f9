"""EMP messages as plain objects, as people read and write them: names of the specification, bytes as hex. Both ways.

It refuses to know files and terminals.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from wirelake.errors import DecodeError, UsageError
from wirelake.protocols.emp.faults import UNREADABLE, Fault
from wirelake.protocols.emp.messages import (
    Application,
    Bye,
    Compression,
    Data,
    Error,
    Extension,
    ExtensionId,
    Hello,
    Message,
    OtherExtension,
    Ping,
    Pong,
    RequestResponse,
    Scheme,
    name_of,
)
from wirelake.protocols.emp.scanner import DEFAULT_LIMITS, HEADER, PART_COLUMNS, PART_MORE, PART_SIZE, PART_START, Limits
from wirelake.protocols.emp.wire import blocks, message, pack, plain
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, PART, START

__all__ = ["describe", "parse"]


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:
    """A scanned row as an object: `offset`, `length`, `type`, every field; or `fault`, `clause` and the offset of what is wrong.

    `base` is where `data` begins in what the user gave us.
    """
    place: dict[str, Any] = {"offset": base + row[START], "length": row[LENGTH]}
    if row[FAULT] in UNREADABLE:
        return _wrong(Fault(row[FAULT]), base + row[FAULT_AT], place)
    try:
        said = message(data, row, parts)
        fields = {name: getattr(said, name) for name in said.__struct_fields__ if name not in ("extensions", "body")}
        described = {**place, "type": name_of(type(said)), **fields, "extensions": _describe_blocks(data, row, parts)}
        if isinstance(said, Data | Application):
            described["body"] = said.body.hex()
            if any(isinstance(one, Compression) for one in said.extensions):
                described["plain_body"] = plain(said, limits).hex()
    except DecodeError as reason:
        return _wrong(cast(Fault, reason.fault), base + row[FAULT_AT], place, reason.detail)
    if row[FAULT]:
        described |= {"breach": Fault(row[FAULT]).name, "clause": Fault(row[FAULT]).clause}
    return described


def _wrong(fault: Fault, offset: int, place: dict[str, Any], detail: str = "") -> dict[str, Any]:
    return {
        "offset": offset,
        "fault": fault.name,
        "clause": fault.clause,
        "text": f"{fault.text}{': ' + detail if detail else ''}",
        "message_offset": place["offset"],
        "message_length": place["length"],
    }


def _describe_blocks(data: bytes, row: list[int], parts: list[int]) -> list[dict[str, Any]]:
    described = []
    for index, extension in enumerate(blocks(data, row, parts)):
        at = (row[PART] + index) * PART_COLUMNS
        start, size = parts[at + PART_START], parts[at + PART_SIZE]
        known = {} if isinstance(extension, OtherExtension) else msgspec.structs.asdict(extension)
        content = data[start + HEADER : start + size].hex()
        described.append({"size": size, "id": data[start + 4], "more": bool(parts[at + PART_MORE]), "content": content, **known})
    return described


def parse(given: dict[str, Any]) -> Message:
    """The message an object describes; raises UsageError that names the field. Sizes and places are worked out, not taken over."""
    if "fault" in given:
        raise UsageError(f"this object describes a fault ({given['fault']}), not a message")
    kind = given.get("type")
    extensions = tuple(_parse_block(one) for one in given.get("extensions", ()))
    match kind:
        case "hello":
            return Hello(_number(given, "version", 255, 1), extensions)
        case "bye":
            return Bye(extensions)
        case "ping":
            return Ping(extensions)
        case "pong":
            return Pong(extensions)
        case "error":
            text = given.get("message", "")
            if not isinstance(text, str):
                raise UsageError("message: a string is needed")
            code, extension, detail = (_number(given, name, 255, 0) for name in ("error_code", "extension_id", "extension_error_code"))
            return Error(code, extension, detail, text, extensions)
        case "data":
            return Data(_parse_body(given, extensions), extensions)
        case "application":
            return Application(_number(given, "type_id", 255), _parse_body(given, extensions), extensions)
    raise UsageError(f"type: {kind!r} is not one of hello, bye, ping, pong, error, data, application")


def _parse_block(given: dict[str, Any]) -> Extension:
    if not isinstance(given, dict):
        raise UsageError("extensions: a list of objects is needed")
    match _number(given, "id", 255):
        case ExtensionId.REQUEST_RESPONSE if "request_id" in given:
            return RequestResponse(bool(given.get("request")), _number(given, "request_id", (1 << 64) - 1))
        case ExtensionId.COMPRESSION if "scheme" in given:
            return Compression(_number(given, "scheme", 255))
        case other:
            return OtherExtension(other, _bytes(given, "content"))


def _parse_body(given: dict[str, Any], extensions: tuple[Extension, ...]) -> bytes:
    """`body` as on the wire; or `plain_body`, packed as the extensions say."""
    if "body" in given or "plain_body" not in given:
        return _bytes(given, "body")
    body = _bytes(given, "plain_body")
    for extension in extensions:
        if isinstance(extension, Compression) and extension.scheme != Scheme.IDENTITY:
            body = pack(body)
    return body


def _number(given: dict[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UsageError(f"{name}: a number from 0 to {most} is needed, not {value!r}")
    return value


def _bytes(given: dict[str, Any], name: str) -> bytes:
    value = given.get(name, "")
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}: bytes as hex digits are needed, not {value!r}") from None
