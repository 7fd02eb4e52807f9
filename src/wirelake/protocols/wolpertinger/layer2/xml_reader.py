"""WOLP-13, WOLP-14, WOLP-18: read messages and values from elements.

An element that does not fit the schema raises RemoteProtocolError; tests hold this reader equal to the XML schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Message, Response
from wirelake.protocols.wolpertinger.layer2.values import (
    BLANKS,
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
    guid,
    integer,
    moment,
    parse,
)
from wirelake.protocols.wolpertinger.layer2.xml_tree import Element

__all__ = ["ROOTS", "message"]

_INT32: Final = (-(1 << 31), (1 << 31) - 1)
_TYPES: Final = frozenset(DataType)


def message(root: Element) -> Message:
    """Read the message of a root, whose name and namespace were checked before."""
    return ROOTS[root.name](root)


def _call(root: Element) -> Call:
    component, call_id, method, parameters = _sequence(root, "ComponentName", "CallId", "MethodName", "Parameters")
    name, identifier, what = _text(component), _call_id(call_id), _text(method)
    return Call(name, what, identifier, _objects(parameters))


def _response(root: Element) -> Response:
    component, call_id, held = _sequence(root, "ComponentName", "CallId", "ResponseValue")
    name, identifier = _text(component), _call_id(call_id)
    if len(held.children) > 1:
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, "more than one value")
    values = _objects(held)
    return Response(name, identifier, values[0] if values else None)


def _error(root: Element) -> Error:
    names = ("ComponentName", "ErrorCode", "CallId")
    component, code, *call_id = _sequence(root, *names[: 3 if len(root.children) == 3 else 2])
    number = integer(_text(code), *_INT32)
    if number is None:
        raise RemoteProtocolError(Fault.ERROR_CODE_INVALID)
    return Error(_text(component), number, _call_id(call_id[0]) if call_id else None)


ROOTS: Final[dict[str, Callable[[Element], Message]]] = {
    "RemoteMethodCall": _call,
    "RemoteMethodResponse": _response,
    "RemoteError": _error,
}
"""WOLP-13: the three messages, by the exact names of their roots."""


def _objects(parent: Element) -> tuple[Value, ...]:
    """Read objects and nothing else: first their schema, then their values.

    So 301 comes before 305.
    """
    children = _all(parent, "object")
    for child in children:
        _check_object(child)
    return tuple([_value(child) for child in children])


def _check_object(element: Element) -> None:
    if list(element.attributes) != ["type"]:
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, "an object has the attribute type and no other")
    if element.attributes["type"] not in _TYPES:
        raise RemoteProtocolError(Fault.TYPE_UNKNOWN, repr(element.attributes["type"][:40]))


def _value(element: Element) -> Value:
    data_type = element.attributes["type"]
    if data_type in PRIMITIVES:
        if element.children:
            raise RemoteProtocolError(Fault.VALUE_INVALID, f"elements inside a {data_type}")
        return parse(data_type, element.text)
    if data_type == DataType.LIST:
        return _inner(_objects, element)
    reader = _COMPLEX.get(data_type)
    if reader is None:
        raise RemoteProtocolError(Fault.TYPE_UNSUPPORTED, data_type)
    name = data_type[0].upper() + data_type[1:]
    return _inner(lambda outer: reader(_sequence(outer, name, is_object=True)[0]), element)


def _inner(read: Callable[[Element], Value], element: Element) -> Value:
    """WOLP-18: change an error 301 to 305 inside a value, except an unknown namespace or data type."""
    try:
        return read(element)
    except RemoteProtocolError as reason:
        if reason.fault in _WRONG_INSIDE:
            raise RemoteProtocolError(Fault.COMPLEX_INVALID, f"{element.attributes['type']}: {reason}") from None
        raise


_WRONG_INSIDE: Final = frozenset({Fault.STRUCTURE_WRONG, Fault.CALL_ID_INVALID, Fault.ERROR_CODE_INVALID})


def _sequence(parent: Element, *names: str, is_object: bool = False) -> Sequence[Element]:
    """The children of an element, which have these names in this order; nothing else is in it."""
    if not is_object:
        _check_bare(parent)
    if len(parent.children) != len(names):
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, f"{parent.name} holds {', '.join(names)}")
    _check_blank(parent)
    for child, name in zip(parent.children, names, strict=True):
        _check_name(parent, child, name)
    return parent.children


def _all(parent: Element, name: str) -> Sequence[Element]:
    """The children of an element, which all have this name; nothing else is in it."""
    if parent.name != "object":
        _check_bare(parent)
    _check_blank(parent)
    for child in parent.children:
        _check_name(parent, child, name)
    return parent.children


def _check_name(parent: Element, child: Element, name: str) -> None:
    if child.name != name:
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, f"{child.name[:40]} in {parent.name}, not {name}")
    if child.namespace != parent.namespace:
        raise RemoteProtocolError(Fault.NAMESPACE_WRONG, f"{name} in {parent.name}")


def _check_bare(element: Element) -> None:
    if element.attributes:
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, f"attributes of {element.name}")


def _check_blank(element: Element) -> None:
    if element.text and element.text.strip(BLANKS):
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, f"text in {element.name}")


def _text(element: Element) -> str:
    _check_bare(element)
    if element.children:
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, f"elements in {element.name}")
    return element.text


def _call_id(element: Element) -> str:
    identifier = guid(_text(element))
    if identifier is None:
        raise RemoteProtocolError(Fault.CALL_ID_INVALID, repr(element.text[:40]))
    return identifier


def _number(element: Element, highest: int) -> int:
    number = integer(_text(element), 0, highest)
    if number is None:
        raise RemoteProtocolError(Fault.COMPLEX_INVALID, f"{element.name} is a number up to {highest}")
    return number


def _moment(element: Element) -> DateTime:
    value = moment(_text(element))
    if value is None:
        raise RemoteProtocolError(Fault.COMPLEX_INVALID, f"{element.name} is a dateTime")
    return value


def _hash(element: Element) -> bytes:
    attributes = element.attributes
    if attributes not in ({}, {"hashtype": "sha1"}) or element.children:
        raise RemoteProtocolError(Fault.COMPLEX_INVALID, "a Hash is of type sha1")
    digits = element.text.strip(BLANKS)
    if len(digits) % 2 or digits.strip("0123456789abcdefABCDEF"):
        raise RemoteProtocolError(Fault.COMPLEX_INVALID, "a Hash is hexadecimal")
    return bytes.fromhex(digits)


def _client_info(element: Element) -> ClientInfo:
    jid, trust_level, version, profiles = _sequence(element, "JId", "TrustLevel", "ProtocolVersion", "Profiles")
    return ClientInfo(
        _text(jid), _number(trust_level, 4), _number(version, 0), tuple([_text(profile) for profile in _all(profiles, "Profile")])
    )


def _file(element: Element) -> FileObject:
    name, path, created, edited, digest = _sequence(element, "Name", "Path", "Created", "LastEdited", "Hash")
    return FileObject(_text(name), _text(path), _moment(created), _moment(edited), _hash(digest))


def _directory(element: Element) -> DirectoryObject:
    name, path, created, edited, files, directories = _sequence(element, "Name", "Path", "Created", "LastEdited", "Files", "Directories")
    return DirectoryObject(
        _text(name),
        _text(path),
        _moment(created),
        _moment(edited),
        tuple([_file(child) for child in _all(files, "FileObject")]),
        tuple([_directory(child) for child in _all(directories, "DirectoryObject")]),
    )


def _permission(element: Element) -> Permission:
    path, clients = _sequence(element, "Path", "PermittedClients")
    return Permission(_text(path), tuple([_text(client) for client in _all(clients, "Client")]))


def _mount(element: Element) -> MountInfo:
    mount_point, local_path = _sequence(element, "MountPoint", "LocalPath")
    return MountInfo(_text(mount_point), _text(local_path))


def _snapshot(element: Element) -> SnapshotInfo:
    identifier, time = _sequence(element, "Id", "Time")
    return SnapshotInfo(UUID(_call_id(identifier)), _moment(time))


_COMPLEX: Final[dict[str, Callable[[Element], Value]]] = {
    DataType.CLIENT_INFO: _client_info,
    DataType.DIRECTORY_OBJECT: _directory,
    DataType.FILE_OBJECT: _file,
    DataType.PERMISSION: _permission,
    DataType.MOUNT_INFO: _mount,
    DataType.SNAPSHOT_INFO: _snapshot,
    DataType.REMOTE_METHOD_CALL: _call,
    DataType.REMOTE_METHOD_RESPONSE: _response,
    DataType.REMOTE_ERROR: _error,
}
"""The types whose value is one element, named after the type, in the object."""
