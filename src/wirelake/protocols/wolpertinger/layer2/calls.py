"""Messages of layer 2: one frozen value per document, and the codes of errors.

Codes that the enum does not name survive as integers (WOLP-15).
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from wirelake.protocols.wolpertinger.layer2.values import DataType, Value, written

__all__ = ["Call", "Error", "ErrorCode", "Message", "Response", "error_name", "type_of"]


class ErrorCode(IntEnum):
    """RemoteError: the 17 codes of the schema."""

    UNSPECIFIED = 100
    SECURITY = 200
    NOT_AUTHORIZED = 201
    ENCRYPTION = 202
    INVALID_SIGNATURE = 203
    REQUEST = 300
    INVALID_XML = 301
    UNKNOWN_MESSAGE = 302
    METHOD_NOT_FOUND = 303
    COMPONENT_NOT_FOUND = 304
    INVALID_PARAMETERS = 305
    UNSUPPORTED_DATATYPE = 306
    RESPONSE = 400
    INVALID_RESPONSE = 401
    FILESERVER = 500
    MOUNT = 501
    ITEM_NOT_FOUND = 502


class Call(msgspec.Struct, frozen=True, tag="RemoteMethodCall"):
    """RemoteMethodCall: invokes a method of a component; `call_id` is a guid in lower case (WOLP-14)."""

    component: str
    method: str
    call_id: str
    parameters: tuple[Value, ...] = ()


class Response(msgspec.Struct, frozen=True, tag="RemoteMethodResponse"):
    """RemoteMethodResponse: the value that the method returned; None is null (WOLP-19)."""

    component: str
    call_id: str
    value: Value | None = None


class Error(msgspec.Struct, frozen=True, tag="RemoteError"):
    """RemoteError: something failed; without `call_id` it answers no call."""

    component: str
    code: int
    call_id: str | None = None


Message = Call | Response | Error


def error_name(code: int) -> str | None:
    """WOLP-15: the name of a code in the schema, `MethodNotFoundError` for 303; None if it has no name."""
    try:
        words = ErrorCode(code).name.split("_")
    except ValueError:
        return None
    return "".join(word.capitalize() for word in words) + "Error"


def type_of(value: Value) -> DataType | None:
    """WOLP-18: the data type a value is of, or would be sent as; None if no type holds it."""
    primitive = written(value)
    if primitive is not None:
        return primitive[0]
    if isinstance(value, (tuple, list)):
        return DataType.LIST
    name = type(value).__struct_config__.tag if isinstance(value, msgspec.Struct) else None
    return DataType(f"{name[0].lower()}{name[1:]}") if isinstance(name, str) else None
