"""Exported PDUs (pcapng link type 252): tags before a payload, with addresses and ports.

A record is a list of tags, an end tag, and the payload. A tag has two bytes of type and two of length, big-endian. Values are padded to
four bytes, and the length counts the padding, as Wireshark writes them.

Our recordings add an info text of `key=value` words: `connection`, `observer` (the name of the recorder), `role`, `dialect` where a peer
departs from its specification, and `event` on records without payload. Values are percent-encoded, so that a space does not end one.

Live peers record with this module, so it does not import numpy.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, unquote

import msgspec

__all__ = ["LINK_EXPORTED", "RECEIVED", "SENT", "Tags", "build", "info_text", "info_words", "is_address", "parse", "recorded_session_id"]

LINK_EXPORTED: Final = 252

TAG_END: Final = 0
TAG_DISSECTOR: Final = 12
TAG_IPV4_SOURCE: Final = 20
TAG_IPV4_DESTINATION: Final = 21
TAG_IPV6_SOURCE: Final = 22
TAG_IPV6_DESTINATION: Final = 23
TAG_PORT_TYPE: Final = 24
TAG_SOURCE_PORT: Final = 25
TAG_DESTINATION_PORT: Final = 26
TAG_PROTOCOL_COLUMN: Final = 33
TAG_DIRECTION: Final = 35
TAG_INFO_COLUMN: Final = 36

SENT: Final = 0
RECEIVED: Final = 1

_NUMBER: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">HH")


class Tags(msgspec.Struct, frozen=True):
    """The tags of one record; an absent tag is empty, or None for a number."""

    dissector: str = ""
    source: str = ""
    destination: str = ""
    port_type: int | None = None
    """2 is TCP, 3 is UDP, as Wireshark numbers them."""
    source_port: int | None = None
    destination_port: int | None = None
    protocol_column: str = ""
    direction: int | None = None
    """`SENT` or `RECEIVED` by the recording side."""
    info: str = ""


def _tag(tag: int, value: bytes) -> bytes:
    padded = value + bytes(-len(value) % 4)
    return _HEAD.pack(tag, len(padded)) + padded


def is_address(text: str) -> bool:
    """Whether a text is an IP address, which has a tag of its own."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def recorded_session_id(connection: str) -> bytes:
    """Return the session id of a recorded connection, from its id in the info text.

    It is the same in every file of a recording.
    """
    try:
        name = bytes.fromhex(connection)
    except ValueError:
        name = connection.encode("utf-8", "replace")
    return blake2b(name, digest_size=16).digest()


def _address(text: str, tag4: int, tag6: int) -> bytes:
    """Return an address tag; empty for a name that is no IP address."""
    if not is_address(text):
        return b""
    address = ipaddress.ip_address(text)
    return _tag(tag4 if address.version == 4 else tag6, address.packed)


def build(tags: Tags) -> bytes:
    """Encode tags, end tag included. A source or destination that is no IP address is left out."""
    parts = []
    if tags.dissector:
        parts.append(_tag(TAG_DISSECTOR, tags.dissector.encode()))
    parts.append(_address(tags.source, TAG_IPV4_SOURCE, TAG_IPV6_SOURCE))
    parts.append(_address(tags.destination, TAG_IPV4_DESTINATION, TAG_IPV6_DESTINATION))
    numbers = (
        (TAG_PORT_TYPE, tags.port_type),
        (TAG_SOURCE_PORT, tags.source_port),
        (TAG_DESTINATION_PORT, tags.destination_port),
    )
    parts.extend(_tag(tag, _NUMBER.pack(number)) for tag, number in numbers if number is not None)
    if tags.protocol_column:
        parts.append(_tag(TAG_PROTOCOL_COLUMN, tags.protocol_column.encode()))
    if tags.direction is not None:
        parts.append(_tag(TAG_DIRECTION, _NUMBER.pack(tags.direction)))
    if tags.info:
        parts.append(_tag(TAG_INFO_COLUMN, tags.info.encode()))
    parts.append(_tag(TAG_END, b""))
    return b"".join(parts)


def parse(header: bytes) -> Tags | None:
    """Parse the tags at the start of `header`, up to the end tag; None if they do not end inside it.

    Unknown tags are skipped. A known tag with an impossible value (an IPv4 address of five bytes) counts as unknown.
    """
    values: dict[int, bytes] = {}
    at = 0
    while True:
        if len(header) - at < _HEAD.size:
            return None
        tag, size = _HEAD.unpack_from(header, at)
        at += _HEAD.size
        if len(header) - at < size:
            return None
        if tag == TAG_END:
            break
        values[tag] = header[at : at + size]
        at += size

    def text(tag: int) -> str:
        return values.get(tag, b"").rstrip(b"\0").decode("utf-8", "replace")

    def number(tag: int) -> int | None:
        value = values.get(tag, b"")
        return int.from_bytes(value, "big") if len(value) == _NUMBER.size else None

    def address(tag4: int, tag6: int) -> str:
        for tag, size in ((tag4, 4), (tag6, 16)):
            value = values.get(tag, b"")
            if len(value) == size:
                return str(ipaddress.ip_address(value))
        return ""

    return Tags(
        dissector=text(TAG_DISSECTOR),
        source=address(TAG_IPV4_SOURCE, TAG_IPV6_SOURCE),
        destination=address(TAG_IPV4_DESTINATION, TAG_IPV6_DESTINATION),
        port_type=number(TAG_PORT_TYPE),
        source_port=number(TAG_SOURCE_PORT),
        destination_port=number(TAG_DESTINATION_PORT),
        protocol_column=text(TAG_PROTOCOL_COLUMN),
        direction=number(TAG_DIRECTION),
        info=text(TAG_INFO_COLUMN),
    )


def info_text(words: Mapping[str, str]) -> str:
    """`key=value` words for the info tag; empty values are left out."""
    return " ".join(f"{key}={quote(value, safe=':.,;/@+[]()')}" for key, value in words.items() if value)


def info_words(text: str) -> dict[str, str]:
    """Parse the `key=value` words of an info text; other words are skipped."""
    pairs = (word.partition("=") for word in text.split(" "))
    return {key: unquote(value) for key, sign, value in pairs if sign and key}
