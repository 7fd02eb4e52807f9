"""EMP messages as JSON objects, both ways: field names of the specification, bytes as hex."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from wirelake.errors import DecodeError, UsageError
from wirelake.protocols.emp.faults import UNREADABLE, Fault
from wirelake.protocols.emp.limits import DEFAULT_LIMITS, Limits
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
from wirelake.protocols.emp.scanner import HEADER, PART_COLUMNS, PART_MORE, PART_SIZE, PART_START
from wirelake.protocols.emp.wire import blocks, message, pack, plain
from wirelake.protocols.json_fields import breach, fault_object, hex_bytes, message_type, number, objects, text
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, PART, START

__all__ = ["describe", "parse"]


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:
    """A scanned row as an object: `offset`, `length`, `type` and every field.

    An unreadable row has `fault`, `clause` and the offset of the fault. `base` is the offset of `data` in the user's input.
    """
    if row[FAULT] in UNREADABLE:
        return fault_object(Fault(row[FAULT]), base + row[FAULT_AT], base + row[START], row[LENGTH])
    try:
        decoded = message(data, row, parts)
        fields = {name: getattr(decoded, name) for name in decoded.__struct_fields__ if name not in ("extensions", "body")}
        described = {
            "offset": base + row[START],
            "length": row[LENGTH],
            "type": name_of(type(decoded)),
            **fields,
            "extensions": _describe_blocks(data, row, parts),
        }
        if isinstance(decoded, Data | Application):
            described["body"] = decoded.body.hex()
            if any(isinstance(one, Compression) for one in decoded.extensions):
                described["plain_body"] = plain(decoded, limits).hex()
    except DecodeError as reason:
        return fault_object(cast(Fault, reason.fault), base + row[FAULT_AT], base + row[START], row[LENGTH], reason.detail)
    if row[FAULT]:
        described |= breach(Fault(row[FAULT]))
    return described


def _describe_blocks(data: bytes, row: list[int], parts: list[int]) -> list[dict[str, Any]]:
    described = []
    for index, extension in enumerate(blocks(data, row, parts)):
        at = (row[PART] + index) * PART_COLUMNS
        start, size = parts[at + PART_START], parts[at + PART_SIZE]
        known = {} if isinstance(extension, OtherExtension) else msgspec.structs.asdict(extension)
        content = data[start + HEADER : start + size].hex()
        described.append({"size": size, "id": data[start + 4], "more": bool(parts[at + PART_MORE]), "content": content, **known})
    return described


def parse(fields: dict[str, Any]) -> Message:
    """The message an object describes; raises UsageError that names the field.

    Sizes and places are worked out, not taken over.
    """
    kind = message_type(fields)
    extensions = tuple(_parse_block(block) for block in objects(fields, "extensions"))
    match kind:
        case "hello":
            return Hello(number(fields, "version", 255, 1), extensions)
        case "bye":
            return Bye(extensions)
        case "ping":
            return Ping(extensions)
        case "pong":
            return Pong(extensions)
        case "error":
            code, extension, detail = (number(fields, name, 255, 0) for name in ("error_code", "extension_id", "extension_error_code"))
            return Error(code, extension, detail, text(fields, "message", ""), extensions)
        case "data":
            return Data(_parse_body(fields, extensions), extensions)
        case "application":
            return Application(number(fields, "type_id", 255), _parse_body(fields, extensions), extensions)
    raise UsageError(f"type: {kind!r} is not one of hello, bye, ping, pong, error, data, application")


def _parse_block(fields: dict[str, Any]) -> Extension:
    match number(fields, "id", 255):
        case ExtensionId.REQUEST_RESPONSE if "request_id" in fields:
            return RequestResponse(bool(fields.get("request")), number(fields, "request_id", (1 << 64) - 1))
        case ExtensionId.COMPRESSION if "scheme" in fields:
            return Compression(number(fields, "scheme", 255))
        case other:
            return OtherExtension(other, hex_bytes(fields, "content"))


def _parse_body(fields: dict[str, Any], extensions: tuple[Extension, ...]) -> bytes:
    """`body` as on the wire; or `plain_body`, packed as the extensions say."""
    if "body" in fields or "plain_body" not in fields:
        return hex_bytes(fields, "body")
    body = hex_bytes(fields, "plain_body")
    for extension in extensions:
        if isinstance(extension, Compression) and extension.scheme != Scheme.IDENTITY:
            body = pack(body)
    return body
