"""Bodies to bytes and back through a serializer, with the errors of both directions."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from wirelake.errors import LocalProtocolError
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.serializers.registry import Serializer

__all__ = ["BodyRejected", "attempt", "pack", "pack_text", "unpack"]

LARGE: Final = 64 * 1024
"""Bytes of a body from which it is parsed without the garbage collector.

The collector would look at all objects made so far again and again, and find nothing: a million empty lists take five times as long.
"""


class BodyRejected(Exception):
    """YAMP-44: bytes that the serializer refuses; the text says why."""


def pack(serializer: Serializer, body: Any) -> bytes:
    """The bytes of a body; raises LocalProtocolError for one the serializer refuses.

    YAMP-31: None is sent as the serializer writes it (`null`, `c0`); by a serializer that cannot, as no body.
    """
    try:
        data = serializer.serialize(body)
    except Exception as reason:
        if body is None:
            return b""
        raise LocalProtocolError(Fault.BODY_UNSERIALIZABLE, str(reason) or repr(reason)) from reason
    if not isinstance(data, bytes):
        raise LocalProtocolError(Fault.BODY_UNSERIALIZABLE, f"it made {type(data).__name__}, not bytes")
    return data


def pack_text(serializer: Serializer, text: str) -> bytes:
    """YAMP-40: an error of ours as the body of a response.

    It is a string, or a mapping where only those are bodies, or else nothing.
    """
    for body in (text, {"error": text}):
        try:
            return pack(serializer, body)
        except LocalProtocolError:
            continue
    return b""


def attempt(serializer: Serializer, data: bytes) -> Any:
    """The body of bytes, or the BodyRejected that `unpack` raises."""
    try:
        return unpack(serializer, data)
    except BodyRejected as rejected:
        return rejected


def unpack(serializer: Serializer, data: bytes) -> Any:
    """The body of bytes, None if there are none (YAMP-31); raises BodyRejected."""
    if not data:
        return None
    try:
        if len(data) < LARGE:
            return serializer.parse(data)
        with _without_collector():
            return serializer.parse(data)
    except Exception as reason:
        raise BodyRejected(str(reason) or repr(reason)) from None


@contextmanager
def _without_collector() -> Iterator[None]:
    """Hold the garbage collector off: parsing makes many objects, and none of them refers to itself."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
