"""Serializers of the extra `wirelake[formats]`: BSON, CBOR, XML and protobuf.

The library of each is loaded when its serializer is made.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from xml.parsers import expat

from wirelake.errors import MissingExtra
from wirelake.extras import library
from wirelake.protocols.yamp.serializers.bounds import DEFAULT_BOUNDS, Bounds, TooMuch, check
from wirelake.protocols.yamp.serializers.registry import STANDARD, Json, Msgpack, Registry, Serializer
from wirelake.protocols.yamp.serializers.structure import walk_bson, walk_cbor

__all__ = ["Bson", "Cbor", "Protobuf", "Xml", "installed", "named"]


class Bson:
    """BSON through pymongo's `bson`: a body is a document, that is a mapping with strings for keys."""

    def __init__(self, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        bson = library("bson")
        self.serialize = bson.encode
        self._parse = bson.decode
        self._bounds = bounds

    def parse(self, data: bytes, /) -> Any:
        """The document; raises TooMuch if it goes beyond the bounds."""
        check(walk_bson, data, self._bounds)
        return self._parse(data)


class Cbor:
    """CBOR (RFC 8949) through `cbor2`: one item, nothing after it.

    Keys of maps and members of sets are text, bytes, booleans or integers of 64 bits; others are refused. So are duplicate keys, and tags
    that make much of little: references to other items, regular expressions, MIME messages.
    """

    def __init__(self, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self._library = library("cbor2")
        self.serialize = self._library.dumps
        self._bounds = bounds
        self._tags: dict[int, Callable[[Any, bool], Any]] = dict.fromkeys(_REFUSED_TAGS, _refuse)
        self._tags |= {2: self._positive, 3: lambda value, _: -1 - self._positive(value)}

    def _positive(self, value: Any, _: bool = False) -> int:
        """RFC 8949, 3.4.3: bytes as a number."""
        if not isinstance(value, bytes):
            raise TypeError("a bignum is bytes")
        if len(value) * _DIGITS_OF_A_BYTE > self._bounds.max_digits:
            raise TooMuch(f"a number of {len(value)} bytes: over {self._bounds.max_digits} digits (max_digits)")
        return int.from_bytes(value)

    def parse(self, data: bytes, /) -> Any:
        """The item; raises TooMuch if it goes beyond the bounds."""
        _, end = check(walk_cbor, data, self._bounds)
        if end < len(data):
            raise ValueError(f"{len(data) - end} bytes after the item")
        return self._library.loads(data, allow_duplicate_keys=False, max_depth=self._bounds.max_depth, semantic_decoders=self._tags)


_REFUSED_TAGS: Final = (25, 28, 29, 35, 36, 256)
"""References to strings and values, regular expressions, MIME messages, string namespaces.

References may repeat an item any number of times.
"""
_DIGITS_OF_A_BYTE: Final = 2.41
"""Decimal digits that a byte is worth."""


def _refuse(*_: Any) -> Any:
    raise TooMuch("a tag that is not read: a reference, a regular expression or a MIME message")


_ATTRIBUTES: Final = rb"""<[^<>!?/](?:[^<>"']*+(?:"[^"<]*+"|'[^'<]*+')){%d}"""
"""A tag of XML with so many attributes: it has no other quotes, and `<` is never inside."""


class Xml:
    """XML through `xmltodict`: a body is a mapping with one key, the root element.

    Attributes are keys with `@`. With a `schema` (XML Schema, its text), documents that do not fit it are refused, both ways; that needs
    `lxml`. Entities are refused.
    """

    def __init__(self, schema: str | bytes | None = None, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self._library = library("xmltodict")
        self._bounds = bounds
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
        """The mapping; raises TooMuch if it goes beyond the bounds."""
        self._measure(data)
        self._check(data)
        return self._library.parse(data, disable_entities=True)

    def _measure(self, data: bytes) -> None:
        """Read the elements without keeping any; other faults are left to the reader that does."""
        tags = data.count(b"<")
        if tags <= min(self._bounds.max_depth, self._bounds.max_elements) - data.count(b"="):
            return
        if tags > 4 * self._bounds.max_elements:
            raise TooMuch(f"{tags} tags and comments: over four times max_elements")
        if re.search(_ATTRIBUTES % (self._bounds.max_attributes + 1), data):
            raise TooMuch(f"an element has over {self._bounds.max_attributes} attributes (max_attributes)")
        count = depth = 0

        def started(_: str, attributes: list[str]) -> None:
            nonlocal count, depth
            count, depth = count + 1 + len(attributes) // 2, depth + 1
            if count > self._bounds.max_elements or depth > self._bounds.max_depth:
                raise TooMuch(f"{count} elements and attributes, {depth} inside each other: over max_elements or max_depth")

        def ended(*_: Any) -> None:
            nonlocal depth
            depth -= 1

        def entity(*_: Any) -> None:
            raise TooMuch("entities are refused")

        parser = expat.ParserCreate()
        parser.ordered_attributes = True
        parser.EntityDeclHandler = entity
        parser.StartElementHandler, parser.EndElementHandler = started, ended
        with contextlib.suppress(expat.ExpatError):
            parser.Parse(data, True)

    def _check(self, data: bytes) -> None:
        if self._etree is not None:
            self._schema.assertValid(self._etree.fromstring(data, self._parser()))

    def _parser(self) -> Any:
        return self._etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)


class Protobuf:
    """Protocol buffers: bodies are messages of one type (a generated class), or any JSON-like value.

    A message with nothing but defaults takes no bytes, and no bytes are no body (YAMP-31): it arrives as None. The library refuses what is
    nested deeper than 100; what a body costs beyond that grows with its bytes, which `max_body_size` limits.
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


_EXTRAS: Final[dict[str, Callable[[Bounds], Serializer]]] = {"bson": Bson, "cbor": Cbor, "xml": lambda bounds: Xml(bounds=bounds)}
"""Types that can be read without a schema."""


@cache
def installed(bounds: Bounds = DEFAULT_BOUNDS) -> Registry:
    """The standard serializers, and every other whose library is there and that needs no type."""
    registry = Registry({"json": Json(bounds=bounds), "msgpack": Msgpack(bounds=bounds)})
    for name, make in _EXTRAS.items():
        try:
            registry = registry.adding(name, make(bounds))
        except MissingExtra:
            continue
    return registry


def named(name: str) -> Serializer | None:
    """A serializer by its name, None if there is none of this name.

    Raises MissingExtra if its library is not installed.
    """
    if name in STANDARD:
        return STANDARD[name]
    return _EXTRAS[name](DEFAULT_BOUNDS) if name in _EXTRAS else None
