"""Fields of JSON objects that describe messages: typed readers, and the object of a fault.

`decode` prints such objects and `encode` takes them back. Every reader raises UsageError that names the field and its value.
"""

from __future__ import annotations

from wirelake.errors import UsageError
from wirelake.protocols.faults import Faults

__all__ = ["boolean", "breach", "fault_object", "hex_bytes", "hex_list", "message_type", "number", "objects", "text"]

Object = dict[str, object]


def message_type(fields: Object) -> object:
    """The field `type` of an object that describes a message; a fault is refused."""
    if "fault" in fields:
        raise UsageError(f"this object describes a fault ({fields['fault']}), not a message")
    return fields.get("type")


def number(fields: Object, name: str, most: int, default: int | None = None) -> int:
    """A number from 0 to `most`."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UsageError(f"{name}: a number from 0 to {most} is needed, not {value!r}")
    return value


def boolean(fields: Object, name: str) -> bool:
    """True or false; false if it is missing."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name}: true or false is needed, not {value!r}")
    return value


def text(fields: Object, name: str, default: str | None = None) -> str:
    """A string."""
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f"{name}: a string is needed, not {value!r}")
    return value


def hex_bytes(fields: Object, name: str) -> bytes:
    """Bytes, written as hex digits; none if the field is missing."""
    value = fields.get(name, "")
    try:
        if isinstance(value, str):
            return bytes.fromhex(value)
    except ValueError:
        pass
    raise UsageError(f"{name}: bytes as hex digits are needed, not {value!r}")


def hex_list(fields: Object, name: str) -> tuple[bytes, ...]:
    """A list of bytes, each written as hex digits."""
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise UsageError(f"{name}: a list of hex strings is needed, not {value!r}")
    try:
        return tuple(bytes.fromhex(item) for item in value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}: bytes as hex digits are needed, not {value!r}") from None


def objects(fields: Object, name: str) -> list[Object]:
    """A list of objects."""
    value = fields.get(name, [])
    if not isinstance(value, list | tuple) or not all(isinstance(item, dict) for item in value):
        raise UsageError(f"{name}: a list of objects is needed")
    return list(value)


def fault_object(fault: Faults, offset: int, message_offset: int, message_length: int, detail: str = "") -> Object:
    """Describe bytes that are no message: the rule they break, and where."""
    return {
        "offset": offset,
        "fault": fault.name,
        "clause": fault.clause,
        "text": f"{fault.text}{': ' + detail if detail else ''}",
        "message_offset": message_offset,
        "message_length": message_length,
    }


def breach(fault: Faults) -> Object:
    """What the object of a message adds if the message can be read but breaks a rule."""
    return {"breach": fault.name, "clause": fault.clause}
