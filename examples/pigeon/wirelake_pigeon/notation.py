"""PIGEON/1 as JSON objects, for `wirelake decode` and `wirelake encode`."""

from __future__ import annotations

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START
from wirelake.protocols.protocol import JsonObject
from wirelake_pigeon.faults import UNREADABLE, Fault
from wirelake_pigeon.messages import TYPES, Message
from wirelake_pigeon.scanner import Limits
from wirelake_pigeon.wire import DEFAULT_LIMITS, message

__all__ = ["describe", "parse"]


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> JsonObject:  # noqa: ARG001
    """A scanned row as an object; `base` is the offset of `data` in the input."""
    place: JsonObject = {"offset": base + row[START], "length": row[LENGTH]}
    if row[FAULT] in UNREADABLE:
        fault = Fault(row[FAULT])
        where: JsonObject = {"offset": base + row[FAULT_AT], "message_offset": base + row[START], "message_length": row[LENGTH]}
        return where | {"fault": fault.name, "clause": fault.clause, "text": fault.text}
    fields: JsonObject = msgspec.to_builtins(message(data, row))
    return place | fields


def parse(given: JsonObject) -> Message:
    """The message of an object; raises UsageError that names the field."""
    kinds = {str(kind.__struct_config__.tag): kind for kind in TYPES}
    kind = kinds.get(str(given.get("type")))
    if kind is None:
        raise UsageError(f"type: {given.get('type')!r} is none of {', '.join(kinds)}")
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as reason:
        raise UsageError(str(reason)) from None
