"""Documents and values of layer 2 as plain objects (JSON), both ways.

A document is `{"root": "RemoteMethodCall", …}` with its fields. A value is `{"type": "int32", "value": 1}`: dateTime and guid are text, a
list holds values, a complex value is an object with its fields, and a document as a value is written like a document. `parse_value` also
takes a bare string, boolean or number: it gets the type a call would send it as.

`parse_document(describe_document(message))` is `message`, for every message that may be sent. Two kinds of document are read but not
sent: a RemoteError whose code the schema does not list (WOLP-15), and one that was rejected. Their bytes have to be kept beside the object.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from wirelake.errors import RemoteProtocolError, UsageError
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Message, Response, error_name, type_of
from wirelake.protocols.wolpertinger.layer2.documents import Rejected
from wirelake.protocols.wolpertinger.layer2.values import (
    PRIMITIVES,
    ClientInfo,
    DataType,
    DateTime,
    DirectoryObject,
    FileObject,
    Int32,
    Int64,
    MountInfo,
    Permission,
    SnapshotInfo,
    UInt64,
    Value,
    guid,
    moment,
    moment_text,
    written,
)

__all__ = ["describe_document", "describe_value", "parse_document", "parse_value"]

_TYPES: Final[dict[type, str]] = {
    bool: DataType.BOOLEAN.value,
    str: DataType.STRING.value,
    float: DataType.DOUBLE.value,
    Int32: DataType.INT32.value,
    Int64: DataType.INT64.value,
    UInt64: DataType.UINT64.value,
    DateTime: DataType.DATE_TIME.value,
    UUID: DataType.GUID.value,
    tuple: DataType.LIST.value,
}
"""The data types of most values; `type_of` has all of them, and is slower."""
_COMPLEX: Final[dict[str, type[msgspec.Struct]]] = {
    DataType.CLIENT_INFO: ClientInfo,
    DataType.DIRECTORY_OBJECT: DirectoryObject,
    DataType.FILE_OBJECT: FileObject,
    DataType.PERMISSION: Permission,
    DataType.MOUNT_INFO: MountInfo,
    DataType.SNAPSHOT_INFO: SnapshotInfo,
}
_DOCUMENTS: Final[dict[str, type[Message]]] = {
    DataType.REMOTE_METHOD_CALL: Call,
    DataType.REMOTE_METHOD_RESPONSE: Response,
    DataType.REMOTE_ERROR: Error,
}
"""The data types whose value is a whole document."""
_ROOTS: Final = ("RemoteMethodCall", "RemoteMethodResponse", "RemoteError")
_INT32: Final = (-(1 << 31), (1 << 31) - 1)


def describe_document(document: Message | Rejected) -> dict[str, Any]:
    """Give a document as an object: its fields, or the rule it breaks."""
    if isinstance(document, Rejected):
        return {"rejected": document.fault.name, "clause": document.fault.clause, "text": document.fault.text}
    root = str(type(document).__struct_config__.tag)
    if isinstance(document, Call):
        parameters = [describe_value(value) for value in document.parameters]
        return {
            "root": root,
            "component": document.component,
            "method": document.method,
            "call_id": document.call_id,
            "parameters": parameters,
        }
    if isinstance(document, Response):
        value = None if document.value is None else describe_value(document.value)
        return {"root": root, "component": document.component, "call_id": document.call_id, "value": value}
    code = int(document.code)
    return {"root": root, "component": document.component, "code": code, "name": error_name(code), "call_id": document.call_id}


def describe_value(value: Value) -> dict[str, Any]:
    """WOLP-18: give a typed value as an object.

    Numbers are exact; infinities and NaN, which JSON lacks, are text.
    """
    return {"type": _TYPES.get(type(value)) or str(type_of(value)), "value": _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "INF", -math.inf: "-INF"}.get(value, "NaN")
    if isinstance(value, DateTime):
        return moment_text(value)[:-1].rstrip("0").rstrip(".") + "Z"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Call | Response | Error):
        return describe_document(value)
    if isinstance(value, msgspec.Struct):
        return {name: _plain_field(getattr(value, name)) for name in value.__struct_fields__}
    return [describe_value(item) for item in value]


def _plain_field(value: Any) -> Any:
    """A field of a complex value: its class says the type, so the object does not."""
    return [_plain_field(item) for item in value] if isinstance(value, tuple | list) else _plain(value)


def parse_document(fields: Any, where: str = "document") -> Message:
    """Read the document that an object describes; raise UsageError that names the field."""
    root = fields.get("root") if isinstance(fields, dict) else None
    if root not in _ROOTS:
        raise UsageError(f"{where}.root: {root!r} is not one of {', '.join(_ROOTS)}")
    component = _text(fields, "component", where)
    if root == "RemoteError":
        call_id = None if fields.get("call_id") is None else _call_id(fields, where)
        return Error(component, _error_code(fields, where), call_id)
    call_id = _call_id(fields, where)
    if root == "RemoteMethodResponse":
        value = fields.get("value")
        return Response(component, call_id, None if value is None else parse_value(value, f"{where}.value"))
    parameters = fields.get("parameters", [])
    if not isinstance(parameters, list):
        raise UsageError(f"{where}.parameters: a list is needed, not {parameters!r}")
    values = tuple([parse_value(value, f"{where}.parameters[{index}]") for index, value in enumerate(parameters)])
    return Call(component, _text(fields, "method", where), call_id, values)


def parse_value(fields: Any, where: str = "value") -> Value:
    """Read the value that an object describes, or that a bare string, boolean or number is.

    Raise UsageError that says where.
    """
    if isinstance(fields, (str, bool, int, float)):
        return fields
    if not isinstance(fields, dict) or not isinstance(fields.get("type"), str) or "value" not in fields:
        raise UsageError(f'{where}: an object like {{"type": "string", "value": "x"}} is needed, not {fields!r}')
    data_type, value = fields["type"], fields["value"]
    if data_type in PRIMITIVES:
        return _primitive(data_type, value, where)
    if data_type == DataType.LIST and isinstance(value, list):
        return tuple([parse_value(item, f"{where}[{index}]") for index, item in enumerate(value)])
    if data_type in _COMPLEX:
        return _field_value(value, _COMPLEX[data_type], where)  # type: ignore[no-any-return]
    if data_type in _DOCUMENTS and isinstance(value, dict):
        document = parse_document(value, where)
        if isinstance(document, _DOCUMENTS[data_type]):
            return document
    raise UsageError(f"{where}: {value!r} is no {data_type}")


def _primitive(data_type: str, value: Any, where: str) -> Value:
    """Read a primitive as its text on the wire is read: nothing passes here that cannot be sent."""
    text = written(value) if isinstance(value, (str, bool, int, float)) else None
    if text is None or (data_type == DataType.STRING and not isinstance(value, str)):
        raise UsageError(f"{where}: {value!r} is no {data_type}")
    try:
        return PRIMITIVES[data_type](text[1])
    except RemoteProtocolError as reason:
        raise UsageError(f"{where}: {reason.detail}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _field_value(value: Any, kind: Any, where: str) -> Any:
    """Read a complex value, or a field of one, from a plain object; `kind` is its type in `values.py`."""
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple([_field_value(item, get_args(kind)[0], f"{where}[{index}]") for index, item in enumerate(value)])
    result: Any = None
    if isinstance(value, str) and kind in _FROM_TEXT:
        result = _FROM_TEXT[kind](value)
    elif kind is int and type(value) is int:
        result = value
    elif isinstance(value, dict) and kind in _COMPLEX.values() and not set(value) - set(kind.__struct_fields__):
        fields = {name: _field_value(value[name], hint, f"{where}.{name}") for name, hint in _hints(kind).items() if name in value}
        try:
            return kind(**fields)
        except TypeError as reason:
            raise UsageError(f"{where}: {reason}") from None
    if result is None:
        raise UsageError(f"{where}: {value!r} is no {getattr(kind, '__name__', kind)}")
    return result


def _hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _uuid(text: str) -> UUID | None:
    identifier = guid(text)
    return None if identifier is None else UUID(identifier)


_FROM_TEXT: Final[dict[Any, Any]] = {str: str, bytes: _hex, UUID: _uuid, DateTime: moment}
"""Types of fields whose objects are text, and their readers.

A reader gives None for text that is none.
"""


def _text(given: dict[str, Any], name: str, where: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise UsageError(f"{where}.{name}: a string is needed, not {value!r}")
    return value


def _call_id(given: dict[str, Any], where: str) -> str:
    value = guid(_text(given, "call_id", where))
    if value is None:
        raise UsageError(f"{where}.call_id: a guid is needed, not {given['call_id']!r}")
    return value


def _error_code(given: dict[str, Any], where: str) -> int:
    value = given.get("code")
    if type(value) is not int or not _INT32[0] <= value <= _INT32[1]:
        raise UsageError(f"{where}.code: a number that an int32 holds is needed, not {value!r}")
    return value
