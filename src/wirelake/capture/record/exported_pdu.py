"""Exported PDUs (link type 252): the tags in front of a payload that say who said it to whom.

A record is a list of tags (two bytes of tag, two of length, big-endian, values padded to four bytes and the padding counted in the length,
as Wireshark writes them), an end tag, and the payload. Our recordings add an info text of `key=value` words: `connection`, `role`,
`dialect` where a peer departs from the text, and on records without payload `event`. Values are percent-encoded, so that a space in one
cannot end it.

It refuses to know files, clocks, and which protocols exist. It needs no array library: live peers record with it.
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
    """What the tags of one record say; what a record does not say is empty, or None for a number."""

    dissector: str = ""
    source: str = ""
    destination: str = ""
    port_type: int | None = None
    """2 is TCP, 3 is UDP, as Wireshark numbers them."""
    source_port: int | None = None
    destination_port: int | None = None
    protocol_column: str = ""
    direction: int | None = None
    """`SENT` or `RECEIVED` by whoever recorded."""
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
    """The session id of a recorded connection, from its id as the info text has it: the same in every file of a recording."""
    try:
        name = bytes.fromhex(connection)
    except ValueError:
        name = connection.encode("utf-8", "replace")
    return blake2b(name, digest_size=16).digest()


def _address(text: str, tag4: int, tag6: int) -> bytes:
    """An address tag; nothing for a name that is no IP address."""
    if not is_address(text):
        return b""
    address = ipaddress.ip_address(text)
    return _tag(tag4 if address.version == 4 else tag6, address.packed)


def build(tags: Tags) -> bytes:
    """Tags as they stand in front of a payload, end tag included. A source or destination that is no IP address is left out."""
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
    """What the tags at the start of `header` say, up to the end tag; None when they do not end inside it.

    Unknown tags are passed over, and a known one whose value cannot be what it should be (an IPv4 address of five bytes) counts as unknown.
    """
    found: dict[int, bytes] = {}
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
        found[tag] = header[at : at + size]
        at += size

    def text(tag: int) -> str:
        return found.get(tag, b"").rstrip(b"\0").decode("utf-8", "replace")

    def number(tag: int) -> int | None:
        value = found.get(tag, b"")
        return int.from_bytes(value, "big") if len(value) == _NUMBER.size else None

    def address(tag4: int, tag6: int) -> str:
        for tag, size in ((tag4, 4), (tag6, 16)):
            value = found.get(tag, b"")
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
    """The `key=value` words of an info text; other words are passed over."""
    pairs = (word.partition("=") for word in text.split(" "))
    return {key: unquote(value) for key, sign, value in pairs if sign and key}
