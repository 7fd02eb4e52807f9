"""WOLP-13, WOLP-18, WOLP-19: write messages and values as XML text.

Values that cannot be sent raise LocalProtocolError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from wirelake.errors import LocalProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, ErrorCode, Message, Response
from wirelake.protocols.wolpertinger.layer2.values import (
    DOTNET_WRITERS,
    GUID,
    WRITERS,
    ClientInfo,
    DataType,
    DirectoryObject,
    FileObject,
    MountInfo,
    Permission,
    SnapshotInfo,
    guid,
    moment_text,
)
from wirelake.protocols.wolpertinger.layer2.xml_tree import NAMESPACE

__all__ = ["document"]

NAMES: Final = 1024
"""Names of components and methods whose XML is kept."""
_SPECIAL: Final = re.compile(r"[&<>\r]")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_NOT_XML: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_UNUSUAL: Final = re.compile(r"[&<>\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
"""Either of the two."""


_SPACE: Final = f' xmlns="{NAMESPACE}"'


def document(message: Message, *, dotnet: bool = False, space: str = _SPACE) -> str:
    """The text of a message, in one line but for what strings say; `dotnet` as in `values.written`.

    `space` is the attribute of its root; a message inside another has none.
    """
    if isinstance(message, Call):
        before, after = _around_call_id(message.component, message.method, space)
        inside = "".join([_object(value, dotnet) for value in message.parameters])
        return f"{before}{_guid(message.call_id)}{after}{inside}</Parameters></RemoteMethodCall>"
    if isinstance(message, Response):
        inside = "" if message.value is None else _object(message.value, dotnet)
        before = _before_call_id(message.component, space)
        return f"{before}{_guid(message.call_id)}</CallId><ResponseValue>{inside}</ResponseValue></RemoteMethodResponse>"
    if message.code not in _CODES:
        raise LocalProtocolError(Fault.ERROR_CODE_INVALID, f"{message.code} is none of the 17 codes")  # WOLP-15
    call_id = "" if message.call_id is None else _tag("CallId", _guid(message.call_id))
    code = _tag("ErrorCode", str(int(message.code)))
    return f"<RemoteError{space}>{_text('ComponentName', message.component)}{code}{call_id}</RemoteError>"


_CANONICAL: Final = re.compile(GUID.replace("A-F", ""))
_CODES: Final = frozenset(ErrorCode)
_STRING: Final = DataType.STRING


def _object(value: object, dotnet: bool) -> str:
    """WOLP-19: one typed value; null is none."""
    if (writer := (DOTNET_WRITERS if dotnet else WRITERS).get(type(value))) is not None:
        data_type, text = writer(value)
        return f'<object type="{data_type}">{_escaped(text) if data_type is _STRING else text}</object>'
    if isinstance(value, (list, tuple)):
        return f'<object type="list">{"".join([_object(item, dotnet) for item in value])}</object>'
    if isinstance(value, (Call, Response, Error)):
        name, element = str(value.__struct_config__.tag), document(value, dotnet=dotnet, space="")
    elif type(value) in _COMPLEX:
        name = type(value).__name__
        element = _tag(name, _COMPLEX[type(value)](value))
    else:
        raise LocalProtocolError(Fault.VALUE_UNSENDABLE, f"no data type holds {type(value).__name__}")
    return f'<object type="{name[0].lower()}{name[1:]}">{element}</object>'


def _client_info(value: ClientInfo) -> str:
    if not 0 <= value.trust_level <= 4 or value.protocol_version != 0:
        raise LocalProtocolError(Fault.VALUE_UNSENDABLE, "a trust level is 0 to 4, the version of the protocol 0")
    numbers = _tag("TrustLevel", str(int(value.trust_level))) + _tag("ProtocolVersion", "0")
    return _text("JId", value.jid) + numbers + _tag("Profiles", _texts("Profile", value.profiles))


def _entry(value: FileObject | DirectoryObject) -> str:
    times = _tag("Created", moment_text(value.created)) + _tag("LastEdited", moment_text(value.last_edited))
    return _text("Name", value.name) + _text("Path", value.path) + times


def _file(value: FileObject) -> str:
    return f'{_entry(value)}<Hash hashtype="sha1">{value.hash.hex()}</Hash>'


def _directory(value: DirectoryObject) -> str:
    files = "".join(_tag("FileObject", _file(file)) for file in value.files)
    directories = "".join(_tag("DirectoryObject", _directory(directory)) for directory in value.directories)
    return _entry(value) + _tag("Files", files) + _tag("Directories", directories)


def _permission(value: Permission) -> str:
    return _text("Path", value.path) + _tag("PermittedClients", _texts("Client", value.permitted_clients))


def _mount(value: MountInfo) -> str:
    return _text("MountPoint", value.mount_point) + _text("LocalPath", value.local_path)


def _snapshot(value: SnapshotInfo) -> str:
    return _tag("Id", str(value.id)) + _tag("Time", moment_text(value.time))


_COMPLEX: Final[dict[type, Callable[[Any], str]]] = {
    ClientInfo: _client_info,
    FileObject: _file,
    DirectoryObject: _directory,
    Permission: _permission,
    MountInfo: _mount,
    SnapshotInfo: _snapshot,
}


def _guid(text: str) -> str:
    if _CANONICAL.fullmatch(text):
        return text
    identifier = guid(text)
    if identifier is None:
        raise LocalProtocolError(Fault.CALL_ID_INVALID, repr(text))
    return identifier


@lru_cache(maxsize=NAMES)
def _before_call_id(component: str, space: str) -> str:
    """The beginning of a response: names of components and methods are few, and every message has some."""
    return f"<RemoteMethodResponse{space}>{_text('ComponentName', component)}<CallId>"


@lru_cache(maxsize=NAMES)
def _around_call_id(component: str, method: str, space: str) -> tuple[str, str]:
    """A call before and after its CallId, up to its parameters."""
    before = f"<RemoteMethodCall{space}>{_text('ComponentName', component)}<CallId>"
    return before, f"</CallId>{_text('MethodName', method)}<Parameters>"


def _texts(name: str, texts: Iterable[str]) -> str:
    return "".join(_text(name, text) for text in texts)


def _text(name: str, text: str) -> str:
    return _tag(name, _escaped(text))


def _tag(name: str, inside: str) -> str:
    return f"<{name}>{inside}</{name}>"


def _escaped(text: str) -> str:
    """WOLP-18: content verbatim; what XML 1.0 cannot carry is refused."""
    if _UNUSUAL.search(text) is None:
        return text
    if (unfit := _NOT_XML.search(text)) is not None:
        raise LocalProtocolError(Fault.VALUE_UNSENDABLE, f"XML has no character {unfit[0]!r}")
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)
