"""Layer 2 on the wire: documents <-> messages.

A rejected document is a value, too: it says why, and whether it may be answered.

Most documents have one shape, without comments, entities and complex values; `_short` reads those with one expression. A
parser reads the rest, and it alone rejects documents; tests hold both to the same messages.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from wirelake.errors import LocalProtocolError, RemoteProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, ErrorCode, Message, Response
from wirelake.protocols.wolpertinger.layer2.values import GUID, PRIMITIVES, Value, guid
from wirelake.protocols.wolpertinger.layer2.xml_reader import ROOTS, message
from wirelake.protocols.wolpertinger.layer2.xml_tree import NAMESPACE, DocumentLimits, Element, read
from wirelake.protocols.wolpertinger.layer2.xml_writer import document

__all__ = ["DocumentLimits", "Rejected", "decode", "encode"]


class Rejected(msgspec.Struct, frozen=True, tag="Rejected"):
    """WOLP-16: a document that is no message.

    It has the first rule it breaks, and the fields that could still be read.
    """

    fault: Fault
    detail: str
    root: str | None
    """The name of its root, if it is one of the three."""
    component: str = ""
    call_id: str | None = None

    @property
    def answer(self) -> Error | None:
        """WOLP-16: the error to send back; None: this must not be answered."""
        if self.root == "RemoteError":
            return None
        if self.root == "RemoteMethodResponse":
            return Error(self.component, ErrorCode.INVALID_XML)
        code = self.fault.rule.error_code
        return None if code is None else Error(self.component, code, self.call_id)


def encode(message: Message, *, dotnet: bool = False) -> bytes:
    """The bytes of a message; raises LocalProtocolError if it cannot be sent.

    `dotnet` as in `values.written`.
    """
    try:
        return document(message, dotnet=dotnet).encode()
    except RecursionError:
        raise LocalProtocolError(Fault.VALUE_UNSENDABLE, "values inside each other without end") from None


def decode(data: bytes, limits: DocumentLimits = DocumentLimits()) -> Message | Rejected:  # noqa: B008 a frozen value
    """Read a document: its message, or why it is rejected; never raises."""
    root = None
    try:
        if len(data) <= limits.max_size and (short := _short(data.decode(), limits)) is not None:
            return short
        root = read(data, limits)
        _check_root(root)
        return message(root)
    except RemoteProtocolError as reason:
        return _rejected(reason, data, root)
    except UnicodeDecodeError as reason:
        return _rejected(RemoteProtocolError(Fault.DOCUMENT_NOT_UTF8, f"at byte {reason.start}"), data, root)
    except RecursionError:  # only where `max_depth` allows more than Python does
        return _rejected(RemoteProtocolError(Fault.DOCUMENT_OVER_LIMIT, "deeper than can be read here"), data, root)


def _check_root(root: Element) -> None:
    """WOLP-13: our namespace or none, then one of three names."""
    if root.namespace not in ("", NAMESPACE):
        raise RemoteProtocolError(Fault.NAMESPACE_WRONG, root.namespace[:80])
    if root.name not in ROOTS:
        raise RemoteProtocolError(Fault.ROOT_UNKNOWN, root.name[:80])


_BLANK: Final = r"[ \t\r\n]*+"
_CHARACTERS: Final = r"[^<&>\x00-\x08\x0b-\x1f\ufffe\uffff]*+"
_CONTENT: Final = rf"{_CHARACTERS}(?:&(?:amp|lt|gt|quot|apos);{_CHARACTERS})*+"
_PLAIN: Final = r'<object type="[A-Za-z0-9]++">' + _CONTENT + "</object>"
_OBJECT: Final = re.compile(rf'<object type="([A-Za-z0-9]++)">({_CONTENT})</object>')
_START: Final = rf'(?:<\?xml version="1\.0"(?: encoding="(?:utf-8|UTF-8)")?\?>)?{_BLANK}'
_SPACE: Final = rf'(?: xmlns="{re.escape(NAMESPACE)}")?>{_BLANK}'
_COMPONENT: Final = rf"<ComponentName(?:>({_CHARACTERS})</ComponentName| ?/)>{_BLANK}"
_CALL_ID: Final = rf"<CallId>({GUID})</CallId>{_BLANK}"
_SHORT: Final = re.compile(
    rf"{_START}<(RemoteMethodCall|RemoteMethodResponse){_SPACE}{_COMPONENT}{_CALL_ID}"
    rf"(?:<MethodName>({_CHARACTERS})</MethodName>{_BLANK})?"
    rf"<(Parameters|ResponseValue)(?: ?/|>((?:{_BLANK}{_PLAIN})*+){_BLANK}</\5)>{_BLANK}</\1>{_BLANK}"
)
_SHORT_ERROR: Final = re.compile(
    rf"{_START}<RemoteError{_SPACE}{_COMPONENT}<ErrorCode>([0-9]{{1,9}})</ErrorCode>{_BLANK}(?:{_CALL_ID})?</RemoteError>{_BLANK}"
)
_ENTITY: Final = re.compile("&(amp|lt|gt|quot|apos);")
_ENTITIES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ENVELOPE: Final = 5
"""Elements of a call without parameters."""
_DEPTH: Final = 3


def _short(text: str, limits: DocumentLimits) -> Message | None:
    """The message of a document in the common shape; None: the parser has to read it."""
    if limits.max_depth < _DEPTH:
        return None
    found = _SHORT.fullmatch(text)
    if found is None:
        return _short_error(text, limits)
    root, component, call_id, method, holder, inside = found.groups()
    identifier = call_id.lower()
    pairs = _OBJECT.findall(inside) if inside else ()
    if len(pairs) + _ENVELOPE > limits.max_elements:
        return None
    if root == "RemoteMethodResponse" and holder == "ResponseValue" and method is None and len(pairs) > 1:
        raise RemoteProtocolError(Fault.STRUCTURE_WRONG, "more than one value")  # as the parser says, without reading them
    try:
        values: list[Value] = [
            PRIMITIVES[data_type](content if "&" not in content else _ENTITY.sub(_replaced, content)) for data_type, content in pairs
        ]
    except (KeyError, RemoteProtocolError):
        return None
    if root == "RemoteMethodCall":
        return Call(component or "", method, identifier, tuple(values)) if method is not None and holder == "Parameters" else None
    if method is not None or holder != "ResponseValue":
        return None
    return Response(component or "", identifier, values[0] if values else None)


def _short_error(text: str, limits: DocumentLimits) -> Error | None:
    found = _SHORT_ERROR.fullmatch(text)
    if found is None or limits.max_elements < _ENVELOPE:
        return None
    component, code, call_id = found.groups()
    return Error(component or "", int(code), call_id.lower() if call_id else None)


def _replaced(found: re.Match[str]) -> str:
    return _ENTITIES[found[1]]


_ROOT: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]*+:)?(RemoteMethodCall|RemoteMethodResponse|RemoteError)(?:[\s/>]|\Z)")
_NAME: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]*+:)?ComponentName>([^<&]{0,256})</")
_ID: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]*+:)?CallId>([0-9A-Fa-f-]{36})</")
_LOOKED_AT: Final = 4096
"""Bytes of a document that is no XML in which its parts are looked for."""


def _rejected(reason: RemoteProtocolError, data: bytes, root: Element | None) -> Rejected:
    """WOLP-16: with CallId and ComponentName if they can be extracted."""
    fault = reason.fault
    assert isinstance(fault, Fault)  # noqa: S101 - no function below raises another
    if root is None:
        start = data[:_LOOKED_AT]
        name, component, call_id = (
            found[1].decode(errors="replace") if (found := part.search(start)) else "" for part in (_ROOT, _NAME, _ID)
        )
        return Rejected(fault, reason.detail, name or None, component, guid(call_id))
    texts: dict[str, str] = {}
    for child in root.children:
        if child.namespace == root.namespace and not child.children:
            texts.setdefault(child.name, child.text)
    known = root.name if root.name in ROOTS else None
    return Rejected(fault, reason.detail, known, texts.get("ComponentName", "")[:256], guid(texts.get("CallId", "")))
