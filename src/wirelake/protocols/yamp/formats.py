"""More serializers, each through a library that is an extra (`pip install wirelake[formats]`): BSON, CBOR, XML and protobuf.

They are made when they are wanted, and the library is loaded then. It refuses to know how any of the formats is written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from wirelake.errors import MissingExtra
from wirelake.extras import library
from wirelake.protocols.yamp.serializers import STANDARD, Registry, Serializer

__all__ = ["Bson", "Cbor", "Protobuf", "Xml", "installed", "named"]


class Bson:
    """BSON through pymongo's `bson`: a body is a document, that is a mapping with strings for keys."""

    def __init__(self) -> None:
        bson = library("bson")
        self.serialize = bson.encode
        self.parse = bson.decode


class Cbor:
    """CBOR (RFC 8949) through `cbor2`: one item, nothing after it; duplicate keys are refused."""

    def __init__(self) -> None:
        self._library = library("cbor2")
        self.serialize = self._library.dumps

    def parse(self, data: bytes, /) -> Any:
        """The item."""
        source = _Source(data)
        item = self._library.CBORDecoder(source, allow_duplicate_keys=False).decode()
        if source.at != len(data):
            raise ValueError(f"{len(data) - source.at} bytes after the item")
        return item


class _Source:
    """Bytes that are read from the front, so that one can see where the item ended."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def read(self, size: int) -> bytes:
        piece = self._data[self.at : self.at + size]
        self.at += len(piece)
        return piece

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class Xml:
    """XML through `xmltodict`: a body is a mapping with one key, the root element; attributes are keys with `@`.

    With a `schema` (XML Schema, its text), documents that do not fit it are refused, both ways; that needs `lxml`. Entities are refused.
    """

    def __init__(self, schema: str | bytes | None = None) -> None:
        self._library = library("xmltodict")
        self._etree: Any = None
        if schema is not None:
            self._etree = library("lxml.etree")
            text = schema.encode() if isinstance(schema, str) else schema
            self._schema = self._etree.XMLSchema(self._etree.fromstring(text, self._parser()))

    def serialize(self, body: Any, /) -> bytes:
        """The document."""
        data: bytes = self._library.unparse(body).encode()
        self._check(data)
        return data

    def parse(self, data: bytes, /) -> Any:
        """The mapping."""
        self._check(data)
        return self._library.parse(data, disable_entities=True)

    def _check(self, data: bytes) -> None:
        if self._etree is not None:
            self._schema.assertValid(self._etree.fromstring(data, self._parser()))

    def _parser(self) -> Any:
        return self._etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)


class Protobuf:
    """Protocol buffers: bodies are messages of one type, if it is given (a generated class), or without one any JSON-like value.

    A message with nothing but defaults takes no bytes, and no bytes are no body (YAMP-31): it arrives as None.
    """

    def __init__(self, of: Any = None) -> None:
        library("google.protobuf")
        self._type = of
        self._format = library("google.protobuf.json_format")
        self._value = library("google.protobuf.struct_pb2").Value

    def serialize(self, body: Any, /) -> bytes:
        """The bytes of a message, or of a value."""
        if self._type is not None and not isinstance(body, self._type):
            raise TypeError(f"a {self._type.__name__} is needed, not {body!r}")
        message = self._format.ParseDict(body, self._value()) if self._type is None else body
        data: bytes = message.SerializeToString()
        return data

    def parse(self, data: bytes, /) -> Any:
        """The message, or the value."""
        if self._type is not None:
            return self._type.FromString(data)
        return self._format.MessageToDict(self._value.FromString(data))


_EXTRAS: Final[dict[str, Callable[[], Serializer]]] = {"bson": Bson, "cbor": Cbor, "xml": Xml}
"""What needs no type to be read."""


@cache
def installed() -> Registry:
    """The standard serializers, and every other whose library is there and that needs no type."""
    registry = STANDARD
    for name, make in _EXTRAS.items():
        try:
            registry = registry.adding(name, make())
        except MissingExtra:
            continue
    return registry


def named(name: str) -> Serializer | None:
    """A serializer by its name, None if there is none of this name; raises MissingExtra if its library is not installed."""
    if name in STANDARD:
        return STANDARD[name]
    return _EXTRAS[name]() if name in _EXTRAS else None
