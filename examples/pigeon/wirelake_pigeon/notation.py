"""PIGEON/1 as JSON objects, for `wirelake decode` and `wirelake encode`."""

from __future__ import annotations

from typing import Any

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START
from wirelake_pigeon.faults import UNREADABLE, Fault
from wirelake_pigeon.messages import TYPES, Message
from wirelake_pigeon.scanner import Limits
from wirelake_pigeon.wire import DEFAULT_LIMITS, message

__all__ = ["describe", "parse"]


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:  # noqa: ARG001
    """A scanned row as an object; `base` is the offset of `data` in the input."""
    place = {"offset": base + row[START], "length": row[LENGTH]}
    if row[FAULT] in UNREADABLE:
        fault = Fault(row[FAULT])
        where = {"offset": base + row[FAULT_AT], "message_offset": base + row[START], "message_length": row[LENGTH]}
        return where | {"fault": fault.name, "clause": fault.clause, "text": fault.text}
    return place | msgspec.to_builtins(message(data, row))


def parse(given: dict[str, Any]) -> Message:
    """The message of an object; raises UsageError that names the field."""
    kinds = {str(kind.__struct_config__.tag): kind for kind in TYPES}
    if given.get("type") not in kinds:
        raise UsageError(f"type: {given.get('type')!r} is none of {', '.join(kinds)}")
    try:
        return msgspec.convert(given, kinds[given["type"]])
    except msgspec.ValidationError as reason:
        raise UsageError(str(reason)) from None
