"""Serializers: bodies to bytes and back, and the names by which two peers agree on one.

A serializer is anything with the two functions of the specification. JSON and msgpack are here; others are in `formats.py`; an
application's own takes five lines:

```
class Upper:
    def serialize(self, body):
        return body.upper().encode()
    def parse(self, data):
        return data.decode().lower()

options = Options(serializer="upper", serializers=STANDARD.adding("upper", Upper()))
```

A body is any value that the application hands over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.yamp.serializers.bounds import DEFAULT_BOUNDS, Bounds, check, check_json
from wirelake.protocols.yamp.serializers.structure import walk_msgpack

__all__ = ["OPAQUE", "STANDARD", "Bounds", "Json", "Msgpack", "Opaque", "Registry", "Serializer"]

LONGEST_NAME: Final = 255
"""YAMP-6: bytes in the name of a serializer."""


class Serializer(Protocol):
    """Serializator adapters: the two functions. Either may raise anything for a body or bytes it refuses."""

    def serialize(self, body: Any, /) -> bytes:
        """The bytes of a body."""

    def parse(self, data: bytes, /) -> Any:
        """The body of bytes."""


class Json:
    """JSON; with a type, bodies that do not fit it are refused.

    Types are msgspec's: builtins, structs, dataclasses, …
    """

    def __init__(self, of: Any = Any, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.serialize = msgspec.json.Encoder().encode
        self._parse = msgspec.json.Decoder(of).decode
        self._bounds = bounds

    def parse(self, data: bytes, /) -> Any:
        """The value; raises TooMuch if it goes beyond the bounds."""
        check_json(data, self._bounds)
        return self._parse(data)


class Msgpack:
    """MessagePack; given a type, bodies that do not fit it are refused.

    Keys of maps are text, bytes, booleans or integers; others are refused.
    """

    def __init__(self, of: Any = Any, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.serialize = msgspec.msgpack.Encoder().encode
        self._parse = msgspec.msgpack.Decoder(of).decode
        self._bounds = bounds

    def parse(self, data: bytes, /) -> Any:
        """The value; raises TooMuch if it goes beyond the bounds."""
        check(walk_msgpack, data, self._bounds)
        return self._parse(data)


class Opaque:
    """Bytes as they are, for applications that pass bodies on unread."""

    def serialize(self, body: bytes, /) -> bytes:
        """The same bytes."""
        return bytes(body)

    def parse(self, data: bytes, /) -> bytes:
        """The same bytes."""
        return data


OPAQUE: Final = Opaque()


class Registry(Mapping[str, Serializer]):
    """Names -> serializers, in order of preference; never changed, only added to.

    Names are exact (YAMP-6).
    """

    def __init__(self, serializers: Mapping[str, Serializer]) -> None:
        for name in serializers:
            if not 0 < len(name.encode()) <= LONGEST_NAME:  # YAMP-5: never send an empty name
                raise UsageError(f"{name!r} cannot name a serializer: it takes 1 to {LONGEST_NAME} bytes")
        self._serializers = dict(serializers)

    def adding(self, name: str, serializer: Serializer) -> Registry:
        """This registry and one more, or another one of that name."""
        return Registry({**self._serializers, name: serializer})

    def __getitem__(self, name: str) -> Serializer:
        return self._serializers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._serializers)

    def __len__(self) -> int:
        return len(self._serializers)


STANDARD: Final = Registry({"json": Json(), "msgpack": Msgpack()})
"""YAMP-6: the two that every peer should know."""
