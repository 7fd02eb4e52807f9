"""Messages and values of layer 2 as plain objects, as people read and write them in JSON. Both ways.

A value is `{"type": "int32", "value": 1}`: moments and guids are texts, a list holds values, a complex value is an object with its fields,
a message inside is as a message alone. A bare text, truth or number is taken for the value it would be in a call.

It refuses to know XML, files and terminals.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from wirelake.errors import RemoteProtocolError, UsageError
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Message, Response, type_of
from wirelake.protocols.wolpertinger.layer2.values import (
    PRIMITIVES,
    ClientInfo,
    DataType,
    DateTime,
    DirectoryObject,
    FileObject,
    MountInfo,
    Permission,
    SnapshotInfo,
    Value,
    moment,
    moment_text,
    parse,
    written,
)

__all__ = ["describe", "describe_value", "parse_message", "parse_value"]

_MESSAGES: Final = {"RemoteMethodCall": Call, "RemoteMethodResponse": Response, "RemoteError": Error}
_COMPLEX: Final[dict[str, type[msgspec.Struct]]] = {
    DataType.CLIENT_INFO: ClientInfo,
    DataType.DIRECTORY_OBJECT: DirectoryObject,
    DataType.FILE_OBJECT: FileObject,
    DataType.PERMISSION: Permission,
    DataType.MOUNT_INFO: MountInfo,
    DataType.SNAPSHOT_INFO: SnapshotInfo,
}
_INSIDE: Final = {DataType.REMOTE_METHOD_CALL, DataType.REMOTE_METHOD_RESPONSE, DataType.REMOTE_ERROR}


def describe(message: Message) -> dict[str, Any]:
    """A message as an object: `type` is the name of its root, then every field."""
    described: dict[str, Any] = {"type": type(message).__struct_config__.tag, "component": message.component}
    match message:
        case Call():
            return described | {
                "method": message.method,
                "call_id": message.call_id,
                "parameters": [describe_value(value) for value in message.parameters],
            }
        case Response():
            return described | {"call_id": message.call_id, "value": None if message.value is None else describe_value(message.value)}
        case Error():
            return described | {"code": int(message.code), "call_id": message.call_id}


def describe_value(value: Value) -> dict[str, Any]:
    """A value with its data type."""
    return {"type": str(type_of(value)), "value": _plain(value)}


def parse_message(given: dict[str, Any]) -> Message:
    """The message an object describes; raises UsageError that names the field."""
    kind = _MESSAGES.get(given.get("type", ""))
    if kind is Call:
        parameters = given.get("parameters", [])
        if not isinstance(parameters, list):
            raise UsageError(f"parameters: a list is needed, not {parameters!r}")
        values = tuple([parse_value(value, f"parameters[{at}]") for at, value in enumerate(parameters)])
        return Call(_field(given, "component", str), _field(given, "method", str), _field(given, "call_id", str), values)
    if kind is Response:
        value = given.get("value")
        held = None if value is None else parse_value(value, "value")
        return Response(_field(given, "component", str), _field(given, "call_id", str), held)
    if kind is Error:
        call_id = None if given.get("call_id") is None else _field(given, "call_id", str)
        return Error(_field(given, "component", str), _field(given, "code", int), call_id)
    raise UsageError(f"type: {given.get('type')!r} is not one of {', '.join(_MESSAGES)}")


def parse_value(given: Any, where: str = "value") -> Value:
    """The value an object describes, or a bare text, truth or number is; raises UsageError that says where."""
    if isinstance(given, (str, bool, int, float)):
        return given
    if not isinstance(given, dict) or "type" not in given or "value" not in given:
        raise UsageError(f"{where}: an object with type and value is needed, not {given!r}")
    data_type, value = given["type"], given["value"]
    if data_type in PRIMITIVES:
        return _primitive(data_type, value, where)
    if data_type == DataType.LIST and isinstance(value, list):
        return tuple([parse_value(item, f"{where}[{at}]") for at, item in enumerate(value)])
    if data_type in _COMPLEX:
        return _converted(value, _COMPLEX[data_type], where)  # type: ignore[no-any-return]
    if data_type in _INSIDE and isinstance(value, dict):
        return parse_message(value)
    raise UsageError(f"{where}: {value!r} is no {data_type}")


def _plain(value: Any) -> Any:
    match value:
        case Call() | Response() | Error():
            return describe(value)
        case DateTime():
            return moment_text(value)
        case msgspec.Struct():
            return {name: _field_of(getattr(value, name)) for name in value.__struct_fields__}
        case tuple() | list():
            return [describe_value(item) for item in value]
        case bool() | str():
            return value
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return value
    told = written(value)
    return told[1] if told is not None else value


def _field_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else _plain(value)


def _primitive(data_type: str, value: Any, where: str) -> Value:
    """As its text would be read, so that nothing is allowed here that cannot be sent."""
    told = written(value) if isinstance(value, (str, bool, int, float)) else None
    if told is None or (data_type == DataType.STRING and not isinstance(value, str)):
        raise UsageError(f"{where}: {value!r} is no {data_type}")
    try:
        return parse(data_type, told[1])
    except RemoteProtocolError as reason:
        raise UsageError(f"{where}: {reason.detail}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _converted(value: Any, kind: Any, where: str) -> Any:
    """A plain object as what a field, or a complex value, is."""
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple([_converted(item, get_args(kind)[0], f"{where}[{at}]") for at, item in enumerate(value)])
    made: Any = None
    if isinstance(value, str) and kind in _TEXTS:
        made = _TEXTS[kind](value)
    elif kind is int and type(value) is int:
        made = value
    elif isinstance(value, dict) and kind in _COMPLEX.values():
        unknown = set(value) - set(kind.__struct_fields__)
        if not unknown:
            fields = {name: _converted(value[name], hint, f"{where}.{name}") for name, hint in _hints(kind).items() if name in value}
            try:
                return kind(**fields)
            except TypeError as reason:
                raise UsageError(f"{where}: {reason}") from None
    if made is None:
        raise UsageError(f"{where}: {value!r} is no {getattr(kind, '__name__', kind)}")
    return made


def _hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


_TEXTS: Final[dict[Any, Any]] = {str: str, bytes: _hex, UUID: _uuid, DateTime: moment}


def _field(given: dict[str, Any], name: str, kind: type) -> Any:
    value = given.get(name)
    if type(value) is not kind:
        raise UsageError(f"{name}: {kind.__name__} is needed, not {value!r}")
    return value
