"""WOLP-17: parse the bytes of a document into a tree of elements, safely.

A DOCTYPE ends the parsing before any of it takes effect, so there are no entities but the five of XML; nothing is ever fetched. The parser
is Expat, one for each document: no name of a hostile document is kept (lxml keeps all names it ever saw).
"""

from __future__ import annotations

from typing import Final
from xml.parsers import expat

import msgspec

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.wolpertinger.faults import Fault

__all__ = ["NAMESPACE", "DocumentLimits", "Element", "read"]

NAMESPACE: Final = "http://nerdcave.eu/wolpertinger"
"""WOLP-13: of every element of the protocol."""
_BETWEEN: Final = " "
"""Stands between namespace and name; a name has none."""


class DocumentLimits(msgspec.Struct, frozen=True):
    """WOLP-17: limits of a document."""

    max_size: int = 1 << 20
    """Bytes of a document."""
    max_depth: int = 64
    """Elements inside each other, the root counted."""
    max_elements: int = 1 << 16
    """Elements of a document."""


class Element:
    """One element: namespace ("" is none), name, attributes, own text, and children."""

    __slots__ = ("attributes", "children", "name", "namespace", "text")

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.namespace, _, self.name = tag.rpartition(_BETWEEN)
        self.attributes = attributes
        self.text = ""
        self.children: list[Element] = []


def read(data: bytes, limits: DocumentLimits) -> Element:
    """The root of a document; raises RemoteProtocolError if it is none, or too much."""
    if len(data) > limits.max_size:
        raise RemoteProtocolError(Fault.DOCUMENT_OVER_LIMIT, f"{len(data)} bytes")
    if b"\0" in data:  # Expat takes zeros for UTF-16, in spite of its encoding
        raise RemoteProtocolError(Fault.XML_INVALID, f"a zero at byte {data.index(0)}")
    builder = _Builder(limits)
    parser = expat.ParserCreate("utf-8", _BETWEEN)
    parser.buffer_text = True
    parser.XmlDeclHandler = builder.declared
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.StartElementHandler = builder.started
    parser.EndElementHandler = builder.ended
    parser.CharacterDataHandler = builder.told
    try:
        parser.Parse(data, True)
    except expat.ExpatError as reason:
        raise RemoteProtocolError(Fault.XML_INVALID, str(reason)) from None
    return builder.root


class _Builder:
    """What Expat calls while it reads."""

    __slots__ = ("_limits", "_open", "_texts", "count", "root")

    root: Element

    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self.count = 0

    def declared(self, version: str, encoding: str | None, _standalone: int) -> None:
        """Check the XML declaration."""
        if version != "1.0":
            raise RemoteProtocolError(Fault.XML_INVALID, f"XML {version}")
        if encoding is not None and encoding.lower() != "utf-8":
            raise RemoteProtocolError(Fault.DOCUMENT_NOT_UTF8, f"it says {encoding}")

    def doctype(self, name: str, _system: str | None, _public: str | None, _is_internal: int) -> None:
        """A DOCTYPE begins: stop."""
        raise RemoteProtocolError(Fault.DOCTYPE_REFUSED, name[:40])

    def started(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        element = Element(tag, attributes)
        self.count += 1
        if len(self._open) >= self._limits.max_depth or self.count > self._limits.max_elements:
            raise RemoteProtocolError(Fault.DOCUMENT_OVER_LIMIT, f"{self.count} elements, {len(self._open) + 1} inside each other")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._texts.append([])

    def told(self, text: str) -> None:
        """Text of the innermost element."""
        self._texts[-1].append(text)

    def ended(self, _tag: str) -> None:
        """The innermost element ends."""
        self._open.pop().text = "".join(self._texts.pop())
