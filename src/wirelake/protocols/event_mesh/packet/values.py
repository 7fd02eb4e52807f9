"""Values of fields: split long ones and join them again, and the typed values of §4.1."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import LONGEST_FIELD, EventType, Field, FieldType, Message, Other

__all__ = [
    "binary",
    "event_name",
    "event_type",
    "field_of",
    "first",
    "floating",
    "integer",
    "is_joined",
    "is_security",
    "joined",
    "json",
    "parse_json",
    "split",
    "text",
    "typed",
    "values",
]

_WHOLE: Final = frozenset({FieldType.INTEGER, FieldType.FLOAT, *range(FieldType.HMAC, FieldType.AUTH_KEY_ID + 1)})
"""EMM-10: the types whose values are never in pieces."""
_INTEGER: Final = struct.Struct(">i")
_FLOAT: Final = struct.Struct(">f")
DEEPEST: Final = 64
"""EMM-11: how deep a JSON object may be."""


def is_joined(field_type: int) -> bool:
    """EMM-10: whether fields of this type are pieces of values."""
    return field_type not in _WHOLE


def is_security(field_type: int) -> bool:
    """§4.2: whether a field is about the packet, not about what happened."""
    return FieldType.HMAC <= field_type <= FieldType.AUTH_KEY_ID


def split(field_type: int, value: bytes) -> tuple[Field, ...]:
    """EMM-10: a value as fields of 255 bytes and a shorter, possibly empty, last one."""
    if not is_joined(field_type):
        if len(value) > LONGEST_FIELD:
            raise LocalProtocolError(Fault.FIELD_LENGTH, f"{len(value)} bytes of type 0x{field_type:02x} cannot be split")
        return (Field(field_type, value),)
    return tuple(Field(field_type, value[at : at + LONGEST_FIELD]) for at in range(0, len(value) + 1, LONGEST_FIELD))


def joined(fields: Iterable[Field]) -> list[Field]:
    """EMM-10: the values of fields, each where its first piece stands.

    Pieces belong together by their order within a type.
    """
    whole: list[list[Any]] = []
    unfinished: dict[int, list[Any]] = {}
    for field in fields:
        if not is_joined(field.type):
            whole.append([field.type, [field.value]])
            continue
        entry = unfinished.pop(field.type, None)
        if entry is None:
            entry = [field.type, []]
            whole.append(entry)
        entry[1].append(field.value)
        if len(field.value) == LONGEST_FIELD:
            unfinished[field.type] = entry
    return [Field(kind, pieces[0] if len(pieces) == 1 else b"".join(pieces)) for kind, pieces in whole]


def values(fields: Iterable[Field], field_type: int) -> list[bytes]:
    """Every joined value of one type."""
    return [field.value for field in joined(field for field in fields if field.type == field_type)]


def first(fields: Sequence[Field], field_type: int) -> bytes | None:
    """The first joined value of one type."""
    for field in fields:
        if field.type == field_type:
            if len(field.value) < LONGEST_FIELD:
                return field.value
            break
    return next(iter(values(fields, field_type)), None)


def event_type(message: Message) -> int:
    """§3: the number of a message's event type."""
    if isinstance(message, Other):
        return message.event_type
    return EventType[type(message).__name__.upper()]


def event_name(fields: Sequence[Field]) -> str | None:
    """EMM-20: the first joined string."""
    name = first(fields, FieldType.STRING)
    return None if name is None else name.decode()


def typed(field: Field) -> str | int | float | bytes:
    """§4.1: a joined value as a string (also JSON), an integer or a float; other types stay bytes."""
    if field.type in (FieldType.STRING, FieldType.JSON):
        return field.value.decode()
    if field.type == FieldType.INTEGER:
        number: int = _INTEGER.unpack(field.value)[0]
        return number
    if field.type == FieldType.FLOAT:
        real: float = _FLOAT.unpack(field.value)[0]
        return real
    return field.value


def parse_json(value: bytes) -> dict[str, Any]:
    """EMM-11: the object a JSON value is; raises DecodeError if it is none, or nested too deeply."""
    depth = deepest = 0
    is_text = is_escaped = False
    for byte in value:
        if is_text:
            is_text, is_escaped = is_escaped or byte != 0x22, not is_escaped and byte == 0x5C
        elif byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
        elif byte == 0x22:
            is_text = True
    if deepest > DEEPEST:
        raise DecodeError(Fault.JSON_INVALID, 0, f"nested deeper than {DEEPEST}")
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as reason:
        raise DecodeError(Fault.JSON_INVALID, 0, str(reason)) from None


def text(value: str) -> Field:
    """§4.1: a string."""
    return Field(FieldType.STRING, value.encode())


def integer(value: int) -> Field:
    """§4.1: a signed number of 32 bits (EMM-1)."""
    try:
        return Field(FieldType.INTEGER, _INTEGER.pack(value))
    except struct.error as reason:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, str(reason)) from None


def floating(value: float) -> Field:
    """§4.1: a floating-point number of 32 bits."""
    try:
        return Field(FieldType.FLOAT, _FLOAT.pack(value))
    except (struct.error, OverflowError) as reason:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, str(reason)) from None


def binary(value: bytes) -> Field:
    """§4.1: bytes."""
    return Field(FieldType.BINARY, value)


def json(value: dict[str, Any]) -> Field:
    """§4.1: a JSON object."""
    try:
        encoded = msgspec.json.encode(value)
    except TypeError as reason:
        raise LocalProtocolError(Fault.JSON_INVALID, str(reason)) from None
    parse_json(encoded)
    return Field(FieldType.JSON, encoded)


def field_of(value: str | float | bytes | dict[str, Any] | Field) -> Field:
    """§4.1: the field that a Python value is meant to be; a field is itself."""
    if isinstance(value, Field):
        return value
    maker = _MAKERS.get(type(value))
    if maker is None:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"no field holds {type(value).__name__}: give str, int, float, bytes or dict")
    return maker(value)


_MAKERS: Final[dict[type, Callable[[Any], Field]]] = {str: text, int: integer, float: floating, bytes: binary, dict: json}
